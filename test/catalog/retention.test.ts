/**
 * Goal: until its date, no command changes or removes a retained file, or removes a retained snapshot; no command and
 * no clock of a single server makes the date come earlier; volumes that move keep it.
 * Method: commands, on all members of the catalog; random commands beside a record of what must not change.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { dateOfNs, nsOfDate } from '../../base/dates.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { runQuery } from '../../catalog/queries.ts';
import { ensureSchema } from '../../catalog/schema.ts';
import { RETENTION_VERSION } from '../../catalog/versions.ts';
import { retentionReporter } from '../../server/catalog/retention-reporter.ts';
import type { Attributes, Command, CommandRequest } from '../../wire/catalog-api.ts';
import { parseRetention } from '../../wire/retention.ts';
import { isLong } from '../long.ts';
import { asVersion12 } from './earlier-schema.ts';
import { Catalog, main, SERVERS } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import { requests } from './random-commands.ts';
import { Root, registration } from './root.ts';
import { assertSound } from './soundness.ts';
import { Move } from './volume-move.ts';

const DAY_MS = 86_400_000;
const DAY_NS = BigInt(DAY_MS) * 1_000_000n;
const CONTENTS = { epoch: 1, seq: 1 };

/** A catalog whose lease clock is not the wall clock. */
class Clocked extends Catalog {
  leaseNs = this.timeNs;
  override readonly context: CommandContext = this.#context();

  #context(): CommandContext {
    const lease = (): bigint => this.leaseNs;
    return {
      nowNs: 0n,
      get leaseNs() {
        return lease();
      },
      placement: (count) => SERVERS.slice(0, count),
    };
  }
}

function settledFile(catalog: Catalog, path: string): Attributes {
  const file = catalog.file(path);
  const settled = { inode: file.inode, sizeBytes: 3, modifiedNs: '5', contents: CONTENTS };
  catalog.run({ kind: 'settle', files: [settled] });
  return file;
}

function retainedFile(catalog: Catalog, path: string, forMs = 30 * DAY_MS): Attributes {
  const { inode } = settledFile(catalog, path);
  return catalog.run({ kind: 'retain', inode, retain: { forMs } }).attributes;
}

/** Changes of the file `/d/f`, and whatever would lose its name. */
function changesOf({ inode }: Attributes, other: Attributes): Command[] {
  const [place, to] = [main('/d/f'), main('/to')];
  const names = { from: place, to, mode: 'replace' } as const;
  const value = Buffer.from('v').toString('base64');
  return [
    { kind: 'open-for-write', inode, restricts: true },
    { kind: 'set-attributes', inode, mode: 0o600 },
    { kind: 'set-attributes', inode, uid: 7 },
    { kind: 'set-attributes', inode, modifiedNs: '7' },
    { kind: 'set-attributes', inode, modifiedNs: '7', touches: true },
    { kind: 'set-xattr', inode, name: 'user.a', value, mode: 'set' },
    { kind: 'remove-xattr', inode, name: 'user.none' },
    { kind: 'link', inode, place: to },
    { kind: 'unlink', place },
    { kind: 'unlink', place, trash: false },
    { kind: 'rename', ...names },
    { kind: 'rename', from: main('/o'), to: place, mode: 'replace' },
    { kind: 'rename', from: main('/o'), to: place, mode: 'exchange' },
    { kind: 'rename-whiteout', ...names, uid: 0, gid: 0 },
    { kind: 'replace', place, inode: other.inode, expect: { kind: 'anything' } },
  ];
}

