import { ServiceError } from '../../base/errors.ts';
import { LOCK_END } from '../../base/lock-end.ts';
import type { World } from '../../base/world.ts';
import type { BackendLock, BackendLocks } from '../backend.ts';
import { ErrnoError, isLockLoss, lockLost } from '../errno.ts';
import type { LockRequest } from '../transport.ts';

/** After a close the kernel's word that it was the last one is awaited for so long, in milliseconds: a descriptor that was copied is closed without. */
const LAST_CLOSE_MS = 200;

interface Owner {
  readonly kind: BackendLock['kind'];
  readonly owner: string;
}

/** A handle that has locks, of which a descriptor was closed. */
interface Closing {
  /** From then on the file is taken for open still; Infinity once the kernel has said that it is not. */
  readonly untilMs: number;
  /** Resolves when its locks are given back. */
  readonly gone: PromiseWithResolvers<void>;
}

/**
 * Locks of the programs of this mount on one open file. A lock of `fcntl` belongs to a process, one of `flock` to an open
 * file, which is a handle here.
 */
export class OpenLocks {
  readonly #world: World;
  readonly #locks: BackendLocks;
  /** Who locked through which handle: what is written through it is written under that lock. */
  readonly #under = new Map<number, Map<string, Owner>>();
  /**
   * The locks of an open file go with it, of which the kernel tells when the last `close` has returned already. Whoever is
   * told that one of them stands in the way may know of that close, and be right that there is none.
   */
  readonly #closing = new Map<number, Closing>();

  constructor(world: World, locks: BackendLocks) {
    this.#world = world;
    this.#locks = locks;
  }

  /** @throws ErrnoError EAGAIN, EDEADLK, ENOLCK, EIO; EINTR once `signal` is aborted and nothing was locked */
  async lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void> {
    const { start, end, pid, type } = request;
    const owner = ownerOf(handle, request);
    if (type === 'unlock') {
      await this.#locks.unlock({ ...owner, start, end, pid });
      return;
    }
    // Whoever asks for one has it open. To give back is a part of closing, as libfuse does it.
    this.#settled(handle);
    const known = this.#under.get(handle) ?? new Map<string, Owner>();
    known.set(keyOf(owner), owner);
    this.#under.set(handle, known);
    const wish = { ...owner, type, start, end, pid };
    const closing = this.#closingNow(owner.kind);
    try {
      await this.#locks.lock(wish, waits, signal).catch(async (error: unknown) => {
        if (!isTaken(error) || !(await this.#goneAfter(closing, signal))) throw error;
        await this.#locks.lock(wish, waits, signal);
      });
    } catch (error) {
      if (signal.aborted) throw new ErrnoError('EINTR', 'The wait for a lock was interrupted');
      throw isLockLoss(error) ? lockLost() : error;
    }
  }

