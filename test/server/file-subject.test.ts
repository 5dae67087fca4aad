import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch, View } from '../../replica/actions.ts';
import { FileSubject } from '../../server/file/file-subject.ts';
import { MemoryStore } from '../../server/storage/memory-store.ts';
import type { AskSource } from '../../server/subject.ts';
import { encodeFileOperation } from '../../wire/file-operation.ts';

const FILE = 7 as FileId;
const OBJECT_BYTES = 1024 * 1024;
const VIEW: View = { number: 1, members: ['a', 'b', 'c'] as ServerId[] };

function epochOf(counter: number, server: string): Epoch {
  return { counter, server: server as ServerId, incarnation: 1 as Incarnation };
}

/** A replica with one byte in each of `count` objects, all of one value. */
async function replicaOf(epoch: Epoch, count: number, value: number) {
  const store = new MemoryStore();
  store.create(FILE, VIEW, OBJECT_BYTES);
  const subject = new FileSubject(FILE, store);
  await subject.promise(epoch);
  await subject.install(epoch, 0, new Uint8Array(0), false);
  for (let index = 0; index < count; index++) await write(subject, epoch, index + 1, index, value);
  return { store, subject };
}

async function write(subject: FileSubject, epoch: Epoch, seq: number, index: number, value: number) {
  const bytes = Uint8Array.of(value);
  const body = encodeFileOperation({ kind: 'write', offset: index * OBJECT_BYTES, bytes, modifiedNs: 1n });
  await subject.apply(epoch, seq, { request: null, result: new Uint8Array(0), body }, new Uint8Array(0));
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('a fetch that failed asks and stages no more', async () => {
  const source = await replicaOf(epochOf(1, 'a'), 40, 1);
  const target = await replicaOf(epochOf(1, 'b'), 0, 0);
  let asked = 0;
  const ask: AskSource = async (method, payload) => {
    if (method === 'objects' && asked++ === 0) throw new Error('the connection broke');
    await turn();
    return source.subject.serve(method, payload);
  };
  await assert.rejects(target.subject.fetch(ask), /the connection broke/);
  const atFailure = asked;
  for (let turns = 0; turns < 50; turns++) await turn();
  assert.equal(asked, atFailure);
});

test('of two fetches the later one is installed, whatever arrives of the earlier one meanwhile', async () => {
  const first = epochOf(1, 'a');
  const source = await replicaOf(first, 3, 1);
  const target = await replicaOf(epochOf(0, 'b'), 0, 0);
  const held: (() => void)[] = [];
  // The earlier fetch has its answers read at the source, and gets them late.
  const slow: AskSource = async (method, payload) => {
    const answer = await source.subject.serve(method, payload);
    if (method === 'objects') await new Promise<void>((resolve) => held.push(resolve));
    return answer;
  };
  const earlier = target.subject.fetch(slow);
  earlier.catch(() => undefined);
  while (held.length < 3) await turn();
  await write(source.subject, first, 4, 0, 2);
  let released = false;
  const late: AskSource = async (method, payload) => {
    const answer = await source.subject.serve(method, payload);
    if (method === 'objects' && !released && held.length > 0) {
      released = true;
      setImmediate(() => held.splice(0).forEach((release) => void release()));
    }
    return answer;
  };
  const fetched = await target.subject.fetch(late);
  for (let turns = 0; turns < 5; turns++) await turn();
  await assert.rejects(earlier, (error: ServiceError) => error.code === 'precondition-failed');
  await target.subject.promise(first);
  await target.subject.install(first, fetched.position.seq, fetched.sessions, true);
  assert.deepEqual(await target.store.read(FILE, 0, 1), Uint8Array.of(2));
});

test('equal versions of two epochs with the same counter are told apart by their contents', async () => {
  // Both servers chose counter 5, one without having heard of the other; seq 2 was never committed at b.
  const a = await replicaOf(epochOf(5, 'a'), 2, 1);
  const b = await replicaOf(epochOf(5, 'b'), 2, 9);
  const fetched = await a.subject.fetch((method, payload) => b.subject.serve(method, payload));
  const next = epochOf(6, 'b');
  await a.subject.promise(next);
  await a.subject.install(next, fetched.position.seq, fetched.sessions, true);
  assert.deepEqual(await a.store.read(FILE, OBJECT_BYTES, 1), Uint8Array.of(9));
});
