/**
 * Goal: a file of a clone gets its servers once a majority of them has copies, whatever one of them does; who waits to
 * change it gets an answer in time; what cannot be copied keeps nothing else from it.
 * Method: `FileFills` and `CloneFills` with members and a catalog of the test.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { CloneFills } from '../../server/catalog/clone-fills.ts';
import { bounded } from '../../server/process/bounded.ts';
import type { CopyState } from '../../server/routing/copy-call.ts';
import { FileFills } from '../../server/routing/file-fills.ts';
import { Gateway } from '../../server/routing/gateway.ts';
import type { Services } from '../../server/routing/service-interfaces.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { patientWorld } from '../patient-world.ts';

const FILE = 7 as FileId;
const MEMBERS = ['a', 'b', 'c'] as readonly string[] as readonly ServerId[];

type Answer = CopyState | ServiceError | Promise<CopyState>;

const unreachable = new ServiceError('no-majority', 'It is not connected');

/** @param answers of each member, in the order of its calls; the last one is that of all later calls */
function fillsWith(answers: Readonly<Record<string, readonly Answer[]>>) {
  const left = new Map(Object.entries(answers).map(([server, all]) => [server, [...all]]));
  const done: string[] = [];
  const opened: { members: readonly ServerId[] | null } = { members: MEMBERS };
  const fills = new FileFills({
    world: patientWorld,
    open: async () => opened.members,
    copyAt: async (server) => {
      const rest = left.get(server) ?? assert.fail('A member');
      const answer = (rest.length > 1 ? rest.shift() : rest[0]) as Answer;
      await turn();
      if (answer instanceof ServiceError) throw answer;
      const state = await answer;
      if (state === 'copied') done.push(server);
      return state;
    },
    filled: async () => void done.push('filled'),
  });
  return { fills, done, opened };
}

test('a majority of copies is needed, and suffices', async () => {
  const never = new Promise<CopyState>(() => undefined);
  const { fills, done } = fillsWith({ a: [never], b: ['copying', 'copied'], c: [unreachable, 'copied'] });
  await bounded(
    patientWorld,
    fills.fill(FILE),
    10_000,
    () => new Error('It waits for one that still copies'),
  );
  assert.deepEqual(done.toSorted(), ['b', 'c', 'filled']);
  assert.equal(done.at(-1), 'filled');
});

test('without a majority the file is not filled, and who waits learns that in time', async () => {
  const { promise, resolve } = Promise.withResolvers<CopyState>();
  const { fills, done } = fillsWith({ a: ['copied'], b: [unreachable], c: [promise] });
  await assert.rejects(fills.fillWithin(FILE, 100), { code: 'busy' });
  resolve('not-needed');
  const failing = fillsWith({ a: ['copied'], b: [unreachable], c: [unreachable] });
  await assert.rejects(failing.fills.fill(FILE), { code: 'no-majority' });
  await assert.rejects(failing.fills.fillWithin(FILE, 100), { code: 'busy', message: /not connected/ });
  await assert.rejects(fills.fill(FILE));
  assert.ok(![...done, ...failing.done].includes('filled'));
});

test('who waits for members that return is served once they have', async () => {
  const down = Array.from({ length: 7 }, () => unreachable);
  const { fills, done } = fillsWith({ a: [...down, 'copied'], b: [unreachable], c: [...down, 'copied'] });
  await fills.fillWithin(FILE, 60_000);
  assert.equal(done.at(-1), 'filled');
});

test('what a retry does not help is an answer at once', async () => {
  const lost = new ServiceError('integrity', 'The contents were lost');
  const { fills } = fillsWith({ a: [lost], b: [lost], c: [lost] });
  await assert.rejects(fills.fillWithin(FILE, 60_000), { code: 'integrity' });
});

test('a file that another server has filled meanwhile is filled', async () => {
  const { fills, opened, done } = fillsWith({ a: ['not-needed'], b: ['not-needed'], c: ['not-needed'] });
  const filling = fills.fill(FILE);
  await turn();
  opened.members = null;
  await filling;
  assert.deepEqual(done, []);
});

test('the choice of servers is durable before they copy, and that a file has contents of its own before it is changed', async (t) => {
  const services = { status: { id: 'a', urls: new Map(), operationTimeoutMs: 1_000 } } as unknown as Services;
  const durable: string[] = [];
  const copyAt = async (): Promise<CopyState> => {
    assert.deepEqual(durable, ['clone-open']);
    return 'copied';
  };
  const gateway = new Gateway({ world: patientWorld, services, founders: [], copyAt });
  t.mock.method(gateway, 'command', async () => ({ members: MEMBERS }));
  t.mock.method(gateway, 'durably', async ({ kind }: Command) => {
    durable.push(kind);
    return { members: MEMBERS };
  });
  await gateway.fills.fill(FILE);
  assert.deepEqual(durable, ['clone-open', 'clone-filled']);
});

function backgroundOf(t: TestContext, filling: (inode: number) => Promise<void>) {
  const rows = new Set([11, 12, 13]);
  const tried: number[] = [];
  const logged: object[] = [];
  const round: { work?: () => void } = {};
  let position = 0;
  const log = pino({ level: 'info' }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  const background = new CloneFills({
    world: {
      ...patientWorld,
      every: (_, work) => {
        round.work = work;
        return { cancel: () => undefined, unref: () => undefined } as never;
      },
    },
    log,
    isCatalogPrimary: () => true,
    catalogPosition: () => `${++position}`,
    query: async ({ after }) => {
      const inodes = [...rows]
        .filter((inode) => inode > after)
        .map((inode) => ({ inode, kind: 'file' as const }));
      return { inodes, next: null };
    },
    command: async () => ({ done: true }),
    fillFile: async (inode) => {
      tried.push(inode);
      await filling(inode);
      rows.delete(inode);
    },
  });
  t.after(() => background.close());
  return {
    rows,
    tried,
    logged,
    async play(rounds: number): Promise<void> {
      for (let at = 0; at < rounds; at++) {
        round.work?.();
        for (let turns = 0; turns < 20; turns++) await turn();
      }
    },
  };
}

test('what cannot be copied keeps nothing else from it, and is tried again more and more seldom', async (t) => {
  const background = backgroundOf(t, async (inode) => {
    if (inode < 13) throw unreachable;
  });
  await background.play(1);
  assert.deepEqual([...background.rows], [11, 12]);
  assert.deepEqual(background.tried, [11, 12, 13]);
  assert.equal(background.logged.length, 1);
  await background.play(39);
  const tries = background.tried.filter((inode) => inode === 11).length;
  assert.equal(tries, 5, 'In rounds 1, 2, 5, 12 and 27');
  assert.equal(background.logged.length, tries);
  background.rows.add(14);
  await background.play(1);
  assert.ok(!background.rows.has(14), 'New ones do not wait');
});
