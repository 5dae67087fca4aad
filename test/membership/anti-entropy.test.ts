import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewsConflict } from '../../replica/view.ts';
import { AntiEntropy } from '../../server/membership/anti-entropy.ts';
import { POSITIONS_CALL } from '../../server/membership/positions-call.ts';
import { DIGESTS_CALL } from '../../server/membership/range-digests.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { systemWorld } from '../../world/system-world.ts';

const [A, B, C] = ['a', 'b', 'c'] as [ServerId, ServerId, ServerId];

function epochOf(counter: number): Epoch {
  return { counter, server: A, incarnation: 7 as Incarnation };
}

interface Standing {
  readonly epoch: number;
  readonly seq: number;
  readonly members?: readonly ServerId[];
}

/** Replicas whose changes are reported, as a store does. */
class Replicas extends Map<number, Standing> {
  changed: ((file: FileId) => void) | null = null;

  override set(file: number, standing: Standing): this {
    super.set(file, standing);
    this.changed?.(file as FileId);
    return this;
  }

  override delete(file: number): boolean {
    const found = super.delete(file);
    this.changed?.(file as FileId);
    return found;
  }
}

class Host {
  readonly replicas = new Replicas();
  /** Bytes of requests to other servers, and records read. */
  sentBytes = 0;
  recordsRead = 0;
  /** Requests with positions. */
  positionsCalls = 0;
  hasDigests = true;
  readonly inUse = new Set<number>();
  readonly departed = new Map<number, number>();
  readonly opened: number[] = [];
  readonly final = new Set<number>();
  /** A file for which the catalog names no servers. */
  readonly unplaced = new Set<number>();
  readonly conflicts: [file: number, where: string][] = [];
  readonly antiEntropy: AntiEntropy;
  others = new Map<ServerId, Host>();

  constructor(self: ServerId, everyMs = 2 ** 30, reportedAfterMs = 0) {
    this.antiEntropy = new AntiEntropy({
      world: systemWorld,
      self,
      log: pino({ level: 'silent' }),
      everyMs,
      connectPauseMs: 5,
      reportedAfterMs,
      list: (after, countMax) =>
        [...this.replicas.keys()]
          .filter((file) => file > after)
          .toSorted((x, y) => x - y)
          .slice(0, countMax) as FileId[],
      record: (file) => this.#record(file),
      departedView: (file) => this.departed.get(file) ?? 0,
      sizeBytes: () => 100,
      conflicts: {
        compare: (file, here, there, where) => {
          const found = viewsConflict(here, there);
          if (found) this.conflicts.push([file, where]);
          return found;
        },
      },
      isInUse: (file) => this.inUse.has(file),
      peers: () => [...this.others.keys()],
      call: async (to, method, payload) => {
        const other = this.others.get(to);
        if (other === undefined) throw new ServiceError('no-majority', 'It is away');
        this.sentBytes += payload.length;
        if (method === DIGESTS_CALL && other.hasDigests) return other.antiEntropy.serveDigests(self, payload);
        assert.equal(method, POSITIONS_CALL);
        this.positionsCalls++;
        return other.antiEntropy.serve(self, payload);
      },
      hasDigests: (peer) => this.others.get(peer)?.hasDigests ?? false,
      isFinal: (file) => this.final.has(file),
      isWithoutServers: async (file) => {
        assert.ok(this.final.has(file), 'The catalog is asked only about files that may preserve contents');
        return this.unplaced.has(file);
      },
      open: async (file) => void this.opened.push(file),
    });
    this.replicas.changed = (file) => this.antiEntropy.changed(file);
  }

  #record(file: FileId): ReplicaRecord | null {
    this.recordsRead++;
    const standing = this.replicas.get(file);
    if (standing === undefined) return null;
    const { epoch, seq, members = [A, B] } = standing;
    const installed = epochOf(epoch);
    return { view: { number: 1, members }, promised: installed, installed, seq, sessions: new Uint8Array(0) };
  }
}

function pair(everyMs?: number): [Host, Host] {
  const [a, b] = [new Host(A, everyMs), new Host(B, everyMs)];
  a.others = new Map([[B, b]]);
  b.others = new Map([[A, a]]);
  return [a, b];
}

