import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import { MEASUREMENT_VALID_MS } from '../../server/storage/reserve.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { encodeFileOperation, FILE_BYTES_MAX } from '../../wire/file-operation.ts';
import { delay, FILE, requestOf, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

/** So many MiB are more than a primary keeps for replicas that lag: they have to fetch the state. */
const PIECES_NOT_KEPT = 20;

test('an append beyond the largest file size is refused, and the replicas keep running', async (t) => {
  const cluster = new SmallCluster(['a']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [{ files }] = cluster.servers as [(typeof cluster.servers)[0]];
  await files.truncate(FILE, requestOf(1), FILE_BYTES_MAX - 1);
  await assert.rejects(
    files.write(FILE, requestOf(2), 'append', Uint8Array.of(1, 2)),
    (error: ServiceError) => error.code === 'too-large',
  );
  const written = await files.write(FILE, requestOf(3), 0, Uint8Array.of(1));
  assert.equal(written.sizeBytes, FILE_BYTES_MAX - 1);
  assert.deepEqual(cluster.fatal, []);
});

test('a replica that was disconnected catches up while the primary orders one append after the other', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  let number = 0;
  /** On a busy machine a lease may end meanwhile: the next primary gets the same request. */
  const append = async (length: number) => {
    const request = requestOf(++number);
    const bytes = new Uint8Array(length).fill(number);
    for (let turn = 0; ; turn++) {
      const { files } = turn % 2 === 0 ? a : b;
      try {
        return await files.write(FILE, request, 'append', bytes);
      } catch (error) {
        if (!(error instanceof ServiceError) || error.remedy === 'give-up') throw error;
        await delay(10);
      }
    }
  };
  await append(10);
  for (const other of [a, b]) cluster.network.cut(other.id, c.id);
  for (let times = 0; times < PIECES_NOT_KEPT; times++) await append(1024 * 1024);
  cluster.network.heal();
  while ((c.store.record(FILE)?.seq ?? 0) < PIECES_NOT_KEPT + 1 && number < 300) await append(100);
  assert.ok(number < 300, 'It has caught up before so many appends');
  assert.deepEqual(cluster.fatal, []);
});

test('a full disk refuses no write that was executed before', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  const written = await a.files.write(FILE, requestOf(1), 'append', new Uint8Array(100_000));
  Object.assign(a.store, { space: async () => ({ totalBytes: 2 ** 30, freeBytes: 0 }) });
  // Until then a write may rely on the earlier free space.
  await delay(MEASUREMENT_VALID_MS);
  const again = await a.files.write(FILE, requestOf(1), 'append', new Uint8Array(100_000));
  assert.deepEqual([again.seq, again.offset], [written.seq, 0]);
  await assert.rejects(
    a.files.write(FILE, requestOf(2), 'append', new Uint8Array(100_000)),
    (error: ServiceError) => error.code === 'no-space',
  );
  assert.deepEqual(cluster.fatal, []);
});

/** Three servers whose files have the policy `read-only`. */
function sealing(): SmallCluster {
  const members = ['a', 'b', 'c'];
  return new SmallCluster(members, {
    attributes: async () => {
      const file = { inode: FILE, kind: 'file', live: true, view: 1, objectBytes: 4096 };
      return { ...file, replicas: members, policy: 'read-only' } as unknown as Attributes;
    },
  });
}

function refused(code: ErrorCode): (error: ServiceError) => boolean {
  return (error) => {
    assert.equal(error.code, code, error.message);
    return true;
  };
}

