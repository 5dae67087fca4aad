import { ServiceError } from '../base/errors.ts';
import type { BackendLock, BackendLocks } from './backend.ts';
import { ErrnoError } from './errno.ts';
import type { LockRequest } from './transport.ts';

const RANGE_END = Number.MAX_SAFE_INTEGER;

interface Owner {
  readonly kind: BackendLock['kind'];
  readonly owner: string;
}

/**
 * Locks of the programs of this mount on one open file. A lock of `fcntl` belongs to a process, one of `flock` to an open
 * file, which is a handle here.
 */
export class OpenLocks {
  readonly #locks: BackendLocks;
  /** Who locked through which handle: what is written through it is written under that lock. */
  readonly #under = new Map<number, Map<string, Owner>>();

  constructor(locks: BackendLocks) {
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
    const known = this.#under.get(handle) ?? new Map<string, Owner>();
    known.set(keyOf(owner), owner);
    this.#under.set(handle, known);
    try {
      await this.#locks.lock({ ...owner, type, start, end, pid }, waits, signal);
    } catch (error) {
      if (signal.aborted) throw new ErrnoError('EINTR', 'The wait for a lock was interrupted');
      throw isLoss(error) ? lost() : error;
    }
  }

  /** @returns a lock that is in the way of `request`, or null; the process is told only where it is one of this mount */
  async holder(handle: number, request: LockRequest): Promise<LockRequest | null> {
    const { start, end, pid, type } = request;
    if (type === 'unlock') return null;
    const found = await this.#locks.holder({ ...ownerOf(handle, request), type, start, end, pid });
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
    for (const { kind, owner } of owners.values()) if (this.#locks.isLost(kind, owner)) throw lost();
  }

  /** A process closed a descriptor of the file: that ends its locks of `fcntl`, whichever descriptor it was. */
  async flush(owner: bigint): Promise<void> {
    const closing: Owner = { kind: 'posix', owner: String(owner) };
    for (const owners of this.#under.values()) owners.delete(keyOf(closing));
    await this.#giveBack(closing);
  }

  /**
   * The last descriptor of an open file is gone, and with it what belonged to the open file: its lock of `flock`, and
   * locks of `fcntl` that no process has closed, which are those of F_OFD_SETLK.
   */
  async release(handle: number): Promise<void> {
    const owners = [...(this.#under.get(handle)?.values() ?? [])];
    this.#under.delete(handle);
    for (const owner of owners) await this.#giveBack(owner);
  }

  close(): Promise<void> {
    return this.#locks.close();
  }

  #giveBack(owner: Owner): Promise<void> {
    return this.#locks.unlock({ ...owner, start: 0, end: RANGE_END, pid: 0 });
  }
}

function keyOf({ kind, owner }: Owner): string {
  return `${kind}:${owner}`;
}

function ownerOf(handle: number, { kind, owner }: LockRequest): Owner {
  return { kind, owner: kind === 'flock' ? `h${handle}` : String(owner) };
}

function isLoss(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'lease-lost';
}

function lost(): ErrnoError {
  return new ErrnoError('EIO', 'A lock on the file was lost, and others may have it');
}
