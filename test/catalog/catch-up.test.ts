import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { EPOCH_ZERO, type Epoch } from '../../replica/epoch.ts';
import { CatalogSubject } from '../../server/catalog/catalog-subject.ts';
import type { CallSource, FetchedState } from '../../server/drivers/subject.ts';
import type { LogBounds } from '../../server/storage/catalog-log.ts';
import { PAGE_BYTES, type TransferCounts } from '../../server/storage/catalog-pages.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import { damageIn } from '../../server/storage/database-check.ts';
import { damageByThread } from '../../server/storage/database-checker.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { damageColdPage } from '../storage/cold-page.ts';
import { SERVERS } from './fixture.ts';

const VIEW = { number: 1, members: SERVERS.slice(0, 3) };
const NO_SESSIONS = new Uint8Array(0);
const VOLUME: Command = { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 };
/** An hour, in nanoseconds. */
const HOUR = 3_600_000_000_000n;

const base = fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-catch-up-'));
after(() => fs.rmSync(base, { recursive: true, force: true }));

const epoch = (counter: number): Epoch => ({
  ...{ counter, server: 's1' as ServerId, incarnation: 7 as Incarnation },
});

/** Directories of a batch, with names long enough that a few batches fill a piece of the log. */
const directories = (name: string, count = 20): Command[] =>
  Array.from({ length: count }, (_, at) => ({
    ...{ kind: 'make-directory', place: { volume: 'main', path: `${name}-${at}-${'x'.repeat(200)}` } },
    ...{ mode: 0o755, uid: 0, gid: 0 },
  }));

let copies = 0;
let session = 0;

/** A replica of the catalog, and what its transfers have cost. */
class Member {
  readonly folder: string;
  readonly store: CatalogStore;
  readonly subject: CatalogSubject;
  readonly transfers: TransferCounts[] = [];

  constructor(folder: string, store: CatalogStore) {
    this.folder = folder;
    this.store = store;
    this.subject = new CatalogSubject(store, (counts) => this.transfers.push(counts));
  }

  static async open(folder: string, logBounds: Partial<LogBounds> = {}): Promise<Member> {
    fs.mkdirSync(folder, { recursive: true });
    return new Member(folder, await CatalogStore.open({ world: systemWorld, folder, view: VIEW, logBounds }));
  }

  static empty(logBounds: Partial<LogBounds> = {}): Promise<Member> {
    return Member.open(path.join(base, `m${++copies}`), logBounds);
  }

  async reopen(logBounds: Partial<LogBounds> = {}): Promise<Member> {
    await this.store.close();
    return Member.open(this.folder, logBounds);
  }

  async enter(at: Epoch): Promise<void> {
    await this.store.promise(at);
    await this.store.install(at, this.store.record().seq, null);
  }

  /** Executes a batch as primary, and commits it. */
  async commit(commands: readonly Command[], nowNs = HOUR): Promise<void> {
    await this.store.ready();
    this.store.begin();
    const requests = commands.map((command) => ({ session: ++session, number: 1, command }));
    const { body } = this.store.execute(requests, { nowNs, placement: (count) => SERVERS.slice(0, count) });
    assert(body !== null);
    const { installed, seq } = this.store.record();
    await this.store.finish(installed, seq + 1);
  }

  async commitMany(name: string, count: number): Promise<void> {
    for (let at = 0; at < count; at++) await this.commit(directories(`${name}${at}`));
  }

  readonly answer: CallSource = (method, payload) => this.subject.serve(method, payload);

  /** Fetches once from a source, and installs what it gets. */
  async take(source: CallSource, at: Epoch): Promise<FetchedState> {
    const fetched = await this.subject.fetch(source);
    if (fetched.isPart === true) await this.subject.installPart(fetched.position);
    else await this.subject.install(at, fetched.position.seq, NO_SESSIONS, true);
    return fetched;
  }

  /** @returns the number of pieces */
  async catchUp(source: CallSource, at: Epoch): Promise<number> {
    for (let pieces = 1; ; pieces++) if ((await this.take(source, at)).isPart !== true) return pieces;
  }

  dump(): string[] {
    return [...this.store.dump()];
  }

  get logged(): number {
    const db = new Database(path.join(this.folder, 'catalog.db'), { readonly: true });
    const count = db.prepare('SELECT COUNT(*) FROM replica_log').pluck().get() as number;
    db.close();
    return count;
  }
}