test('a retained file is neither changed nor removed until its date, then it is as others', () => {
  const catalog = new Catalog();
  catalog.directory('/d');
  const file = retainedFile(catalog, '/d/f');
  const { inode } = file;
  assert.equal(file.flags, undefined);
  assert.equal(file.retainUntilNs, `${catalog.timeNs + 30n * DAY_NS}`);
  catalog.file('/o');
  const orphan = catalog.orphan();
  const changes = changesOf(file, orphan);
  for (const command of changes) catalog.refuse('protected', command);
  assert.throws(() => catalog.run({ kind: 'unlink', place: main('/d/f') }), {
    message: /it is retained until 2023-12-14T22:13:20Z$/,
  });
  const { files } = catalog.run({
    kind: 'unlink-files',
    files: [{ parent: catalog.at('/d').inode, name: 'f', inode }],
  });
  assert.equal((files[0] as { code?: string }).code, 'protected');
  catalog.refuse('not-empty', { kind: 'remove-directory', place: main('/d') });
  catalog.refuse('not-empty', { kind: 'volume-remove', name: 'main' });
  // No flag hides it, and clearing flags does not end it.
  catalog.run({ kind: 'set-flags', inode, set: ['immutable'], clear: [] });
  catalog.run({ kind: 'set-flags', inode, set: [], clear: ['immutable', 'append-only'] });
  for (const command of changes) catalog.refuse('protected', command);
  // Directories above it may be renamed, and its replicas move.
  catalog.run({ kind: 'rename', from: main('/d'), to: main('/e'), mode: 'replace' });
  catalog.run({ kind: 'follow-view', inode, view: { number: 2, members: ['s4', 's5'] } });
  catalog.run({ kind: 'rename', from: main('/e'), to: main('/d'), mode: 'replace' });
  for (let day = 0; day < 30; day++) {
    for (const command of changes.slice(0, 2)) catalog.refuse('protected', command);
    catalog.timeNs += DAY_NS;
    catalog.run(makeDirectory(`/day-${day}`));
  }
  assert.equal(catalog.inode(inode).retainUntilNs, file.retainUntilNs, 'The date stays');
  catalog.run({ kind: 'open-for-write', inode, restricts: true });
  catalog.run({ kind: 'unlink', place: main('/d/f') });
  catalog.run({ kind: 'collect', beforeNs: `${catalog.timeNs + 1n}`, countMax: 9 });
  assert.deepEqual(catalog.db.prepare('SELECT * FROM retentions').all(), []);
  assertSound(catalog.db);
});

test('a retention is prolonged, and never shortened', () => {
  const catalog = new Catalog();
  const { inode, retainUntilNs = '' } = retainedFile(catalog, '/f');
  const retain = (untilNs: bigint): Command => ({ kind: 'retain', inode, retain: { untilNs: `${untilNs}` } });
  const present = BigInt(retainUntilNs);
  catalog.refuse('protected', retain(present - 1n));
  catalog.refuse('protected', { kind: 'retain', inode, retain: { forMs: 1 } });
  catalog.refuse('protected', retain(0n));
  catalog.refuse('bad-request', retain(catalog.timeNs + 40_000n * DAY_NS));
  const before = catalog.state();
  catalog.run(retain(present));
  assert.deepEqual(catalog.state(), before, 'The same date changes nothing');
  assert.equal(catalog.inode(inode).retainUntilNs, retainUntilNs);
  catalog.run(retain(present + 1n));
  assert.equal(catalog.inode(inode).retainUntilNs, `${present + 1n}`);
});

test('a file with a name and a future date is retained, and nothing else is', () => {
  const catalog = new Catalog();
  const retain = (inode: number): Command => ({ kind: 'retain', inode, retain: { forMs: 5 } });
  catalog.refuse('bad-request', retain(catalog.directory('/d').inode));
  catalog.refuse('bad-request', retain(catalog.symlink('/l', 'f').inode));
  const orphan = catalog.orphan();
  catalog.run({
    ...{
      kind: 'settle',
      files: [{ inode: orphan.inode, sizeBytes: 1, modifiedNs: '5', contents: CONTENTS }],
    },
  });
  catalog.refuse('bad-request', retain(orphan.inode));
  const { inode } = settledFile(catalog, '/f');
  catalog.refuse('bad-request', { kind: 'retain', inode, retain: { untilNs: '5' } });
  catalog.run({ kind: 'volume-set', name: 'main', trashMs: 1_000_000 });
  catalog.run({ kind: 'unlink', place: main('/f') });
  catalog.refuse('bad-request', retain(inode));
});

test('a file is retained only while no primary has a mark of it; that refusal is not remembered', () => {
  const catalog = new Catalog();
  const file = catalog.file('/f');
  const command: Command = { kind: 'retain', inode: file.inode, retain: { forMs: DAY_MS } };
  catalog.refuse('busy', command);
  assert.throws(() => catalog.runAs(9, 1, command), { code: 'busy' });
  catalog.run({
    ...{ kind: 'settle', files: [{ inode: file.inode, sizeBytes: 1, modifiedNs: '5', contents: CONTENTS }] },
  });
  catalog.runAs(9, 1, command);
  assert.ok(catalog.inode(file.inode).retainUntilNs !== undefined);
});

