import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import { VOTERS_VERSION } from '../../catalog/versions.ts';
import { type VotersView, votersJointMs } from '../../lease/voters.ts';
import { VOTERS_CALL, VotersKeeper } from '../../server/membership/voters-keeper.ts';
import type { ServerCondition } from '../../server/membership/wanted-members.ts';
import { firstVoters } from '../../server/named/name-voters.ts';
import { systemWorld } from '../../world/system-world.ts';

const TIMING = { leaseMs: 1_000, clockSkewMaxMs: 20 };
const NO_TIMER_MS = 2 ** 30;
const [S1, S2, S3] = ['s1', 's2', 's3'] as [ServerId, ServerId, ServerId];
const ALL = [S1, S2, S3];

class FakeDriver {
  voters: VotersView | null;
  isSilent = false;
  constructor(voters: VotersView | null) {
    this.voters = voters;
  }
  adoptVoters(view: VotersView): void {
    if (view.number > (this.voters?.number ?? 0)) this.voters = view;
  }
  clockMs(): number {
    return 5;
  }
}

/** A catalog, and servers with a keeper each. */
class Cluster {
  view: VotersView | null = null;
  nowMs = 0;
  flushes = 0;
  readonly founders: readonly ServerId[];
  readonly versions = new Map<ServerId, number | null>(ALL.map((id) => [id, VOTERS_VERSION]));
  readonly toBeReplaced = new Set<ServerId>();
  readonly draining = new Set<ServerId>();
  catalog: readonly ServerId[] = ALL;
  primary = S1;
  readonly drivers = new Map<ServerId, FakeDriver>();
  readonly keepers = new Map<ServerId, VotersKeeper>();

  constructor(founders: readonly ServerId[] = [S1]) {
    this.founders = founders;
    for (const self of ALL) this.start(self, firstVoters(founders));
  }

  start(self: ServerId, voters: VotersView | null): void {
    const driver = new FakeDriver(voters);
    this.drivers.set(self, driver);
    this.keepers.get(self)?.close();
    const keeper = new VotersKeeper({
      ...{ self, driver, founders: this.founders, timing: TIMING, periodMs: NO_TIMER_MS },
      log: pino({ level: 'silent' }),
      world: { ...systemWorld, nowMs: () => this.nowMs },
      isCatalogPrimary: () => self === this.primary,
      catalogMembers: () => this.catalog,
      conditions: async () => ALL.map((id) => this.#standing(id)),
      query: async () => ({ view: this.view as never }),
      command: async ({ view }) => {
        assert.equal(view.number, (this.view?.number ?? 1) + 1);
        this.view = view as unknown as VotersView;
      },
      flush: async () => {
        this.flushes++;
      },
      commandsVersion: (server) => this.versions.get(server) ?? null,
      call: async (to, method, payload) => {
        assert.equal(method, VOTERS_CALL);
        return this.keeper(to).serve(payload);
      },
    });
    this.keepers.set(self, keeper);
  }

  keeper(server: ServerId): VotersKeeper {
    return this.keepers.get(server) as VotersKeeper;
  }

  numbers(): (number | undefined)[] {
    return ALL.map((id) => this.drivers.get(id)?.voters?.number);
  }

  #standing(id: ServerId): ServerCondition {
    const space = { freeBytes: 1, totalBytes: 2 };
    const toBeReplaced = this.toBeReplaced.has(id);
    const state = this.draining.has(id) ? 'draining' : 'in';
    return {
      id,
      zone: '',
      registered: true,
      reachable: !toBeReplaced,
      state,
      toBeReplaced,
      isSteady: true,
      ...space,
    };
  }

  [Symbol.dispose](): void {
    for (const keeper of this.keepers.values()) keeper.close();
  }
}

