/** Files of REST that are created with contents, and where they are stored. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import {
  type CatalogNumber,
  type FileId,
  type Incarnation,
  ROOT_CATALOG,
  type ServerId,
} from '../../base/ids.ts';
import { REPLACEMENTS_VERSION } from '../../catalog/versions.ts';
import { firstEpoch } from '../../replica/create-with-contents.ts';
import { encodeCreateCall, SYNCED_CREATE_CALL } from '../../server/file/creation-call.ts';
import { creationOperations } from '../../server/file/creation-operations.ts';
import { doAllPeersKnowReplace } from '../../server/file/creations.ts';
import { FirstContents, type FirstContentsRequest } from '../../server/file/first-contents.ts';
import { WHOLE_BYTES_MAX, WholeFiles } from '../../server/file/whole-files.ts';
import type { Policy } from '../../wire/catalog-values.ts';
import { patientWorld } from '../patient-world.ts';

const MEMBERS = ['s1', 's2', 's3'] as ServerId[];
const BYTES = Buffer.from('the whole of it');

/** Files of a server, with a catalog that reserves numbers from 100 on, and members that accept all contents. */
function started() {
  const seen = {
    ...{ policy: 'quorum' as Policy, isUnderstood: true, outdated: null as ServerId | null },
    ...{ refusal: null as ServiceError | null },
    ...{
      isRefused: false,
      members: MEMBERS,
      reservations: 0,
      root: 1,
      catalog: ROOT_CATALOG as CatalogNumber,
      flushed: [] as number[],
      /** Directories of whose class numbers were reserved, one for each reservation. */
      placements: [] as number[],
      stored: [] as FirstContentsRequest[],
    },
  };
  const owners = new Map<number, readonly ServerId[]>();
  const wholes = new WholeFiles({
    world: patientWorld,
    clock: { wallNs: () => 42n },
    catalogOf: () => seen.catalog,
    contents: {
      store: async (files) => {
        seen.stored.push(files);
        return [seen.isRefused ? 'no-space' : null];
      },
    },
    numbers: {
      reserve: async ({ count, placement = 0 }) => {
        if (seen.refusal !== null) throw seen.refusal;
        seen.placements.push(placement);
        const first = 100 * ++seen.reservations;
        for (let number = first; number < first + count; number++) owners.set(number, seen.members);
        return { first, count, creatingServer: 's1', named: true, validMs: 1_000 };
      },
      take: (_owner, number) => {
        const members = owners.get(number);
        owners.delete(number);
        const placement = seen.placements[Math.floor(number / 100) - 1] ?? 0;
        const replicas = placement === 0 ? 3 : 2;
        return members === undefined ? null : { members, replicas, placement };
      },
    },
    settings: {
      ofClass: async (volume, placement) => ({ ...volume, replicas: placement === 0 ? volume.replicas : 2 }),
      ofVolume: async (name) =>
        ({
          volume: { name, root: seen.root, policy: seen.policy, replicas: 3, objectBytes: 4_096 },
          servers: [],
        }) as never,
    },
    host: { directoryEntryCreated: () => undefined },
    traffic: { countWrite: () => undefined },
    outcomes: { add: () => undefined },
    isUnderstood: () => seen.isUnderstood,
    isOutdated: (members) => seen.outdated !== null && members.includes(seen.outdated),
    flushCatalogOf: async (inode) => void seen.flushed.push(inode),
  });
  return { wholes, seen };
}

test('contents are synced at a majority of the reserved members before the file has a name', async () => {
  const { wholes, seen } = started();
  const stored = await wholes.store('v', BYTES);
  assert.ok(stored !== null);
  const { owner, ...rest } = stored;
  assert.ok(owner > 0);
  const settled = { sizeBytes: BYTES.length, modifiedNs: '42', contents: { epoch: 1, seq: 1 } };
  assert.deepEqual(rest, { inode: 100, replicas: MEMBERS, objectBytes: 4_096, ...settled });
  const replicas = [{ file: 100 as FileId, operations: creationOperations(BYTES, 42n) }];
  assert.deepEqual(seen.stored, [{ members: MEMBERS, objectBytes: 4_096, replicas, synced: true }]);
});

test('one reservation, which survives a loss of power, is valid for many files, each number for one', async () => {
  const { wholes, seen } = started();
  const files = await Promise.all(Array.from({ length: 65 }, () => wholes.store('v', BYTES)));
  const inodes = files.map((file) => file?.inode);
  assert.equal(new Set(inodes).size, 65);
  assert.deepEqual([seen.reservations, seen.flushed], [2, [100, 200]]);
});

test('another volume of the same name gets numbers of its own', async () => {
  const { wholes, seen } = started();
  await wholes.store('v', BYTES);
  seen.root = 2;
  assert.equal((await wholes.store('v', BYTES))?.inode, 200);
  // It moves to a catalog of its own, which does not know the number.
  seen.catalog = 3 as CatalogNumber;
  assert.equal((await wholes.store('v', BYTES))?.inode, 300);
});

