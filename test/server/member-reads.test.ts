/**
 * Goal: a backup of the catalog answers only under a read lease, only committed state, and only if it pays.
 * Method: `MemberReads` with a driver that says what the replica core says; the core and real servers are tested in
 * the cluster simulation (`names-at-backup.txt`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { UnfilledDirectory } from '../../catalog/clone-tables.ts';
import { MemberReads, type MemberReadsParts } from '../../server/catalog/member-reads.ts';
import { ReadDemand } from '../../server/catalog/read-demand.ts';
import { ReaderHints } from '../../server/routing/reader-hints.ts';
import type { QueryResults } from '../../wire/catalog-api.ts';

type Gate = 'serve' | 'wait' | 'not-primary';

const VOLUMES = { kind: 'volumes' } as const;
const NONE: QueryResults['volumes'] = { volumes: [] };
/** Enough to be worth a read lease. */
const MANY = 20;

interface Fake {
  gate: Gate;
  role: string;
  committed: PromiseWithResolvers<void>;
  queried: number;
  query(): unknown;
}

function fake(): Fake {
  return {
    ...{ gate: 'serve', role: 'backup', queried: 0 },
    committed: Promise.withResolvers(),
    query: () => NONE,
  };
}

function readsOf(state: Fake): MemberReads {
  const parts = {
    world: { nowMs: () => 0 },
    driver: {
      get role() {
        return state.role;
      },
      epoch: { counter: 3 },
      readGate: () => state.gate,
      untilReadable: () => state.committed.promise,
    },
    subject: {
      record: () => ({ seq: 7 }),
      query: () => {
        state.queried += 1;
        return state.query();
      },
    },
  };
  return new MemberReads(parts as never as MemberReadsParts);
}

async function demand(reads: MemberReads, state: Fake): Promise<void> {
  const { gate } = state;
  state.gate = 'not-primary';
  for (let count = 0; count < MANY; count++) assert.equal(await reads.answer(VOLUMES), null);
  state.gate = gate;
}

test('few queries are left to the primary, and request no read lease', async () => {
  const state = fake();
  assert.equal(await readsOf(state).answer(VOLUMES), null);
  assert.equal(state.queried, 0);
});

test('many queries are answered here, once what they show is committed', async () => {
  const state = fake();
  const reads = readsOf(state);
  await demand(reads, state);
  let answered: unknown;
  const answering = reads.answer(VOLUMES).then((answer) => {
    answered = answer;
  });
  await nextTurn();
  assert.equal(answered, undefined, 'an operation that it shows is not committed yet');
  state.committed.resolve();
  await answering;
  assert.equal(answered, NONE);
});

test('without a read lease, or if it ends before the commit, the primary has to answer', async () => {
  const state = fake();
  const reads = readsOf(state);
  await demand(reads, state);
  state.committed.reject(new ServiceError('not-primary', 'the read lease has ended'));
  assert.equal(await reads.answer(VOLUMES), null);
  state.gate = 'not-primary';
  assert.equal(await reads.answer(VOLUMES), null);
});

test('a refusal shows state, too: it waits for the commit like an answer', async () => {
  const state = fake();
  const reads = readsOf(state);
  await demand(reads, state);
  state.query = () => {
    throw new ServiceError('not-found', 'There is no such volume');
  };
  let isRefused = false;
  const refused = assert.rejects(reads.answer(VOLUMES), { code: 'not-found' }).then(() => {
    isRefused = true;
  });
  await nextTurn();
  assert.equal(isRefused, false);
  state.committed.resolve();
  await refused;
});

test('a backup invites queries unless commands outnumber them; a primary invites none', async () => {
  const state = fake();
  const reads = readsOf(state);
  assert.equal(reads.invites, true);
  state.role = 'primary';
  assert.equal(reads.invites, false);
});

test('a read lease pays for four queries to a batch, and at least eight in a period', () => {
  const read = new ReadDemand();
  const counts = (count: number, nowMs: number, seq: number): string => {
    for (let done = 1; done < count; done++) read.count(nowMs, seq);
    return read.count(nowMs, seq);
  };
  assert.equal(counts(7, 0, 100), 'low');
  assert.equal(counts(1, 0, 100), 'high');
  assert.equal(counts(1, 500, 103), 'outnumbered', 'nine queries for three batches');
  assert.equal(counts(3, 500, 103), 'high', 'twelve for three');
  assert.equal(counts(1, 1_100, 110), 'outnumbered', 'the last period counts, too');
  assert.equal(read.levelAt(1_200), 'outnumbered');
  assert.equal(read.levelAt(4_000), 'low', 'without queries nothing is known of the commands since');
  assert.equal(counts(1, 9_000, 200), 'low', 'an earlier one does not');
});

test('a server without a replica asks the member that was named, and spreads otherwise', () => {
  let nowMs = 0;
  const members = ['s1', 's2', 's3'] as ServerId[];
  const hints = (self: string) => new ReaderHints(self as ServerId, { nowMs: () => nowMs });
  const chosen = new Set(['a', 'b', 'c'].map((self) => hints(self).choose(members, () => true)));
  assert.deepEqual([...chosen].sort(), members);
  const own = hints('a');
  own.note('s3' as ServerId);
  assert.equal(
    own.choose(members, () => true),
    's3',
  );
  assert.notEqual(
    own.choose(members, (server) => server !== 's3'),
    's3',
  );
  assert.equal(
    own.choose(members, () => false),
    null,
  );
  nowMs = 3_000;
  own.note('s3' as ServerId);
  nowMs = 6_000;
  assert.equal(own.named, null, 'The same name again does not last longer');
  assert.equal(
    own.choose(members, () => true),
    hints('a').choose(members, () => true),
    'after a while another one may do',
  );
});

test('a query that needs a directory of a clone that is not filled is left to the primary', async () => {
  const state = fake();
  const reads = readsOf(state);
  await demand(reads, state);
  state.query = () => {
    throw new UnfilledDirectory(7);
  };
  state.committed.resolve();
  assert.equal(await reads.answer(VOLUMES), null);
});