async function close(...members: readonly Member[]): Promise<void> {
  for (const { store } of members) await store.close();
}

const prepared = path.join(base, 'prepared');
before(async () => {
  const member = await Member.open(prepared);
  await member.enter(epoch(1));
  await member.commit([VOLUME]);
  await member.commitMany('before', 200);
  await member.store.close();
});

/** A replica with the prepared contents. */
function replica(logBounds: Partial<LogBounds> = {}): Promise<Member> {
  const folder = path.join(base, `m${++copies}`);
  fs.cpSync(prepared, folder, { recursive: true });
  return Member.open(folder, logBounds);
}

/** Two replicas; the second has missed batches of two epochs. */
async function lagging(batches: number, logBounds: Partial<LogBounds> = {}): Promise<[Member, Member]> {
  const [source, member] = [await replica(logBounds), await replica()];
  await source.commitMany('a', batches / 2);
  await source.enter(epoch(3));
  await source.commitMany('b', batches / 2);
  await source.enter(epoch(4));
  await member.store.promise(epoch(4));
  return [source, member];
}

test('a lagging replica takes the log in pieces, and keeps those that it has', async () => {
  const [source, first] = await lagging(400);
  const before = first.store.record();
  const part = await first.take(source.answer, epoch(4));
  assert.equal(part.isPart, true);
  const half = first.store.record();
  // All of it is what the first epoch has ordered.
  assert.deepEqual(half.installed, epoch(1));
  assert.equal(half.seq, part.position.seq);
  assert.ok(half.seq > before.seq, 'It has more than before');
  // The source is gone; the replica restarts, and continues from there.
  let member = await first.reopen();
  assert.deepEqual(member.store.record(), half);
  const pieces = await member.catchUp(source.answer, epoch(4));
  assert.ok(pieces > 1, `${pieces} pieces`);
  assert.deepEqual(member.dump(), source.dump());
  assert.deepEqual(member.store.record(), source.store.record());
  assert.deepEqual(member.transfers, []);
  member = await member.reopen();
  assert.deepEqual(member.dump(), source.dump());
  await close(source, member);
});

test('a part is of the epoch that ordered its last operation, and makes nothing trusted', async () => {
  const [source] = await lagging(400);
  const empty = await Member.empty();
  await empty.store.promise(epoch(4));
  const epochs = new Set<number>();
  while ((await empty.take(source.answer, epoch(4))).isPart) {
    epochs.add(empty.store.record().installed.counter);
    assert.equal(empty.store.trust(), 'lost');
  }
  assert.deepEqual([...epochs], [1, 3]);
  assert.equal(empty.store.trust(), 'intact');
  assert.deepEqual(empty.store.record().installed, epoch(4));
  await close(source, empty);
});

test('a piece of the log with a gap is refused', async () => {
  const [source, member] = await lagging(10);
  const tail = source.store.tail({ seq: member.store.record().seq, epoch: epoch(1) }, 1 << 20);
  assert(tail !== null);
  for (const entries of [tail.entries.slice(1), tail.entries.toSpliced(3, 1)])
    assert.throws(() => member.store.stageTail({ ...tail, entries }), { name: 'MalformedError' });
  await close(source, member);
});

const SHORT = { bytesMin: 0, bytesMax: 100_000 };

test('a replica that lags by more than the log fetches the pages that differ', async () => {
  const [source, member] = await lagging(20, SHORT);
  await member.catchUp(source.answer, epoch(4));
  assert.deepEqual(member.dump(), source.dump());
  assert.deepEqual(member.store.record(), source.store.record());
  const [counts] = member.transfers;
  assert(counts !== undefined && member.transfers.length === 1);
  assert.ok(counts.pagesFetched > 0 && counts.bytesFetched < 0.8 * counts.bytes, JSON.stringify(counts));
  assert.equal(counts.bytesFetched, counts.pagesFetched * PAGE_BYTES);
  // Another replica in the source's state has next to nothing to fetch.
  await source.commit(directories('more'));
  await member.store.promise(epoch(5));
  await source.enter(epoch(5));
  member.store.damage.notice('as if');
  await member.catchUp(source.answer, epoch(5));
  const again = member.transfers.at(-1);
  assert.ok(again !== undefined && again.pagesFetched < 40, JSON.stringify(again));
  assert.deepEqual(member.dump(), source.dump());
  await close(source, member);
});