  /** @returns a lock that is in the way of `request`, or null; the process is told only where it is one of this mount */
  async holder(handle: number, request: LockRequest): Promise<LockRequest | null> {
    const { start, end, pid, type } = request;
    if (type === 'unlock') return null;
    const wish = { ...ownerOf(handle, request), type, start, end, pid };
    this.#settled(handle);
    const closing = this.#closingNow(wish.kind);
    let found = await this.#locks.holder(wish);
    if (found?.own === true && (await this.#goneAfter(closing))) found = await this.#locks.holder(wish);
    if (found === null) return null;
    const { lock, own } = found;
    const { kind, type: held, start: from, end: to } = lock;
    return { kind, type: held, start: from, end: to, owner: 0n, pid: own ? lock.pid : 0 };
  }

  /**
   * Whatever is read or written through the handle is so under its locks.
   *
   * @throws ErrnoError EIO where one of them was lost, until it is given back or the file is closed
   */
  assertKept(handle: number): void {
    const owners = this.#under.get(handle);
    if (owners === undefined) return;
    for (const { kind, owner } of owners.values()) if (this.#locks.isLost(kind, owner)) throw lockLost();
  }

  /** Whether something was locked through the handle. */
  isUnder(handle: number): boolean {
    return this.#under.has(handle);
  }

  /** Whether whom the request is for may have locks already. */
  isOwner(handle: number, request: Pick<LockRequest, 'kind' | 'owner'>): boolean {
    const key = keyOf(ownerOf(handle, request));
    return [...this.#under.values()].some((owners) => owners.has(key));
  }

  /** A process closed a descriptor of the file: that ends its locks of `fcntl`, whichever descriptor it was. */
  async flush(owner: bigint): Promise<void> {
    const closing: Owner = { kind: 'posix', owner: String(owner) };
    for (const owners of this.#under.values()) owners.delete(keyOf(closing));
    await this.#giveBack(closing);
  }

  /** A close of the handle is about to return; perhaps it was the last. */
  closed(handle: number): void {
    if ((this.#under.get(handle)?.size ?? 0) === 0) return;
    const { untilMs = 0, gone = Promise.withResolvers<void>() } = this.#closing.get(handle) ?? {};
    this.#closing.set(handle, { untilMs: Math.max(untilMs, this.#world.nowMs() + LAST_CLOSE_MS), gone });
  }

  /** The last close of the handle has returned; what it has is about to be given back. */
  closedLast(handle: number): void {
    if (!this.#under.has(handle)) return;
    const { gone = Promise.withResolvers<void>() } = this.#closing.get(handle) ?? {};
    this.#closing.set(handle, { untilMs: Number.POSITIVE_INFINITY, gone });
  }

  /**
   * The last descriptor of an open file is gone, and with it what belonged to the open file: its lock of `flock`, and
   * locks of `fcntl` that no process has closed, which are those of F_OFD_SETLK.
   */
  async release(handle: number): Promise<void> {
    const owners = [...(this.#under.get(handle)?.values() ?? [])];
    try {
      for (const owner of owners) await this.#giveBack(owner);
    } finally {
      this.#under.delete(handle);
      this.#settled(handle);
    }
  }

  close(): Promise<void> {
    return this.#locks.close();
  }

  /** @returns handles that were closed before this moment, perhaps for the last time, with locks of the kind */
  #closingNow(kind: Owner['kind']): readonly number[] {
    const nowMs = this.#world.nowMs();
    return [...this.#closing].flatMap(([handle, { untilMs }]) => {
      if (untilMs <= nowMs) this.#closing.delete(handle);
      const owners = [...(this.#under.get(handle)?.values() ?? [])];
      return untilMs > nowMs && owners.some((owner) => owner.kind === kind) ? [handle] : [];
    });
  }

  /** Waits until each of the handles has given its locks back, or is taken for open. @returns false where there are none */
  async #goneAfter(handles: readonly number[], signal?: AbortSignal): Promise<boolean> {
    for (const handle of handles) {
      for (;;) {
        const closing = this.#closing.get(handle);
        const leftMs = (closing?.untilMs ?? 0) - this.#world.nowMs();
        if (closing === undefined || leftMs <= 0) break;
        // That the last close was heard of lets everybody wait longer, and is looked at when the first wait is over.
        const pauseMs = Math.min(leftMs, LAST_CLOSE_MS);
        const pause = this.#world.sleep(pauseMs, signal === undefined ? {} : { signal });
        await Promise.race([closing.gone.promise, pause]);
      }
    }
    return handles.length > 0;
  }

  /** The handle is open, or its locks are given back. */
  #settled(handle: number): void {
    const closing = this.#closing.get(handle);
    this.#closing.delete(handle);
    closing?.gone.resolve();
  }

  #giveBack(owner: Owner): Promise<void> {
    return this.#locks.unlock({ ...owner, start: 0n, end: LOCK_END, pid: 0 });
  }
}

function keyOf({ kind, owner }: Owner): string {
  return `${kind}:${owner}`;
}

function ownerOf(handle: number, { kind, owner }: Pick<LockRequest, 'kind' | 'owner'>): Owner {
  return { kind, owner: kind === 'flock' ? `h${handle}` : String(owner) };
}

function isTaken(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'locked';
}
