import { expireEntryNotice, invalidateInodeNotice, storeNotice } from './replies.ts';

/** Notices on their way at the same time: each may occupy a thread of the process's pool, which others need too. */
const IN_FLIGHT_MAX = 2;
/** Attributes alone beside them: who waits for those does not wait for pages that are being read. */
const ATTRIBUTES_IN_FLIGHT_MAX = 1;
/** Names beside them: each waits for the lock of its directory, and nothing else is to wait for that. */
const EXPIRIES_IN_FLIGHT_MAX = 1;
/** Pages on their way beside them: who waits for the kernel to forget something does not wait for those. */
const GIFTS_IN_FLIGHT_MAX = 1;

/**
 * Hands bytes to the kernel from another thread.
 *
 * @param pieces follow each other, and stay as they are until `done`
 * @param done null, or why the kernel did not take them
 */
export type Write = (
  pieces: readonly Uint8Array[],
  done: (error: NodeJS.ErrnoException | null) => void,
) => void;

/**
 * Tells the kernel to drop what it keeps, and gives it pages. That may take as long as a call under way, for pages that are
 * being read are waited for. So it is never waited for by whoever answers calls.
 */
export class Notifier {
  readonly #write: Write;
  readonly #drops = new Turns(IN_FLIGHT_MAX);
  readonly #attributeDrops = new Turns(ATTRIBUTES_IN_FLIGHT_MAX);
  readonly #expiries = new Turns(EXPIRIES_IN_FLIGHT_MAX);
  readonly #gifts = new Turns(GIFTS_IN_FLIGHT_MAX);

  constructor(write: Write) {
    this.#write = write;
  }

  /**
   * Resolves when attributes, and pages, are dropped.
   *
   * @returns false where the kernel does not know the inode
   */
  invalidateInode(node: number, pages = true): Promise<boolean> {
    const turns = pages ? this.#drops : this.#attributeDrops;
    return turns.run(() => this.#notify([invalidateInodeNotice(node, pages)]));
  }

  /**
   * Resolves when the kernel looks the name up at its next use.
   *
   * @param node of its directory
   * @param ready awaited when it is the name's turn. @returns whether it is still wanted
   * @returns false where the kernel does not know the name
   */
  expireEntry(node: number, name: string, ready: () => Promise<boolean>): Promise<boolean> {
    return this.#expiries.run(async () => (await ready()) && this.#notify([expireEntryNotice(node, name)]));
  }

  /**
   * Resolves when the kernel has the pages.
   *
   * @param isCurrent asked when it is their turn
   * @returns false where they are not current any more, and where the kernel does not know the inode
   */
  givePages(node: number, offset: number, bytes: Uint8Array, isCurrent: () => boolean): Promise<boolean> {
    return this.#gifts.run(async () => {
      if (!isCurrent()) return false;
      return this.#notify([storeNotice(node, offset, bytes.length), bytes]);
    });
  }

  /** @returns false where the kernel does not know the inode */
  #notify(pieces: readonly Uint8Array[]): Promise<boolean> {
    return new Promise<boolean>((resolve, reject) => {
      this.#write(pieces, (error) => {
        const code = error?.code ?? '';
        if (code === 'ENOENT') resolve(false);
        // ENODEV, EBADF: the mount is gone, and with it all that was kept.
        else if (error === null || code === 'ENODEV' || code === 'EBADF') resolve(true);
        else reject(error);
      });
    });
  }
}

/** So many at a time, in the order in which they came. */
class Turns {
  readonly #countMax: number;
  readonly #waiting: (() => void)[] = [];
  #count = 0;

  constructor(countMax: number) {
    this.#countMax = countMax;
  }

  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#count < this.#countMax) this.#count++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#count--;
      else next();
    }
  }
}