test('a cluster that began with one server gets three voters, by way of both', async () => {
  using cluster = new Cluster();
  const keeper = cluster.keeper(S1);
  await keeper.runRound();
  assert.deepEqual(cluster.view, {
    number: 2,
    members: { servers: [S1], perCell: 3 },
    joint: { servers: ALL, perCell: 5 },
    clockMs: 0,
  });
  await keeper.runRound();
  assert.deepEqual(cluster.numbers(), [2, 2, 2]);
  assert.equal(cluster.flushes, 1, 'The view is durable before any server uses it');
  cluster.nowMs += votersJointMs(TIMING) - 1;
  await keeper.runRound();
  assert.equal(cluster.view?.number, 2);
  cluster.nowMs += 1;
  await keeper.runRound();
  assert.deepEqual(cluster.view, { number: 3, members: { servers: ALL, perCell: 5 }, clockMs: 5 });
  await keeper.runRound();
  await keeper.runRound();
  assert.deepEqual([cluster.view?.number, cluster.numbers()], [3, [3, 3, 3]]);
});

test('a silent voter is waited for', async () => {
  using cluster = new Cluster();
  const driver = cluster.drivers.get(S1) as FakeDriver;
  driver.isSilent = true;
  for (let turn = 0; turn < 5; turn++) {
    await cluster.keeper(S1).runRound();
    cluster.nowMs += votersJointMs(TIMING);
  }
  assert.equal(cluster.view?.number, 2);
});

test('voters stay while a server runs a release that does not know views, or is down for a permitted time', async () => {
  using cluster = new Cluster();
  for (const version of [VOTERS_VERSION - 1, null]) {
    cluster.versions.set(S3, version);
    await cluster.keeper(S1).runRound();
    assert.equal(cluster.view, null);
  }
  cluster.toBeReplaced.add(S3);
  await cluster.keeper(S1).runRound();
  assert.notEqual(cluster.view, null);
});

test('three servers of the first configuration vote until one of them leaves', async () => {
  using cluster = new Cluster(ALL);
  await cluster.keeper(S1).runRound();
  assert.equal(cluster.view, null);
  cluster.catalog = [S1, S2];
  cluster.draining.add(S3);
  await cluster.keeper(S1).runRound();
  const { number, members, joint } = cluster.view as unknown as VotersView;
  assert.deepEqual([number, members.servers, joint?.servers], [2, ALL, [S1, S2]]);
});

test('more voters follow the catalog to more servers than the cluster began with', async () => {
  using cluster = new Cluster(ALL);
  const keeper = cluster.keeper(S1);
  await keeper.runRound();
  assert.equal(keeper.wantedCount, 3);
  cluster.catalog = [...ALL, 's4', 's5'] as ServerId[];
  await keeper.runRound();
  const { number, members, joint } = cluster.view as unknown as VotersView;
  assert.deepEqual([number, members.servers, joint?.servers], [2, ALL, ['s1', 's2', 's3', 's4', 's5']]);
  assert.equal(keeper.wantedCount, 5);
  cluster.primary = S2;
  await keeper.runRound();
  assert.equal(keeper.wantedCount, null, 'The next primary decides');
});

test('a primary that takes over in the middle of a change begins the wait again', async () => {
  using cluster = new Cluster();
  for (let turn = 0; turn < 2; turn++) await cluster.keeper(S1).runRound();
  cluster.nowMs += votersJointMs(TIMING) - 1;
  cluster.primary = S2;
  await cluster.keeper(S2).runRound();
  cluster.nowMs += votersJointMs(TIMING) - 1;
  await cluster.keeper(S2).runRound();
  assert.equal(cluster.view?.number, 2);
  cluster.nowMs += 1;
  await cluster.keeper(S2).runRound();
  assert.equal(cluster.view?.number, 3);
});

test('a new folder uses the view that the catalog answers to a query, not one that it is sent', async () => {
  using cluster = new Cluster();
  cluster.start(S2, null);
  const late = Buffer.from(JSON.stringify(firstVoters([S1])));
  const answer = JSON.parse(Buffer.from(cluster.keeper(S2).serve(late)).toString()) as { voters: unknown };
  assert.deepEqual([answer.voters, cluster.drivers.get(S2)?.voters], [null, null]);
  cluster.view = { number: 3, members: { servers: ALL, perCell: 5 }, clockMs: 0 };
  await cluster.keeper(S2).runRound();
  assert.equal(cluster.drivers.get(S2)?.voters?.number, 3);
});