test('files for which a majority does not suffice, large ones, and those that other members do not know how to create are staged', async () => {
  const { wholes, seen } = started();
  for (const policy of ['all', 'read-only'] as const) {
    seen.policy = policy;
    assert.equal(await wholes.store('v', BYTES), null);
  }
  seen.policy = 'quorum';
  assert.equal(await wholes.store('v', Buffer.alloc(WHOLE_BYTES_MAX + 1)), null);
  seen.isUnderstood = false;
  assert.equal(await wholes.store('v', BYTES), null);
  seen.isUnderstood = true;
  seen.isRefused = true;
  assert.equal(await wholes.store('v', BYTES), null);
});

test('a file is staged if the catalog refuses its number, and is not if that fails', async () => {
  const { wholes, seen } = started();
  seen.refusal = new ServiceError('precondition-failed', 'Upgrade first', { outdated: ['s3'] });
  assert.equal(await wholes.store('v', BYTES), null);
  seen.refusal = new ServiceError('precondition-failed', 'Server s3 leaves');
  assert.equal(await wholes.store('v', BYTES), null);
  seen.refusal = new ServiceError('no-majority', 'The catalog is away');
  await assert.rejects(wholes.store('v', BYTES), { code: 'no-majority' });
  seen.refusal = null;
  assert.notEqual(await wholes.store('v', BYTES), null, 'Numbers are reserved again');
});

test('the release of a disconnected peer counts as an earlier one', () => {
  const understands = (...versions: readonly (number | null)[]): boolean =>
    doAllPeersKnowReplace({
      peers: MEMBERS.slice(0, versions.length),
      commandsVersion: (peer) => versions[MEMBERS.indexOf(peer)] ?? null,
    });
  assert.ok(understands(REPLACEMENTS_VERSION, REPLACEMENTS_VERSION + 1));
  assert.ok(!understands(REPLACEMENTS_VERSION, REPLACEMENTS_VERSION - 1));
  assert.ok(!understands(REPLACEMENTS_VERSION, null));
  assert.ok(understands(), 'A single server');
});

test('numbers whose servers are disconnected are exchanged for others', async () => {
  const { wholes, seen } = started();
  await wholes.store('v', BYTES);
  seen.outdated = 's3' as ServerId;
  seen.members = ['s1', 's2', 's4'] as ServerId[];
  const stored = await wholes.store('v', BYTES);
  assert.deepEqual([stored?.replicas, seen.reservations], [seen.members, 2]);
  seen.outdated = 's1' as ServerId;
  assert.equal(await wholes.store('v', BYTES), null, 'None are better');
});

test('a member that is to sync answers after its sync, and refuses what it cannot sync', async () => {
  const order: string[] = [];
  let fails = false;
  const contents = new FirstContents({
    ...{ self: 's1' as ServerId, incarnation: 1 as Incarnation, world: patientWorld },
    log: pino({ level: 'silent' }),
    host: {
      createWithContents: async (replicas) => {
        order.push('stored');
        return replicas.map(() => null);
      },
    },
    store: {
      flush: async () => {
        order.push('synced');
        if (fails) throw new ServiceError('storage', 'Cannot sync');
      },
    },
    isConnected: () => true,
    call: async (_to, method) => {
      order.push(method);
      throw new ServiceError('no-majority', 'away');
    },
  });
  const call = {
    ...{ epoch: firstEpoch('s2' as ServerId, 1 as Incarnation), view: { number: 1, members: MEMBERS } },
    ...{ objectBytes: 4_096, replicas: [{ file: 7 as FileId, operations: creationOperations(BYTES, 42n) }] },
  };
  const payload = encodeCreateCall(call);
  assert.equal((await contents.serve('s2' as ServerId, payload, true)).length, 0);
  assert.equal((await contents.serve('s2' as ServerId, payload, false)).length, 0);
  assert.deepEqual(order.splice(0), ['stored', 'synced', 'stored']);
  fails = true;
  const refusals = Buffer.from(await contents.serve('s2' as ServerId, payload, true)).toString();
  assert.equal(refusals, '["storage"]');
  order.splice(0);
  fails = false;
  const { replicas, objectBytes } = call;
  assert.deepEqual(await contents.store({ members: MEMBERS, objectBytes, replicas, synced: true }), [
    'no-majority',
  ]);
  assert.ok(
    order.filter((what) => what === SYNCED_CREATE_CALL).length === 2,
    'The extra member is asked last',
  );
});

test('contents for a directory with a placement class have numbers of that class', async () => {
  const { wholes, seen } = started();
  const inodes: (number | undefined)[] = [];
  for (const placement of [0, 7, 0, 7, 8]) inodes.push((await wholes.store('v', BYTES, placement))?.inode);
  assert.deepEqual(inodes, [100, 200, 101, 201, 300]);
  assert.deepEqual(seen.placements, [0, 7, 8]);
});
