import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { LeaseOutcome } from '../../lease/actions.ts';
import type { VotersView } from '../../lease/voters.ts';
import type { ClockMemory } from '../../server/drivers/lease-link.ts';
import { WakeQueue } from '../../server/drivers/wake-queue.ts';
import { NamedLeaseDriver, type VotersStore } from '../../server/named/named-lease-driver.ts';
import { Clock } from '../../server/process/clock.ts';
import { leaseNoteText } from '../../wire/named-lease.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryNetwork, type MemoryTransport } from '../transport/memory-transport.ts';

const LEASE_MS = 1_000;
const SKEW_MS = 20;
const ASK_MS = 3_000;
const FIVE = ['s1', 's2', 's3', 's4', 's5'] as ServerId[];

/** What a server stores of its clock, as a data folder does. */
class RememberedClock implements ClockMemory {
  earlierMs = -Infinity;
  fails = false;

  cover(leaseClockMs: number): number {
    if (this.fails) throw new Error('The disk is full');
    this.earlierMs = Math.max(this.earlierMs, leaseClockMs);
    return leaseClockMs;
  }
}

/** What a server stores of its voters, as a data folder does. */
class VotersFolder implements VotersStore {
  voters: VotersView | 'first' | null = 'first';
  fails = false;

  setVoters(voters: VotersView | 'first'): void {
    if (this.fails) throw new Error('The disk is full');
    this.voters = voters;
  }
}

/** Servers in one process that only vote on names. */
class NamedCluster {
  readonly network = new MemoryNetwork(systemWorld);
  readonly drivers = new Map<ServerId, NamedLeaseDriver>();
  readonly fatal: unknown[] = [];
  readonly logged: string[] = [];
  readonly #closers: (() => void)[] = [];

  /**
   * @param serversOf what each server considers to be all servers
   * @param folders by which views servers vote; absent: always the first
   * @param memories what each server remembers of its clock; absent: nothing
   */
  constructor(
    ids = FIVE,
    serversOf = (_id: ServerId) => ids,
    memories?: ReadonlyMap<ServerId, RememberedClock>,
    folders?: ReadonlyMap<ServerId, VotersFolder>,
  ) {
    const log = pino({ level: 'warn' }, { write: (line) => this.logged.push(line) });
    for (const [place, id] of ids.entries()) {
      const clock = new Clock(systemWorld);
      const wakes = new WakeQueue(systemWorld, clock);
      const made: { transport?: MemoryTransport } = {};
      const driver = new NamedLeaseDriver({
        world: systemWorld,
        self: id,
        founders: serversOf(id),
        leaseMs: LEASE_MS,
        clockSkewMaxMs: SKEW_MS,
        clock,
        wakes,
        log,
        ...(memories === undefined ? {} : { clockMemory: memories.get(id) as RememberedClock }),
        ...(folders === undefined ? {} : { voters: folders.get(id) as VotersFolder }),
        drawIncarnation: () => (place + 1) as Incarnation,
        transport: () => made.transport as MemoryTransport,
        fatal: (error) => this.fatal.push(error),
      });
      made.transport = this.network.join({
        server: id,
        log,
        handlers: {
          message: (from, _channel, payload) => driver.receive(from, payload),
          connected: () => undefined,
          disconnected: () => undefined,
          call: async () => new Uint8Array(),
        },
      });
      this.drivers.set(id, driver);
      this.#closers.push(() => {
        driver.close();
        wakes.close();
        void made.transport?.close();
      });
    }
  }

  driver(place: number): NamedLeaseDriver {
    return [...this.drivers.values()][place % this.drivers.size] as NamedLeaseDriver;
  }

  async ready(): Promise<void> {
    while ([...this.drivers.values()].some((driver) => driver.recoveringMs() > 0)) await delay(10);
  }

  [Symbol.dispose](): void {
    for (const close of this.#closers) close();
  }
}

const acquire = (name: string, session: number) =>
  ({
    kind: 'acquire',
    session,
    spanMs: LEASE_MS,
    note: leaseNoteText({ name, owner: `${session}`, ttlMs: LEASE_MS, keys: {} }),
  }) as const;

