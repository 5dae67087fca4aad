/**
 * Goal: every server learns each list of catalogs that the root catalog has flushed, and no other.
 * Method: the exchange of three servers over the in-memory network, with a root catalog of the test.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import { CatalogListExchange, type RootList } from '../../server/membership/catalog-list-exchange.ts';
import { KnownCatalogs, type KnownList } from '../../server/membership/known-catalogs.ts';
import { patientWorld } from '../patient-world.ts';
import { MemoryNetwork, type MemoryTransport } from '../transport/memory-transport.ts';

const IDS = ['a', 'b', 'c'] as ServerId[];
const [A, B, C] = IDS as [ServerId, ServerId, ServerId];
const SERVER = { url: 'http://x:1', zone: '', storageId: 'disk', state: 'in', since: 1 } as const;
const log = pino({ level: 'silent' });

function listOf(version: number): KnownList {
  return { version, catalogs: [], servers: IDS.map((id) => ({ ...SERVER, id })) };
}

/** The root catalog of the test; the primary is `A` at first. */
class Root {
  primary: ServerId = A;
  /** As committed, and as flushed. */
  list = listOf(0);
  durable = listOf(0);
  flushes = 0;
  reads = 0;
  /** Waits before each flush. */
  gate: Promise<void> = Promise.resolve();

  of(self: ServerId): RootList {
    const assertPrimary = (): void => {
      if (this.primary !== self) throw new ServiceError('not-primary', 'Another server is the primary');
    };
    return {
      isPrimary: () => this.primary === self,
      candidates: () => [B, A, C],
      list: async (known) => {
        assertPrimary();
        this.reads++;
        return this.list.version === known ? null : this.list;
      },
      flush: async () => {
        const { list } = this;
        await this.gate;
        assertPrimary();
        this.durable = list;
        this.flushes++;
      },
    };
  }
}

class Cluster {
  readonly root = new Root();
  readonly network = new MemoryNetwork(patientWorld);
  readonly known: KnownCatalogs[] = [];
  readonly exchanges: CatalogListExchange[] = [];
  readonly #transports: MemoryTransport[] = [];
  /** Versions that a server had adopted before the root catalog had flushed them. */
  readonly unflushed: number[] = [];
  /** Servers of an earlier release. */
  readonly older = new Set<ServerId>();
  /** Calls to these servers wait. */
  readonly frozen = new Map<ServerId, Promise<void>>();
  readonly #folder = mkdtempSync(path.join(tmpdir(), 'leasehold-lists-'));

  constructor(t: TestContext) {
    for (const self of IDS) this.#add(self);
    t.after(async () => {
      for (const exchange of this.exchanges) exchange.close();
      for (const transport of this.#transports) await transport.close();
      rmSync(this.#folder, { recursive: true });
    });
  }

  fileOf(self: ServerId): string {
    return path.join(this.#folder, `${self}.json`);
  }

  #add(self: ServerId): void {
    const file = this.fileOf(self);
    const known = new KnownCatalogs({ file, storageId: self, world: patientWorld, log });
    known.onChange(() => {
      if (known.version > this.root.durable.version) this.unflushed.push(known.version);
    });
    const transport = this.network.join({
      server: self,
      log,
      handlers: {
        message: () => assert.fail('No messages'),
        connected: (peer) => exchange.connected(peer),
        disconnected: () => undefined,
        call: async (_from, method, payload) => {
          await this.frozen.get(self);
          return exchange.serve(method, payload) ?? Promise.reject(new ServiceError('bad-request', method));
        },
      },
    });
    const exchange = new CatalogListExchange({
      ...{ self, world: patientWorld, log, known, root: this.root.of(self) },
      peers: () => IDS.filter((id) => id !== self),
      call: (...call) => transport.call(...call),
      hasLists: (server) => transport.isConnected(server) && !this.older.has(server),
      isEarlier: (server) => transport.isConnected(server) && this.older.has(server),
    });
    this.known.push(known);
    this.exchanges.push(exchange);
    this.#transports.push(transport);
  }

  get versions(): number[] {
    return this.known.map(({ version }) => version);
  }

  async until(...versions: number[]): Promise<void> {
    while (this.versions.join() !== versions.join())
      await new Promise<void>((resolve) => {
        const offs = this.known.map((known) =>
          known.onChange(() => {
            for (const off of offs) off();
            resolve();
          }),
        );
      });
  }
}

test('the primary announces a list once it is flushed, and each later one', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges } = cluster;
  await patientWorld.nextTick();
  root.list = listOf(4);
  const flushed = Promise.withResolvers<void>();
  root.gate = flushed.promise;
  exchanges[0]?.rootChanged();
  for (let tick = 0; tick < 20; tick++) await patientWorld.nextTick();
  assert.deepEqual(cluster.versions, [0, 0, 0]);
  flushed.resolve();
  await cluster.until(4, 4, 4);
  root.list = listOf(5);
  exchanges[0]?.rootChanged();
  await cluster.until(5, 5, 5);
  const { flushes } = root;
  exchanges[0]?.rootChanged();
  await exchanges[2]?.refresh();
  assert.equal(root.flushes, flushes, 'A known list needs no flush');
  assert.deepEqual(cluster.unflushed, []);
});

