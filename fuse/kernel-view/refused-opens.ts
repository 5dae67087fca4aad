import { RecentMap } from '../../base/recent-map.ts';
import type { World } from '../../base/world.ts';
import type { Attributes } from '../backend.ts';
import { type Place, placeKey } from '../place.ts';

/** The longest time between two steps: the kernel looks the path up and opens its result without a pause. */
const STEP_MS_MAX = 1_000;

interface Refused {
  readonly inode: number;
  readonly keys: ReadonlySet<string>;
  readonly isLink: boolean;
  /** Of the refusal, or of the answer to the last look-up; `Infinity` while that is under way. */
  atMs: number;
  /** `begun`: no look-up yet; `walking`: one of a directory or link of the path; `found`: of the name itself. */
  state: 'begun' | 'walking' | 'found';
  isBehindLink: boolean;
  foundInode: number;
  foundAt: string;
}

/**
 * After a refused open by a cached name the kernel looks up all names of the path again in the same thread, and opens
 * the result. So the name by which it opens is known.
 */
export class RefusedOpens {
  readonly #world: World;
  /** By thread; 0 for all threads of other containers, which have no number here. */
  readonly #refused = new RecentMap<number, Refused>();

  constructor(world: World) {
    this.#world = world;
  }

  /** The thread's open is refused. @param keys of names (`placeKey`) by which the kernel may have found the inode */
  refuse(thread: number, inode: number, keys: readonly string[], isLink = false): void {
    const nowMs = this.#world.nowMs();
    this.#refused.takeWhile(({ atMs }) => nowMs - atMs > STEP_MS_MAX);
    this.#refused.set(thread, {
      ...{ inode, keys: new Set(keys), isLink, atMs: nowMs },
      ...{ state: 'begun', isBehindLink: false, foundInode: 0, foundAt: '' },
    });
  }

  /** @returns whether this look-up follows a refused open of the thread, so that the cluster must answer it */
  repeatsLookup(thread: number, place: Place): boolean {
    const refused = this.#current(thread);
    if (refused === undefined) return false;
    // The kernel looks up a name twice if its inode has changed.
    const isOther = refused.foundAt !== placeKey(place);
    if (refused.state === 'found' && isOther && !refused.isLink) {
      // It does not open what it found: another call has begun.
      this.#refused.delete(thread);
      return false;
    }
    if (refused.state === 'begun') refused.state = 'walking';
    refused.atMs = Number.POSITIVE_INFINITY;
    return true;
  }

  /** A look-up after the refusal is answered. @param attributes null if the name does not exist, or that is unknown */
  lookupAnswered(thread: number, place: Place, attributes: Attributes | null): void {
    const refused = this.#refused.get(thread);
    if (refused === undefined) return;
    refused.atMs = this.#world.nowMs();
    if (refused.state === 'found' && refused.foundAt !== placeKey(place)) return;
    const isMeant =
      refused.isBehindLink || refused.keys.has(placeKey(place)) || attributes?.inode === refused.inode;
    if (attributes === null || (isMeant && attributes.kind === 'directory' && !refused.isBehindLink)) {
      // No open follows.
      this.#refused.delete(thread);
    } else if (isMeant && attributes.kind === 'symlink') refused.isBehindLink = true;
    else if (isMeant && attributes.kind !== 'directory') {
      refused.state = 'found';
      refused.foundInode = attributes.inode;
      refused.foundAt = placeKey(place);
    }
  }

  /**
   * Called once per open. @returns whether it repeats the thread's refused one: the thread has just looked the inode
   * up, or opens the refused inode without a look-up, as through `/proc/self/fd`.
   */
  isRepetition(thread: number, inode: number): boolean {
    const refused = this.#current(thread);
    this.#refused.delete(thread);
    if (refused === undefined) return false;
    // Threads without a number are indistinguishable: another one may open by the same name.
    if (refused.state === 'begun') return thread !== 0 && refused.inode === inode;
    return refused.state === 'found' && refused.foundInode === inode;
  }

  #current(thread: number): Refused | undefined {
    const refused = this.#refused.get(thread);
    if (refused === undefined || this.#world.nowMs() - refused.atMs <= STEP_MS_MAX) return refused;
    this.#refused.delete(thread);
    return undefined;
  }
}