describe('names among five servers', () => {
  test('of many concurrent requests, through all servers, one is granted each name', async () => {
    using cluster = new NamedCluster();
    await cluster.ready();
    const names = Array.from({ length: 40 }, (_, number) => `name-${number}`);
    const asked = names.flatMap((name, place) =>
      [1, 2, 3].map(async (session) => {
        const driver = cluster.driver(place + session);
        const askedMs = systemWorld.nowMs();
        const outcome = await driver.execute(name, acquire(name, session), ASK_MS);
        return { name, session, outcome, askedMs, answeredMs: systemWorld.nowMs() };
      }),
    );
    const answers = await Promise.all(asked);
    for (const name of names) {
      // On a busy machine a lease may end before the last request: then that one's lease begins later.
      const held = answers
        .flatMap(({ name: asked, outcome, askedMs, answeredMs }) =>
          asked === name && outcome.kind === 'granted'
            ? [
                {
                  fromMs: answeredMs,
                  // The remaining time counts from the request.
                  toMs: askedMs + outcome.lease.remainingMs,
                  token: outcome.lease.token,
                },
              ]
            : [],
        )
        .sort((one, other) => one.token - other.token);
      for (const [place, lease] of held.entries())
        assert.ok(lease.fromMs >= (held[place - 1]?.toMs ?? 0), `${name}: ${JSON.stringify(held)}`);
    }
    const granted = answers.filter(({ outcome }) => outcome.kind === 'granted');
    assert.ok(granted.length > names.length / 2, `${granted.length} of ${names.length} names have a holder`);
    assert.deepEqual(cluster.fatal, []);
  });

  test('a lease is seen everywhere, known to its members, refreshed, released, and followed by a larger token', async () => {
    using cluster = new NamedCluster();
    await cluster.ready();
    const [first, second] = [cluster.driver(0), cluster.driver(3)];
    const one = await first.execute('n', acquire('n', 1), ASK_MS);
    assert.ok(one.kind === 'granted');
    const members = first.membersOf('n');
    assert.equal(members.length, 3);
    const taken = await second.execute('n', acquire('n', 2), ASK_MS);
    assert.ok(taken.kind === 'taken' && taken.lease.token === one.lease.token);
    const refresh = { kind: 'refresh', session: 1, spanMs: LEASE_MS, note: null } as const;
    const again = await second.execute('n', refresh, ASK_MS);
    assert.ok(again.kind === 'granted' && again.lease.token === one.lease.token);
    const known = members.filter((id) => cluster.drivers.get(id)?.claimOf('n')?.session === 1);
    assert.ok(known.length >= 2, 'A majority of its members has it');
    const count = [...cluster.drivers.values()].flatMap((driver) => [...driver.claims()]).length;
    assert.ok(count >= 2 && count <= 3, 'And no other server');
    const released = await second.execute('n', { kind: 'release', session: 1 }, ASK_MS);
    assert.equal(released.kind, 'free');
    const next = await second.execute('n', acquire('n', 2), ASK_MS);
    assert.ok(next.kind === 'granted' && next.lease.token > one.lease.token);
    assert.deepEqual(cluster.fatal, []);
  });

  test('without a majority of its members a name has no answer, in time; a server that is no member changes nothing', async () => {
    using cluster = new NamedCluster();
    await cluster.ready();
    const driver = cluster.driver(0);
    const name = ['a', 'b', 'c', 'd', 'e', 'f'].find((candidate) => !driver.isMember(candidate)) as string;
    const members = driver.membersOf(name);
    const others = FIVE.filter((id) => !members.includes(id) && id !== 's1');
    for (const id of others) cluster.network.cut('s1' as ServerId, id);
    assert.equal((await driver.execute(name, { kind: 'query' }, ASK_MS)).kind, 'free');
    for (const id of members.slice(0, 2)) cluster.network.cut('s1' as ServerId, id);
    assert.equal((await driver.execute(name, acquire(name, 1), 300)).kind, 'unknown');
    cluster.network.heal();
    assert.equal((await driver.execute(name, acquire(name, 1), ASK_MS)).kind, 'granted');
  });
});