test('a server that is cut off learns the list when it connects, also from one that is not the primary', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges, network } = cluster;
  await patientWorld.nextTick();
  for (const other of [A, B]) network.cut(other, C);
  root.list = listOf(2);
  exchanges[0]?.rootChanged();
  await cluster.until(2, 2, 0);
  network.cut(A, B);
  network.cut(A, C);
  network.heal();
  await cluster.until(2, 2, 2);
});

test('a new primary announces the list, and what the earlier one had not flushed stays unknown', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges } = cluster;
  await patientWorld.nextTick();
  root.list = listOf(7);
  const flushed = Promise.withResolvers<void>();
  root.gate = flushed.promise;
  exchanges[0]?.rootChanged();
  await patientWorld.nextTick();
  // A loss of power of the root catalog's members takes version 7.
  root.primary = B;
  root.list = listOf(6);
  root.gate = Promise.resolve();
  flushed.resolve();
  exchanges[1]?.rootChanged();
  await cluster.until(6, 6, 6);
  assert.deepEqual(cluster.unflushed, []);
});

test('a server fetches the newest list from the primary, whichever it asks first', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges, known } = cluster;
  await patientWorld.nextTick();
  root.list = listOf(3);
  const asked = exchanges[2] as CatalogListExchange;
  await Promise.all([asked.refresh(), asked.refresh()]);
  assert.deepEqual([cluster.versions[0], cluster.versions[2], root.flushes], [3, 3, 1]);
  root.primary = 'd' as ServerId;
  await assert.rejects(asked.refresh(), { code: 'no-majority' });
  cluster.older.add(A);
  await asked.refresh();
  assert.equal(
    known[2]?.version,
    3,
    'While the root catalog has a member of an earlier release, it lists none',
  );
});

test('a new disk learns its version at registration, and keeps asking until it does', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges, known } = cluster;
  await patientWorld.nextTick();
  root.list = listOf(3);
  root.primary = 'd' as ServerId;
  exchanges[2]?.registered(2);
  await patientWorld.sleep(50);
  assert.equal(known[2]?.bornVersion, null);
  root.primary = A;
  await cluster.until(3, 0, 3);
  assert.equal(known[2]?.bornVersion, 2, 'What was listed between the registration and this answer is newer');
  root.list = listOf(8);
  exchanges[2]?.registered(8);
  await exchanges[2]?.refresh();
  assert.deepEqual([known[2]?.version, known[2]?.bornVersion], [8, 2]);
});

test('a list that was requested before the registration is not taken for one after it', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges, known } = cluster;
  await patientWorld.nextTick();
  root.list = listOf(2);
  const flushed = Promise.withResolvers<void>();
  root.gate = flushed.promise;
  const refreshed = exchanges[2]?.refresh();
  while (root.reads === 0) await patientWorld.nextTick();
  root.list = listOf(5);
  exchanges[2]?.registered(5);
  flushed.resolve();
  await refreshed;
  assert.deepEqual([known[2]?.version, known[2]?.bornVersion], [2, null]);
  await cluster.until(5, 0, 5);
  assert.equal(known[2]?.bornVersion, 5);
});

test('a primary whose disk refuses the list still sends it, and acts on it once it is recorded', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges } = cluster;
  await patientWorld.nextTick();
  // A directory in the place of the file: also root cannot replace it.
  mkdirSync(path.join(cluster.fileOf(A), 'inside'), { recursive: true });
  root.list = listOf(4);
  exchanges[0]?.rootChanged();
  await cluster.until(0, 4, 4);
  root.list = listOf(5);
  await exchanges[2]?.refresh();
  assert.deepEqual(cluster.versions, [0, 4, 5]);
  rmSync(cluster.fileOf(A), { recursive: true });
  await cluster.until(5, 4, 5);
  assert.deepEqual(cluster.unflushed, []);
});

test('a peer that does not answer delays the list for no other', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges } = cluster;
  await patientWorld.nextTick();
  const thawed = Promise.withResolvers<void>();
  cluster.frozen.set(B, thawed.promise);
  const beganMs = patientWorld.nowMs();
  for (const version of [4, 5, 6]) {
    root.list = listOf(version);
    exchanges[0]?.rootChanged();
    await cluster.until(version, 0, version);
  }
  assert.ok(patientWorld.nowMs() - beganMs < 5_000, 'A call that is not answered takes longer');
  thawed.resolve();
  await cluster.until(6, 6, 6);
});

test('servers of earlier releases get no list', async (t) => {
  const cluster = new Cluster(t);
  const { root, exchanges } = cluster;
  cluster.older.add(B);
  await patientWorld.nextTick();
  root.list = listOf(2);
  exchanges[0]?.rootChanged();
  await cluster.until(2, 0, 2);
  // It was upgraded, and has connected again.
  cluster.older.delete(B);
  exchanges[0]?.connected(B);
  await cluster.until(2, 2, 2);
});

test('an invalid list is refused', async (t) => {
  const cluster = new Cluster(t);
  const [exchange] = cluster.exchanges;
  const payloads = ['', '[]', JSON.stringify({ ...listOf(9), version: 'x' })];
  for (const payload of payloads)
    await assert.rejects(exchange?.serve('catalogs', Buffer.from(payload)) ?? Promise.resolve(), {
      name: 'MalformedError',
    });
  assert.deepEqual([cluster.versions[0], exchange?.serve('servers', new Uint8Array(0))], [0, null]);
});
