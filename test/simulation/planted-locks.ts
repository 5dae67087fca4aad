/** Known bugs of locks on files, each noticed by a test of the servers or of the client library; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const TABLE = 'test/server/lock-table.test.ts';
const ENDINGS = 'test/server/lock-endings.test.ts';
const PRIMARY = 'test/server/file-locks.test.ts';
const CLIENT = 'test/client/file-locks.test.ts';
const CLOSED = 'test/fuse/closed-locks.test.ts';
const LOST = 'test/fuse/lost-locks.test.ts';

const KILLED =
  'whoever was killed waits no longer for a lock, though what has become of it is not known yet; another one does';
const LAST_CLOSE = "a lock of flock that goes with a closed file is in nobody's way, however long that takes";

export const PLANTED_LOCKS: readonly Planted[] = [
  replica(
    '62a',
    'a new primary gives locks away before the holders could claim theirs',
    {
      file: 'server/file/file-locks.ts',
      find: 'graceUntilMs: needsNoGrace ? -Infinity : nowMs + this.#spanMs,',
      replace: 'graceUntilMs: -Infinity,',
    },
    { test: { file: PRIMARY, name: 'a new primary gives nothing away before the time to claim is over' } },
  ),
  replica(
    'lock-newborn',
    'a file that was made, and led by whoever made it, is taken for one that was borne',
    {
      file: 'server/file/borne-file.ts',
      find: 'return seq === BIRTH_LENGTH && isWritten && SessionTable.decode(sessions).isEmpty;',
      replace: 'return seq === BIRTH_LENGTH && isWritten;',
    },
    { test: { file: PRIMARY, name: 'a file that was made has locks that can be claimed' } },
  ),
  replica(
    'lock-left',
    'a primary that ends says that it left no locks, though it did',
    {
      file: 'server/file/file-locks.ts',
      find: 'if (locks.length > 0) this.#former',
      replace: 'if (locks.length < 0) this.#former',
    },
    { test: { file: PRIMARY, name: 'locks that a primary left when it ended in good order can be claimed' } },
  ),
  replica(
    'lock-left-before',
    'that a primary left no locks is believed of all that led after it',
    {
      file: 'server/file/file-locks.ts',
      find: 'former.counter + 1 === epoch.counter;',
      replace: 'former.counter < epoch.counter;',
    },
    { test: { file: PRIMARY, name: 'that a primary left no locks says nothing once another one has led' } },
  ),
  replica(
    'lock-left-doubt',
    'a primary that ends while locks are claimed from it says that there are none',
    {
      file: 'server/file/file-locks.ts',
      find: '|| clock.nowMs() < book.graceUntilMs) return;',
      replace: ') return;',
    },
    { test: { file: PRIMARY, name: 'who ends while locks are claimed does not know that there are none' } },
  ),
  replica(
    'lock-left-late',
    'locks are claimed no more, because a primary of long ago left none',
    {
      file: 'server/file/file-locks.ts',
      find: 'if (book.epoch.counter !== counter + 1 ||',
      replace: 'if (',
    },
    {
      test: {
        file: PRIMARY,
        name: 'who has begun to wait for claims ends that when told that there are none',
      },
    },
  ),
  replica(
    '62b',
    'locks outlive the lease of their client',
    { file: 'server/file/file-locks.ts', find: 'book.table.remove(client);', replace: '' },
    { test: { file: PRIMARY, name: 'locks of a client that is silent end with its lease' } },
  ),
  replica(
    '62c',
    'a lock is claimed after the time to claim is over, when others may have had it',
    {
      file: 'server/file/file-locks.ts',
      find: 'if (nowMs >= book.graceUntilMs || book.table.conflict(wish) !== null) return [place];',
      replace: 'if (book.table.conflict(wish) !== null) return [place];',
    },
    { test: { file: PRIMARY, name: 'who comes after the time to claim has lost its locks' } },
  ),
  replica(
    '62d',
    'a copy of a request that comes late locks what was given back',
    {
      file: 'server/file/file-locks.ts',
      find: 'if (number < known.stamp && !known.pending.has(number)) {',
      replace: 'if (number < known.stamp && known.pending.has(-1)) {',
    },
    { test: { file: PRIMARY, name: 'a request that is sent again is one request' } },
  ),
  replica(
    '62e',
    'to give back a part frees all behind it',
    {
      file: 'wire/lock-ranges.ts',
      find: 'if (range.end > wish.end) after.push({ ...range, start: wish.end + 1n });',
      replace: '',
    },
    { test: { file: TABLE, name: 'giving back a part leaves what is before and behind it' } },
  ),
  replica(
    'lock-clamped',
    'the kernel transport makes one byte of all bytes from 2^53 on',
    {
      file: 'fuse/kernel/requests.ts',
      find: 'start: bytes.readBigUInt64LE(at + 16),',
      replace: 'start: BigInt(Math.min(Number(bytes.readBigUInt64LE(at + 16)), Number.MAX_SAFE_INTEGER)),',
    },
    {
      test: {
        file: 'test/fuse/kernel/requests.test.ts',
        name: 'locks keep their places, also beyond 2^53',
      },
    },
  ),
  replica(
    'lock-far',
    'a lock that a release before took for one up to the end of the file ends at 2^53',
    {
      file: 'wire/lock-offsets.ts',
      find: 'end: end === END_NUMBER ? LOCK_END : BigInt(end)',
      replace: 'end: BigInt(end)',
    },
    {
      test: {
        file: PRIMARY,
        name: 'places beyond 2^53 are bytes of their own, and the end of the file is beyond them all',
      },
    },
  ),
  replica(
    '62f',
    'a client counts its lease from when the answer came',
    {
      file: 'client/file-locks.ts',
      find: 'const untilMs = sentMs + grant.leaseMs - CLOCK_MARGIN_MS;',
      replace: 'const untilMs = bootMs() + grant.leaseMs - CLOCK_MARGIN_MS;',
    },
    { test: { file: CLIENT, name: 'a lease counts from when it was asked for' } },
  ),
  replica(
    'lock-lost-written',
    'a program writes under a lock that is lost',
    {
      file: 'fuse/locks.ts',
      find: 'if (this.#locks.isLost(kind, owner)) throw lost();',
      replace: 'this.#locks.isLost(kind, owner);',
    },
    { test: { file: LOST, name: 'bytes that were written under a lost lock and not sent are dropped' } },
  ),
  replica(
    'lock-lost-unsent',
    'bytes that were written under a lock are sent after it is lost',
    {
      file: 'fuse/open-file.ts',
      find: 'if (this.writes.dirty) this.writes.abandon(locksLost());',
      replace: '',
    },
    { test: { file: LOST, name: 'bytes that were written under a lost lock and not sent are dropped' } },
  ),
  replica(
    'lock-lost-unlock',
    'an unlock does not report that bytes written under the lock are lost',
    {
      file: 'fuse/open-files.ts',
      find: 'if (opened.writing) this.#throwFailed(opened);\n      return;',
      replace: 'return;',
    },
    { test: { file: LOST, name: 'a program that does not sync learns of it' } },
  ),
  replica(
    'lock-lost-answered',
    'a write is acknowledged that may have been carried out after its lock was lost',
    {
      file: 'fuse/cluster-backend.ts',
      find: 'locks?.notice();\n    signal.throwIfAborted();',
      replace: '',
    },
    { test: { file: LOST, name: 'a write whose answer arrives after the loss of a lock has failed' } },
  ),
  replica(
    'lock-lost-again',
    'a write is sent again after its lock was lost',
    {
      file: 'fuse/cluster-backend.ts',
      find: 'beforeChange: () => locks?.notice() });',
      replace: '});',
    },
    { test: { file: LOST, name: 'a write is not sent again after the loss of a lock' } },
  ),
  replica(
    '62g',
    'a client takes a lock for renewed by a primary that was not told of it',
    {
      file: 'client/file-locks.ts',
      find: "if ([...this.#epochsSince].some((epoch) => epoch !== renewal.epoch)) return 'again';",
      replace: '',
    },
    { test: { file: CLIENT, name: 'a lock of one primary is not taken for renewed by another' } },
  ),
  replica(
    '62h',
    'a wait uses up half of the lease of the lock that it ends with',
    {
      file: 'server/file/file-locks.ts',
      find: 'lockLeaseMs / WAITS_PER_LEASE);',
      replace: 'lockLeaseMs / 2);',
    },
    { test: { file: PRIMARY, name: 'a wait is for a small part of the lock lease' } },
  ),
  replica(
    'unlocked-frame',
    'the word that a file has no locks leaves at once, in a frame of its own',
    {
      file: 'server/file/lock-endings.ts',
      find: 'encodeEndings(part), CALL_MS, true)',
      replace: 'encodeEndings(part), CALL_MS, false)',
    },
    { test: { file: ENDINGS, name: 'the word that a file has no locks, and what is answered, travel' } },
  ),
  replica(
    'unlocked-answered',
    'the answer to the word that a file has no locks leaves at once, in a frame of its own',
    {
      file: 'server/peer-handlers.ts',
      find: 'method === SPARE_CALL || method === UNLOCKED_CALL,',
      replace: 'method === SPARE_CALL,',
    },
    { test: { file: ENDINGS, name: 'the word that a file has no locks, and what is answered, travel' } },
  ),
  replica(
    'lock-closed',
    'the lock of a file that was closed stands in the way until the kernel says that it is',
    {
      file: 'fuse/locks.ts',
      find: 'if (!isTaken(error) || !(await this.#goneAfter(closing, signal))) throw error;',
      replace: 'throw error;',
    },
    { test: { file: CLOSED, name: LAST_CLOSE } },
  ),
  replica(
    'lock-closed-holder',
    'whoever asks is told of the lock of a file that was closed',
    {
      file: 'fuse/locks.ts',
      find: 'if (found?.own === true && (await this.#goneAfter(closing))) found',
      replace: 'if (found === null) found',
    },
    { test: { file: CLOSED, name: LAST_CLOSE } },
  ),
  replica(
    'lock-closed-slowly',
    'a lock that is being given back is waited for no longer than for the word that it will be',
    {
      file: 'fuse/open-files.ts',
      find: 'opened.file.locks?.closedLast(handle);',
      replace: '',
    },
    { test: { file: CLOSED, name: LAST_CLOSE } },
  ),
  replica(
    'lock-copied',
    'after a close whoever has the file open is waited for, although it locks',
    {
      file: 'fuse/locks.ts',
      find: 'this.#settled(handle);\n    const known',
      replace: 'const known',
    },
    {
      test: {
        file: CLOSED,
        name: 'whoever locks through a handle has it open: nobody waits for its last close',
      },
    },
  ),
  replica(
    'lock-killed',
    'a program that was killed stays until what has become of its lock is known',
    {
      file: 'fuse/kernel/calls-under-way.ts',
      find: 'call.abort?.abort();',
      replace: 'if (call.abort !== undefined) return call.abort.abort();',
    },
    { test: { file: 'test/fuse/kernel/calls-under-way.test.ts', name: KILLED } },
  ),
];
