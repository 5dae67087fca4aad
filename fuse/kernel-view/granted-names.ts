import { BoundedMap } from '../../base/bounded-map.ts';
import { RecentMap } from '../../base/recent-map.ts';
import type { World } from '../../base/world.ts';
import { type Place, placeKey } from '../place.ts';
import { InFlight, UPTAKE_MS_MAX } from './in-flight.ts';

/** The kernel caches a granted name for so long at the most: a recall that cannot have it expire waits for no longer. */
export const GRANTED_NAME_MS_MAX = 1_000;
/** After a recall of a directory no name of it is cached for so long: other clients change it. */
const RECALLED_MS = 5_000;
/** Directories whose last recall is remembered. */
const RECALLED_MAX = 10_000;
/** Names that the kernel may have cached; beyond that, no further one. */
const NAMES_MAX = 50_000;

interface GrantedName {
  readonly place: Place;
  readonly key: string;
  /** From then on the kernel certainly has it no more. */
  readonly untilMs: number;
}

/** What this needs of the rest of the mount. */
export interface GrantedNamesParts {
  readonly world: Pick<World, 'nowMs' | 'sleep'>;
  /** Whether no other client changes names of the directory before a recall. */
  isGranted(directory: number): boolean;
  /**
   * Resolves when the kernel asks for the name anew (`FUSE_NOTIFY_INVAL_ENTRY` with `FUSE_EXPIRE_ONLY`); never rejects. The kernel takes the
   * directory's lock for that, and so waits for calls under way that change the directory, or look up a new name in it.
   *
   * @param isWanted asked when it is its turn
   */
  expire(place: Place, isWanted: () => boolean): Promise<void>;
}

/**
 * Names that the kernel has cached under grants of their directories. A recall of a directory is answered when its names are expired.
 *
 * The lock that an expiry waits for can be that of a call that waits for another client, whose own recall waits for this one. So names are cached
 * for a second at the most, and a recall waits for an expiry for as long as one of them is valid.
 */
export class GrantedNames {
  readonly #parts: GrantedNamesParts;
  readonly #byDirectory = new Map<number, Map<string, GrantedName>>();
  /** All, the latest answered last. */
  readonly #all = new RecentMap<string, GrantedName>();
  /**
   * Look-ups whose answer the kernel may not have taken up. It renews a name that it has without the directory's lock: an expiry before that
   * would have no effect. All other answers are taken up under that lock.
   */
  readonly #lookups: InFlight<string>;
  /** When a directory was recalled last. */
  readonly #recalledMs = new BoundedMap<number, number>(RECALLED_MAX);

  constructor(parts: GrantedNamesParts) {
    this.#parts = parts;
    this.#lookups = new InFlight(() => parts.world.nowMs());
  }

  /**
   * The kernel is about to be answered the name of an inode.
   *
   * @param leftMs how long the grant certainly lasts, in milliseconds
   * @param isLookup the kernel may have the name already
   * @returns how long the kernel may cache the name, in whole milliseconds: also where it takes the answer up late, not beyond the grant
   */
  answered(place: Place, leftMs: number, isLookup: boolean): number {
    const nowMs = this.#parts.world.nowMs();
    this.#forgetPast(nowMs);
    const forMs = Math.floor(Math.min(leftMs - UPTAKE_MS_MAX, GRANTED_NAME_MS_MAX));
    if (forMs <= 0 || this.#all.size >= NAMES_MAX || this.#isContended(place.parent, nowMs)) return 0;
    const key = placeKey(place);
    this.#add({ place, key, untilMs: nowMs + forMs + UPTAKE_MS_MAX });
    if (isLookup) this.#lookups.answered(key);
    return forMs;
  }

  /**
   * This mount is about to rename: the kernel has the new name for as long as it would have had the old one, and an answer about the old one that
   * it has not taken up makes it have the new one.
   *
   * @returns resolves when the new name, too, is covered by a grant, or can be cached no more
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

  /** Others are about to change these directories. Resolves when the kernel has none of their names. */
  async recalled(inodes: readonly number[]): Promise<void> {
    await Promise.all(inodes.map((inode) => this.#recalledOne(inode)));
  }

  /** This process was stopped while it answered the name: the kernel counts from now, and has it for too long. */
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
    const over = new AbortController();
    const { world } = this.#parts;
    const isOver = world.sleep(untilMs - nowMs, { signal: over.signal }).catch(() => undefined);
    await Promise.race([Promise.all(names.map((name) => this.#expireOne(name))), isOver]);
    over.abort();
  }

  async #expireOne(name: GrantedName): Promise<void> {
    const { world } = this.#parts;
    const isWanted = (): boolean => name.untilMs > world.nowMs();
    await this.#takenUp(name.key);
    if (isWanted()) await this.#parts.expire(name.place, isWanted);
  }

  /** Resolves when the kernel has taken up all answers to look-ups of the name. */
  async #takenUp(key: string): Promise<void> {
    while (this.#lookups.has(key)) await this.#parts.world.sleep(this.#lookups.leftMs(key));
  }

  #isContended(directory: number, nowMs: number): boolean {
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
