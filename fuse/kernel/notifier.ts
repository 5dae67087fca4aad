import { expireEntryNotice, invalidateInodeNotice, storeNotice } from './replies.ts';

/** Bounded, since each may occupy a thread of the process's pool. */
const IN_FLIGHT_MAX = 2;
/** Separate: attributes do not wait for pages that are being read. */
const ATTRIBUTES_IN_FLIGHT_MAX = 1;
/** Separate: each waits for the lock of its directory. */
const EXPIRIES_IN_FLIGHT_MAX = 1;
/** Separate: invalidations do not wait for pages on their way. */
const STORES_IN_FLIGHT_MAX = 1;

/** @param pieces must not change until `done`, which gets null, or why the kernel refused them */
export type Write = (
  pieces: readonly Uint8Array[],
  done: (error: NodeJS.ErrnoException | null) => void,
) => void;

/**
 * Notices to the kernel. Each can take as long as a call under way, since the kernel waits for pages that are being
 * read: so answers must never wait for it.
 */
export class Notifier {
  readonly #write: Write;
  readonly #drops = new Semaphore(IN_FLIGHT_MAX);
  readonly #attributeDrops = new Semaphore(ATTRIBUTES_IN_FLIGHT_MAX);
  readonly #expiries = new Semaphore(EXPIRIES_IN_FLIGHT_MAX);
  readonly #stores = new Semaphore(STORES_IN_FLIGHT_MAX);

  constructor(write: Write) {
    this.#write = write;
  }

  /** Resolves when attributes, and pages, are dropped. @returns false if the kernel does not know the inode */
  invalidateInode(node: number, pages = true): Promise<boolean> {
    const semaphore = pages ? this.#drops : this.#attributeDrops;
    return semaphore.run(() => this.#notify([invalidateInodeNotice(node, pages)]));
  }

  /** @param ready awaited just before; false: no notice is sent. @returns false if the kernel does not know the name */
  expireEntry(node: number, name: string, ready: () => Promise<boolean>): Promise<boolean> {
    return this.#expiries.run(async () => (await ready()) && this.#notify([expireEntryNotice(node, name)]));
  }

  /** @param isCurrent called just before. @returns false if outdated, or if the kernel does not know the inode */
  storePages(node: number, offset: number, bytes: Uint8Array, isCurrent: () => boolean): Promise<boolean> {
    return this.#stores.run(async () => {
      if (!isCurrent()) return false;
      return this.#notify([storeNotice(node, offset, bytes.length), bytes]);
    });
  }

  #notify(pieces: readonly Uint8Array[]): Promise<boolean> {
    return new Promise<boolean>((resolve, reject) => {
      this.#write(pieces, (error) => {
        const code = error?.code ?? '';
        if (code === 'ENOENT') resolve(false);
        // ENODEV, EBADF: the mount is gone with its caches.
        else if (error === null || code === 'ENODEV' || code === 'EBADF') resolve(true);
        else reject(error);
      });
    });
  }
}

class Semaphore {
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