test('after a start a server reports how long it stays silent; at its end, that nothing is known', async () => {
  using cluster = new NamedCluster();
  const driver = cluster.driver(0);
  await assert.rejects(driver.execute('n', { kind: 'query' }, ASK_MS), (error) => {
    assert.ok(error instanceof ServiceError && error.code === 'recovering');
    const retryAfterMs = error.details.retryAfterMs ?? 0;
    return retryAfterMs > 0 && retryAfterMs <= LEASE_MS + 2 * SKEW_MS;
  });
  await cluster.ready();
  for (const id of FIVE.slice(1)) cluster.network.cut('s1' as ServerId, id);
  const waiting: Promise<LeaseOutcome> = driver.execute('n', { kind: 'query' }, ASK_MS);
  driver.close();
  assert.deepEqual(await waiting, { kind: 'unknown' });
});

describe('the clocks of all servers are set back', () => {
  const three = FIVE.slice(0, 3);
  const BACK_MS = 1_500;

  async function tokenOf(cluster: NamedCluster, session: number): Promise<number> {
    const outcome = await cluster.driver(0).execute('n', acquire('n', session), ASK_MS);
    assert.ok(outcome.kind === 'granted', JSON.stringify(outcome));
    await cluster.driver(1).execute('n', { kind: 'release', session }, ASK_MS);
    return outcome.lease.token;
  }

  test('while none of them runs: they wait until the clocks have caught up, and tokens rise', async (t) => {
    const memories = new Map(three.map((id) => [id, new RememberedClock()]));
    using before = new NamedCluster(three, () => three, memories);
    await before.ready();
    const token = await tokenOf(before, 1);
    before[Symbol.dispose]();
    const now = Date.now.bind(Date);
    t.mock.method(Date, 'now', () => now() - BACK_MS);
    using after = new NamedCluster(three, () => three, memories);
    assert.ok(after.driver(0).recoveringMs() > LEASE_MS + BACK_MS / 2);
    await assert.rejects(
      after.driver(0).execute('n', { kind: 'query' }, ASK_MS),
      /ms behind its earlier readings/,
    );
    await after.ready();
    assert.ok((await tokenOf(after, 2)) > token);
    assert.ok(after.logged.some((line) => line.includes('the clock was set back')));
  });

  test('while they run: their leases end, and tokens rise', async (t) => {
    const memories = new Map(three.map((id) => [id, new RememberedClock()]));
    using cluster = new NamedCluster(three, () => three, memories);
    await cluster.ready();
    const token = await tokenOf(cluster, 1);
    const now = Date.now.bind(Date);
    t.mock.method(Date, 'now', () => now() - BACK_MS);
    while (!cluster.logged.some((line) => line.includes('restarting the lease layer'))) await delay(50);
    while (three.some((_, place) => !isUsable(cluster.driver(place)))) await delay(50);
    assert.ok((await tokenOf(cluster, 2)) > token);
  });

  test('a server whose disk does not store the reading of its clock votes on nothing', async () => {
    const memories = new Map(three.map((id) => [id, new RememberedClock()]));
    using cluster = new NamedCluster(three, () => three, memories);
    await cluster.ready();
    for (const id of three.slice(1)) (memories.get(id) as RememberedClock).fails = true;
    assert.equal((await cluster.driver(0).execute('n', acquire('n', 1), 300)).kind, 'unknown');
    assert.equal(isUsable(cluster.driver(1)), false);
    assert.deepEqual(cluster.fatal, []);
  });

  function isUsable(driver: NamedLeaseDriver): boolean {
    try {
      driver.assertUsable();
      return true;
    } catch (error) {
      assert.ok(error instanceof ServiceError);
      return false;
    }
  }
});

test('invalid bytes are dropped, and servers with another set of servers are ignored', async () => {
  const stranger = 's3' as ServerId;
  const three = FIVE.slice(0, 3);
  using cluster = new NamedCluster(three, (id) => (id === stranger ? FIVE : three));
  await cluster.ready();
  const driver = cluster.driver(0);
  for (const bytes of [[], [1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6]]) {
    driver.receive('s2' as ServerId, Uint8Array.from(bytes));
  }
  const granted = await driver.execute('n', acquire('n', 1), ASK_MS);
  assert.equal(granted.kind, 'granted', 'Two of three are a majority');
  assert.equal(cluster.drivers.get(stranger)?.claimOf('n'), null, 'The third has not received it');
  assert.ok(cluster.logged.some((line) => line.includes('another set of --peer servers')));
  assert.ok(cluster.logged.some((line) => line.includes('malformed lease frame')));
  assert.deepEqual(cluster.fatal, []);
});

