import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { LOCK_END } from '../../base/lock-end.ts';
import { ErrnoError } from '../../fuse/errno.ts';
import { BindingLocks, LOCK_WAITERS_MAX } from '../../fuse/native/binding-locks.ts';
import type { LockRequest } from '../../fuse/transport.ts';
import { systemWorld } from '../../world/system-world.ts';

const F_GETLK = 5;
const F_SETLK = 6;
const F_SETLKW = 7;
const WRITE = 1;
const UNLOCK = 2;
const ASKED = { type: WRITE, whence: 0, start: 10, length: 5, pid: 42 };
const LOCK_SH = 1;
const LOCK_NB = 4;
const LOCK_UN = 8;

interface Seen extends LockRequest {
  readonly waits: boolean;
}

/** A file system that records its lock requests. One that waits fails with EINTR when its signal aborts. */
function noting(holder: LockRequest | null = null) {
  const seen: Seen[] = [];
  const locks = new BindingLocks(systemWorld, {
    lockHolder: async () => holder,
    lock: async (_handle, request, waits, signal) => {
      seen.push({ ...request, waits });
      if (!waits) return;
      await once(signal, 'abort');
      throw new ErrnoError('EINTR', 'By intent');
    },
  });
  return { locks, seen };
}

test('a range has its last byte as its end, and a range of length 0 has no end', async () => {
  const { locks, seen } = noting();
  await locks.posix(1, F_SETLK, ASKED, null);
  await locks.posix(1, F_SETLK, { ...ASKED, length: 0, type: UNLOCK }, null);
  await locks.posix(1, F_SETLK, { ...ASKED, start: 2n ** 53n + 1n, length: 1 }, null);
  assert.deepEqual(
    seen.map(({ kind, type, start, end, pid }) => [kind, type, start, end, pid]),
    [
      ['posix', 'exclusive', 10n, 14n, 42],
      ['posix', 'unlock', 10n, LOCK_END, 42],
      ['posix', 'exclusive', 2n ** 53n + 1n, 2n ** 53n + 1n, 42],
    ],
  );
});

test('F_GETLK returns the holder as a range with a length, and UNLOCK if there is none', async () => {
  const held = { kind: 'posix', type: 'shared', start: 3n, end: 12n, owner: 0n, pid: 7 } as const;
  const told = await noting(held).locks.posix(1, F_GETLK, ASKED, null);
  assert.deepEqual(told, { type: 0, whence: 0, start: 3n, length: 10n, pid: 7 });
  const endless = { ...held, end: LOCK_END };
  assert.equal((await noting(endless).locks.posix(1, F_GETLK, ASKED, null)).length, 0);
  assert.equal((await noting().locks.posix(1, F_GETLK, ASKED, null)).type, UNLOCK);
});

test('flock locks and unlocks whole files', async () => {
  const { locks, seen } = noting();
  await locks.flock(1, LOCK_SH | LOCK_NB, null);
  await locks.flock(1, LOCK_UN, null);
  assert.deepEqual(
    seen.map(({ kind, type, start, end, waits }) => [kind, type, start, end, waits]),
    [
      ['flock', 'shared', 0n, LOCK_END, false],
      ['flock', 'unlock', 0n, LOCK_END, false],
    ],
  );
});

test('waiting lock calls leave threads for unlocks, and end when their program has a pending signal', async (t) => {
  const { locks, seen } = noting();
  // A stopped program keeps its signals pending, as a program within a call does.
  const program = spawn('sleep', ['1000'], { stdio: 'ignore' });
  t.after(() => program.kill('SIGKILL'));
  await once(program, 'spawn');
  const pid = program.pid as number;
  const waits = Array.from({ length: LOCK_WAITERS_MAX }, () =>
    assert.rejects(
      locks.posix(1, F_SETLKW, ASKED, { pid, fileInfo: null }),
      (error: ErrnoError) => error.errno === 'EINTR',
    ),
  );
  await assert.rejects(
    locks.flock(1, LOCK_SH, { pid, fileInfo: null }),
    (error: ErrnoError) => error.errno === 'ENOLCK',
  );
  await locks.posix(1, F_SETLK, { ...ASKED, type: UNLOCK }, null);
  assert.equal(seen.length, LOCK_WAITERS_MAX + 1);
  program.kill('SIGSTOP');
  program.kill('SIGTERM');
  await Promise.all(waits);
  await assert.rejects(
    locks.flock(1, LOCK_SH, { pid, fileInfo: null }),
    (error: ErrnoError) => error.errno === 'EINTR',
    'There are free waiters again',
  );
});
