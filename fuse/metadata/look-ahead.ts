import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import { namesCompare } from './name-order.ts';

/** Successful look-ups in a directory before a page of it is requested instead. */
const LOOKUPS_MIN = 3;
const LOOKUPS_MAX = 100;
/** A directory with at most so many entries is requested as a whole. */
const WHOLE_MAX = 512;
/** Entries in a page of a larger directory: few at first, more if they are used. */
const PAGE_MIN = 32;
const PAGE_MAX = 512;
/** A page was useful if one in `USED_LEAST` of its entries was looked up, very useful if half of them were. */
const USED_LEAST = 8;
const USED_WELL = 2;
const DIRECTORIES_MAX = 1_000;

interface Walk {
  lastMs: number;
  /** Names found by single requests since the last page, and the latest of them. */
  found: number;
  name: string;
  /** So many single requests come before a page. */
  lookups: number;
  /** The first page did not include the whole directory. */
  isLarge: boolean;
  count: number;
  /** Entries of the last page, 0 once it was judged; and how many of them were looked up. */
  listed: number;
  used: number;
  page: Promise<void> | null;
}

export type ListPage = (
  parent: number,
  after: string,
  countMax: number,
) => Promise<{ readonly count: number; readonly more: boolean }>;

/**
 * After a few single requests of a walk through a directory, all of it is requested or, if it is large, the names
 * around the next one; how many depends on the use of the last page. Names that do not exist do not count: a program
 * that creates many files looks up each of them first.
 */
export class LookAhead {
  readonly #world: World;
  readonly #list: ListPage;
  readonly #windowMs: number;
  readonly #walks = new BoundedMap<number, Walk>(DIRECTORIES_MAX);

  /** @param windowMs look-ups that are further apart are not one walk; 0: no look-ahead */
  constructor(world: World, list: ListPage, windowMs: number) {
    this.#world = world;
    this.#list = list;
    this.#windowMs = windowMs;
  }

  /** A cached name was looked up. */
  used(parent: number): void {
    const walk = this.#walks.get(parent);
    if (walk === undefined) return;
    walk.used++;
    walk.lastMs = this.#world.nowMs();
  }

  /** A single request found the name. */
  found(parent: number, name: string): void {
    if (this.#windowMs === 0) return;
    const walk = this.#walk(parent);
    walk.found++;
    walk.name = name;
  }

  /** If a walk needs a page, requests it. Resolves when it is cached. @returns false if the name needs a request */
  async prefetch(parent: number, name: string): Promise<boolean> {
    if (this.#windowMs === 0) return false;
    const walk = this.#walks.get(parent);
    if (walk === undefined || this.#isOver(walk)) return false;
    if (walk.page === null) {
      if (walk.found < walk.lookups) return false;
      adaptTo(walk);
      if (walk.found < walk.lookups) return false;
      walk.page = this.#listPage(walk, parent, walk.isLarge ? startOf(name, walk.name) : '');
      walk.name = name;
    }
    await walk.page;
    return true;
  }

  #walk(parent: number): Walk {
    const nowMs = this.#world.nowMs();
    let walk = this.#walks.get(parent);
    if (walk === undefined || this.#isOver(walk)) {
      const fresh = { found: 0, name: '', listed: 0, used: 0, page: null, count: PAGE_MIN, lastMs: nowMs };
      // Tried less often if it was useless a moment ago.
      const lookups = Math.max(LOOKUPS_MIN, walk?.lookups ?? 0);
      walk = { ...fresh, lookups, isLarge: walk?.isLarge ?? false };
    }
    walk.lastMs = nowMs;
    this.#walks.set(parent, walk);
    return walk;
  }

  #isOver({ page, lastMs }: Walk): boolean {
    return page === null && this.#world.nowMs() - lastMs > this.#windowMs;
  }

  /** Never rejects: the caller then requests the name alone, and gets the error. */
  async #listPage(walk: Walk, parent: number, after: string): Promise<void> {
    walk.found = 0;
    walk.used = 0;
    const countMax = walk.isLarge ? walk.count : WHOLE_MAX;
    const listed = await this.#list(parent, after, countMax).catch(() => ({ count: 0, more: false }));
    // Reading only a part of a large directory does not make the page useless.
    walk.listed = listed.more && !walk.isLarge ? 0 : listed.count;
    walk.isLarge ||= listed.more;
    walk.page = null;
  }
}

/** By the use of the last page, sets the size of the next one and how many single requests precede it. */
function adaptTo(walk: Walk): void {
  const { listed, used } = walk;
  if (listed === 0) return;
  walk.listed = 0;
  if (used * USED_LEAST < listed) {
    walk.lookups = Math.min(LOOKUPS_MAX, 2 * Math.max(LOOKUPS_MIN, walk.lookups));
    walk.count = PAGE_MIN;
  } else if (used * USED_WELL < listed) {
    walk.lookups = LOOKUPS_MIN;
  } else {
    walk.lookups = 0;
    walk.count = Math.min(PAGE_MAX, walk.count * 4);
  }
}

/** A page starts after the name looked up last if that is near, else after `name` without its last character. */
function startOf(name: string, last: string): string {
  const near = [...name].slice(0, -1).join('');
  const isBetween = namesCompare(near, last) < 0 && namesCompare(last, name) < 0;
  return isBetween ? last : near;
}
