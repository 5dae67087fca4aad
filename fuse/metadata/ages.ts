import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import type { Validity } from '../answered.ts';

/** The kernel opens a file right after it has looked up its name: one request serves both. */
export const LOOKUP_AGE_MAX_MS = 50;
/** Records of one kind. */
export const RECORDS_MAX = 20_000;

/** When a name or attributes were learned. */
export interface Learned {
  readonly validity: Validity;
  readonly answeredMs: number;
}

/** How long records of names and attributes are valid: for a time after their request, and longer in delegated directories. */
export class Ages {
  /** 0: nothing is valid here, as in the modes `strict` and `leases`. */
  readonly ttlMs: number;
  readonly #world: World;
  readonly #isDelegated: (directory: number) => boolean;
  /** By directory, when it was delegated: what was requested since is valid as long as it is. */
  readonly #delegatedAt = new BoundedMap<number, number>(RECORDS_MAX);

  /** @param isDelegated whether no other client changes the directory now */
  constructor(world: World, ttlMs: number, isDelegated: (directory: number) => boolean) {
    this.#world = world;
    this.ttlMs = ttlMs;
    this.#isDelegated = isDelegated;
  }

  nowMs(): number {
    return this.#world.nowMs();
  }

  /** @param at sequence number */
  delegated(directory: number, at: number): void {
    this.#delegatedAt.set(directory, at);
  }

  /** @param directory which the record is about, or which has the name */
  isOld(record: Learned, directory: number | undefined, ttlMs = this.ttlMs): boolean {
    if (ttlMs === 0) return true;
    const isPast = this.nowMs() - record.validity.requestedAt > ttlMs;
    return isPast && !this.isDelegated(record, directory);
  }

  /** @returns milliseconds. @param directory as of `isOld` */
  leftMs(record: Learned | undefined, directory?: number): number {
    if (record === undefined) return 0;
    if (this.isDelegated(record, directory)) return this.ttlMs;
    return Math.max(0, record.validity.requestedAt + this.ttlMs - this.nowMs());
  }

  /** Whether no other client can have changed the record since its request. @param directory as of `isOld` */
  isDelegated({ validity }: Learned, directory: number | undefined): boolean {
    if (directory === undefined) return false;
    const at = this.#delegatedAt.get(directory);
    return at !== undefined && validity.requestedAt >= at && this.#isDelegated(directory);
  }

  /** Whether the answer came this very moment. */
  isRecent({ answeredMs }: Learned): boolean {
    return this.nowMs() - answeredMs <= LOOKUP_AGE_MAX_MS;
  }
}
