/**
 * Goal: the primary of a volume's catalog returns to the first member that is reachable, and only to one that stays,
 * lacks nothing and has been so for a while.
 * Method: the part alone, with time that passes by hand. Real catalogs return in the schedule
 * `own-catalog-primary-returns`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { PeerStatus } from '../../replica/actions.ts';
import type { View } from '../../replica/view.ts';
import { PrimaryReturn } from '../../server/catalog/primary-return.ts';
import type { ListedServer } from '../../wire/volume-catalogs.ts';
import { ManualWorld } from '../membership/manual-world.ts';

const LEASE_MS = 1_000;
const [A, B, C] = ['a', 'b', 'c'] as ServerId[] as [ServerId, ServerId, ServerId];

/** A catalog with members a, b and c; its primary is at b, where the part runs. */
class Cluster {
  readonly world = new ManualWorld();
  readonly handedOver: string[] = [];
  readonly away = new Set<ServerId>();
  readonly listed: Record<string, Partial<ListedServer>> = {};
  readonly peer: Partial<PeerStatus> = {};
  view: View = { number: 3, members: [A, B, C] };
  isPrimary = true;
  /** What `handOver` waits for, and the next primary. */
  ended: Promise<void> = Promise.resolve();
  next: ServerId | null = A;
  earlier = false;
  future: ServerId[] = [A, B, C];
  readonly volumes = ['v'];
  readonly part = new PrimaryReturn({
    ...{ self: B, world: this.world, log: pino({ level: 'silent' }), periodMs: LEASE_MS },
    catalogs: () =>
      this.volumes.map((volume) => ({
        volume,
        driver: {
          isPrimary: this.isPrimary,
          view: this.view,
          futureMembers: this.future,
          peers: (isConnected) => [A, B, C].map((server) => this.#peer(server, isConnected(server))),
        },
        handOver: async () => {
          this.handedOver.push(volume);
          await this.ended;
          return this.next;
        },
      })),
    servers: () =>
      [A, B, C].map((id) => {
        const server = { id, url: 'http://h:1', zone: '', state: 'in', since: 1, storageId: id } as const;
        return { ...server, ...this.listed[id] };
      }),
    wallMs: () => this.world.wallMs(),
    isConnected: (server) => !this.away.has(server),
    mayLead: () => !this.earlier,
  });

  #peer(server: ServerId, isConnected: boolean): PeerStatus {
    const current = { role: 'backup', state: 'current', lagOperations: 0, lagBytes: 0, behindMs: 0 } as const;
    const peer = { server, seq: 1, ...current, ...(server === A ? this.peer : {}) };
    return isConnected ? peer : { ...peer, state: 'unreachable' };
  }
}

const REASONS: Readonly<Record<string, (cluster: Cluster) => unknown>> = {
  'the primary is not here': (cluster) => {
    cluster.isPrimary = false;
  },
  'this server is the first member': (cluster) => {
    cluster.view = { number: 3, members: [B, A, C] };
  },
  'the members change': (cluster) => {
    cluster.view = { number: 3, members: [A, B], joint: [A, B, C] };
    cluster.future = [A, B];
  },
  'new members fetch the catalog': (cluster) => cluster.future.push('d' as ServerId),
  'the first one is of a release that the others let have no lease': (cluster) => {
    cluster.earlier = true;
  },
  'no earlier member is reachable': ({ away }) => away.add(A),
  'the first one is draining': ({ listed }) => {
    listed.a = { state: 'draining' };
  },
  'the first one is about to be stopped': ({ listed }) => {
    listed.a = { maintenanceNs: '3600000000000' };
  },
  'the first one does not answer': ({ peer }) => Object.assign(peer, { state: 'unreachable' }),
  'the first one fetches the state': ({ peer }) =>
    Object.assign(peer, { state: 'catching-up', behindMs: 5_000 }),
};

for (const [reason, prepare] of Object.entries(REASONS)) {
  test(`no primary is handed over while ${reason}`, async () => {
    const cluster = new Cluster();
    prepare(cluster);
    await cluster.world.pass(100 * LEASE_MS);
    assert.deepEqual(cluster.handedOver, []);
  });
}

test('a member is fit although it lags by what was just written, and after its maintenance', async () => {
  const cluster = new Cluster();
  Object.assign(cluster.peer, { state: 'catching-up', lagOperations: 9, behindMs: 20 });
  cluster.listed.a = { maintenanceNs: '3000000000' };
  await cluster.world.pass(20 * LEASE_MS);
  assert.deepEqual(cluster.handedOver.slice(0, 1), ['v']);
});

test('each moment in which the first member is not fit begins the wait anew', async () => {
  const cluster = new Cluster();
  for (let round = 0; round < 10; round++) {
    await cluster.world.pass(4 * LEASE_MS);
    cluster.away.add(A);
    await cluster.world.pass(LEASE_MS);
    cluster.away.clear();
  }
  assert.deepEqual(cluster.handedOver, []);
  await cluster.world.pass(5 * LEASE_MS);
  assert.deepEqual(cluster.handedOver, ['v']);
});

test('returns to a server that fails again and again become rare, and after a long time need no longer wait', async () => {
  const cluster = new Cluster();
  const atMs: number[] = [];
  while (atMs.length < 9) {
    await cluster.world.pass(LEASE_MS);
    if (cluster.handedOver.length > atMs.length) atMs.push(cluster.world.nowMs());
  }
  const waits = atMs.map((ms, at) => (ms - (atMs[at - 1] ?? 0)) / LEASE_MS);
  assert.deepEqual(waits, [5, 9, 17, 33, 65, 129, 257, 257, 257]);
  cluster.isPrimary = false;
  await cluster.world.pass(1_025 * LEASE_MS);
  cluster.isPrimary = true;
  await cluster.world.pass(5 * LEASE_MS);
  assert.equal(cluster.handedOver.length, 10);
});

test('a return after which another member is primary is not repeated soon', async () => {
  const cluster = new Cluster();
  cluster.next = C;
  await cluster.world.pass(200 * LEASE_MS);
  assert.equal(cluster.handedOver.length, 1);
  cluster.next = A;
  await cluster.world.pass(100 * LEASE_MS);
  assert.equal(cluster.handedOver.length, 2);
});

test('once it is closed, no further catalog returns', async () => {
  const cluster = new Cluster();
  cluster.volumes.push('w', 'x');
  let end = (): void => undefined;
  cluster.ended = new Promise((resolve) => {
    end = resolve;
  });
  await cluster.world.pass(5 * LEASE_MS);
  const closed = cluster.part.close();
  end();
  await closed;
  assert.deepEqual(cluster.handedOver, ['v']);
});

test('catalogs return one after the other, each if it is still to', async () => {
  const cluster = new Cluster();
  cluster.volumes.push('w', 'x');
  let end = (): void => undefined;
  cluster.ended = new Promise((resolve) => {
    end = resolve;
  });
  await cluster.world.pass(20 * LEASE_MS);
  assert.deepEqual(cluster.handedOver, ['v']);
  cluster.away.add(A);
  end();
  await cluster.world.pass(100 * LEASE_MS);
  assert.deepEqual(cluster.handedOver, ['v']);
  await cluster.part.close();
  cluster.away.clear();
  await cluster.world.pass(1_000 * LEASE_MS);
  assert.deepEqual(cluster.handedOver, ['v'], 'No timer runs any more');
});