test('a copy shows one state, while the log is copied back behind it, and beside a reader of an earlier one', async () => {
  const { folder, store: closed } = await replica();
  await closed.close();
  const logFileBytesMax = 64 * 1024;
  const source = new Member(
    folder,
    await CatalogStore.open({ world: systemWorld, folder, view: VIEW, logFileBytesMax }),
  );
  const copyOf = async (commitMeanwhile: () => Promise<void>): Promise<void> => {
    const before = source.dump();
    const { id, bytes, position } = await source.store.snapshot();
    assert.equal(position.seq, source.store.record().seq);
    await commitMeanwhile();
    const copy = await Member.empty();
    await copy.store.promise(epoch(1));
    const staged = await copy.store.stageSnapshot(
      (async function* () {
        for (let at = 0; at < bytes; at += 100_000)
          yield await source.store.readSnapshot(id, at, Math.min(100_000, bytes - at));
      })(),
    );
    await copy.store.install(epoch(1), position.seq, staged);
    assert.deepEqual(copy.dump(), before);
    await close(copy);
  };
  const many = (name: string) => () => source.commitMany(name, 200);
  await copyOf(many('behind'));
  // While it has a batch open, nothing is copied back: the copy waits for its end.
  const another = new Database(path.join(folder, 'catalog.db'), { readonly: true });
  another.exec('BEGIN');
  another.prepare('SELECT COUNT(*) FROM replica_log').get();
  await source.commitMany('beside', 50);
  await copyOf(many('later'));
  another.close();
  await copyOf(many('at the end'));
  await close(source);
});

test('a damaged page here is one that differs; a promise stays', async () => {
  const [source, whole] = await lagging(20, SHORT);
  await whole.store.close();
  damageColdPage(path.join(whole.folder, 'catalog.db'));
  const member = await Member.open(whole.folder);
  await member.store.promise(epoch(9));
  await member.catchUp(source.answer, epoch(4));
  assert.deepEqual(member.store.record().promised, epoch(9));
  assert.deepEqual(member.dump(), source.dump());
  await member.store.close();
  const thorough = { world: systemWorld, folder: member.folder, view: VIEW, thorough: true };
  await (await CatalogStore.open(thorough)).close();
  await close(source);
});

test('a source that dies amid the pages leaves the old state; the next fetch continues', async () => {
  const [source, member] = await lagging(200, SHORT);
  const before = { dump: member.dump(), record: member.store.record() };
  let fetched = 0;
  const dying: CallSource = async (method, payload) => {
    if (method === 'snapshot-pages' && ++fetched > 2)
      throw new ServiceError('no-majority', 'The source died');
    return source.answer(method, payload);
  };
  await assert.rejects(member.subject.fetch(dying), { code: 'no-majority' });
  assert.deepEqual({ dump: member.dump(), record: member.store.record() }, before);
  // Between both it can take part in everything, also with a state of its own.
  await member.catchUp(source.answer, epoch(4));
  const [counts] = member.transfers;
  assert.ok(counts !== undefined && counts.pagesCompared > counts.pagesFetched + 512, JSON.stringify(counts));
  assert.deepEqual(member.dump(), source.dump());
  await close(source, member);
  assert.deepEqual(fs.readdirSync(member.folder), ['catalog.db']);
});

test('a thread finds the damage that this one finds', async () => {
  const { folder, store } = await replica();
  await store.close();
  const file = path.join(folder, 'catalog.db');
  assert.equal(await damageByThread(file), null);
  damageColdPage(file);
  const damage = damageIn(file);
  assert.ok(damage !== null);
  assert.equal(await damageByThread(file), damage);
  await assert.rejects(damageByThread(`${file}-none`), /unable to open/);
});