test('after its store has failed, a server begins nothing whose end it would not notice', async (t) => {
  const cluster = new SmallCluster(['a']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const failed = new ServiceError('storage', 'The disk has failed');
  let began = 0;
  const driver = a.host.loaded(FILE);
  assert.ok(driver !== null);
  const flush = driver.flush.bind(driver);
  Object.assign(driver, {
    flush: () => {
      began++;
      return flush();
    },
  });
  const record = a.store.record.bind(a.store);
  Object.assign(a.store, {
    record: () => {
      throw failed;
    },
  });
  await assert.rejects(a.files.flush(FILE), failed);
  assert.equal(began, 0);
  Object.assign(a.store, { record });
  assert.deepEqual(cluster.fatal, []);
});

test('a late seal freezes nothing that was written since', async (t) => {
  const cluster = sealing();
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  const write = (session: number) =>
    a.files.write(FILE, { session, number: 1, since: 0 }, 'append', Buffer.from('text'));
  const { contents: seen } = await write(1);
  await write(2);
  const late = assert.rejects(a.files.seal(FILE, seen), refused('precondition-failed'));
  // Another client writes while the seal is decided, and waits at most for that.
  await Promise.all([late, write(3)]);
  await write(4);
  const { contents, sizeBytes } = await write(5);
  const sealed = await a.files.seal(FILE, contents);
  assert.deepEqual([sealed.sealed, sealed.sizeBytes, sizeBytes], [true, 20, 20]);
});

test('a sealed file refuses changes and answers earlier ones again', async (t) => {
  const cluster = sealing();
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b] = cluster.servers as [SmallServer, SmallServer];
  const bytes = new Uint8Array(10_000).fill(7);
  const first = await a.files.write(FILE, requestOf(1), 0, bytes);
  // Requests under way while the file is sealed: executed and answered, or refused; and never both.
  const racing = a.files.write(FILE, requestOf(2), 'append', Uint8Array.of(8)).then(
    () => true,
    (error: ServiceError) => !refused('sealed')(error),
  );
  const sealed = await a.files.seal(FILE);
  assert.equal(sealed.sealed, true);
  const wasDone = await racing;
  assert.equal(sealed.sizeBytes, wasDone ? 10_001 : 10_000);
  assert.deepEqual((await a.files.seal(FILE)).contents, sealed.contents, 'It may be sealed again');
  for (const { store } of cluster.servers) assert.equal(store.attributes(FILE).seal, 'final');
  for (const { files } of [a, b]) {
    await assert.rejects(files.write(FILE, requestOf(3), 0, bytes), refused('sealed'));
    await assert.rejects(files.truncate(FILE, requestOf(4), 0), refused('sealed'));
    const again = await files.write(FILE, requestOf(1), 0, bytes);
    assert.deepEqual([again.seq, again.offset, again.modifiedNs], [first.seq, 0, first.modifiedNs]);
  }
  assert.deepEqual(cluster.fatal, []);
});

test('a seal that may be lost is not reported', async (t) => {
  const cluster = sealing();
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  await a.files.state(FILE);
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  const cutOff = assert.rejects(a.files.seal(FILE), ServiceError);
  while (a.store.attributes(FILE).seal === 'open') await delay(1);
  await assert.rejects(a.files.state(FILE), ServiceError);
  await cutOff;
  assert.deepEqual(cluster.fatal, []);
});

test('a server with a final seal answers reads alone, and requests no lease', async (t) => {
  const cluster = sealing();
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  for (const other of [a, b]) cluster.network.cut(other.id, c.id);
  const bytes = new Uint8Array(10_000).fill(7);
  await a.files.write(FILE, requestOf(1), 0, bytes);
  const sealed = await a.files.seal(FILE);
  cluster.network.cut(a.id, b.id);
  const { bytes: read, served, state } = await b.files.read(FILE, 0, 20_000);
  assert.deepEqual([read, served, state.contents], [bytes, 'local', sealed.contents]);
  assert.equal((await b.files.state(FILE)).sealed, true);
  assert.equal(b.lease.view(FILE).own, false);
  await assert.rejects(c.files.read(FILE, 0, 1), refused('no-majority'));
  cluster.network.heal();
  // It was disconnected when the file was sealed, and the primary brings it up to date.
  await b.files.becomePrimary(FILE).catch(refused('not-primary'));
  while (c.store.record(FILE) === null || c.store.attributes(FILE).seal !== 'final') await delay(10);
  assert.equal((await c.files.read(FILE, 0, 20_000)).served, 'local');
  assert.deepEqual(cluster.fatal, []);
});

