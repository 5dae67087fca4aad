import { LOCK_END } from '../../../base/lock-end.ts';
import { LockTable } from '../../../server/file/lock-table.ts';
import type { Inode } from './inode.ts';
import { KernelError } from './kernel-error.ts';
import type { FileLock } from './process.ts';

/** The only client: this kernel. */
const CLIENT = 1;

/** Locks of directories (fs/locks.c): FUSE leaves those to the kernel. Waiting for one is not modelled. */
export class LocalLocks {
  readonly #tables = new Map<Inode, LockTable>();

  lock(inode: Inode, kind: 'posix' | 'flock', owner: bigint, lock: FileLock, pid: number): void {
    const table = this.#tables.get(inode) ?? new LockTable();
    this.#tables.set(inode, table);
    const wish = { kind, owner: String(owner), pid, client: CLIENT, ...lock };
    if (wish.type === 'unlock') {
      table.set(wish);
      return;
    }
    if (kind === 'flock') table.beginFlock(wish);
    if (table.conflict(wish) !== null) throw new KernelError('EAGAIN');
    table.set(wish);
  }

  holder(inode: Inode, owner: bigint, lock: FileLock): (FileLock & { readonly pid: number }) | null {
    const wish = { kind: 'posix', owner: String(owner), pid: 0, client: CLIENT, ...lock } as const;
    return this.#tables.get(inode)?.conflict(wish) ?? null;
  }

  /** locks_remove_posix and locks_remove_flock: at a close of a descriptor, and at the release of the open file. */
  remove(inode: Inode, kind: 'posix' | 'flock', owner: bigint): void {
    const all = { kind, owner: String(owner), pid: 0, client: CLIENT, start: 0n, end: LOCK_END };
    this.#tables.get(inode)?.set({ ...all, type: 'unlock' });
  }
}
