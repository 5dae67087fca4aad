import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import type { Validity } from '../answered.ts';

/** The kernel opens a file right after the look-up of its name: one request serves both. */
export const LOOKUP_AGE_MAX_MS = 50;
export const RECORDS_MAX = 20_000;

export interface CachedAnswer {
  readonly validity: Validity;
  readonly answeredMs: number;
}

/** How long cached names and attributes are valid: for `ttlMs` after their request, longer in delegated directories. */
export class RecordValidity {
  /** 0: nothing is valid here, as with `strict` and `leases`. */
  readonly ttlMs: number;
  readonly #world: World;
  readonly #isDelegated: (directory: number) => boolean;
  /** By directory, when it was delegated: records that were requested later are valid while it is delegated. */
  readonly #delegatedAt = new BoundedMap<number, number>(RECORDS_MAX);

  /** @param isDelegated whether no other client can change the directory now */
  constructor(world: World, ttlMs: number, isDelegated: (directory: number) => boolean) {
    this.#world = world;
    this.ttlMs = ttlMs;
    this.#isDelegated = isDelegated;
  }

  nowMs(): number {
    return this.#world.nowMs();
  }

  delegated(directory: number, at: number): void {
    this.#delegatedAt.set(directory, at);
  }

  /** @param directory that the record describes, or that has the name */
  isExpired(record: CachedAnswer, directory: number | undefined, ttlMs = this.ttlMs): boolean {
    if (ttlMs === 0) return true;
    const isPast = this.nowMs() - record.validity.requestedAt > ttlMs;
    return isPast && !this.isDelegated(record, directory);
  }

  leftMs(record: CachedAnswer | undefined, directory?: number): number {
    if (record === undefined) return 0;
    if (this.isDelegated(record, directory)) return this.ttlMs;
    return Math.max(0, record.validity.requestedAt + this.ttlMs - this.nowMs());
  }

  isDelegated({ validity }: CachedAnswer, directory: number | undefined): boolean {
    if (directory === undefined) return false;
    const at = this.#delegatedAt.get(directory);
    return at !== undefined && validity.requestedAt >= at && this.#isDelegated(directory);
  }

  isRecent({ answeredMs }: CachedAnswer): boolean {
    return this.nowMs() - answeredMs <= LOOKUP_AGE_MAX_MS;
  }
}
