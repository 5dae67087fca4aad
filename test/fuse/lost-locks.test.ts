/**
 * Goal: when a lock is lost, bytes that were written under it and are not at the cluster are dropped, and the program
 * gets an error. Another client may have the lock, and writes what follows from the cluster's contents.
 * Method: the calls of the kernel, over a cluster that loses locks when the test says so; and the client library on a
 * machine that sleeps longer than the lease of a lock.
 */

import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { LOCK_END } from '../../base/lock-end.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { BackendLock } from '../../fuse/backend.ts';
import { clusterBackend } from '../../fuse/cluster/cluster-backend.ts';
import { fileSystemOf } from '../../fuse/file-system.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

const ROOT = 1;
const USER = { uid: 0, gid: 0 };
const PROGRAM = 7n;
const WHOLE = { kind: 'posix', owner: PROGRAM, start: 0n, end: LOCK_END, pid: 1 } as const;
const HELD: BackendLock = { ...WHOLE, owner: String(PROGRAM), type: 'exclusive' };
const EIO = { errno: 'EIO' };

class LosingLocks extends MemoryBackend {
  #lost: (locks: readonly BackendLock[]) => void = () => undefined;
  #isLost = false;

  lose(): void {
    this.#isLost = true;
    this.#lost([HELD]);
  }

  override openFile(inode: number) {
    const file = super.openFile(inode);
    return {
      ...file,
      openLocks: (lost: Parameters<typeof file.openLocks>[0]) => {
        this.#lost = lost;
        const locks = file.openLocks(lost);
        return {
          ...locks,
          isLost: () => this.#isLost,
          unlock: async (range: Parameters<typeof locks.unlock>[0]) => {
            this.#isLost = false;
            await locks.unlock(range);
          },
        };
      },
    };
  }
}

/** A file with contents, opened once and locked, with a write that has not been sent. */
async function written(t: TestContext) {
  const backend = new LosingLocks();
  const fileSystem = fileSystemOf(systemWorld, backend, ROOT, 5_000, () => undefined);
  t.after(() => fileSystem.stop());
  const { handle } = await fileSystem.create(ROOT, 'f', 0o600, constants.O_RDWR, USER);
  await fileSystem.write(handle, 0, Buffer.from('theirs'), USER);
  await fileSystem.persist(handle);
  const { signal } = new AbortController();
  const lock = (type: 'exclusive' | 'unlock') => fileSystem.lock(handle, { ...WHOLE, type }, false, signal);
  await lock('exclusive');
  const contents = async () => Buffer.from(await fileSystem.read(handle, 0, 100)).toString();
  await fileSystem.write(handle, 0, Buffer.from('lost!!'), USER);
  return { backend, fileSystem, handle, lock, contents };
}

test('unsent bytes that were written under a lost lock are dropped, and fsync returns an error once', async (t) => {
  const { backend, fileSystem, handle, lock, contents } = await written(t);
  backend.lose();
  await assert.rejects(fileSystem.persist(handle), EIO);
  await fileSystem.persist(handle);
  await assert.rejects(contents(), EIO);
  await assert.rejects(fileSystem.write(handle, 0, Buffer.from('more'), USER), EIO);
  await lock('unlock');
  assert.equal(await contents(), 'theirs');
  await fileSystem.write(handle, 0, Buffer.from('ours!!'), USER);
  await fileSystem.persist(handle);
  assert.equal(await contents(), 'ours!!');
});

test('without fsync the unlock and the close return the error of a lost lock', async (t) => {
  const { backend, fileSystem, handle, lock, contents } = await written(t);
  backend.lose();
  await assert.rejects(lock('unlock'), EIO);
  await assert.rejects(fileSystem.flush(handle, PROGRAM), EIO);
  assert.equal(await contents(), 'theirs');
});

test('a lock that is lost while no bytes are unsent fails no fsync', async (t) => {
  const { backend, fileSystem, handle, lock, contents } = await written(t);
  await fileSystem.persist(handle);
  backend.lose();
  await fileSystem.persist(handle);
  await lock('unlock');
  await fileSystem.flush(handle, PROGRAM);
  assert.equal(await contents(), 'lost!!');
});

/** Longer than the test, so that no timer of a lock fires. */
const LEASE_MS = 60_000;
const FILE = 7;

/**
 * A server lets the lease of the lock pass during the first attempt, and then answers it with `answer`. @returns the
 * addresses of the write's attempts
 */
async function attemptsOfWrite(
  t: TestContext,
  answer: (response: ServerResponse) => void,
): Promise<string[]> {
  const attempts: string[] = [];
  let sleptMs = 0;
  // On a machine that sleeps the clock continues, and no timer fires.
  const world = { ...systemWorld, bootMs: () => systemWorld.bootMs() + sleptMs };
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader('content-type', 'application/json');
    if (request.method !== 'PUT') {
      response.end(JSON.stringify({ primary: 's1', epoch: 1, leaseMs: LEASE_MS, lost: [] }));
      return;
    }
    attempts.push(request.url ?? '');
    if (attempts.length === 1) sleptMs = 2 * LEASE_MS;
    if (attempts.length === 1) answer(response);
    else stored(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const client = new ClusterClient({ world, servers: [`http://127.0.0.1:${port}`] });
  t.after(async () => {
    await client.close();
    server.closeAllConnections();
    server.close();
  });
  const file = clusterBackend(client, 'v').openFile(FILE, ['s1'], { epoch: 1, seq: 0 });
  const lost: BackendLock[] = [];
  const locks = file.openLocks((gone) => lost.push(...gone));
  await locks.lock(HELD, false, new AbortController().signal);
  await assert.rejects(file.write(0, [Buffer.from('late')]), EIO);
  assert.deepEqual(lost, [HELD]);
  assert.equal(locks.isLost('posix', HELD.owner), true);
  // A write after the program has released the lock is a new write.
  await locks.unlock(HELD);
  await file.write(0, [Buffer.from('new')]);
  assert.doesNotMatch(attempts.pop() ?? '', /under/);
  return attempts;
}

function stored(response: ServerResponse): void {
  const state = { sizeBytes: 4, modifiedNs: '1', contents: { epoch: 1, seq: 1 }, seq: 1, offset: 0 };
  response.end(JSON.stringify(state));
}

test('a write whose answer arrives after the loss of its lock fails', async (t) => {
  assert.equal((await attemptsOfWrite(t, stored)).length, 1);
});

test('a write is not sent again after the loss of its lock', async (t) => {
  assert.equal((await attemptsOfWrite(t, (response) => response.destroy())).length, 1);
});

test('a write names its locks, so that servers refuse it once they are lost', async (t) => {
  const [url = ''] = await attemptsOfWrite(t, stored);
  assert.match(url, /&under=[1-9]\d*-[1-9]\d*$/);
});