async function until(holds: () => boolean): Promise<void> {
  for (const deadlineMs = performance.now() + 10_000; performance.now() < deadlineMs; await delay(5)) {
    if (holds()) return;
  }
  throw new Error('It did not come to hold');
}

test('files that the other server lacks, or of which it is behind, are opened, and no others', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas
    .set(1, { epoch: 1, seq: 5 })
    .set(2, { epoch: 1, seq: 5 })
    .set(3, { epoch: 2, seq: 5 })
    .set(4, { epoch: 1, seq: 9 })
    .set(5, { epoch: 0, seq: 0 })
    .set(6, { epoch: 1, seq: 5, members: [A, C] })
    .set(7, { epoch: 1, seq: 5 });
  b.replicas
    .set(1, { epoch: 1, seq: 5 })
    .set(2, { epoch: 1, seq: 3 })
    .set(3, { epoch: 1, seq: 5 })
    .set(7, { epoch: 1, seq: 1 })
    .set(8, { epoch: 3, seq: 1 });
  a.inUse.add(7);
  await a.antiEntropy.compare(B);
  assert.deepEqual(a.opened.toSorted(), [2, 3, 4]);
  assert.deepEqual(a.antiEntropy.lag(), { files: 3, versions: 2 + 0 + 9, bytes: 100 });
  await b.antiEntropy.compare(A);
  assert.deepEqual(b.opened, [8], 'Each opens the files in which it is ahead');
});

test('a file that is to preserve contents gets no primary before the catalog names its servers', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas.set(1, { epoch: 2, seq: 1 }).set(2, { epoch: 2, seq: 1 }).set(3, { epoch: 2, seq: 1 });
  a.final.add(1).add(2);
  a.unplaced.add(1);
  await a.antiEntropy.compare(B);
  assert.deepEqual(a.opened.toSorted(), [2, 3]);
  assert.equal(a.antiEntropy.lag().files, 2, 'It is not behind');
  a.unplaced.clear();
  await a.antiEntropy.compare(B);
  assert.deepEqual(a.opened.toSorted(), [1, 2, 2, 3, 3]);
});

test('a replica with other members for the same view is reported, and is neither behind nor ahead', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas.set(1, { epoch: 2, seq: 5, members: [A, B] }).set(2, { epoch: 2, seq: 5, members: [A, B] });
  b.replicas.set(1, { epoch: 1, seq: 3, members: [B, C] }).set(2, { epoch: 1, seq: 3, members: [B, A] });
  await a.antiEntropy.compare(B);
  assert.deepEqual(b.conflicts, [[1, A]]);
  assert.deepEqual(a.opened, [2], 'The order of members does not matter');
});

test('a server that is no member is neither ahead nor behind', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas
    .set(1, { epoch: 2, seq: 5, members: [B, C] })
    .set(2, { epoch: 2, seq: 5 })
    .set(3, { epoch: 2, seq: 5 });
  b.departed.set(2, 1);
  await a.antiEntropy.compare(B);
  assert.deepEqual(a.opened, [3]);
  assert.equal(a.antiEntropy.lag().files, 1);
  assert.equal(
    await a.antiEntropy.hasPosition(B, 2 as FileId, { epoch: epochOf(2), seq: 5 }),
    false,
    'A removed member has no replica',
  );
});

test('a peer found behind is reported until it has caught up, or no replica needs it any more', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  for (const file of [1, 2, 3]) a.replicas.set(file, { epoch: 1, seq: 5 });
  await a.antiEntropy.compare(B);
  const files = () => a.antiEntropy.lag().files;
  assert.equal(files(), 3);
  // The file is in use in a later epoch: its primary brings b up to date.
  a.replicas.set(1, { epoch: 2, seq: 9 });
  a.inUse.add(1);
  b.replicas.set(1, { epoch: 2, seq: 6 });
  await until(() => files() === 2);
  a.replicas.delete(2);
  await until(() => files() === 1);
  b.replicas.set(3, { epoch: 1, seq: 5 });
  await until(() => files() === 0);
});

