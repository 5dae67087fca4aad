import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import type { CallSource } from '../../server/drivers/subject.ts';
import { FileSubject } from '../../server/file/file-subject.ts';
import { PAYLOAD_BYTES_MAX } from '../../server/transport/frame.ts';
import { encodeFileOperation } from '../../wire/file-operation.ts';
import { describeFile } from '../conformance/description.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryStore } from '../storage/memory-store.ts';

const FILE = 7 as FileId;
const OBJECT_BYTES = 1024 * 1024;
const VIEW: View = { number: 1, members: ['a', 'b', 'c'] as ServerId[] };

function epochOf(counter: number, server: string): Epoch {
  return { counter, server: server as ServerId, incarnation: 1 as Incarnation };
}

/** A replica with `count` objects, all bytes of one value. */
async function replicaOf(epoch: Epoch, count: number, value: number, objectBytes = OBJECT_BYTES) {
  const store = new MemoryStore();
  store.create(FILE, VIEW, objectBytes);
  const subject = new FileSubject(patientWorld, FILE, store);
  await subject.promise(epoch);
  await subject.install(epoch, 0, new Uint8Array(0), false);
  for (let index = 0; index < count; index++) await write(subject, epoch, index + 1, index, value);
  return { store, subject };
}

async function write(subject: FileSubject, epoch: Epoch, seq: number, index: number, value: number) {
  const bytes = new Uint8Array(OBJECT_BYTES).fill(value);
  await apply(subject, epoch, seq, index * OBJECT_BYTES, bytes);
}

async function apply(subject: FileSubject, epoch: Epoch, seq: number, offset: number, bytes: Uint8Array) {
  const body = encodeFileOperation({ kind: 'write', offset, bytes, modifiedNs: 1n });
  await subject.apply(epoch, seq, { request: null, result: new Uint8Array(0), body }, new Uint8Array(0));
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('a failed fetch sends and stages nothing more', async () => {
  const source = await replicaOf(epochOf(1, 'a'), 20, 1);
  const target = await replicaOf(epochOf(1, 'b'), 0, 0);
  let asked = 0;
  const ask: CallSource = async (method, payload) => {
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
  const source = await replicaOf(first, 8, 1);
  const target = await replicaOf(epochOf(0, 'b'), 0, 0);
  const held: (() => void)[] = [];
  // The source reads the answers of the earlier fetch, which arrive late.
  const slow: CallSource = async (method, payload) => {
    const answer = await source.subject.serve(method, payload);
    if (method === 'objects') await new Promise<void>((resolve) => held.push(resolve));
    return answer;
  };
  const earlier = target.subject.fetch(slow);
  earlier.catch(() => undefined);
  while (held.length < 4) await turn();
  await write(source.subject, first, 9, 0, 2);
  let released = false;
  const late: CallSource = async (method, payload) => {
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

test('equal versions of two epochs with the same counter are distinguished by their contents', async () => {
  // Both servers chose counter 5, one without knowledge of the other; seq 2 was never committed at b.
  const a = await replicaOf(epochOf(5, 'a'), 2, 1);
  const b = await replicaOf(epochOf(5, 'b'), 2, 9);
  const fetched = await a.subject.fetch((method, payload) => b.subject.serve(method, payload));
  const next = epochOf(6, 'b');
  await a.subject.promise(next);
  await a.subject.install(next, fetched.position.seq, fetched.sessions, true);
  assert.deepEqual(await a.store.read(FILE, OBJECT_BYTES, 1), Uint8Array.of(9));
});

test('a replica catches up with a primary that continues to write', async () => {
  const epoch = epochOf(1, 'a');
  const source = await replicaOf(epoch, 20, 1);
  const target = await replicaOf(epochOf(1, 'b'), 0, 0);
  let seq = 20;
  let state = describeFile(source.store, FILE);
  // Before each answer, the last object and one of the others change.
  const ask: CallSource = async (method, payload) => {
    await apply(source.subject, epoch, ++seq, 19 * OBJECT_BYTES, Uint8Array.of(seq));
    await apply(source.subject, epoch, ++seq, (seq % 19) * OBJECT_BYTES, Uint8Array.of(seq));
    if (method === 'compare') state = describeFile(source.store, FILE);
    return source.subject.serve(method, payload);
  };
  const { position, sessions } = await target.subject.fetch(ask);
  await target.subject.promise(epoch);
  await target.subject.install(epoch, position.seq, sessions, true);
  assert.equal(position.seq, state.record.seq);
  assert.deepEqual(describeFile(target.store, FILE).objects, state.objects);
});

test('a description longer than a message arrives in pieces', async () => {
  const epoch = epochOf(1, 'a');
  const { store } = await replicaOf(epoch, 0, 0);
  const { record, attributes } = describeFile(store, FILE);
  const entry = { versionEpoch: 1, versionSeq: 1, length: 1, crc32: 1 };
  const objects = Array.from({ length: 300_000 }, (_, index) => ({ index, ...entry }));
  Object.assign(store, { describe: () => ({ record, attributes, objects }) });
  const [source, target] = [
    new FileSubject(patientWorld, FILE, store),
    new FileSubject(patientWorld, FILE, store),
  ];
  let longest = 0;
  const fetched = await target.fetch(async (method, payload) => {
    const answer = await source.serve(method, payload);
    longest = Math.max(longest, answer.length);
    return answer;
  });
  assert.deepEqual(fetched.position, { epoch, seq: 0 });
  assert.ok(longest < PAYLOAD_BYTES_MAX, `${longest} bytes`);
});