test('a server of an earlier release takes no more of the log than it did', async () => {
  const member = await replica();
  const [source] = await lagging(100);
  const from = member.store.describe();
  const value = Buffer.alloc(60_000, 7).toString('base64');
  const { inode } = source.store.query({
    kind: 'resolve',
    volume: 'main',
    path: '/',
    follow: false,
  }).attributes;
  for (let at = 0; at < 220; at++)
    await source.commit([{ kind: 'set-xattr', inode, name: `user.${at % 10}`, value, mode: 'set' }]);
  assert.equal((await source.answer('tail', from)).length, 0);
  assert.ok((await source.answer('tail-part', from)).length > 500_000);
  const near = { seq: source.store.record().seq - 10, epoch: epoch(4) };
  assert.ok((await source.answer('tail', source.store.describe(near))).length > 500_000);
  await close(source, member);
});

test('a source of an earlier release sends its log', async () => {
  const [source, member] = await lagging(100);
  const earlier: CallSource = async (method, payload) => {
    if (method === 'tail-part') throw new ServiceError('bad-request', `Unknown method "${method}"`);
    return source.answer(method, payload);
  };
  await member.catchUp(earlier, epoch(4));
  assert.deepEqual(member.dump(), source.dump());
  await close(source, member);
});

test('of a source of an earlier release all is fetched', async () => {
  const [source, member] = await lagging(20, SHORT);
  const earlier: CallSource = async (method, payload) => {
    if (method === 'snapshot-compare') throw new ServiceError('bad-request', `Unknown method "${method}"`);
    return source.answer(method, payload);
  };
  await member.catchUp(earlier, epoch(4));
  assert.deepEqual(member.dump(), source.dump());
  assert.equal(member.transfers[0]?.bytesFetched, member.transfers[0]?.bytes);
  await close(source, member);
  assert.deepEqual(fs.readdirSync(member.folder), ['catalog.db']);
});

test('the log keeps its newest bytes, and more only while they are young', async () => {
  let member = await Member.empty({ bytesMin: 50_000, bytesMax: 500_000, ageMaxMs: 60_000 });
  await member.enter(epoch(1));
  await member.commit([VOLUME]);
  const bytes = (): number => {
    const tail = member.store.tail({ seq: 0, epoch: EPOCH_ZERO }, 1 << 30);
    return tail === null ? -1 : tail.entries.reduce((sum, { body }) => sum + body.length, 0);
  };
  await member.commitMany('young', 60);
  assert.ok(bytes() > 300_000, 'All of it is young');
  await member.commit(directories('later'), 2n * HOUR);
  for (let at = 0; at < 10; at++) await member.commit(directories(`last${at}`), 2n * HOUR);
  assert.equal(bytes(), -1, 'The old ones go');
  const kept = member.logged;
  assert.ok(kept > 5 && kept < 15, `${kept} batches are kept`);
  for (let at = 0; at < 200; at++) await member.commit(directories(`many${at}`), 2n * HOUR);
  const full = member.logged;
  assert.ok(full > 60 && full < 110, `${full} batches are kept`);
  // Smaller bounds are reached step by step.
  member = await member.reopen({ bytesMin: 0, bytesMax: 20_000 });
  await member.commit(directories('small'));
  assert.ok(member.logged > 10 && member.logged < full);
  for (let at = 0; at < 5; at++) await member.commit(directories(`small${at}`));
  assert.ok(member.logged < 6, `${member.logged} batches are kept`);
  await close(member);
});

test('the log of an earlier release continues; its operations count as old', async () => {
  let member = await Member.empty();
  await member.enter(epoch(1));
  await member.commit([VOLUME]);
  await member.commitMany('before', 20);
  await member.store.close();
  const db = new Database(path.join(member.folder, 'catalog.db'));
  db.exec('DROP TABLE replica_log_sizes');
  db.close();
  const bounds = { bytesMin: 50_000, bytesMax: 500_000, ageMaxMs: 60_000 };
  member = await Member.open(member.folder, bounds);
  await member.commit(directories('next'));
  assert.equal(member.logged, 22);
  await member.commitMany('more', 20);
  assert.equal(member.logged, 21, 'Of the earlier ones none is left');
  // An earlier release has continued it once more.
  await member.store.close();
  const again = new Database(path.join(member.folder, 'catalog.db'));
  again.exec('DELETE FROM replica_log_sizes WHERE seq > 30');
  again.close();
  member = await Member.open(member.folder, bounds);
  for (let at = 0; at < 20; at++) await member.commit(directories(`last${at}`), 2n * HOUR);
  assert.equal(member.logged, 20, 'Those of the new hour');
  await close(member);
});
