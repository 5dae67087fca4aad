import { BoundedMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import { namesCompare } from './name-order.ts';

/** Names of one directory that were asked for one by one, and found, before a page of it is asked for instead. */
const LOOKUPS_MIN = 3;
const LOOKUPS_MAX = 100;
/** A directory with no more entries is asked for as a whole. */
const WHOLE_MAX = 512;
/** Entries in a page of a larger one: so few at first, and more where they are of use. */
const PAGE_MIN = 32;
const PAGE_MAX = 512;
/** A page was of use where one in so many of its entries was looked up, and paid well where half of them were. */
const USED_LEAST = 8;
const USED_WELL = 2;
const DIRECTORIES_MAX = 1_000;

/** One walk through a directory. */
interface Course {
  /** When a name was looked up last. */
  lastMs: number;
  /** Names that were found one by one since the last page, and the latest of them. */
  found: number;
  name: string;
  /** So many come before a page is asked for. */
  lookups: number;
  /** A page that began with the directory did not end with it. */
  isLarge: boolean;
  /** Entries in the next page of a large directory. */
  count: number;
  /** Entries of the last page, and how many of them were looked up. */
  told: number;
  used: number;
  /** The page that is under way. */
  page: Promise<void> | null;
}

/**
 * Remembers a page of a directory.
 *
 * @returns how many entries it has, and whether there are more behind them
 */
export type ListPage = (
  parent: number,
  after: string,
  countMax: number,
) => Promise<{ readonly count: number; readonly more: boolean }>;

/**
 * Whoever walks through a directory looks up one name after the other. After a few that the cluster had to be asked for,
 * the directory is asked for, or, where it is large, the names around the next one. How many depends on how many of the last
 * were of use. Names that are not there say nothing: who makes many files looks for each of them before.
 */
export class LookAhead {
  readonly #world: World;
  readonly #list: ListPage;
  readonly #windowMs: number;
  readonly #courses = new BoundedMap<number, Course>(DIRECTORIES_MAX);

  /** @param windowMs look-ups that are further apart do not belong together; 0: nobody looks ahead */
  constructor(world: World, list: ListPage, windowMs: number) {
    this.#world = world;
    this.#list = list;
    this.#windowMs = windowMs;
  }

  /** A name was found among what is remembered. */
  used(parent: number): void {
    const course = this.#courses.get(parent);
    if (course === undefined) return;
    course.used++;
    course.lastMs = this.#world.nowMs();
  }

  /** The cluster was asked for the name, and has it. */
  found(parent: number, name: string): void {
    if (this.#windowMs === 0) return;
    const course = this.#course(parent);
    course.found++;
    course.name = name;
  }

  /**
   * A name is not among what is remembered: resolves when it may be, because those around it were asked for.
   *
   * @returns false where it has to be asked for by itself
   */
  async reach(parent: number, name: string): Promise<boolean> {
    if (this.#windowMs === 0) return false;
    const course = this.#courses.get(parent);
    if (course === undefined || this.#isOver(course)) return false;
    if (course.page === null) {
      if (course.found < course.lookups) return false;
      learn(course);
      if (course.found < course.lookups) return false;
      course.page = this.#ask(course, parent, course.isLarge ? startOf(name, course.name) : '');
      course.name = name;
    }
    await course.page;
    return true;
  }

  #course(parent: number): Course {
    const nowMs = this.#world.nowMs();
    let course = this.#courses.get(parent);
    if (course === undefined || this.#isOver(course)) {
      const fresh = { found: 0, name: '', told: 0, used: 0, page: null, count: PAGE_MIN, lastMs: nowMs };
      // Where it was of no use a moment ago, it is tried less often.
      const lookups = Math.max(LOOKUPS_MIN, course?.lookups ?? 0);
      course = { ...fresh, lookups, isLarge: course?.isLarge ?? false };
    }
    course.lastMs = nowMs;
    this.#courses.set(parent, course);
    return course;
  }

  #isOver({ page, lastMs }: Course): boolean {
    return page === null && this.#world.nowMs() - lastMs > this.#windowMs;
  }

  /** Never rejects: who waits for the page asks for the name by itself, and is told of an error then. */
  async #ask(course: Course, parent: number, after: string): Promise<void> {
    course.found = 0;
    course.used = 0;
    const countMax = course.isLarge ? course.count : WHOLE_MAX;
    const listed = await this.#list(parent, after, countMax).catch(() => ({ count: 0, more: false }));
    // That a directory is large is no judgement of who walks through it.
    course.told = listed.more && !course.isLarge ? 0 : listed.count;
    course.isLarge ||= listed.more;
    course.page = null;
  }
}

/** The next page is what the last one suggests, which is judged once. */
function learn(course: Course): void {
  const { told, used } = course;
  if (told === 0) return;
  course.told = 0;
  if (used * USED_LEAST < told) {
    course.lookups = Math.min(LOOKUPS_MAX, 2 * Math.max(LOOKUPS_MIN, course.lookups));
    course.count = PAGE_MIN;
  } else if (used * USED_WELL < told) {
    course.lookups = LOOKUPS_MIN;
  } else {
    course.lookups = 0;
    course.count = Math.min(PAGE_MAX, course.count * 4);
  }
}

/** Where a page begins that has the name: behind the one before if that is near, else with its neighbours on both sides. */
function startOf(name: string, before: string): string {
  const near = [...name].slice(0, -1).join('');
  const isBetween = namesCompare(near, before) < 0 && namesCompare(before, name) < 0;
  return isBetween ? before : near;
}
