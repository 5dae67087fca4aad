/**
 * Goal: a snapshot is created while programs write all the time; it shows one point in time, to readers that race with
 * the first change after it, and at every server that has preserved contents. Real file services and the real catalog's
 * tables, in one process.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import Database from 'better-sqlite3';
import type { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { executeRequests } from '../../catalog/batch.ts';
import { type QueryOf, runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import { WriteBarrier } from '../../server/catalog/write-barrier.ts';
import type { CatalogAccess } from '../../server/file/catalog-access.ts';
import { SnapshotReads } from '../../server/routing/snapshot-reads.ts';
import type { Command, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import { registration } from '../catalog/root.ts';
import { patientWorld } from '../patient-world.ts';
import { requestOf, SmallCluster, type SmallServer, STEADY } from './small-cluster.ts';

const MEMBERS = ['a', 'b', 'c'] as ServerId[];
const TIMEOUT_MS = 3_000;

/** The catalog's tables behind a barrier, as its primary has them; commands arrive late. */
class World {
  readonly db = new Database(':memory:');
  readonly cluster: SmallCluster;
  readonly barrier: WriteBarrier;
  readonly shown: SnapshotReads;
  preserved = 0;
  #number = 0;
  #held: (() => void)[] = [];

  constructor() {
    ensureSchema(this.db);
    this.#run({ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 });
    const catalog: Partial<CatalogAccess> = {
      attributes: async (file) => this.query({ kind: 'attributes', inode: file }).attributes,
      command: (command) => this.command(command),
    };
    this.cluster = new SmallCluster(MEMBERS, catalog, STEADY);
    this.barrier = new WriteBarrier({
      world: patientWorld,
      operationTimeoutMs: TIMEOUT_MS,
      nowMs: () => performance.now(),
      query: (query) => this.query(query as never),
      settle: (file) => this.leader.files.settle(file),
      released: () => {
        for (const go of this.#held.splice(0)) go();
      },
    });
    this.shown = new SnapshotReads(async (file, snapshot) => {
      return this.query({ kind: 'attributes', inode: file, snapshot }).attributes;
    });
  }

  get leader(): SmallServer {
    return this.cluster.servers[0] as SmallServer;
  }

  query<Kind extends Query['kind']>(query: QueryOf<Kind> & { kind: Kind }): QueryResults[Kind] {
    return runQuery<Kind>(this.db, query);
  }

  async command(command: Command): Promise<CommandResults[Command['kind']]> {
    await delay(1);
    while (this.barrier.isBarred(command)) await new Promise<void>((resolve) => this.#held.push(resolve));
    if (command.kind === 'open-for-write' && command.preserved !== undefined) this.preserved++;
    return this.#run(command);
  }

  file(name: string): FileId {
    const place = { volume: 'main', path: `/${name}` };
    const made = this.#run({ kind: 'create-file', place, mode: 0, uid: 0, gid: 0, exclusive: true });
    return made.attributes.inode as FileId;
  }

  async snapshot(name: string): Promise<number> {
    const command = { kind: 'snapshot-create', volume: 'main', name } as const;
    const { snapshot } = await this.barrier.executeWhenSettled(command, async () => {
      await delay(1);
      this.barrier.assertStill(command);
      return this.#run(command);
    });
    return snapshot.serial;
  }

  /** The volume begins to move to a catalog of its own, and its changes wait. */
  moveAway(): void {
    for (const id of MEMBERS) this.#run(registration(id));
    const { catalog } = this.#run({ kind: 'volume-move', name: 'main', members: MEMBERS });
    this.#run({ kind: 'volume-freeze', number: catalog.number });
  }

  async read(file: FileId, snapshot: number, at = this.leader): Promise<string> {
    const { bytes } = await this.shown.use(file, snapshot, {}, ({ source, asOf }) =>
      at.files.read(source, 0, 100, asOf),
    );
    return Buffer.from(bytes).toString();
  }

  #run<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): CommandResults[Kind] {
    const number = ++this.#number;
    this.db.exec('BEGIN');
    const { outcomes } = executeRequests(this.db, number, [{ session: 1, number, command }], {
      nowNs: 1_700_000_000_000_000_000n + BigInt(number),
      placement: () => MEMBERS,
    });
    this.db.exec('COMMIT');
    const [outcome] = outcomes;
    assert.ok(outcome !== undefined);
    return outcomeResult(outcome) as CommandResults[Kind];
  }
}

async function made(t: { after(work: () => void): void }): Promise<World> {
  const world = new World();
  t.after(() => world.cluster.close());
  await world.cluster.ready();
  return world;
}

function word(n: number): Uint8Array {
  return Buffer.from(String(n).padStart(8, '0'));
}

test('snapshots under load are created in time, and each always shows one point in time', async (t) => {
  const world = await made(t);
  const [a, b] = [world.file('a'), world.file('b')];
  const others = Array.from({ length: 4 }, (_, place) => world.file(`other-${place}`));
  let going = true;
  let n = 0;
  const requests = new Map<FileId, number>();
  const write = async (file: FileId, bytes: Uint8Array): Promise<void> => {
    const number = (requests.get(file) ?? 0) + 1;
    requests.set(file, number);
    await world.leader.files.write(file, { ...requestOf(number), session: file }, 0, bytes);
  };
  const pair = (async () => {
    for (; going; n++) {
      await write(a, word(n));
      await write(b, word(n));
    }
  })();
  const crowd = others.map(async (file) => {
    for (let at = 0; going; at++) await write(file, word(at));
  });
  const seen: [number, string, string][] = [];
  for (let round = 0; round < 8; round++) {
    await delay(20);
    const known = n;
    const serial = await world.snapshot(`s${round}`);
    // Readers come at any moment of the first change after it.
    for (let look = 0; look < 5; look++) {
      const [A, B] = [await world.read(a, serial), await world.read(b, serial)];
      const before = seen.find(([other]) => other === serial);
      if (before === undefined) seen.push([serial, A, B]);
      else assert.deepEqual([A, B], before.slice(1), `snapshot ${serial} does not change`);
      assert.ok(Number(A) >= Number(B) && Number(B) >= Number(A) - 1, `snapshot ${serial}: ${A} and ${B}`);
      assert.ok(
        Number(A) >= known - 1,
        `snapshot ${serial} has what was acknowledged before: ${A}, ${known}`,
      );
    }
  }
  going = false;
  await Promise.all([pair, ...crowd]);
  for (const [serial, A, B] of seen)
    assert.deepEqual([await world.read(a, serial), await world.read(b, serial)], [A, B]);
  assert.ok(world.preserved >= 12, `${world.preserved} were preserved`);
  assert.deepEqual(world.cluster.fatal, []);
});

test('preserved contents are read at each server that has them, without a primary', async (t) => {
  const world = await made(t);
  const file = world.file('f');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  const serial = await world.snapshot('one');
  assert.equal(await world.read(file, serial), '00000001');
  await world.leader.files.write(file, requestOf(2), 0, word(2));
  const { source } = world.query({ kind: 'attributes', inode: file, snapshot: serial }).attributes;
  assert.ok(source !== undefined);
  let count = 0;
  for (const server of world.cluster.servers) {
    if (server.store.record(source as FileId) === null) continue;
    count++;
    assert.equal(await world.read(file, serial, server), '00000001');
    await assert.rejects(server.files.write(source as FileId, requestOf(3), 0, word(3)), /sealed/);
  }
  assert.ok(count >= 2, `${count} servers have it`);
});

test("a read of a snapshot's contents from the file itself is refused once the file has changed", async (t) => {
  const world = await made(t);
  const file = world.file('f');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  const serial = await world.snapshot('one');
  const { contents } = world.query({ kind: 'attributes', inode: file, snapshot: serial }).attributes;
  assert.equal((await world.leader.files.read(file, 0, 9, contents)).bytes.length, 8);
  await world.leader.files.write(file, requestOf(2), 0, word(2));
  const isRefused = (error: ServiceError): boolean => error.code === 'precondition-failed';
  await assert.rejects(world.leader.files.read(file, 0, 9, contents), isRefused);
  await assert.rejects(world.leader.files.extent(file, 0, 'data', contents), isRefused);
});

test('a backup that acknowledges without having applied is detected, and a majority has the preserved contents', async (t) => {
  const world = await made(t);
  const file = world.file('f');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  const serial = await world.snapshot('one');
  // As a replica that a transfer brings up to date past the operation.
  let passedOver = 0;
  for (const { store } of world.cluster.servers.slice(1)) {
    const apply = store.apply.bind(store);
    let isFirst = true;
    store.apply = (id, epoch, seq, operation, sessions) => {
      if (operation.kind !== 'preserve' || !isFirst) return apply(id, epoch, seq, operation, sessions);
      isFirst = false;
      passedOver++;
      return apply(id, epoch, seq, { kind: 'settling' }, sessions);
    };
  }
  await world.leader.files.write(file, requestOf(2), 0, word(2));
  const { source } = world.query({ kind: 'attributes', inode: file, snapshot: serial }).attributes;
  const holders = world.cluster.servers.filter(({ store }) => store.record(source as FileId) !== null);
  assert.ok(passedOver > 0 && holders.length >= 2, `${holders.length} have it, ${passedOver} passed it over`);
  assert.equal(await world.read(file, serial), '00000001');
});

test('a number whose replica lacks the contents is not used', async (t) => {
  const world = await made(t);
  const file = world.file('f');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  const serial = await world.snapshot('one');
  const { preserve } = await world
    .command({
      ...{ kind: 'open-for-write', inode: file, mark: { epoch: 1, turn: 9 } },
      preserves: true,
    })
    .then((answer) => answer as CommandResults['open-for-write']);
  assert.ok(preserve !== undefined);
  world.leader.store.create(preserve.inode as FileId, world.cluster.view, 4096);
  await world.leader.files.write(file, requestOf(2), 0, word(2));
  const { source } = world.query({ kind: 'attributes', inode: file, snapshot: serial }).attributes;
  assert.notEqual(source, preserve.inode);
  assert.equal(await world.read(file, serial), '00000001');
});

test('a file that cannot be settled is named, and no snapshot is created', async (t) => {
  const world = await made(t);
  const file = world.file('stubborn');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  for (const other of MEMBERS.slice(1)) world.cluster.network.cut(world.leader.id, other);
  await assert.rejects(world.snapshot('one'), (error: ServiceError) => {
    assert.equal(error.code, 'precondition-failed');
    assert.match(error.message, /main:\/stubborn cannot be settled.*No snapshot was created/);
    return true;
  });
  assert.deepEqual(world.query({ kind: 'snapshots', volume: 'main' }).snapshots, []);
  assert.equal(world.barrier.isUp, false);
});

test('lost contents are reported, and no others are shown', async (t) => {
  const world = await made(t);
  const file = world.file('f');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  const serial = await world.snapshot('one');
  // As after a loss of power of the catalog's majority that took back where they are.
  await world.leader.files.write(file, requestOf(2), 0, word(2));
  world.db.exec('UPDATE past_inodes SET source = 0');
  await assert.rejects(world.read(file, serial), (error: ServiceError) => error.code === 'integrity');
});

test('a snapshot of a volume whose rows are copied waits for that, also if files are being written', async (t) => {
  const world = await made(t);
  const file = world.file('f');
  await world.leader.files.write(file, requestOf(1), 0, word(1));
  assert.deepEqual(world.query({ kind: 'live-files', volume: 'main', countMax: 10 }).inodes, [file]);
  world.moveAway();
  await assert.rejects(world.snapshot('one'), (error: ServiceError) => error.code === 'moving');
});
