import type { World } from '../../base/world.ts';
import type { Attributes } from '../backend.ts';
import { placeKey } from '../place.ts';
import type { NamePlace } from '../transport.ts';

/** Whoever was refused looks the path up at once, and opens what it finds at once, in milliseconds. */
const STEP_MS_MAX = 1_000;

interface Refused {
  readonly inode: number;
  /** Names by which it may have been meant. */
  readonly keys: ReadonlySet<string>;
  /** Behind the name another one is looked up, which a link is to get. */
  readonly isLink: boolean;
  /** When it was refused, or what it asked for last was answered; `Infinity` while it waits for that. */
  atMs: number;
  /** `begun`: it has looked up nothing since; `walking`: what is on the way, or a name to which a symbolic link leads; `found`: what it means now. */
  state: 'begun' | 'walking' | 'found';
  isBehindLink: boolean;
  found: number;
  foundAt: string;
}

/**
 * Threads that were refused an open by a name that the kernel has kept: the kernel looks up all names of the path once more, and opens what it finds.
 * Between the refusal and that open it asks for them in the name of the same thread, which tells by which name it is opened then.
 */
export class RefusedOpens {
  readonly #world: World;
  /** By thread; 0 for all those of other containers, which have no number here. */
  readonly #refused = new Map<number, Refused>();

  constructor(world: World) {
    this.#world = world;
  }

  /**
   * @param keys of names (`placeKey`) by which the kernel may have come to the inode
   * @param isLink it was to get a second name, and is not opened
   */
  refuse(thread: number, inode: number, keys: readonly string[], isLink = false): void {
    const nowMs = this.#world.nowMs();
    for (const [oldest, { atMs }] of this.#refused) {
      if (nowMs - atMs <= STEP_MS_MAX) break;
      this.#refused.delete(oldest);
    }
    this.#refused.delete(thread);
    this.#refused.set(thread, {
      ...{ inode, keys: new Set(keys), isLink, atMs: nowMs },
      ...{ state: 'begun', isBehindLink: false, found: 0, foundAt: '' },
    });
  }

  /** @returns whether the thread has to hear what the cluster has now: it looks up once more what it was refused */
  looks(thread: number, place: NamePlace): boolean {
    const refused = this.#current(thread);
    if (refused === undefined) return false;
    // What is another inode than before the kernel asks for twice.
    const isOther = refused.foundAt !== placeKey(place);
    if (refused.state === 'found' && isOther && !refused.isLink) {
      // It has come to something that is not opened, and does something else now.
      this.#refused.delete(thread);
      return false;
    }
    if (refused.state === 'begun') refused.state = 'walking';
    refused.atMs = Number.POSITIVE_INFINITY;
    return true;
  }

  /** @param attributes of what the cluster has there; null: nothing, or that is not known */
  found(thread: number, place: NamePlace, attributes: Attributes | null): void {
    const refused = this.#refused.get(thread);
    if (refused === undefined) return;
    refused.atMs = this.#world.nowMs();
    if (refused.state === 'found' && refused.foundAt !== placeKey(place)) return;
    const isMeant =
      refused.isBehindLink || refused.keys.has(placeKey(place)) || attributes?.inode === refused.inode;
    if (attributes === null || (isMeant && attributes.kind === 'directory' && !refused.isBehindLink)) {
      // There will be no open.
      this.#refused.delete(thread);
    } else if (isMeant && attributes.kind === 'symlink') refused.isBehindLink = true;
    else if (isMeant && attributes.kind !== 'directory') {
      refused.state = 'found';
      refused.found = attributes.inode;
      refused.foundAt = placeKey(place);
    }
  }

  /**
   * The thread opens an inode.
   *
   * @returns whether that is what it has just looked up, or, where it has looked up nothing, the same once more: it is opened without a name,
   *   as what is open already
   */
  comesBack(thread: number, inode: number): boolean {
    const refused = this.#current(thread);
    this.#refused.delete(thread);
    if (refused === undefined) return false;
    // Of those without a number another one may open by the same name.
    if (refused.state === 'begun') return thread !== 0 && refused.inode === inode;
    return refused.state === 'found' && refused.found === inode;
  }

  #current(thread: number): Refused | undefined {
    const refused = this.#refused.get(thread);
    if (refused === undefined || this.#world.nowMs() - refused.atMs <= STEP_MS_MAX) return refused;
    this.#refused.delete(thread);
    return undefined;
  }
}