test('a peer that was behind for a moment during the comparison is not reported', async (t) => {
  const [a, b] = [new Host(A, 2 ** 30, 60_000), new Host(B)];
  a.others = new Map([[B, b]]);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas.set(1, { epoch: 1, seq: 5 });
  await a.antiEntropy.compare(B);
  assert.deepEqual(a.opened, [1]);
  assert.equal(a.antiEntropy.lag().files, 0);
});

test('if a connected peer is left behind, the next comparison follows sooner', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas.set(1, { epoch: 1, seq: 5 });
  a.antiEntropy.connected(B);
  // The pauses between files take time of their own.
  for (const opened of [1, 2]) {
    for (let second = 0; a.opened.length < opened && second < 40; second++) {
      t.mock.timers.tick(1_000);
      for (let turns = 0; turns < 5; turns++) await turn();
    }
    assert.equal(a.opened.length, opened);
    for (const untilMs = performance.now() + 200; performance.now() < untilMs; ) await turn();
  }
});

test('a peer that connects is compared, and all are from time to time', async (t) => {
  const [a, b] = pair(30);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas.set(1, { epoch: 1, seq: 5 });
  a.antiEntropy.connected(B);
  await until(() => a.opened.includes(1));
  b.replicas.set(1, { epoch: 1, seq: 5 });
  await until(() => a.antiEntropy.lag().files === 0);
  a.others.clear();
  a.antiEntropy.connected(B);
  await delay(20);
  a.replicas.set(2, { epoch: 1, seq: 1 });
  a.others.set(B, b);
  await until(() => a.opened.includes(2));
});

test('a peer counts as uncompared from its connection until a comparison has ended', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  for (const file of [1, 2]) a.replicas.set(file, { epoch: 1, seq: 5 });
  b.replicas.set(1, { epoch: 1, seq: 5 });
  assert.deepEqual(a.antiEntropy.uncompared(), []);
  a.antiEntropy.connected(B);
  assert.deepEqual([a.antiEntropy.uncompared(), a.antiEntropy.behind().get(B)], [[B], undefined]);
  await until(() => a.antiEntropy.uncompared().length === 0);
  assert.equal(a.antiEntropy.behind().get(B), 1);
  b.replicas.set(2, { epoch: 1, seq: 5 });
  await until(() => a.antiEntropy.behind().get(B) === 0);
  // It connects again while it is compared: it may have lost what was compared.
  const comparison = a.antiEntropy.compare(B);
  a.antiEntropy.connected(B);
  await comparison;
  assert.deepEqual(a.antiEntropy.uncompared(), [B]);
  a.others.clear();
  assert.deepEqual(a.antiEntropy.uncompared(), [], 'It is not connected');
});

test('more files than one call contains are compared page by page', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  for (let file = 1; file <= 2_500; file++) {
    a.replicas.set(file, { epoch: 1, seq: 1 });
    if (file !== 999 && file !== 2_001) b.replicas.set(file, { epoch: 1, seq: 1 });
  }
  await a.antiEntropy.compare(B);
  assert.deepEqual(
    a.opened.toSorted((x, y) => x - y),
    [999, 2_001],
  );
});

test('a query whether another server has all of it is for one file', async (t) => {
  const [a, b] = pair();
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  b.replicas.set(1, { epoch: 2, seq: 5 });
  const holds = (counter: number, seq: number) =>
    a.antiEntropy.hasPosition(B, 1 as FileId, { epoch: epochOf(counter), seq });
  assert.deepEqual(await Promise.all([holds(2, 5), holds(1, 9), holds(2, 6), holds(3, 1)]), [
    true,
    true,
    false,
    false,
  ]);
});

test('invalid calls are refused', (t) => {
  const a = new Host(A);
  t.after(() => a.antiEntropy.close());
  for (const text of [
    '',
    '{}',
    '[1]',
    '[[1,2]]',
    '[[1,1,"A B",1,1]]',
    '[[-1,1,"a",1,1]]',
    '[[1,1,"a",1,1.5]]',
    '[[1,1,"a",1,1,1,"a"]]',
    '[[1,1,"a",1,1,1]]',
  ]) {
    assert.throws(() => a.antiEntropy.serve(B, Buffer.from(text)), MalformedError, text);
  }
});

