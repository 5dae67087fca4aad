/**
 * Goal: a primary orders no change that the flags of a file forbid, whichever server was primary before, and answers
 * earlier changes again.
 * Method: servers in one process, and a catalog that the test plays.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { InodeFlag } from '../../wire/inode-flags.ts';
import { FILE, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

async function started(t: { after(work: () => void): void }) {
  const catalog = { flags: [] as InodeFlag[], marks: 0, isSlow: false };
  const cluster = new SmallCluster(['a', 'b', 'c'], {
    command: async (command) => {
      if (command.kind !== 'open-for-write') return {};
      catalog.marks++;
      if (catalog.isSlow) await delay(50);
      if (catalog.flags.includes('immutable')) throw new ServiceError('protected', 'It is immutable');
      return { attributes: { flags: catalog.flags } };
    },
  });
  t.after(() => cluster.close());
  await cluster.ready();
  const [a, b, c] = cluster.servers as [SmallServer, SmallServer, SmallServer];
  /** As the catalog does it: the mark ends first. */
  const set = async (server: SmallServer, ...flags: InodeFlag[]): Promise<void> => {
    await server.files.settle(FILE);
    catalog.flags = flags;
  };
  return { catalog, cluster, a, b, c, set };
}

const bytes = (text: string): Buffer => Buffer.from(text);

async function textAt({ files }: SmallServer): Promise<string> {
  return Buffer.from((await files.read(FILE, 0, 100)).bytes).toString();
}

test('an immutable file is not written, and an earlier write is answered again', async (t) => {
  const { a, set } = await started(t);
  const written = await a.files.write(FILE, requestOf(1), 0, bytes('one'));
  await set(a, 'immutable');
  const isRefused = { code: 'protected' };
  await assert.rejects(a.files.write(FILE, requestOf(2), 0, bytes('two')), isRefused);
  await assert.rejects(a.files.write(FILE, requestOf(3), 'append', bytes('two')), isRefused);
  await assert.rejects(a.files.writeParts(FILE, requestOf(4), [{ offset: 3, bytes: bytes('x') }]), isRefused);
  await assert.rejects(a.files.truncate(FILE, requestOf(5), 1), isRefused);
  await assert.rejects(a.files.punch(FILE, requestOf(6), { from: 0, to: 1, grows: false }), isRefused);
  const again = await a.files.write(FILE, requestOf(1), 0, bytes('one'));
  assert.deepEqual([again.seq, again.sizeBytes, again.contents], [written.seq, 3, written.contents]);
  assert.equal(await textAt(a), 'one');
  await set(a);
  await a.files.write(FILE, requestOf(2), 0, bytes('two'));
  assert.equal(await textAt(a), 'two');
});

test('an append-only file accepts bytes at its end, and nothing else', async (t) => {
  const { a, set } = await started(t);
  await a.files.write(FILE, requestOf(1), 0, bytes('one'));
  await set(a, 'append-only');
  const isRefused = { code: 'protected' };
  await assert.rejects(a.files.write(FILE, requestOf(2), 0, bytes('two')), isRefused);
  await assert.rejects(a.files.write(FILE, requestOf(3), 5, bytes('two')), isRefused);
  await a.files.write(FILE, requestOf(4), 'append', bytes(','));
  await a.files.write(FILE, requestOf(5), 4, bytes('two'));
  const part = (offset: number, text: string) => ({ offset, bytes: bytes(text) });
  await a.files.writeParts(FILE, requestOf(6), [part(7, ','), part(8, 'x')]);
  await assert.rejects(a.files.writeParts(FILE, requestOf(7), [part(9, 'y'), part(0, 'z')]), isRefused);
  await assert.rejects(a.files.truncate(FILE, requestOf(8), 1), isRefused);
  await assert.rejects(a.files.truncate(FILE, requestOf(9), 20), isRefused);
  await assert.rejects(a.files.punch(FILE, requestOf(10), { from: 0, to: 3, grows: false }), isRefused);
  await a.files.punch(FILE, requestOf(11), { from: 12, to: 12, grows: true });
  const { sizeBytes } = await a.files.state(FILE);
  assert.deepEqual([sizeBytes, await textAt(a)], [12, 'one,two,x\0\0\0']);
});

test('the next primary of an append-only file asks the catalog before it writes', async (t) => {
  const { catalog, cluster, a, b, c, set } = await started(t);
  await a.files.write(FILE, requestOf(1), 0, bytes('one'));
  await set(a, 'append-only');
  await a.files.write(FILE, requestOf(2), 'append', bytes(','));
  const { marks } = catalog;
  catalog.isSlow = true;
  for (const other of [b, c]) cluster.network.cut(a.id, other.id);
  let refusal: unknown = null;
  for (let number = 3; refusal === null; number++) {
    try {
      await b.files.write(FILE, requestOf(number), 0, bytes('two'));
      assert.fail('It was overwritten');
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-primary') await delay(10);
      else refusal = error.code;
    }
  }
  assert.deepEqual([refusal, catalog.marks > marks, await textAt(b)], ['protected', true, 'one,']);
});