test('a retained snapshot is not removed until its date, nor is what it shows', () => {
  const catalog = new Catalog();
  const { inode } = settledFile(catalog, '/f');
  const { snapshot } = catalog.run({
    ...{ kind: 'snapshot-create', volume: 'main', name: 'kept', retain: { forMs: DAY_MS } },
  });
  assert.equal(snapshot.retainUntilNs, `${catalog.timeNs + DAY_NS}`);
  const removal: Command = { kind: 'snapshot-remove', volume: 'main', name: 'kept' };
  catalog.refuse('protected', removal);
  catalog.run({ kind: 'unlink', place: main('/f') });
  catalog.run({ kind: 'collect', beforeNs: `${catalog.timeNs + 1n}`, countMax: 9 });
  catalog.run({ kind: 'sweep', countMax: 9 });
  const shown = catalog.query({ kind: 'resolve', volume: 'main@kept', path: '/f', follow: true });
  assert.equal(shown.attributes.inode, inode);
  assert.throws(() => catalog.run({ kind: 'volume-remove', name: 'main' }), { message: /snapshots/ });
  const shorter: Command = { kind: 'snapshot-retain', volume: 'main', name: 'kept', retain: { forMs: 5 } };
  catalog.refuse('protected', shorter);
  const longer = catalog.run({ ...shorter, retain: { forMs: 2 * DAY_MS } } as Command & {
    kind: 'snapshot-retain';
  });
  assert.deepEqual(catalog.query({ kind: 'snapshots', volume: 'main' }).snapshots, [longer.snapshot]);
  catalog.timeNs += DAY_NS;
  catalog.refuse('protected', removal);
  catalog.timeNs += DAY_NS;
  catalog.run(makeDirectory('/d'));
  catalog.run(removal);
  assert.deepEqual(catalog.db.prepare('SELECT * FROM retained_snapshots').all(), []);
});

test('the catalog says whether it has dates that have not come, also those of other catalogs', () => {
  const root = new Root();
  const isWaiting = (): boolean => root.query({ kind: 'sweeps' }).retains === true;
  assert.equal(isWaiting(), false);
  retainedFile(root, '/f', DAY_MS);
  assert.equal(isWaiting(), true);
  root.timeNs += DAY_NS;
  root.run(makeDirectory('/d'));
  assert.equal(isWaiting(), false);
  root.report(root.ready('big').number, { kind: 'retained', untilNs: `${root.timeNs + DAY_NS}` });
  assert.equal(isWaiting(), true);
});

test('the date comes by lease clocks: wall clocks do not count, and a jump counts as a day', () => {
  const catalog = new Clocked();
  const { inode } = retainedFile(catalog, '/f', 10 * DAY_MS);
  const removal: Command = { kind: 'unlink', place: main('/f') };
  catalog.timeNs += 1_000n * DAY_NS;
  catalog.refuse('protected', removal);
  // Most servers start with clocks that are years ahead, and back.
  catalog.leaseNs += 1_000n * DAY_NS;
  catalog.run(makeDirectory('/a'));
  catalog.leaseNs -= 5_000n * DAY_NS;
  catalog.run(makeDirectory('/b'));
  catalog.refuse('protected', removal);
  const now = BigInt(
    catalog.db.prepare('SELECT CAST(clock_ns AS TEXT) FROM retention_clock').pluck().get() as string,
  );
  assert.equal(now, BigInt(catalog.inode(inode).retainUntilNs ?? 0) - 9n * DAY_NS);
  // A new retention has its full length by the clock that is far back.
  const later = retainedFile(catalog, '/g', DAY_MS);
  assert.equal(later.retainUntilNs, `${now + DAY_NS}`);
  // Primaries whose clocks differ take turns: no time counts twice.
  for (let turn = 0; turn < 10; turn++) {
    catalog.leaseNs += turn % 2 === 0 ? (DAY_NS / 24n) * 20n : (-DAY_NS / 24n) * 20n;
    catalog.refuse('protected', { kind: 'retain', inode: later.inode, retain: { forMs: 1 } });
  }
  catalog.refuse('protected', { kind: 'unlink', place: main('/g') });
  catalog.leaseNs += DAY_NS;
  catalog.run(makeDirectory('/c'));
  catalog.run({ kind: 'unlink', place: main('/g') });
  catalog.refuse('protected', removal);
});

test('all members have the same clock, and after the first retention demand members that obey it', () => {
  const pair = new Pair(RETENTION_VERSION - 1);
  pair.run(makeDirectory('/d'));
  // This member is upgraded.
  asVersion12(pair.backup);
  ensureSchema(pair.backup);
  pair.run({ kind: 'create-file', place: main('/f'), mode: 0o644, uid: 0, gid: 0, exclusive: true });
  const inode = pair.primary.prepare('SELECT MAX(id) FROM inodes').pluck().get() as number;
  pair.run({ kind: 'settle', files: [{ inode, sizeBytes: 1, modifiedNs: '5', contents: CONTENTS }] });
  pair.run({ kind: 'retain', inode, retain: { forMs: DAY_MS } });
  for (const path of ['/e', '/g']) {
    pair.nowNs += DAY_NS / 2n;
    pair.run(makeDirectory(path));
    pair.equal();
  }
  assert.deepEqual(pair.versions.slice(-3), [14, 14, 14]);
  assert.ok(pair.versions.slice(0, -3).every((version) => version < RETENTION_VERSION));
  assert.equal(pair.outcome({ kind: 'unlink', place: main('/f') }).kind, 'done');
});

