import type { Logger } from 'pino';
import type { World } from '../../base/world.ts';
import type { CommandOf, CommandResults, QueryResults } from '../../wire/catalog-api.ts';
import { Rounds } from '../process/rounds.ts';

/** Between two looks whether there is a walk. */
const PERIOD_MS = 500;
/** Inodes of one command; other commands are executed in between. */
const SLICE_INODES = 250;
/** After each slice: half of the primary's time is left to others, also without their requests waiting. */
const PAUSE_MS = 10;

export interface QuotaWalksParts {
  readonly world: Pick<World, 'every' | 'sleep'>;
  readonly log: Logger;
  isCatalogPrimary(): boolean;
  /** @see StewardParts.catalogPosition */
  catalogPosition(): string;
  query(query: { readonly kind: 'quota-walks' }): Promise<QueryResults['quota-walks']>;
  command(command: CommandOf<'walk-quotas'>): Promise<CommandResults['walk-quotas']>;
}

/**
 * Continues, as a catalog's primary, quotas that begin or end at directories with entries. Their progress is in the
 * catalog's tables: after a failure, the next primary continues.
 */
export class QuotaWalks {
  readonly #parts: QuotaWalksParts;
  readonly #rounds: Rounds;
  #isClosed = false;
  /** Where the catalog was when there was no walk. */
  #emptyAt: string | null = null;

  constructor(parts: QuotaWalksParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: PERIOD_MS,
      isDue: () => parts.isCatalogPrimary() && parts.catalogPosition() !== this.#emptyAt,
      work: () => this.#round(),
      failed: (error) =>
        parts.log.debug({ err: error }, 'a quota is not counted yet; trying again in the next round'),
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#rounds.close();
  }

  async #round(): Promise<void> {
    const { world, isCatalogPrimary, catalogPosition, query, command } = this.#parts;
    const position = catalogPosition();
    const { pending } = await query({ kind: 'quota-walks' });
    if (!pending) {
      this.#emptyAt = position;
      return;
    }
    while (!this.#isClosed && isCatalogPrimary()) {
      const { more } = await command({ kind: 'walk-quotas', countMax: SLICE_INODES });
      if (!more) return;
      await world.sleep(PAUSE_MS);
    }
  }
}