describe('voters that change', () => {
  const [one, two, three] = FIVE as [ServerId, ServerId, ServerId, ServerId, ServerId];
  const later = { number: 3, members: { servers: [one, two, three], perCell: 5 }, clockMs: 0 };

  function voting(): { cluster: NamedCluster; folders: Map<ServerId, VotersFolder> } {
    const folders = new Map([one, two, three].map((id) => [id, new VotersFolder()]));
    return { cluster: new NamedCluster([one, two, three], () => [one], undefined, folders), folders };
  }

  test('a lease is seen through a change, and requests that wait for a majority meanwhile are sent again', async () => {
    const { cluster } = voting();
    using _ended = cluster;
    await cluster.ready();
    const first = await cluster.driver(1).execute('n', acquire('n', 1), ASK_MS);
    assert.ok(first.kind === 'granted');
    const joint = { ...later, number: 2, members: { servers: [one], perCell: 3 }, joint: later.members };
    cluster.driver(1).adoptVoters(joint);
    assert.equal(cluster.driver(1).voterCount, 1);
    // The others refuse the later view until they have it, too.
    const waits = cluster.driver(1).execute('n', acquire('n', 2), ASK_MS);
    const asked = cluster.driver(2).execute('n', { kind: 'query' }, ASK_MS);
    for (const driver of cluster.drivers.values()) driver.adoptVoters(joint);
    assert.deepEqual([(await waits).kind, (await asked).kind], ['taken', 'seen']);
    for (const driver of cluster.drivers.values()) driver.adoptVoters(later);
    const refresh = { kind: 'refresh', session: 1, spanMs: LEASE_MS, note: null } as const;
    const again = await cluster.driver(2).execute('n', refresh, ASK_MS);
    assert.ok(again.kind === 'free' || (again.kind === 'granted' && again.lease.token === first.lease.token));
    assert.equal(cluster.driver(0).voterCount, 3);
    assert.deepEqual(cluster.fatal, []);
  });

  test('a view is on disk before the server votes by it', async () => {
    const { cluster, folders } = voting();
    using _ended = cluster;
    const folder = folders.get(one) as VotersFolder;
    folder.fails = true;
    assert.throws(() => cluster.driver(0).adoptVoters(later));
    assert.equal(cluster.driver(0).voters?.number, 1);
    folder.fails = false;
    cluster.driver(0).adoptVoters(later);
    assert.deepEqual([folder.voters, cluster.driver(0).voters], [later, later]);
    cluster.driver(0).adoptVoters({ ...later, number: 2 });
    assert.deepEqual(cluster.driver(0).voters, later, 'It uses no earlier one again');
  });

  test('a server that replaces a voter waits until its clock has passed what earlier voters have shown', async () => {
    const { cluster } = voting();
    using _ended = cluster;
    await cluster.ready();
    const driver = cluster.driver(0);
    driver.adoptVoters({ ...later, clockMs: driver.clockMs() + 60_000 });
    assert.equal(driver.isSilent, true);
    assert.throws(() => driver.assertUsable());
  });

  test('a server with a new folder takes part in no named lease', async () => {
    const folders = new Map([one, two, three].map((id) => [id, new VotersFolder()]));
    (folders.get(one) as VotersFolder).voters = null;
    using cluster = new NamedCluster([one, two, three], () => [one], undefined, folders);
    await cluster.ready();
    await assert.rejects(cluster.driver(0).execute('n', acquire('n', 1), ASK_MS), { code: 'recovering' });
    const asked = await cluster.driver(1).execute('n', acquire('n', 1), 200);
    assert.equal(asked.kind, 'unknown', 'No other server votes');
    cluster.driver(0).adoptVoters({ number: 1, members: { servers: [one], perCell: 3 }, clockMs: 0 });
    assert.equal((folders.get(one) as VotersFolder).voters, 'first');
    const after = await cluster.driver(1).execute('n', acquire('n', 1), ASK_MS);
    assert.equal(after.kind, 'granted');
  });
});
