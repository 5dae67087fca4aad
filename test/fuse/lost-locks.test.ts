/**
 * Goal: what was written under a lock and is not at the cluster when the lock is lost is not sent any more, and the program learns of that: others
 * may have the lock, and what they write is based on what is at the cluster.
 * Method: the calls of the kernel, over a cluster whose locks are lost when the test says so; and the client library on a machine that sleeps for
 * longer than a lock's lease.
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

/** A file with contents, open once, that is locked, and then written without being sent. */
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

test('bytes that were written under a lost lock and not sent are dropped, and fsync reports it once', async (t) => {
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

test('a program that does not sync learns of it when it gives the lock back, and when it closes the file', async (t) => {
  const { backend, fileSystem, handle, lock, contents } = await written(t);
  backend.lose();
  await assert.rejects(lock('unlock'), EIO);
  await assert.rejects(fileSystem.flush(handle, PROGRAM), EIO);
  assert.equal(await contents(), 'theirs');
});

test('a lock that is lost while nothing is under way fails no sync', async (t) => {
  const { backend, fileSystem, handle, lock, contents } = await written(t);
  await fileSystem.persist(handle);
  backend.lose();
  await fileSystem.persist(handle);
  await lock('unlock');
  await fileSystem.flush(handle, PROGRAM);
  assert.equal(await contents(), 'lost!!');
});

/** No timer of a lock fires before it. */
const LEASE_MS = 60_000;
const FILE = 7;

/** @returns the addresses of a write's attempts, at a server that lets the lease of its lock pass and then answers the first one so */
async function attemptsOfWrite(
  t: TestContext,
  answer: (response: ServerResponse) => void,
): Promise<string[]> {
  const attempts: string[] = [];
  let sleptMs = 0;
  // A machine that sleeps: its clock runs on, and no timer fires meanwhile.
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
  // What is written after the program has given the lock back is another write.
  await locks.unlock(HELD);
  await file.write(0, [Buffer.from('new')]);
  assert.doesNotMatch(attempts.pop() ?? '', /under/);
  return attempts;
}

function stored(response: ServerResponse): void {
  const state = { sizeBytes: 4, modifiedNs: '1', contents: { epoch: 1, seq: 1 }, seq: 1, offset: 0 };
  response.end(JSON.stringify(state));
}

test('a write whose answer arrives after the loss of a lock has failed', async (t) => {
  assert.equal((await attemptsOfWrite(t, stored)).length, 1);
});

test('a write is not sent again after the loss of a lock', async (t) => {
  assert.equal((await attemptsOfWrite(t, (response) => response.destroy())).length, 1);
});

test('a write names the locks under which it is made, so that servers refuse it once these are lost', async (t) => {
  const [url = ''] = await attemptsOfWrite(t, stored);
  assert.match(url, /&under=[1-9]\d*-[1-9]\d*$/);
});
