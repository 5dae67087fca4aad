import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import type { CallOptions, Exchanger } from '../transport/exchange.ts';
import { inTime } from '../transport/in-time.ts';
import { CatalogCommands, type SessionOpening } from './catalog-commands.ts';
import { CatalogSubject } from './catalog-subject.ts';
import { CommandsLost } from './unflushed-commands.ts';

export interface HomeCatalogParts {
  readonly exchanger: Exchanger;
  /** Asks a server which catalog has the volume. */
  catalogOf(volume: string): Promise<CatalogNumber>;
}

/** The volume of a client, and the catalog that has it. */
export interface Home {
  readonly catalog: CatalogNumber;
  /** Absent: the client does not follow the volume to another catalog. */
  readonly volume?: string;
}

/**
 * The catalog that a client's requests are for. When its volume has left the root catalog for one of its own, later
 * requests are for that one, in sessions and after positions of their own. Commands that the root catalog has answered
 * stay commands of the root catalog: a flush asks it about them, as it alone knows whether a loss of power took them.
 */
export class HomeCatalog {
  readonly #parts: HomeCatalogParts;
  readonly #moved: (() => void)[] = [];
  #volume: string | null;
  #commands: CatalogCommands;
  /** Of the root catalog, which the volume has left. */
  #former: CatalogCommands | null = null;
  #search: Promise<void> | null = null;
  #opening: SessionOpening | null = null;
  /** A flush found that commands are lost and then failed: the next one that succeeds throws `CommandsLost`. */
  #isLossUnreported = false;

  /** @param home null: a client of no volume */
  constructor(parts: HomeCatalogParts, home: Home | null) {
    this.#parts = parts;
    this.#volume = home?.volume ?? null;
    this.#commands = this.#commandsOf(home?.catalog ?? null);
  }

  get subject(): CatalogSubject {
    return this.#commands.catalog;
  }

  /** Whether a power failure of all servers may lose commands answered here, or has and was not yet reported. */
  get hasUnflushed(): boolean {
    return this.#isLossUnreported || this.#former?.hasUnflushed === true || this.#commands.hasUnflushed;
  }

  /** Calls `moved` when later requests are for another catalog than those before. */
  onMoved(moved: () => void): void {
    this.#moved.push(moved);
  }

  /** @see CatalogCommands.openSessionsWith */
  openSessionsWith(opening: SessionOpening | null): void {
    this.#opening = opening;
    this.#commands.openSessionsWith(opening);
  }

  /** Later requests are for this volume. A flush covers the commands of one catalog, so there are none in another. */
  use(volume: string, catalog: CatalogNumber): void {
    const isAnother = catalog !== this.subject.number;
    if (isAnother && volume === this.#volume) {
      this.#moveTo(catalog);
    } else if (isAnother) {
      assert(!this.hasUnflushed, 'All commands of a client are for one catalog');
      this.#former = null;
      this.#commands = this.#commandsOf(catalog);
    }
    this.subject.isOfVolume = true;
    this.#volume = volume;
  }

  /** Has a request executed or answered by the volume's catalog; again if the volume has moved to another one. */
  async request<Value, Options extends CallOptions>(
    work: (commands: CatalogCommands, options: Options) => Promise<Value>,
    options: Options,
  ): Promise<Value> {
    const { exchanger } = this.#parts;
    const limits = exchanger.limitsOf(options);
    const commands = this.#commands;
    try {
      return await work(commands, options);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.details.movedTo === undefined) throw error;
      const late = (): Error =>
        new ServiceError('no-majority', `${error.message}; no server named its catalog in time`);
      await inTime(exchanger.world, this.#follow(commands), limits, late);
      if (this.#commands === commands) throw error;
      return work(this.#commands, { ...options, timeoutMs: limits.leftMs() });
    }
  }

  /** Makes the answered commands survive a power failure of all servers. @throws CommandsLost once, if some are lost */
  async flush(options?: CallOptions): Promise<void> {
    let hasLost = false;
    const lost = (): void => {
      hasLost = true;
    };
    try {
      if (this.#former?.hasUnflushed === true) await this.#former.flush(lost, options);
      await this.#commands.flush(lost, options);
    } catch (error) {
      // A later flush does not ask about these commands again.
      this.#isLossUnreported ||= hasLost;
      throw error;
    }
    hasLost ||= this.#isLossUnreported;
    this.#isLossUnreported = false;
    if (hasLost) throw new CommandsLost();
  }

  /** Finds out whether the volume has left this catalog. */
  async #follow(left: CatalogCommands): Promise<void> {
    const volume = this.#volume;
    if (volume === null || left !== this.#commands || left.catalog.number !== ROOT_CATALOG) return;
    this.#search ??= this.#findCatalog(volume).finally(() => {
      this.#search = null;
    });
    await this.#search;
  }

  async #findCatalog(volume: string): Promise<void> {
    const catalog = await this.#parts.catalogOf(volume);
    if (volume === this.#volume && catalog !== this.subject.number) this.#moveTo(catalog);
  }

  #moveTo(catalog: CatalogNumber): void {
    this.#former = this.#commands;
    this.#commands = this.#commandsOf(catalog);
    for (const moved of this.#moved) moved();
  }

  #commandsOf(catalog: CatalogNumber | null): CatalogCommands {
    const subject = new CatalogSubject(catalog, () => {
      // The next answer of another catalog has it found out again.
      void this.#follow(commands).catch(() => undefined);
    });
    const commands = new CatalogCommands(this.#parts.exchanger, subject, this.#opening);
    return commands;
  }
}
