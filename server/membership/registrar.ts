import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import type {
  ClusterSettings,
  CommandOf,
  CommandResults,
  Query,
  QueryResults,
  ServerInfo,
} from '../../wire/catalog-api.ts';
import type { StoreSpace } from '../storage/store.ts';

const RETRY_MS = 1_000;

type RegistrarCommand = CommandOf<'server-register'> | CommandOf<'server-label'>;
type ServersQuery = Extract<Query, { kind: 'servers' }>;

/** Versions of the root catalog's list of volumes' catalogs; 0: it had none yet. */
export interface RegistrationVersions {
  /** At the registration by this process. */
  readonly catalogsVersion: number;
  /** At the first registration of this disk. */
  readonly storedAt: number;
}

export interface RegistrarParts {
  readonly self: ServerId;
  readonly url: string;
  readonly zone: string | null;
  /** Those of the configuration, sorted; null: whatever the catalog has. */
  readonly labels: readonly string[] | null;
  readonly storageId: string;
  readonly world: World;
  readonly log: Logger;
  /** Between two looks at this server's entry. */
  readonly periodMs: number;
  /** A change of free space by more than this part of the disk is reported. */
  readonly spaceStep: number;
  space(): Promise<StoreSpace>;
  /** Called with the first file id that no earlier disk of this server can have had. */
  firstFileKnown(file: FileId): void;
  /**
   * Called once, when the catalog has this server and its disk, with versions of the root catalog's list of volumes'
   * catalogs.
   */
  confirmed(versions: RegistrationVersions): void;
  /** Called once if the catalog's entry says that this server is out. */
  removed(): void;
  /** Called if the catalog has seen another data folder of this server after this one. @returns whether to continue */
  replaced(): 'end' | 'retry';
  /** Called with the catalog's list of servers, in which the entry of this one is current. */
  listed(servers: readonly ServerInfo[], settings: ClusterSettings | null): void;
  command<C extends RegistrarCommand>(command: C): Promise<CommandResults[C['kind']]>;
  query(query: ServersQuery): Promise<QueryResults['servers']>;
}

/**
 * Registers this server and its free space in the catalog, and learns the other servers. It sends a command only if the
 * catalog's entry is wrong: an idle cluster writes nothing.
 */
export class Registrar {
  readonly #parts: RegistrarParts;
  #timer: Timer | null = null;
  #registered = false;
  #closed = false;
  #isRemoved = false;

  constructor(parts: RegistrarParts) {
    this.#parts = parts;
  }

  start(): void {
    void this.#round();
  }

  get registered(): boolean {
    return this.#registered;
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  /** Registers this server at the catalog, again and again, until the catalog has another disk under its name. */
  async #round(): Promise<void> {
    let pauseMs = this.#parts.periodMs;
    try {
      await this.#register();
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'precondition-failed') {
        if (this.#parts.replaced() === 'end') return;
      } else {
        pauseMs = RETRY_MS;
        this.#parts.log.debug({ err: error }, 'this server is not registered yet');
      }
    }
    if (!this.#closed) this.#timer = this.#parts.world.after(pauseMs, () => void this.#round());
  }

  async #register(): Promise<void> {
    const { self, url, zone, storageId } = this.#parts;
    const { servers, settings = null } = await this.#parts.query({ kind: 'servers', counts: false });
    const { freeBytes, totalBytes } = await this.#parts.space();
    let own = servers.find(({ id }) => id === self) ?? null;
    if (own?.state !== 'out' && (!this.#registered || !this.#isUpToDate(own, freeBytes, totalBytes))) {
      const command: CommandOf<'server-register'> = {
        ...{ kind: 'server-register', id: self, url, storageId, freeBytes, totalBytes },
        ...{ commandsVersion: COMMANDS_VERSION, ...(zone === null ? {} : { zone }) },
      };
      const { server, catalogsVersion = 0, storedAt = 0 } = await this.#parts.command(command);
      own = server;
      // A server that was removed meanwhile gets its old entry, which may be of an earlier disk.
      const isCurrent = own.storageId === storageId && own.state !== 'out';
      if (isCurrent) this.#confirm(own, { catalogsVersion, storedAt });
    }
    if (own !== null && own.state !== 'out') own = await this.#label(own);
    if (own?.state === 'out' && !this.#isRemoved) {
      this.#isRemoved = true;
      this.#parts.removed();
    }
    const others = servers.filter(({ id }) => id !== self);
    this.#parts.listed([...others, ...(own === null ? [] : [own])], settings);
  }

  /** By a command of its own: while members of the catalog run a release without labels, only this one is refused. */
  async #label(own: ServerInfo): Promise<ServerInfo> {
    const { self, labels, log } = this.#parts;
    if (labels === null || labels.join() === (own.labels ?? []).join()) return own;
    try {
      return (await this.#parts.command({ kind: 'server-label', id: self, labels: [...labels] })).server;
    } catch (error) {
      if (!(error instanceof ServiceError) || error.details.outdated === undefined) throw error;
      log.info({ reason: error.message }, 'the labels of this server are not known to the cluster yet');
      return own;
    }
  }

  #confirm({ bornAt }: ServerInfo, versions: RegistrationVersions): void {
    const isFirst = !this.#registered;
    this.#parts.firstFileKnown(bornAt as FileId);
    this.#registered = true;
    if (isFirst) this.#parts.confirmed(versions);
  }

  #isUpToDate(own: ServerInfo | null, freeBytes: number, totalBytes: number): boolean {
    const { url, zone, storageId, spaceStep } = this.#parts;
    return (
      own !== null &&
      own.url === url &&
      own.storageId === storageId &&
      (zone === null || own.zone === zone) &&
      own.totalBytes === totalBytes &&
      Math.abs(own.freeBytes - freeBytes) <= totalBytes * spaceStep
    );
  }
}
