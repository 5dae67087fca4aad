import { invalidateInodeNotice } from './replies.ts';

/** Notices on their way at the same time: each may occupy a thread of the process's pool, which others need too. */
const IN_FLIGHT_MAX = 2;

/**
 * Hands bytes to the kernel from another thread.
 *
 * @param done null, or why the kernel did not take them
 */
export type Write = (notice: Uint8Array, done: (error: NodeJS.ErrnoException | null) => void) => void;

/**
 * Tells the kernel to drop what it keeps. That may take as long as a call under way, for pages that are being read
 * are waited for. So it is never waited for by whoever answers calls.
 */
export class Notifier {
  readonly #write: Write;
  readonly #waiting: (() => void)[] = [];
  #inFlight = 0;

  constructor(write: Write) {
    this.#write = write;
  }

  /**
   * Resolves when attributes, and pages, are dropped.
   *
   * @returns false where the kernel does not know the inode
   */
  async invalidateInode(node: number, pages = true): Promise<boolean> {
    if (this.#inFlight >= IN_FLIGHT_MAX) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#inFlight++;
    try {
      return await new Promise<boolean>((resolve, reject) => {
        this.#write(invalidateInodeNotice(node, pages), (error) => {
          const code = error?.code ?? '';
          if (code === 'ENOENT') resolve(false);
          // ENODEV, EBADF: the mount is gone, and with it all that was kept.
          else if (error === null || code === 'ENODEV' || code === 'EBADF') resolve(true);
          else reject(error);
        });
      });
    } finally {
      this.#inFlight--;
      if (this.#inFlight < IN_FLIGHT_MAX) this.#waiting.shift()?.();
    }
  }
}
