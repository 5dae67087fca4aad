import { RecentMap } from '../../base/recent-map.ts';
import type { World } from '../../base/world.ts';
import { type Place, placeKey } from '../place.ts';
import { UPTAKE_MS_MAX, UPTAKE_SLACK_MS } from './in-flight.ts';

/** The kernel is answered whole milliseconds, and rounds them by its own clock. */
const ROUNDING_MS = 5;

interface CachedName {
  readonly place: Place;
  readonly key: string;
  readonly inode: number;
  /** Until then the kernel surely has the name, unless it lacked memory. */
  cachedMs: number;
  /** From then on it surely has not. */
  untilMs: number;
}

/**
 * Names that the kernel may have cached for an inode, and by which it opens the inode without a look-up. An inode can have
 * several: one that another client took from it, and the one that it got instead. A name that is kept here for too long costs
 * a request; one that is forgotten too soon would have a program write to another file than it means.
 */
export class CachedNames {
  readonly #world: World;
  /** The latest answer for each name. */
  readonly #current = new Map<string, CachedName>();
  readonly #byInode = new Map<number, CachedName[]>();
  /** All, the latest answered last. */
  readonly #all = new RecentMap<CachedName, null>();

  constructor(world: World) {
    this.#world = world;
  }

  /**
   * The kernel is about to be answered so, and counts from when it takes that up.
   *
   * @param leftMs how long it may cache that, in milliseconds; 0: only what it does at the moment
   */
  answered(place: Place, inode: number, leftMs: number): void {
    const nowMs = this.#world.nowMs();
    this.#forgetPast(nowMs);
    const key = placeKey(place);
    const before = this.#current.get(key);
    if (before !== undefined && before.inode !== inode) this.notCached(place);
    const same = this.#byInode.get(inode)?.find((name) => name.key === key);
    const name = same ?? { place, key, inode, cachedMs: 0, untilMs: 0 };
    name.cachedMs = nowMs + leftMs - UPTAKE_SLACK_MS - ROUNDING_MS;
    name.untilMs = Math.max(name.untilMs, nowMs + leftMs + UPTAKE_MS_MAX);
    this.#add(name);
  }

  /**
   * The kernel is about to be answered otherwise, or not to cache the answer. It may be about to take up an earlier answer, and
   * an open by that be on its way here.
   */
  notCached(place: Place): void {
    const key = placeKey(place);
    const name = this.#current.get(key);
    if (name === undefined) return;
    this.#current.delete(key);
    name.cachedMs = 0;
    name.untilMs = Math.min(name.untilMs, this.#world.nowMs() + UPTAKE_MS_MAX);
  }

  /** @returns the names by which the kernel may open the inode */
  of(inode: number): readonly Place[] {
    const nowMs = this.#world.nowMs();
    const all = this.#byInode.get(inode) ?? [];
    return all.filter(({ untilMs }) => untilMs >= nowMs).map(({ place }) => place);
  }

  /** Whether the kernel may open the inode by no other name than this one, which it has just looked up and does not cache. */
  isOnly(inode: number, key: string | undefined): boolean {
    const nowMs = this.#world.nowMs();
    const all = this.#byInode.get(inode) ?? [];
    return all.every((name) => name.untilMs < nowMs || (name.key === key && this.#current.get(key) !== name));
  }

  /** Whether the kernel surely has the name: if it looks it up all the same, a program wants the cluster's answer. */
  isCached(place: Place): boolean {
    const name = this.#current.get(placeKey(place));
    return name !== undefined && name.cachedMs >= this.#world.nowMs();
  }

  /** The kernel caches the new name of what this mount has renamed, as long as it would have cached the old one. */
  moved(from: Place, to: Place, isExchange: boolean): void {
    const [one, other] = [from, to].map((place) => this.#current.get(placeKey(place)));
    for (const place of [from, to]) this.gone(place);
    if (one !== undefined) this.#add({ ...one, place: to, key: placeKey(to) });
    if (isExchange && other !== undefined) this.#add({ ...other, place: from, key: placeKey(from) });
  }

  /** This mount has removed the name, and so has the kernel. */
  gone(place: Place): void {
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
    const left = (this.#byInode.get(inode) ?? []).filter((one) => one !== name);
    if (left.length === 0) this.#byInode.delete(inode);
    else this.#byInode.set(inode, left);
  }
}