test('a seal that its primary did not finish is a seal for the next primary, too, which finishes it', async (t) => {
  const cluster = sealing();
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  const written = await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  const driver = a.host.loaded(FILE);
  assert.ok(driver !== null);
  const body = encodeFileOperation({ kind: 'seal', final: false });
  await driver.submit({ request: null, result: new Uint8Array(0), body });
  for (const { store } of [b, c]) while (store.attributes(FILE).seal !== 'sealed') await delay(10);
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  /** Until the lease of the earlier primary has ended. */
  const atNext = async <Result>(ask: () => Promise<Result>): Promise<Result> => {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!(error instanceof ServiceError) || error.code !== 'not-primary') throw error;
        await delay(20);
      }
    }
  };
  const change = atNext(() => b.files.write(FILE, requestOf(2), 0, Uint8Array.of(2)));
  await assert.rejects(change, refused('sealed'));
  const again = await b.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
  assert.equal(again.modifiedNs, written.modifiedNs);
  assert.equal(b.store.attributes(FILE).seal, 'sealed', 'As the primary it knows so, without a final seal');
  b.files.becamePrimary(FILE);
  while ([b, c].some(({ store }) => store.attributes(FILE).seal !== 'final')) await delay(10);
  assert.deepEqual(cluster.fatal, []);
});

test('a server that may not answer a read does not report where its bytes are', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  await a.files.write(FILE, requestOf(1), 0, new Uint8Array(100));
  while (c.store.record(FILE)?.seq !== 1) await delay(10);
  assert.equal((await a.files.locate(FILE, 0, 100)).served, 'primary');
  // A backup requests the right, and answers once it has it.
  const atBackup = async (): Promise<string> => {
    for (;;) {
      const located = await b.files.locate(FILE, 0, 100).catch((error: ServiceError) => {
        refused('not-primary')(error);
        return null;
      });
      if (located !== null) return located.served;
      await delay(10);
    }
  };
  assert.equal(await atBackup(), 'local');
  for (const other of [a, b]) cluster.network.cut(other.id, c.id);
  const { contents } = await a.files.write(FILE, requestOf(2), 0, new Uint8Array(200));
  await assert.rejects(c.files.locate(FILE, 0, 100), (error: ServiceError) => error.code === 'not-primary');
  const { state } = await a.files.locate(FILE, 0, 200, contents);
  assert.deepEqual(state.contents, contents);
  await assert.rejects(
    a.files.locate(FILE, 0, 200, { ...contents, seq: contents.seq - 1 }),
    (error: ServiceError) => error.code === 'precondition-failed',
  );
  assert.deepEqual(cluster.fatal, []);
});

test('a file of another policy is not sealed', async (t) => {
  const cluster = new SmallCluster(['a']);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a] = cluster.servers as [SmallServer];
  await assert.rejects(a.files.seal(FILE), refused('bad-request'));
  await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1));
});

/**
 * Goal: a replica that is behind and has no free space for what it lacks does not fetch it again and again, and gets it
 * as soon as there is free space.
 * Method: one of three is disconnected while more is written than a primary keeps for it, so that it needs the state;
 * its store has no free space twice.
 */
test('a transfer without free space waits before it starts again', async (t) => {
  const cluster = new SmallCluster(['a', 'b', 'c'], {}, STEADY);
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  for (const other of [a, b]) cluster.network.cut(c.id, other.id);
  const piece = new Uint8Array(1024 * 1024).fill(1);
  for (let number = 1; number <= PIECES_NOT_KEPT; number++)
    await a.files.write(FILE, requestOf(number), 'append', piece);
  const begunMs: number[] = [];
  const { store } = c;
  const stage = store.stage.bind(store);
  const unstage = store.unstage.bind(store);
  const { promise: isThere, resolve: staged } = Promise.withResolvers<void>();
  // Each transfer first drops what is not wanted of the one before.
  store.unstage = (...given) => {
    begunMs.push(performance.now());
    unstage(...given);
  };
  store.stage = async (...given) => {
    if (begunMs.length < 3) throw new ServiceError('no-space', 'The disk is full');
    await stage(...given);
    staged();
  };
  cluster.network.heal();
  await isThere;
  for (const [place, atMs] of begunMs.entries()) {
    const afterMs = atMs - (begunMs[place - 1] ?? -Infinity);
    assert.ok(afterMs >= 900, 'It waits before it starts again');
  }
  assert.deepEqual(cluster.fatal, []);
});
