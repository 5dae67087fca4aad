import { BoundedMap } from '../../base/bounded-map.ts';
import { RecentMap } from '../../base/recent-map.ts';
import type { World } from '../../base/world.ts';
import { type Place, placeKey } from '../place.ts';
import { InFlight, UPTAKE_MS_MAX } from './in-flight.ts';

/** Bounds the wait of a recall whose names cannot be expired. */
export const GRANTED_NAME_MS_MAX = 1_000;
/** After a recall of a directory none of its names is cached for this time: other clients change it. */
const RECALLED_MS = 5_000;
const RECALLED_MAX = 10_000;
/** Names that the kernel may have cached; at this number none is added. */
const NAMES_MAX = 50_000;

interface GrantedName {
  readonly place: Place;
  readonly key: string;
  /** From then on the kernel certainly does not have it. */
  readonly untilMs: number;
}

export interface GrantedNamesParts {
  readonly world: Pick<World, 'nowMs' | 'sleep'>;
  isGranted(directory: number): boolean;
  /**
   * Has the kernel look the name up again (`FUSE_NOTIFY_INVAL_ENTRY` with `FUSE_EXPIRE_ONLY`); never rejects. The
   * kernel needs the directory's lock for that, and so waits for calls that change it, or look up a new name in it.
   * @param isWanted checked just before
   */
  expire(place: Place, isWanted: () => boolean): Promise<void>;
}

/**
 * Names that the kernel caches under grants. A recall of a directory is acknowledged when they are expired.
 * The lock that an expiry waits for can belong to a call that waits for another client, whose recall waits for this
 * mount. So names are cached for at most a second, and a recall waits only while one of them is valid.
 */
export class GrantedNames {
  readonly #parts: GrantedNamesParts;
  readonly #byDirectory = new Map<number, Map<string, GrantedName>>();
  readonly #all = new RecentMap<string, GrantedName>();
  /**
   * Look-ups whose answer the kernel may not have taken up. It renews a cached name without the directory's lock, so
   * that an earlier expiry would have no effect; all other answers need the lock.
   */
  readonly #lookups: InFlight<string>;
  readonly #recalledMs = new BoundedMap<number, number>(RECALLED_MAX);

  constructor(parts: GrantedNamesParts) {
    this.#parts = parts;
    this.#lookups = new InFlight(() => parts.world.nowMs());
  }

  /**
   * Called before an answer about a name is sent: records how long the kernel may cache the name.
   * @param leftMs how long the grant certainly lasts, in milliseconds
   * @param isLookup it answers a look-up, by which the kernel may renew a name that it has cached
   * @returns that time in whole milliseconds, within the grant even if taken up late; 0 soon after a recall
   */
  answered(place: Place, leftMs: number, isLookup: boolean): number {
    const nowMs = this.#parts.world.nowMs();
    this.#forgetPast(nowMs);
    const forMs = Math.floor(Math.min(leftMs - UPTAKE_MS_MAX, GRANTED_NAME_MS_MAX));
    if (forMs <= 0 || this.#all.size >= NAMES_MAX || this.#wasJustRecalled(place.parent, nowMs)) return 0;
    const key = placeKey(place);
    this.#add({ place, key, untilMs: nowMs + forMs + UPTAKE_MS_MAX });
    if (isLookup) this.#lookups.answered(key);
    return forMs;
  }

  /**
   * Called before a rename, after which the kernel caches the new name as long as it would have cached the old one.
   * Records the new name (an answer about the old one may still be on its way). If no grant covers the new name's
   * directory, waits until the old name is no longer cached.
   */
  async renaming(from: Place, to: Place, isExchange: boolean): Promise<void> {
    const moves = isExchange
      ? ([
          [from, to],
          [to, from],
        ] as const)
      : ([[from, to]] as const);
    for (const [one, other] of moves) {
      const name = this.#all.get(placeKey(one));
      const leftMs = (name?.untilMs ?? 0) - this.#parts.world.nowMs();
      if (leftMs > 0 && !this.#parts.isGranted(other.parent)) await this.#parts.world.sleep(leftMs);
    }
    const nowMs = this.#parts.world.nowMs();
    const moved = moves.map(([one, other]) => [this.#all.get(placeKey(one)), other] as const);
    for (const [name, place] of moved) {
      if (name === undefined || name.untilMs <= nowMs) continue;
      const key = placeKey(place);
      const untilMs = Math.max(name.untilMs, this.#all.get(key)?.untilMs ?? 0);
      this.#add({ place, key, untilMs });
      if (this.#lookups.has(name.key)) this.#lookups.answered(key);
    }
  }

  /** Other clients are about to change these directories. Resolves when the kernel has none of their names. */
  async recalled(inodes: readonly number[]): Promise<void> {
    await Promise.all(inodes.map((inode) => this.#recalledOne(inode)));
  }

  /** Expires a name whose answer was sent late, since this process was stopped: the kernel counts its time from now. */
  async answeredLate(place: Place): Promise<void> {
    const key = placeKey(place);
    const name = { place, key, untilMs: this.#parts.world.nowMs() + GRANTED_NAME_MS_MAX + UPTAKE_MS_MAX };
    this.#add(name);
    this.#lookups.answered(key);
    await this.#expireOne(name);
  }

  async #recalledOne(directory: number): Promise<void> {
    const nowMs = this.#parts.world.nowMs();
    const names = [...(this.#byDirectory.get(directory)?.values() ?? [])];
    if (names.length > 0 || this.#recalledMs.has(directory)) this.#recalledMs.set(directory, nowMs);
    const untilMs = Math.max(...names.map((name) => name.untilMs));
    if (untilMs <= nowMs) return;
    const ended = new AbortController();
    const { world } = this.#parts;
    const expired = world.sleep(untilMs - nowMs, { signal: ended.signal }).catch(() => undefined);
    await Promise.race([Promise.all(names.map((name) => this.#expireOne(name))), expired]);
    ended.abort();
  }

  async #expireOne(name: GrantedName): Promise<void> {
    const { world } = this.#parts;
    const isWanted = (): boolean => name.untilMs > world.nowMs();
    await this.#takenUp(name.key);
    if (isWanted()) await this.#parts.expire(name.place, isWanted);
  }

  async #takenUp(key: string): Promise<void> {
    while (this.#lookups.has(key)) await this.#parts.world.sleep(this.#lookups.leftMs(key));
  }

  #wasJustRecalled(directory: number, nowMs: number): boolean {
    const recalledMs = this.#recalledMs.get(directory);
    if (recalledMs === undefined) return false;
    if (nowMs - recalledMs < RECALLED_MS) return true;
    this.#recalledMs.delete(directory);
    return false;
  }

  #add(name: GrantedName): void {
    this.#all.set(name.key, name);
    const { parent } = name.place;
    const names = this.#byDirectory.get(parent) ?? new Map<string, GrantedName>();
    this.#byDirectory.set(parent, names.set(name.key, name));
  }

  #forgetPast(nowMs: number): void {
    for (const [key, { place }] of this.#all.takeWhile(({ untilMs }) => untilMs <= nowMs)) {
      const names = this.#byDirectory.get(place.parent);
      names?.delete(key);
      if (names?.size === 0) this.#byDirectory.delete(place.parent);
    }
  }
}
