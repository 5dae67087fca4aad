import { ServiceError } from '../../base/errors.ts';
import { LOCK_END } from '../../base/lock-end.ts';
import type { World } from '../../base/world.ts';
import type { BackendLock, BackendLocks } from '../backend.ts';
import { ErrnoError, isLockLoss, lockLost } from '../errno.ts';
import type { LockRequest } from '../transport.ts';

/** How long a close may be followed by the kernel's release; none follows if the descriptor has copies. */
const LAST_CLOSE_MS = 200;

interface Owner {
  readonly kind: BackendLock['kind'];
  readonly owner: string;
}

interface Closing {
  /** After that the handle counts as open; Infinity after the kernel's release. */
  readonly untilMs: number;
  readonly released: PromiseWithResolvers<void>;
}

/** Locks of this mount's programs on an open file. A process owns a lock of `fcntl`, a handle one of `flock`. */
export class OpenLocks {
  readonly #world: World;
  readonly #locks: BackendLocks;
  /** Owners by handle: what is written through the handle is written under their locks. */
  readonly #owners = new Map<number, Map<string, Owner>>();
  /**
   * Closed handles with locks. The kernel reports the last close only after `close` has returned: by then another
   * program may rely on the unlock.
   */
  readonly #closing = new Map<number, Closing>();

  constructor(world: World, locks: BackendLocks) {
    this.#world = world;
    this.#locks = locks;
  }

  /** @throws ErrnoError EAGAIN, EDEADLK, ENOLCK, EIO; EINTR after an abort of `signal`, if nothing was locked */
  async lock(handle: number, request: LockRequest, waits: boolean, signal: AbortSignal): Promise<void> {
    const { start, end, pid, type } = request;
    const owner = ownerOf(handle, request);
    if (type === 'unlock') {
      await this.#locks.unlock({ ...owner, start, end, pid });
      return;
    }
    // A lock call shows that the handle is open. An unlock does not: libfuse unlocks as a part of closing.
    this.#endClosing(handle);
    const known = this.#owners.get(handle) ?? new Map<string, Owner>();
    known.set(keyOf(owner), owner);
    this.#owners.set(handle, known);
    const wanted = { ...owner, type, start, end, pid };
    const closing = this.#closingNow(owner.kind);
    try {
      await this.#locks.lock(wanted, waits, signal).catch(async (error: unknown) => {
        if (!isTaken(error) || !(await this.#waitForClosing(closing, signal))) throw error;
        await this.#locks.lock(wanted, waits, signal);
      });
    } catch (error) {
      if (signal.aborted) throw new ErrnoError('EINTR', 'The wait for a lock was interrupted');
      throw isLockLoss(error) ? lockLost() : error;
    }
  }

  /** @returns a lock that conflicts with `request`, or null; with its process only if it is one of this mount */
  async holder(handle: number, request: LockRequest): Promise<LockRequest | null> {
    const { start, end, pid, type } = request;
    if (type === 'unlock') return null;
    const wanted = { ...ownerOf(handle, request), type, start, end, pid };
    this.#endClosing(handle);
    const closing = this.#closingNow(wanted.kind);
    let found = await this.#locks.findConflict(wanted);
    if (found?.own === true && (await this.#waitForClosing(closing)))
      found = await this.#locks.findConflict(wanted);
    if (found === null) return null;
    const { lock, own } = found;
    const { kind, type: held, start: from, end: to } = lock;
    return { kind, type: held, start: from, end: to, owner: 0n, pid: own ? lock.pid : 0 };
  }

  /** @throws ErrnoError EIO after the loss of a lock, until it is released or the file is closed */
  assertKept(handle: number): void {
    const owners = this.#owners.get(handle);
    if (owners === undefined) return;
    for (const { kind, owner } of owners.values()) if (this.#locks.isLost(kind, owner)) throw lockLost();
  }

  hasLocks(handle: number): boolean {
    return this.#owners.has(handle);
  }

  isOwner(handle: number, request: Pick<LockRequest, 'kind' | 'owner'>): boolean {
    const key = keyOf(ownerOf(handle, request));
    return [...this.#owners.values()].some((owners) => owners.has(key));
  }

  /** Called when a process closes a descriptor: by POSIX this ends all its locks of `fcntl` on the file. */
  async flush(owner: bigint): Promise<void> {
    const closing: Owner = { kind: 'posix', owner: String(owner) };
    for (const owners of this.#owners.values()) owners.delete(keyOf(closing));
    await this.#release(closing);
  }

  /** Called before a close of the handle returns. It may be the last, so others wait a moment for its locks. */
  closed(handle: number): void {
    if ((this.#owners.get(handle)?.size ?? 0) === 0) return;
    const { untilMs = 0, released = Promise.withResolvers<void>() } = this.#closing.get(handle) ?? {};
    this.#closing.set(handle, {
      untilMs: Math.max(untilMs, this.#world.nowMs() + LAST_CLOSE_MS),
      released,
    });
  }

  /** Called after the last close of the handle has returned: others wait until its locks are released. */
  closedLast(handle: number): void {
    if (!this.#owners.has(handle)) return;
    const { released = Promise.withResolvers<void>() } = this.#closing.get(handle) ?? {};
    this.#closing.set(handle, { untilMs: Number.POSITIVE_INFINITY, released });
  }

  /** Ends the handle's lock of `flock`, and locks of `fcntl` that no process owns (F_OFD_SETLK). */
  async release(handle: number): Promise<void> {
    const owners = [...(this.#owners.get(handle)?.values() ?? [])];
    try {
      for (const owner of owners) await this.#release(owner);
    } finally {
      this.#owners.delete(handle);
      this.#endClosing(handle);
    }
  }

  close(): Promise<void> {
    return this.#locks.close();
  }

  /** @returns handles with locks of this kind of which a descriptor was closed recently: an unlock may follow */
  #closingNow(kind: Owner['kind']): readonly number[] {
    const nowMs = this.#world.nowMs();
    return [...this.#closing].flatMap(([handle, { untilMs }]) => {
      if (untilMs <= nowMs) this.#closing.delete(handle);
      const owners = [...(this.#owners.get(handle)?.values() ?? [])];
      return untilMs > nowMs && owners.some((owner) => owner.kind === kind) ? [handle] : [];
    });
  }

  /** Waits until each handle has released its locks or counts as open. @returns false if there are none */
  async #waitForClosing(handles: readonly number[], signal?: AbortSignal): Promise<boolean> {
    for (const handle of handles) {
      for (;;) {
        const closing = this.#closing.get(handle);
        const leftMs = (closing?.untilMs ?? 0) - this.#world.nowMs();
        if (closing === undefined || leftMs <= 0) break;
        // The kernel's release lengthens the wait; checked again after each pause.
        const pauseMs = Math.min(leftMs, LAST_CLOSE_MS);
        const pause = this.#world.sleep(pauseMs, signal === undefined ? {} : { signal });
        await Promise.race([closing.released.promise, pause]);
      }
    }
    return handles.length > 0;
  }

  /** Ends the waits for a closed handle: it is open after all, or its locks are released. */
  #endClosing(handle: number): void {
    const closing = this.#closing.get(handle);
    this.#closing.delete(handle);
    closing?.released.resolve();
  }

  #release(owner: Owner): Promise<void> {
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
