import { RecentMap } from '../../base/recent-map.ts';
import type { World } from '../../base/world.ts';
import { type Place, placeKey } from '../place.ts';
import { UPTAKE_MS_MAX, UPTAKE_SLACK_MS } from './in-flight.ts';

/** The kernel gets whole milliseconds, and rounds them by its own clock. */
const ROUNDING_MS = 5;

interface CachedName {
  readonly place: Place;
  readonly key: string;
  readonly inode: number;
  /** Until then the kernel certainly has the name, unless it lacked memory. */
  cachedMs: number;
  /** From then on it certainly has not. */
  untilMs: number;
}

/**
 * Names by which the kernel may open an inode without a look-up; several if another client has renamed it. One kept too
 * long costs a request; after one dropped too soon, a program could write to a wrong file.
 */
export class CachedNames {
  readonly #world: World;
  readonly #current = new Map<string, CachedName>();
  readonly #byInode = new Map<number, CachedName[]>();
  readonly #all = new RecentMap<CachedName, null>();

  constructor(world: World) {
    this.#world = world;
  }

  /** The kernel may use the name for `leftMs` after it takes up this answer; 0: only for the operation under way. */
  answered(place: Place, inode: number, leftMs: number): void {
    const nowMs = this.#world.nowMs();
    this.#forgetPast(nowMs);
    const key = placeKey(place);
    const before = this.#current.get(key);
    if (before !== undefined && before.inode !== inode) this.answeredUncached(place);
    const same = this.#byInode.get(inode)?.find((name) => name.key === key);
    const name = same ?? { place, key, inode, cachedMs: 0, untilMs: 0 };
    name.cachedMs = nowMs + leftMs - UPTAKE_SLACK_MS - ROUNDING_MS;
    name.untilMs = Math.max(name.untilMs, nowMs + leftMs + UPTAKE_MS_MAX);
    this.#add(name);
  }

  /**
   * Called when an answer lets the kernel use this name only once, or the name belongs to another inode now. Ends its
   * cached time within `UPTAKE_MS_MAX`: until then the kernel may take up an earlier answer, or send an open by it.
   */
  answeredUncached(place: Place): void {
    const key = placeKey(place);
    const name = this.#current.get(key);
    if (name === undefined) return;
    this.#current.delete(key);
    name.cachedMs = 0;
    name.untilMs = Math.min(name.untilMs, this.#world.nowMs() + UPTAKE_MS_MAX);
  }

  of(inode: number): readonly Place[] {
    const nowMs = this.#world.nowMs();
    const all = this.#byInode.get(inode) ?? [];
    return all.filter(({ untilMs }) => untilMs >= nowMs).map(({ place }) => place);
  }

  /** Whether the kernel can open the inode only by this name, which it has just looked up and does not cache. */
  isOnly(inode: number, key: string | undefined): boolean {
    const nowMs = this.#world.nowMs();
    const all = this.#byInode.get(inode) ?? [];
    return all.every((name) => name.untilMs < nowMs || (name.key === key && this.#current.get(key) !== name));
  }

  /** Whether the kernel certainly has the name: a look-up then means that a program wants the cluster's answer. */
  isCached(place: Place): boolean {
    const name = this.#current.get(placeKey(place));
    return name !== undefined && name.cachedMs >= this.#world.nowMs();
  }

  /** After a rename here the kernel caches the new name as long as it would have cached the old one. */
  moved(from: Place, to: Place, isExchange: boolean): void {
    const [one, other] = [from, to].map((place) => this.#current.get(placeKey(place)));
    for (const place of [from, to]) this.removed(place);
    if (one !== undefined) this.#add({ ...one, place: to, key: placeKey(to) });
    if (isExchange && other !== undefined) this.#add({ ...other, place: from, key: placeKey(from) });
  }

  removed(place: Place): void {
    const name = this.#current.get(placeKey(place));
    if (name !== undefined) this.#forget(name);
  }

  #add(name: CachedName): void {
    this.#current.set(name.key, name);
    this.#all.set(name, null);
    const all = this.#byInode.get(name.inode);
    if (all === undefined) this.#byInode.set(name.inode, [name]);
    else if (!all.includes(name)) all.push(name);
  }

  #forgetPast(nowMs: number): void {
    for (const [name] of this.#all.takeWhile((_, { untilMs }) => untilMs < nowMs)) this.#forget(name);
  }

  #forget(name: CachedName): void {
    const { key, inode } = name;
    this.#all.delete(name);
    if (this.#current.get(key) === name) this.#current.delete(key);
    const others = (this.#byInode.get(inode) ?? []).filter((one) => one !== name);
    if (others.length === 0) this.#byInode.delete(inode);
    else this.#byInode.set(inode, others);
  }
}