test('a volume that moves to its own catalog keeps its retentions, by the same clock', () => {
  const root = new Pair();
  for (const id of SERVERS) root.done(registration(id));
  const place = main('/f');
  const { attributes } = root.done({
    kind: 'create-file',
    place,
    mode: 0o644,
    uid: 1,
    gid: 1,
    exclusive: true,
  });
  const { inode } = attributes;
  root.done({ kind: 'settle', files: [{ inode, sizeBytes: 1, modifiedNs: '5', contents: CONTENTS }] });
  root.done({ kind: 'snapshot-create', volume: 'main', name: 's', retain: { forMs: 3 * DAY_MS } });
  const { retainUntilNs } = root.done({ kind: 'retain', inode, retain: { forMs: 2 * DAY_MS } }).attributes;
  const move = new Move(root);
  // The servers of the new catalog start with other clocks.
  move.own.nowNs += 500n * DAY_NS;
  move.run();
  assert.equal(
    runQuery<'attributes'>(move.own.backup, { kind: 'attributes', inode }).attributes.retainUntilNs,
    retainUntilNs,
  );
  for (const command of [
    { kind: 'unlink', place },
    { kind: 'open-for-write', inode },
    { kind: 'snapshot-remove', volume: 'main', name: 's' },
  ] as const) {
    const outcome = move.own.outcome(command);
    assert.equal(outcome.kind === 'refused' && outcome.code, 'protected', command.kind);
  }
  for (const table of ['retentions', 'retained_snapshots'])
    assert.deepEqual(root.backup.prepare(`SELECT * FROM ${table}`).all(), [], 'The root keeps no rows');
  const lost = root.outcome({ kind: 'volume-remove', name: 'main', lost: true });
  assert.equal(lost.kind === 'refused' && lost.code, 'protected');
  for (let day = 0; day < 3; day++) {
    move.own.nowNs += DAY_NS;
    move.own.done(makeDirectory(`/day-${day}`));
  }
  move.own.done({ kind: 'unlink', place });
  move.own.done({ kind: 'snapshot-remove', volume: 'main', name: 's' });
});

test('a directory that becomes a volume keeps the retentions in it', () => {
  const root = new Pair();
  for (const id of SERVERS) root.done(registration(id));
  root.done(makeDirectory('/d'));
  const place = main('/d/f');
  const { inode } = root.done({
    kind: 'create-file',
    place,
    mode: 0o644,
    uid: 1,
    gid: 1,
    exclusive: true,
  }).attributes;
  root.done({ kind: 'settle', files: [{ inode, sizeBytes: 1, modifiedNs: '5', contents: CONTENTS }] });
  root.done({ kind: 'retain', inode, retain: { forMs: 2 * DAY_MS } });
  const move = new Move(root, 'part', '/d');
  move.run();
  const outcome = move.own.outcome({ kind: 'unlink', place: { volume: 'part', path: '/f' } });
  assert.equal(outcome.kind === 'refused' && outcome.code, 'protected');
  assert.ok(BigInt(move.row?.retainedNs ?? 0) > 0n);
});

test('the root catalog does not remove a volume as lost before the latest date that was reported', async () => {
  const root = new Root();
  const { number } = root.ready('big');
  const report = retentionReporter(async (untilNs) => {
    reported.push(untilNs);
    root.report(number, { kind: 'retained', untilNs });
  });
  const reported: string[] = [];
  const until = root.timeNs + DAY_NS;
  await report(`${until}`);
  await report(`${until + 1n}`);
  await report(`${until - DAY_NS}`);
  assert.equal(reported.length, 1, 'Retentions of the same hour need one report');
  assert.ok(BigInt(root.row(number).retainedNs ?? 0) >= until + 1n);
  root.ignored(number, { kind: 'retained', untilNs: '7' });
  const removal: Command = { kind: 'volume-remove', name: 'big', lost: true };
  root.refuse('protected', removal);
  root.report(number, { kind: 'view', view: 5, members: ['s1', 's2'] });
  root.refuse('protected', removal);
  for (let day = 0; day < 2; day++) {
    root.timeNs += DAY_NS;
    root.run(makeDirectory(`/day-${day}`));
  }
  root.run(removal);
});

