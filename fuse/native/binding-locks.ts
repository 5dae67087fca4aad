import { readFile } from 'node:fs/promises';
import type Fuse from 'fuse-native';
import { LOCK_END } from '../../base/lock-end.ts';
import type { World } from '../../base/world.ts';
import { ErrnoError } from '../errno.ts';
import type { FileSystemCalls, LockRequest } from '../transport.ts';

/** Each waiting call occupies a worker of the library; some must remain for the call that releases the lock. */
export const LOCK_WAITERS_MAX = 32;
/** The library does not report interrupts: /proc is checked this often. */
const CHECK_INTERVAL_MS = 250;

/** Of <fcntl.h> and <sys/file.h>. */
const F_GETLK = 5;
const F_SETLKW = 7;
const F_TYPES = ['shared', 'exclusive', 'unlock'] as const;
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;

type Context = Pick<Fuse.RequestContext, 'pid' | 'fileInfo'> | null;

export class BindingLocks {
  readonly #world: World;
  readonly #lock: NonNullable<FileSystemCalls['lock']>;
  readonly #lockHolder: NonNullable<FileSystemCalls['lockHolder']>;
  #waiting = 0;

  constructor(world: World, { lock, lockHolder }: Required<Pick<FileSystemCalls, 'lock' | 'lockHolder'>>) {
    this.#world = world;
    this.#lock = lock;
    this.#lockHolder = lockHolder;
  }

  /** As `fcntl`(2) with F_GETLK, F_SETLK or F_SETLKW. @returns the result of F_GETLK */
  async posix(
    handle: number,
    command: number,
    requested: Readonly<Fuse.Lock>,
    context: Context,
  ): Promise<Fuse.Lock> {
    const type = F_TYPES[requested.type];
    const start = BigInt(requested.start);
    const length = BigInt(requested.length);
    // The kernel has converted positions to the start of the file, and refused negative ones.
    const end = length === 0n ? LOCK_END : start + length - 1n;
    if (type === undefined || start < 0n) throw new ErrnoError('EINVAL', 'Not a lock');
    const owner = ownerOf(context);
    const request: LockRequest = { kind: 'posix', type, start, end, owner, pid: requested.pid };
    if (command !== F_GETLK) {
      await this.#set(handle, request, command === F_SETLKW, context);
      return requested;
    }
    const held = await this.#lockHolder(handle, request);
    if (held === null) return { ...requested, type: F_TYPES.indexOf('unlock') };
    return {
      type: F_TYPES.indexOf(held.type),
      whence: 0,
      start: held.start,
      length: held.end === LOCK_END ? 0 : held.end - held.start + 1n,
      pid: held.pid,
    };
  }

  async flock(handle: number, operation: number, context: Context): Promise<void> {
    const type =
      (operation & LOCK_UN) !== 0 ? 'unlock' : (operation & LOCK_EX) !== 0 ? 'exclusive' : 'shared';
    const pid = context?.pid ?? 0;
    const request: LockRequest = {
      ...{ kind: 'flock', type, start: 0n, end: LOCK_END },
      ...{ owner: ownerOf(context), pid },
    };
    await this.#set(handle, request, (operation & LOCK_NB) === 0, context);
  }

  async #set(handle: number, request: LockRequest, waits: boolean, context: Context): Promise<void> {
    const abort = new AbortController();
    if (!waits || request.type === 'unlock') return this.#lock(handle, request, false, abort.signal);
    if (this.#waiting >= LOCK_WAITERS_MAX) {
      throw new ErrnoError('ENOLCK', `${LOCK_WAITERS_MAX} calls wait for locks on this mount already`);
    }
    this.#waiting++;
    const timer = this.#world.every(CHECK_INTERVAL_MS, () => {
      isInterrupted(context?.pid ?? 0).then(
        (interrupted) => {
          if (interrupted) abort.abort();
        },
        // The program has ended.
        () => abort.abort(),
      );
    });
    try {
      await this.#lock(handle, request, true, abort.signal);
    } finally {
      timer.cancel();
      this.#waiting--;
    }
  }
}

export function ownerOf(context: Context): bigint {
  return BigInt(context?.fileInfo?.lockOwner ?? 0);
}

/** Whether a signal that is neither blocked nor ignored is pending for the program. */
async function isInterrupted(pid: number): Promise<boolean> {
  if (pid === 0) return false;
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const mask = (name: string): bigint => {
    const text = new RegExp(`^${name}:\\s*([0-9a-f]+)$`, 'm').exec(status)?.[1];
    return BigInt(`0x${text ?? '0'}`);
  };
  return ((mask('SigPnd') | mask('ShdPnd')) & ~mask('SigBlk') & ~mask('SigIgn')) !== 0n;
}