/** Two servers with the same files 1 to `count`, every third of which they share with each other. */
function equalPair(count: number): [Host, Host] {
  const [a, b] = pair();
  for (let file = 1; file <= count; file++) {
    const standing = { epoch: 1, seq: 5, members: file % 3 === 0 ? [A, B] : [A, B, C] };
    a.replicas.set(file, standing);
    b.replicas.set(file, standing);
  }
  return [a, b];
}

test('a comparison of equal replicas reads only records of ranges that changed, and sends a digest for each range', async (t) => {
  const [a, b] = equalPair(5_000);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  await a.antiEntropy.compare(B);
  assert.deepEqual([a.recordsRead, b.recordsRead], [5_000, 5_000]);
  assert.ok(a.sentBytes < 600, `${a.sentBytes} bytes`);
  await b.antiEntropy.compare(A);
  await a.antiEntropy.compare(B);
  assert.deepEqual([a.recordsRead, b.recordsRead], [5_000, 5_000]);
  const later = { epoch: 1, seq: 6, members: [A, B, C] };
  a.replicas.set(4_000, later);
  b.replicas.set(4_000, later);
  await a.antiEntropy.compare(B);
  assert.deepEqual([a.recordsRead, b.recordsRead], [5_256, 5_256]);
  assert.deepEqual([a.opened, b.opened], [[], []]);
});

test('a file of which the other server is behind is found in each place of its range', async (t) => {
  const [a, b] = equalPair(2_000);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  await a.antiEntropy.compare(B);
  const changed = [1, 255, 256, 1_023, 1_024, 2_000];
  for (const file of changed) {
    const before = a.replicas.get(file);
    assert.ok(before !== undefined);
    a.replicas.set(file, { ...before, seq: 6 });
  }
  b.replicas.delete(777);
  await a.antiEntropy.compare(B);
  assert.deepEqual(
    a.opened.toSorted((x, y) => x - y),
    [...changed, 777].toSorted((x, y) => x - y),
  );
});

test('positions of many ranges that differ share a call', async (t) => {
  const [a, b] = equalPair(2_000);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  const changed = Array.from({ length: 8 }, (_, range) => range * 256 + 5);
  for (const file of changed) b.replicas.delete(file);
  await a.antiEntropy.compare(B);
  assert.deepEqual(
    a.opened.toSorted((x, y) => x - y),
    changed,
  );
  assert.equal(a.positionsCalls, 2);
});

test('files that the servers do not share make no difference, nor do files that were never written', async (t) => {
  const [a, b] = equalPair(100);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  a.replicas.set(101, { epoch: 3, seq: 1, members: [A, C] });
  a.replicas.set(102, { epoch: 3, seq: 1, members: [B, C] });
  b.replicas.set(103, { epoch: 0, seq: 0 });
  await a.antiEntropy.compare(B);
  assert.ok(a.sentBytes < 50, `${a.sentBytes} bytes`);
  const other = new Host(C);
  t.after(() => other.antiEntropy.close());
  a.others.set(C, other);
  await a.antiEntropy.compare(C);
  assert.ok(a.opened.includes(101), 'The digest for each server has its own files');
});

test('all positions are compared with a server of an earlier release', async (t) => {
  const [a, b] = equalPair(1_500);
  t.after(() => [a, b].map(({ antiEntropy }) => antiEntropy.close()));
  b.hasDigests = false;
  b.replicas.set(1_200, { epoch: 1, seq: 4 });
  await a.antiEntropy.compare(B);
  assert.deepEqual(a.opened, [1_200]);
  assert.ok(a.sentBytes > 20_000);
});

test('invalid digests are refused', async (t) => {
  const a = new Host(A);
  t.after(() => a.antiEntropy.close());
  const long = JSON.stringify(Array.from({ length: 129 }, (_, range) => [range, 'x']));
  for (const text of ['', '{}', '[1]', '[[1]]', '[[-1,"x"]]', '[[0.5,"x"]]', '[[1,2]]', long])
    await assert.rejects(a.antiEntropy.serveDigests(B, Buffer.from(text)), MalformedError, text);
});