test('dates are those of the calendar', () => {
  fc.assert(
    fc.property(fc.integer({ min: -60_000_000_000, max: 250_000_000_000 }), (second) => {
      const ns = `${BigInt(second) * 1_000_000_000n}`;
      const date = new Date(second * 1_000).toISOString().replace('.000', '');
      assert.deepEqual([dateOfNs(ns), nsOfDate(date)], [date, ns]);
    }),
  );
  assert.equal(dateOfNs('-1'), '1969-12-31T23:59:59Z');
});

test('dates and durations are read as people write them', () => {
  const texts = ['30d', '12h', '5m', '1s', '2030-01-31', '2030-01-31T12:00:00Z', '2030-01-31T12:00Z'];
  assert.deepEqual(texts.map(parseRetention), [
    ...[{ forMs: 30 * DAY_MS }, { forMs: DAY_MS / 2 }, { forMs: 300_000 }, { forMs: 1_000 }],
    ...[{ untilNs: '1896048000000000000' }, { untilNs: '1896091200000000000' }],
    { untilNs: '1896091200000000000' },
  ]);
  const wrong = [
    '',
    '5',
    '0d',
    '-1d',
    '99999999d',
    '2030-02-30',
    '2030-13-01',
    '2030-01-31T12:00:00',
    'tomorrow',
  ];
  for (const text of wrong) assert.equal(parseRetention(text), null, text);
});

interface Guarded {
  readonly inode: number;
  readonly untilNs: bigint;
  readonly shown: string;
}

/** Retained files, and what of them no command may change. */
function guardedIn({ db }: Catalog): { readonly files: readonly Guarded[]; readonly nowNs: bigint } {
  const rows = db
    .prepare(
      `SELECT i.id, r.until_ns AS untilNs, i.volume, i.mode, i.uid, i.gid, i.size, i.holes, i.modified_ns, i.links,
         i.contents_epoch, i.contents_seq, i.live, i.orphaned_ns,
         (SELECT json_group_array(json_array(parent, name)) FROM entries e WHERE e.inode = i.id) AS names,
         (SELECT json_group_array(json_array(name, hex(value))) FROM xattrs x WHERE x.inode = i.id) AS xattrs
       FROM retentions r JOIN inodes i ON i.id = r.inode`,
    )
    .safeIntegers(true)
    .all() as ({ id: bigint; untilNs: bigint } & Record<string, unknown>)[];
  const files = rows.map(({ id, untilNs, ...row }) => ({
    ...{ inode: Number(id), untilNs },
    shown: Object.values(row).map(String).join(' '),
  }));
  const clock = db.prepare('SELECT clock_ns FROM retention_clock').safeIntegers(true).pluck().get();
  return { files, nowNs: (clock as bigint | undefined) ?? 0n };
}

test('no command changes a file before its date has come', () => {
  let kept = 0;
  let expired = 0;
  // A report of contents that no mark precedes, as after a loss of power, says what is on the disks already.
  const isReport = ({ command }: CommandRequest): boolean => command.kind === 'settle';
  fc.assert(
    fc.property(
      fc.array(fc.tuple(requests, fc.nat({ max: 4 })), { minLength: 5, maxLength: 30 }),
      (batches) => {
        const catalog = new Catalog();
        for (const path of ['/a', '/b', '/c']) {
          retainedFile(catalog, path, path === '/a' ? 1_000_000_000 : DAY_MS);
        }
        for (const [batch, hours] of batches) {
          catalog.timeNs += (BigInt(hours) * DAY_NS) / 24n;
          for (const request of batch.filter((one) => !isReport(one))) {
            const before = guardedIn(catalog);
            try {
              catalog.run(request.command);
            } catch (error) {
              assert.equal((error as Error).name, 'ServiceError', String(error));
            }
            const after = guardedIn(catalog);
            assert.ok(after.nowNs >= before.nowNs, 'The clock does not move back');
            for (const file of before.files) {
              if (file.untilNs <= after.nowNs) {
                expired++;
                continue;
              }
              const now = after.files.find(({ inode }) => inode === file.inode);
              assert.equal(now?.shown, file.shown, JSON.stringify(request.command));
              assert.ok(now.untilNs >= file.untilNs, 'No retention is shortened');
              kept++;
            }
          }
        }
        assertSound(catalog.db);
      },
    ),
    { numRuns: isLong ? 300 : 25 },
  );
  assert.ok(kept > 500 && expired > 10, `Files were kept, and their dates came: ${kept}, ${expired}`);
});
