/**
 * Goal: a volume moves from the root catalog to a catalog of its own as a whole, by the rules of model/volumes.
 * Method: a root catalog with a volume that has every kind of row, and the volume's catalog, each at a primary and a
 * backup. The rows of the volume there are compared with those that the root had.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ServiceError } from '../../base/errors.ts';
import { inodesOf } from '../../base/ids.ts';
import { areMovedNumbers, InodeCatalogs } from '../../base/inode-catalogs.ts';
import { EXPORTED, isShaped } from '../../catalog/exported-tables.ts';
import { runQuery } from '../../catalog/queries.ts';
import { Recount } from '../../catalog/recount.ts';
import { TABLE_KEYS } from '../../catalog/schema.ts';
import type { Outcome } from '../../catalog/sessions.ts';
import { Tables } from '../../catalog/tables.ts';
import { volumeExport } from '../../catalog/volume-export.ts';
import { RUNS_MAX } from '../../catalog/volume-numbers.ts';
import { COMPARED_TABLES, importVolume } from '../../server/catalog/volume-import.ts';
import type {
  Command,
  CommandOf,
  CommandRequest,
  CreateWithContentsResult,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import { EXPORT_END, EXPORT_START, EXPORTED_TABLES, type ExportedRow } from '../../wire/volume-moves.ts';
import { isLong } from '../long.ts';
import { clonesIn } from './clones-world.ts';
import { everyStep } from './every-step.ts';
import { SERVERS } from './fixture.ts';
import { makeDirectory, Pair } from './pair.ts';
import { requests } from './random-commands.ts';
import { registration } from './root.ts';
import { assertSound } from './soundness.ts';
import { beginOf, Move, volumeDump } from './volume-move.ts';

type Place = CommandOf<'create-file'>['place'];
/** Longer than a reservation lasts. */
const FROZEN_NS = 16n * 60_000_000_000n;
const OWNER = { mode: 0o644, uid: 1, gid: 2 };

/** A root catalog with the volumes `main` and `second`, whose inodes were created in turn. */
class Filled extends Pair {
  /** A file of `second`. */
  other = 0;
  /** Rows in logs of deletions. */
  deletions = 0;
  /** The first of five numbers for `main`, of owner 4. */
  reserved = 0;

  constructor() {
    super();
    for (const id of SERVERS) this.done(registration(id));
    this.done({ kind: 'volume-create', name: 'second', replicas: 2, objectBytes: 4096 });
  }

  file(path: string, volume = 'main'): number {
    const place = { volume, path };
    const { attributes } = this.done({ kind: 'create-file', place, ...OWNER, exclusive: true });
    return attributes.inode;
  }

  directory(path: string, volume = 'main'): number {
    const place = { volume, path };
    return this.done({ kind: 'make-directory', place, ...OWNER, mode: 0o755 }).attributes.inode;
  }

  settle(inode: number, sizeBytes: number, seq = 1): void {
    const file = { inode, sizeBytes, modifiedNs: '1700000000123456789', contents: { epoch: 1, seq } };
    this.done({ kind: 'settle', files: [file] });
  }

  xattr(inode: number, name: string, value: string): void {
    this.done({ kind: 'set-xattr', inode, name, value: Buffer.from(value).toString('base64'), mode: 'set' });
  }

  reserve(owner: number, count: number, volume?: string): number {
    const members = [['s1', 's2', 's3']];
    const named = volume === undefined ? {} : { volume };
    return this.done({ kind: 'reserve-inodes', owner, count, members, ...named }).first;
  }

  at(path: string): number {
    const query = { kind: 'resolve', volume: 'main', path, follow: false } as const;
    return runQuery<'resolve'>(this.backup, query).attributes.inode;
  }

  /** Every table has rows of `main`; then all of it as text. */
  fill(): string[] {
    const at = (path: string): Place => ({ volume: 'main', path });
    this.done({ kind: 'volume-set', name: 'main', trashMs: 3_600_000, quotaBytes: 10_000_000, labels: [] });
    const directory = this.directory('/d');
    const files = Array.from({ length: 12 }, (_, index) => {
      this.file(`/of-second-${index}`, 'second');
      return this.file(`/d/f${index}`);
    });
    for (const [index, file] of files.entries()) this.settle(file, 1_000 * index);
    const [first = 0, second = 0, , , fifth = 0] = files;
    this.xattr(first, 'user.a', '\0ÿ');
    this.xattr(directory, 'user.b', 'of a directory');
    this.done({ kind: 'symlink', place: at('/link'), target: '/d/f1', uid: 1, gid: 1 });
    this.done({ kind: 'make-node', place: at('/pipe'), type: 'fifo', device: 0, ...OWNER });
    this.done({ kind: 'link', inode: second, place: at('/hard') });
    this.done({
      kind: 'set-placement',
      inode: directory,
      class: { labels: ['ssd'], zones: [], replicas: 2 },
    });
    const limited = this.directory('/limited');
    this.done({ kind: 'set-quota', inode: limited, quota: { quotaBytes: 1_000_000 } });
    this.done({ kind: 'set-quota', inode: this.directory('/limited/inner'), quota: { quotaInodes: 9 } });
    this.settle(this.file('/limited/inner/f'), 77);
    this.done({ kind: 'server-label', id: 's5', labels: ['ssd'] });
    this.file('/d/of-class');
    this.done({ kind: 'set-replicas', inode: second, count: 5 });
    this.settle(this.at('/d/of-class'), 5);
    this.done({ kind: 'snapshot-create', volume: 'main', name: 'one' });
    this.done({ kind: 'unlink', place: at('/d/f2'), by: 'anna' });
    this.done({ kind: 'unlink', place: at('/d/f3'), trash: false });
    this.xattr(first, 'user.a', 'changed');
    this.done({ kind: 'rename', from: at('/d/f4'), to: at('/renamed'), mode: 'replace' });
    this.done({ kind: 'set-attributes', inode: fifth, mode: 0o600, modifiedNs: '-9000000000000000001' });
    this.done({ kind: 'open-for-write', inode: first, preserves: true });
    this.done({ kind: 'snapshot-create', volume: 'main', name: 'two' }).snapshot;
    this.done({ kind: 'snapshot-remove', volume: 'main', name: 'one' });
    const mark = { epoch: 3, turn: 1 };
    this.done({ kind: 'plan-members', inode: files[7] ?? 0, view: 1, mark, members: ['s4'] });
    this.done({ kind: 'create-orphan', volume: 'main', ...OWNER, note: 'bm90ZQ==' });
    this.done({ kind: 'junction-create', place: at('/j'), catalog: 9, volume: 'other', ...OWNER });
    this.done({
      kind: 'open-for-write',
      inode: files[8] ?? 0,
      growTo: 100_000,
      preserves: true,
      preserved: 'lost',
    });
    this.done({ kind: 'retain', inode: files[9] ?? 0, retain: { forMs: 86_400_000 } });
    this.done({ kind: 'snapshot-retain', volume: 'main', name: 'two', retain: { forMs: 3_600_000 } });
    this.reserved = this.reserve(4, 5, 'main');
    this.file('/after-reserved');
    this.other = this.file('/other', 'second');
    this.deletions = this.primary.prepare('SELECT * FROM deletions').all().length;
    return volumeDump(this.primary, 'main');
  }
}

function names(pair: Pair, inode: number): string[] {
  const { entries } = runQuery<'list'>(pair.backup, { kind: 'list', inode, after: '', countMax: 100 });
  return entries.map(({ name }) => name);
}

test('a volume with every kind of row is the same in its own catalog, and the root is as if it had never been', () => {
  const root = new Filled();
  const before = root.fill();
  const tables = new Set(before.map((line) => line.split(' ')[0]));
  const exported = EXPORTED_TABLES.filter((table) => isShaped(table) && EXPORTED[table].by !== 'session');
  assert.deepEqual(
    [...tables, 'moved_numbers'].sort(),
    [...exported, 'placements'].sort(),
    'Each table has rows',
  );
  const second = volumeDump(root.primary, 'second');
  const recount = new Recount(root.primary);
  const move = new Move(root);
  move.freeze();
  assert.ok(move.record(3) > 5, 'The numbers are recorded in slices');
  move.copy();
  move.begin();
  recount.step(10);
  move.report();
  assert.deepEqual(volumeDump(move.own.backup, 'main'), before);
  assertSound(move.own.backup);
  assert.ok(move.forget(7) > 3, 'The rows are deleted in slices');
  everyStep(() => !recount.step(10));
  assert.deepEqual(recount.wrongCounters(), []);
  assertSound(root.backup);
  assert.deepEqual(volumeDump(root.backup, 'second'), second);
  const { volumes } = runQuery<'volumes'>(root.backup, { kind: 'volumes' });
  assert.deepEqual(
    volumes.map(({ name }) => name),
    ['second'],
  );
  for (const table of [...exported, 'placements'].filter((name) => name !== 'moved_numbers'))
    assert.equal(
      root.backup.prepare(`SELECT * FROM ${table}`).all().length,
      second.filter((line) => line.startsWith(`${table} `)).length,
      `Rows in ${table}`,
    );
});

const QUOTA_COUNTERS = ['named_inodes', 'named_bytes'];

test('each column of a table that moves is exported, and each table stays or moves', () => {
  const { backup } = new Pair();
  const stays = [
    ...['counters', 'own_catalog', 'sessions', 'settings', 'servers', 'replaced_stores', 'voters'],
    ...['deletion_logs', 'deletions', 'volume_catalogs', 'left_catalogs', 'volume_moves', 'split_inodes'],
    // A volume with a walk does not move.
    ...['quota_walks', 'quota_walk_directories', 'quota_walk_files'],
    // They follow from the inodes.
    ...['placements', 'placement_counts', 'member_sets'],
    // The new catalog's clock is set back to the root's.
    'retention_clock',
    // Clones, and sources of clones, do not move.
    ...['clones', 'unfilled', 'clone_names'],
  ];
  const moves = EXPORTED_TABLES.filter(isShaped);
  assert.deepEqual([...stays, ...moves].sort(), Object.keys(TABLE_KEYS).sort());
  const counted = [
    'id',
    'inodes',
    'used_bytes',
    'named_inodes',
    'named_bytes',
    'trashed_inodes',
    'trashed_bytes',
    'retained_ns',
  ];
  for (const table of moves) {
    const columns = backup.pragma(`table_info(${table})`) as { readonly name: string }[];
    const own =
      { volumes: counted, moved_numbers: ['catalog'], directory_quotas: QUOTA_COUNTERS }[String(table)] ?? [];
    const given = EXPORTED[table].namesVolume ? ['volume'] : [];
    assert.deepEqual(
      [...EXPORTED[table].columns, ...own, ...given].sort(),
      columns.map(({ name }) => name).sort(),
      table,
    );
  }
});

test('while its rows are copied, changes of a volume wait; recorded outcomes and queries are answered', () => {
  const root = new Filled();
  root.fill();
  const before = { session: 6, number: 1, since: 0, command: makeDirectory('/made') };
  const [made] = root.batch([before]);
  const move = new Move(root);
  root.done(makeDirectory('/begun'));
  move.freeze();
  const inode = root.at('/d');
  const refused: Command[] = [
    makeDirectory('/no'),
    { kind: 'make-directory', place: { parent: inode, name: 'no' }, ...OWNER },
    { kind: 'link', inode, place: { volume: 'second', path: '/no' } },
    {
      kind: 'rename',
      from: { volume: 'second', path: '/a' },
      to: { volume: 'main', path: '/a' },
      mode: 'replace',
    },
    { kind: 'settle', files: [{ inode, sizeBytes: 1, modifiedNs: '1', contents: { epoch: 9, seq: 9 } }] },
    { kind: 'create-orphan', volume: 'main', ...OWNER },
    { kind: 'snapshot-create', volume: 'main', name: 'three' },
    { kind: 'volume-set', name: 'main', replicas: 1 },
    { kind: 'pin-write', inode, since: 1, session: 2, number: 3 },
    { kind: 'follow-view', inode, view: { number: 9, members: ['s1'] } },
    { kind: 'trash-empty', volume: 'main', countMax: 10 },
    { kind: 'reserve-inodes', owner: 4, count: 1, members: [['s1']], volume: 'main' },
    { kind: 'void-inodes', owner: 4, inodes: [root.reserved] },
  ];
  // Reservations are that old that they have expired.
  root.nowNs += 3_600_000_000_000n;
  const state = volumeDump(root.primary, 'main');
  for (const phase of ['frozen', 'numbered']) {
    assert.equal(move.row?.moving, phase);
    for (const command of refused) {
      const outcome = root.outcome(command);
      assert.deepEqual(
        [outcome.kind, 'code' in outcome && outcome.code],
        ['refused', 'moving'],
        command.kind,
      );
    }
    assert.deepEqual(root.batch([before]), [made], 'A repeated command has its outcome');
    root.done({ kind: 'make-directory', place: { volume: 'second', path: `/${phase}` }, ...OWNER });
    // Nothing that the root does by itself changes the volume either.
    root.done({ kind: 'collect', beforeNs: '9000000000000000000', countMax: 100 });
    assert.deepEqual(root.done({ kind: 'sweep', countMax: 100 }), { rows: 0, more: false });
    assert.equal(runQuery<'sweeps'>(root.backup, { kind: 'sweeps' }).pending, false);
    assert.ok(names(root, 1).includes('begun'));
    assert.deepEqual(volumeDump(root.primary, 'main'), state);
    move.record();
  }
  const [again] = root.batch([{ ...before, number: 2 }]);
  assert.equal(again?.kind, 'refused');
  root.done({ kind: 'volume-move-abort', name: 'main' });
  const [done] = root.batch([{ ...before, number: 2, command: makeDirectory('/waited') }]);
  assert.equal(done?.kind, 'done', 'The refusal is not its outcome');
});

/** A root catalog from which `main` has moved; its rows there are not deleted. */
function movedAway(): { readonly root: Filled; readonly move: Move } {
  const root = new Filled();
  root.fill();
  const move = new Move(root);
  move.freeze();
  move.complete();
  return { root, move };
}

function assertElsewhere(move: Move, ask: () => unknown, code = 'not-found'): void {
  assert.throws(ask, (error: unknown) => {
    assert.ok(error instanceof ServiceError, String(error));
    assert.deepEqual([error.code, error.details], [code, { elsewhere: true, movedTo: move.number }]);
    return true;
  });
}

test('of a volume that has moved, the root says where it is, also when its rows are deleted', () => {
  const { root, move } = movedAway();
  const directory = runQuery<'resolve'>(move.own.backup, {
    kind: 'resolve',
    volume: 'main',
    path: '/d',
    follow: false,
  }).attributes.inode;
  for (const isForgotten of [false, true]) {
    if (isForgotten) move.forget();
    const ask = (query: Query) => () => runQuery(root.backup, query as never);
    assertElsewhere(move, ask({ kind: 'attributes', inode: directory }));
    assertElsewhere(move, ask({ kind: 'lookup', parent: directory, name: 'f1' }));
    assertElsewhere(move, ask({ kind: 'volume', name: 'main' }));
    assertElsewhere(move, ask({ kind: 'resolve', volume: 'main', path: '/', follow: false }));
    assertElsewhere(move, ask({ kind: 'placed', inodes: [directory] }), 'bad-request');
    assertElsewhere(move, ask({ kind: 'existing', inodes: [1_000_000, directory] }), 'bad-request');
    const commands: Command[] = [
      makeDirectory('/no'),
      { kind: 'set-attributes', inode: directory, mode: 0o700 },
      { kind: 'volume-set', name: 'main', replicas: 2 },
    ];
    for (const command of commands) {
      const outcome = root.outcome(command);
      assert.ok(outcome.kind === 'refused' && outcome.movedTo === move.number, JSON.stringify(outcome));
    }
    const { version, moved = [] } = runQuery<'catalogs'>(root.backup, { kind: 'catalogs' });
    assert.ok(moved.length > 1 && moved.every(({ catalog }) => catalog === move.number));
    assert.ok(version >= 4);
    const all = new InodeCatalogs(moved);
    for (const { id } of move.own.backup.prepare('SELECT id FROM inodes').all() as { id: number }[])
      assert.equal(all.catalogOf(id), move.number);
    for (const { id } of root.backup.prepare('SELECT id FROM inodes WHERE volume = 2').all() as {
      id: number;
    }[])
      assert.equal(all.catalogOf(id), 0);
  }
  assert.deepEqual(
    root.backup.prepare('SELECT * FROM deletions').all().length,
    root.deletions,
    'Nothing is deleted',
  );
  // The volume's catalog has these numbers, gives out its own, and does not have those of others.
  const place = { parent: directory, name: 'new' };
  const { attributes } = move.own.done({ kind: 'create-file', place, ...OWNER, exclusive: true });
  assert.ok(attributes.inode > inodesOf(move.number).first);
  assert.throws(() => runQuery(move.own.backup, { kind: 'attributes', inode: root.other }), {
    code: 'not-found',
  });
  const unknown = { kind: 'attributes', inode: 40_000_000 } as const;
  assert.throws(
    () => runQuery(root.backup, unknown),
    (error) => (error as ServiceError).details.elsewhere === undefined,
  );
});

test('lists of the root are without a volume whose rows are still to be deleted', () => {
  const { root, move } = movedAway();
  const lists = (pair: Pair) => {
    const ask = <Kind extends Query['kind']>(query: Extract<Query, { kind: Kind }>) =>
      runQuery(pair.backup, query as never) as QueryResults[Kind];
    return {
      on: ask<'files-on'>({ kind: 'files-on', server: 's1', after: 0, countMax: 3 }).files,
      plans: ask<'plans'>({ kind: 'plans', after: 0, countMax: 100 }).files,
      live: ask<'reservations'>({ kind: 'reservations', live: true, after: 0, countMax: 2 }).files,
      reserving: ask<'reservations'>({ kind: 'reservations', after: 0, countMax: 100 }).files,
      classes: ask<'placement-classes'>({ kind: 'placement-classes', paths: true }).classes,
      miscounted: ask<'files-miscounted'>({
        kind: 'files-miscounted',
        after: null,
        servers: 5,
        countMax: 100,
      }).files,
      misplaced: ask<'files-misplaced'>({ kind: 'files-misplaced', away: [], after: null, countMax: 100 })
        .files,
      volumes: ask<'volumes'>({ kind: 'volumes' }).volumes.map(({ name }) => name),
    };
  };
  const before = lists(root);
  move.forget();
  assert.deepEqual(before, lists(root), 'As without its rows');
  assert.equal(before.on.length, 3);
  const own = lists(move.own);
  for (const [name, found] of Object.entries(own)) assert.ok(found.length > 0, `The volume has ${name}`);
});

test('until the volume has moved, the move can be aborted; then it can begin again', () => {
  const root = new Filled();
  const before = root.fill();
  for (const phase of ['begun', 'frozen', 'numbered', 'copied']) {
    const move = new Move(root);
    assert.deepEqual(root.done({ kind: 'volume-move', name: 'main' }).catalog, move.row);
    assert.equal(root.outcome({ kind: 'volume-remove', name: 'main' }).kind, 'refused');
    assert.equal(root.outcome({ kind: 'volume-remove', name: 'main', lost: true }).kind, 'refused');
    const early = { kind: 'volume-number', number: move.number, countMax: 5 } as const;
    assert.equal(root.outcome(early).kind, 'refused', 'Before the freeze, numbers may be added');
    assert.throws(() => move.page(EXPORT_START), { code: 'busy' });
    if (phase !== 'begun') move.freeze();
    if (phase === 'numbered' || phase === 'copied') move.record();
    else {
      if (phase === 'frozen') assert.throws(() => move.page(EXPORT_START), { code: 'busy' });
      const row = move.row;
      move.report();
      assert.deepEqual(move.row, row, 'A catalog that cannot have all rows has not begun');
    }
    if (phase === 'copied') {
      move.copy();
      move.begin();
    }
    const { catalog } = root.done({ kind: 'volume-move-abort', name: 'main' });
    assert.deepEqual([catalog?.state, catalog?.moving, move.row?.state], ['removed', undefined, 'removed']);
    assert.deepEqual(root.done({ kind: 'volume-move-abort', name: 'main' }), {});
    move.report();
    assert.equal(move.row?.state, 'removed', 'A late report changes nothing');
    assert.throws(() => move.page(EXPORT_START), { code: 'not-found' });
    assert.equal(root.backup.prepare('SELECT * FROM moved_numbers').all().length, 0);
    assert.deepEqual(volumeDump(root.backup, 'main'), before);
    root.done({ kind: 'make-directory', place: { volume: 'main', path: '/again' }, ...OWNER });
    root.done({ kind: 'remove-directory', place: { volume: 'main', path: '/again' } });
    before.splice(0, before.length, ...volumeDump(root.backup, 'main'));
  }
  const move = new Move(root);
  assert.equal(move.number, 5, 'No number is used again');
  move.run();
  assert.deepEqual(volumeDump(move.own.backup, 'main'), before);
  assert.equal(root.outcome({ kind: 'volume-move-abort', name: 'main' }).kind, 'refused');
  assert.equal(root.outcome({ kind: 'volume-move', name: 'main' }).kind, 'refused');
  assert.equal(move.row?.state, 'ready');
});

test('each page of rows is imported once, in its order, by any sender', () => {
  const root = new Filled();
  const before = root.fill();
  for (let index = 0; index < 40; index++)
    root.xattr(root.file(`/large-${index}`), 'user.large', 'x'.repeat(30_000));
  const move = new Move(root);
  move.freeze();
  move.record();
  const first = move.page(EXPORT_START);
  const second = move.page(first.next);
  assert.notEqual(second.next, EXPORT_END, 'There are several pages');
  assert.deepEqual(move.own.done(second), { position: EXPORT_START }, 'Too early');
  assert.equal(move.own.outcome(beginOf(move)).kind, 'refused');
  assert.deepEqual(move.own.done(first), { position: first.next });
  assert.deepEqual(move.own.done(first), { position: first.next }, 'Late, of an earlier primary');
  assert.deepEqual(move.own.done(second), { position: second.next });
  assert.equal(move.own.outcome(beginOf(move)).kind, 'refused', 'Pages are missing');
  const { imported, inodes } = runQuery<'catalog-state'>(move.own.backup, { kind: 'catalog-state' });
  assert.equal(imported, second.next);
  const arrived = [first, second].flatMap(({ tables }) => tables.filter(({ table }) => table === 'inodes'));
  assert.equal(inodes, arrived.flatMap(({ rows }) => rows).length);
  for (let position = second.next; position !== EXPORT_END; )
    position = move.own.done(move.page(position)).position;
  move.begin();
  assert.deepEqual(move.own.done(first), { position: EXPORT_END });
  assert.deepEqual(volumeDump(move.own.backup, 'main'), volumeDump(root.backup, 'main'));
  assert.ok(volumeDump(root.backup, 'main').length > before.length);
  assertSound(move.own.backup);
});

test('a page reads no more rows than it has, however large their values are', () => {
  const root = new Filled();
  const inode = root.file('/f');
  const value = Buffer.alloc(60_000, 1).toString('base64');
  for (let place = 0; place < 30; place++)
    root.done({ kind: 'set-xattr', inode, name: `user.${place}`, value, mode: 'set' });
  const move = new Move(root);
  move.freeze();
  move.record();
  const tables = Tables.of(root.backup);
  const { rows } = tables;
  let taken = 0;
  const counting = {
    *rows(...which: Parameters<typeof rows.rows>) {
      for (const row of rows.rows(...which)) {
        taken++;
        yield row;
      }
    },
  };
  const counted = Object.create(tables, { rows: { value: counting } }) as Tables;
  for (let after: string = EXPORT_START; after !== EXPORT_END; ) {
    taken = 0;
    const page = volumeExport(counted, move.number, after);
    const has = page.tables.flatMap(({ table, rows: ofTable }) => (table === 'totals' ? [] : ofTable));
    assert.equal(taken, has.length, `behind "${after}"`);
    after = page.next;
  }
});

test('a copy without a row of the root is refused', () => {
  const root = new Filled();
  root.fill();
  const move = new Move(root);
  move.freeze();
  move.record();
  const page = move.page(EXPORT_START);
  assert.equal(page.next, EXPORT_END);
  const tables = page.tables.map((part) =>
    part.table === 'inodes' ? { ...part, rows: part.rows.slice(1) } : part,
  );
  const outcome = move.own.outcome({ ...page, tables });
  assert.ok(outcome.kind === 'refused' && outcome.code === 'integrity', JSON.stringify(outcome));
  assert.deepEqual(move.own.done(page), { position: EXPORT_END }, 'Nothing of it was imported');
});

function first(rows: readonly ExportedRow[], column: number): ExportedRow | undefined {
  return rows.find((row) => column < row.length);
}

test('a copy in which any row or value is another than at the root is noticed, with its table', async () => {
  const root = new Filled();
  root.fill();
  const move = new Move(root);
  move.freeze();
  move.record();
  const pages = async (pair: Pair, after: string) =>
    runQuery<'volume-export'>(pair.backup, { kind: 'volume-export', number: move.number, after });
  let stored = (after: string) => pages(move.own, after);
  const parts = {
    ...{ number: move.number, world: { nextTick: async () => undefined }, isPrimary: () => true },
    exported: (after: string) => pages(root, after),
    imported: async (command: CommandOf<'catalog-import'>) => move.own.done(command),
    stored: (after: string) => stored(after),
  };
  assert.ok(await importVolume(parts, EXPORT_START));
  const differs = (table: string, what: string) =>
    assert.rejects(
      importVolume(parts, EXPORT_END),
      (error: unknown) =>
        error instanceof ServiceError && error.code === 'integrity' && error.message.includes(`"${table}"`),
      `${what} of ${table}`,
    );
  const damage = (table: string, change: (rows: readonly ExportedRow[]) => ExportedRow[]) => {
    stored = async (after) => {
      const { tables, next } = await pages(move.own, after);
      const part = tables.find((one) => one.table === table);
      assert.ok(part !== undefined && part.rows.length > 0, `${table} has rows`);
      const damaged = { ...part, rows: change(part.rows) };
      return { tables: tables.map((one) => (one === part ? damaged : one)), next };
    };
  };
  for (const table of COMPARED_TABLES) {
    damage(table, (rows) => rows.slice(1));
    await differs(table, 'a lost row');
    damage(table, (rows) => [...rows, ...rows.slice(-1)]);
    await differs(table, 'a further row');
    const columns = isShaped(table) ? EXPORTED[table].columns.length : 6;
    for (let column = 0; column < columns; column++) {
      damage(table, (rows) =>
        // The last column of inodes is exported of those with a quota only.
        rows.map((row) => (row !== first(rows, column) ? row : row.with(column, row[column] === 7 ? 8 : 7))),
      );
      await differs(table, `column ${column}`);
    }
  }
  stored = (after) => pages(move.own, after);
  // What is compared is in the database.
  for (const table of COMPARED_TABLES) {
    if (!isShaped(table)) continue;
    const db = move.own.backup;
    db.pragma('foreign_keys = OFF');
    const [key] = EXPORTED[table].key;
    db.exec('SAVEPOINT whole');
    if (table === 'volumes') db.exec('UPDATE volumes SET kept = kept + 1');
    else db.exec(`DELETE FROM ${table} WHERE ${key} = (SELECT max(${key}) FROM ${table})`);
    await (table === 'moved_numbers'
      ? assert.rejects(importVolume(parts, EXPORT_END))
      : differs(table, 'row'));
    db.exec('ROLLBACK TO whole; RELEASE whole');
  }
  assert.ok(await importVolume(parts, EXPORT_END));
});

test('requests with a key that the root has executed have their outcomes in the new catalog', () => {
  const root = new Filled();
  root.fill();
  const keyed = { session: 600, number: 1, command: makeDirectory('/keyed') };
  const named = { session: 601, number: 1, since: 0, command: makeDirectory('/named') };
  const outcomes = root.batch([keyed, named]);
  const move = new Move(root);
  move.run();
  assert.deepEqual(move.own.batch([keyed]), outcomes.slice(0, 1));
  assert.equal(move.own.batch([named])[0]?.kind, 'refused', 'Its client asks the root');
  move.own.equal();
  assert.deepEqual(root.batch([named]), outcomes.slice(1), 'Outcomes come before the refusal');
});

/** Creates a file of the owner 4, by a number that was reserved for it. */
function createBy(inode: number, path: string, volume = 'main'): CommandOf<'create-file'> {
  const reserved = { inode, owner: 4 };
  return { kind: 'create-file', place: { volume, path }, ...OWNER, exclusive: true, reserved };
}

/** Gives contents that are stored by a number their name. */
function bearBy(inode: number, parent: number, objectBytes: number): CommandOf<'bear'> {
  const file = { parent, name: `f${inode}`, inode, ...OWNER, sizeBytes: 9, contents: { epoch: 1, seq: 1 } };
  return { kind: 'bear', owner: 4, replicas: ['s1', 's2', 's3'], objectBytes, files: [file] };
}

function codeOf(outcome: Outcome): string {
  return outcome.kind === 'refused' ? outcome.code : outcome.kind;
}

test('numbers that are reserved for files of a volume move with it: its own catalog takes each once', () => {
  const root = new Filled();
  root.fill();
  const [a, b, c, unnamed] = [root.reserved, root.reserved + 1, root.reserved + 2, root.reserve(4, 1)];
  root.done(createBy(a, '/used-before'));
  const parent = root.at('/d');
  const move = new Move(root);
  move.freeze();
  move.record(2);
  move.copy();
  move.begin();
  move.report();
  assert.equal(codeOf(root.outcome(createBy(b, '/no', 'second'))), 'precondition-failed');
  move.forget(3);
  const placed: Extract<Query, { kind: 'placed' }> = { kind: 'placed', inodes: [b, c] };
  assert.throws(() => runQuery(root.backup, placed), { code: 'bad-request' });
  assert.deepEqual(runQuery<'placed'>(move.own.backup, placed).reserved, [b, c], 'Their contents are kept');
  assert.equal(codeOf(move.own.outcome(createBy(a, '/again'))), 'precondition-failed');
  const { attributes, created } = move.own.done(createBy(b, '/late'));
  assert.deepEqual([attributes.inode, attributes.replicas, created], [b, ['s1', 's2', 's3'], true]);
  assert.deepEqual(move.own.done(bearBy(c, parent, 4096)), {
    ...{ atNs: String(move.own.nowNs), limited: true, files: { [c]: null } },
  });
  const again = Object.values((move.own.done(bearBy(b, parent, 4096)) as { files: object }).files);
  assert.equal((again[0] as { code: string } | undefined)?.code, 'precondition-failed');
  assert.deepEqual(move.own.done({ kind: 'void-inodes', owner: 4, inodes: [c + 1] }), {
    voided: [c + 1],
  });
  move.own.nowNs += 3_600_000_000_000n;
  move.own.done({ kind: 'collect', beforeNs: '0', countMax: 1 });
  assert.equal(codeOf(move.own.outcome(createBy(c + 2, '/expired'))), 'precondition-failed');
  assertSound(move.own.backup);
  // The root would have any volume take it.
  assert.equal(codeOf(move.own.outcome(createBy(unnamed, '/unnamed'))), 'precondition-failed');
  assert.equal(codeOf(root.outcome(createBy(unnamed, '/unnamed', 'second'))), 'done');
});

test('a number that is reserved for a volume is of no use in another; one for none is for any', () => {
  const root = new Filled();
  const [main, gone] = [root.reserve(4, 3, 'main'), root.reserve(4, 1, 'gone')];
  const { volume } = runQuery<'volume'>(root.backup, { kind: 'volume', name: 'second' });
  assert.equal(codeOf(root.outcome(createBy(main, '/a', 'second'))), 'precondition-failed');
  const born = root.done(bearBy(main, volume.root, 4096)) as CreateWithContentsResult;
  assert.deepEqual(
    Object.values(born.files).map((file) => file !== null && 'code' in file && file.code),
    ['precondition-failed'],
  );
  const contents = { epoch: 1, seq: 1 };
  const stored = { inode: main, owner: 4, replicas: ['s1', 's2', 's3'], objectBytes: 4096, sizeBytes: 9 };
  const place = { volume: 'second', path: '/a' };
  const named = {
    place,
    ...stored,
    ...OWNER,
    modifiedNs: '1',
    contents,
    expect: { kind: 'anything' },
  } as const;
  assert.equal(
    codeOf(root.outcome({ kind: 'replace-with-contents', ...named, replicas: [...stored.replicas] })),
    'bad-request',
  );
  root.done(createBy(main, '/a'));
  root.done(createBy(gone, '/a', 'second'));
  root.equal();
});

test('runs of numbers have none that others have, reserve or had moved before', () => {
  const root = new Filled();
  root.fill();
  root.done({ kind: 'volume-create', name: 'third', replicas: 2, objectBytes: 4096 });
  const members = [['s1', 's2']];
  const reserved = new Set<number>();
  const [second, third] = [new Set<number>(), new Set<number>()];
  for (let index = 0; index < 30; index++) {
    second.add(root.file(`/s${index}`, 'second'));
    third.add(root.file(`/t${index}`, 'third'));
    third.add(root.file(`/u${index}`, 'third'));
    if (index % 7 !== 0) continue;
    const { first } = root.done({ kind: 'reserve-inodes', owner: 9, count: 3, members });
    for (let number = first; number < first + 3; number++) reserved.add(number);
    const own = root.reserve(9, 3, 'third');
    for (let number = own; number < own + 3; number++) third.add(number);
    third.add(root.file(`/v${index}`, 'third'));
  }
  const gone = root.file('/gone', 'third');
  root.done({ kind: 'unlink', place: { volume: 'third', path: '/gone' } });
  root.done({ kind: 'collect', beforeNs: '9000000000000000000', countMax: 100 });
  const last = root.file('/last', 'third');
  for (const [name, countMax] of [
    ['third', 4],
    ['second', 7],
    ['main', 1],
  ] as const) {
    const move = new Move(root, name);
    move.freeze();
    move.record(countMax);
    move.copy();
    move.begin();
    move.report();
    if (name === 'third') move.forget(5);
  }
  const { moved = [] } = runQuery<'catalogs'>(root.backup, { kind: 'catalogs' });
  assert.ok(areMovedNumbers(moved), 'They have no common numbers');
  const all = new InodeCatalogs(moved);
  for (const inode of third) assert.equal(all.catalogOf(inode), 1);
  for (const inode of second) assert.equal(all.catalogOf(inode), 2);
  for (const inode of reserved) assert.equal(all.catalogOf(inode), 0);
  assert.deepEqual(
    [all.catalogOf(gone), all.catalogOf(last)],
    [1, 1],
    'A number that no volume has joins two runs',
  );
  const ofThird = moved.filter(({ catalog }) => catalog === 1);
  assert.ok(ofThird.length <= 36, `${ofThird.length} runs`);
});

test('a move ends by itself if its numbers are in too many runs', () => {
  const root = new Filled();
  const before = root.fill();
  const move = new Move(root);
  move.freeze();
  for (const db of [root.primary, root.backup]) {
    const insert = db.prepare('INSERT INTO moved_numbers VALUES (?, ?, 9)');
    for (let number = 1_000_000; number < 1_000_000 + 2 * RUNS_MAX; number += 2) insert.run(number, number);
  }
  move.record();
  assert.equal(move.row?.state, 'removed');
  assert.match(move.row.refused?.why ?? '', /more than 50000 runs/);
  assert.deepEqual(runQuery<'moves'>(root.backup, { kind: 'moves' }), { moves: [] });
  root.done(makeDirectory('/present'));
  assert.ok(volumeDump(root.backup, 'main').length > before.length);
});

test('a volume that has moved is listed until it is removed, and its name is free then', () => {
  const root = new Filled();
  const move = new Move(root);
  move.run();
  const moved = () => runQuery<'catalogs'>(root.backup, { kind: 'catalogs' }).moved;
  const before = moved();
  assert.ok(before !== undefined);
  const create = { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 } as const;
  assert.equal(root.outcome(create).kind, 'refused');
  root.done({ kind: 'volume-remove', name: 'main' });
  assert.deepEqual(move.own.done({ kind: 'catalog-close', since: 99 }), { closed: true });
  const report = { kind: 'closed' } as const;
  root.done({ kind: 'catalog-report', number: move.number, report });
  root.done(create);
  assert.deepEqual(moved(), before, 'The numbers stay those of the removed catalog');
  assertElsewhere(move, () => runQuery(root.backup, { kind: 'attributes', inode: 1 }));
});

test('a server of an earlier release does not join a cluster with a moving volume', () => {
  const root = new Filled();
  const { catalog } = root.done({ kind: 'volume-move', name: 'main', members: ['s1'] });
  const earlier = { ...registration('s5'), commandsVersion: 12 };
  const [refused] = root.batch([{ session: 5, number: root.seq + 1, since: 0, command: earlier }]);
  assert.ok(refused?.kind === 'refused' && /without moves of volumes/.test(refused.message));
  assert.deepEqual([catalog.state, catalog.moving], ['creating', 'begun']);
});

/** Random objects may be without a prototype. */
function asSent(request: CommandRequest): CommandRequest {
  return JSON.parse(JSON.stringify(request)) as CommandRequest;
}

test('a create that waits while its volume is frozen for long is executed after the move, or its end', () => {
  for (const isAborted of [true, false]) {
    const root = new Filled();
    root.fill();
    const { reserved } = root;
    const move = new Move(root);
    move.freeze();
    move.record();
    move.copy();
    root.nowNs += FROZEN_NS;
    assert.equal(codeOf(root.outcome(createBy(reserved, '/late'))), 'moving');
    const there = isAborted ? root : move.own;
    move.own.nowNs = root.nowNs;
    if (isAborted) root.done({ kind: 'volume-move-abort', name: 'main' });
    else {
      move.begin();
      move.report();
    }
    there.done({ kind: 'collect', beforeNs: '0', countMax: 1 });
    assert.equal(codeOf(there.outcome(createBy(reserved, '/late'))), 'done');
  }
});

test('whatever a volume is, its move leaves it equal, and both catalogs sound', () => {
  let moves = 0;
  let rows = 0;
  fc.assert(
    fc.property(
      fc.array(requests, { minLength: 20, maxLength: 80 }),
      fc.integer({ min: 1, max: 5 }),
      (batches, slice) => {
        const root = new Pair();
        for (const id of SERVERS) root.run(registration(id));
        root.run({ kind: 'volume-set', name: 'main', trashMs: 3_600_000 });
        for (const path of ['/a', '/a/a', '/b']) root.run(makeDirectory(path));

        for (const [index, batch] of batches.entries())
          root.batch(batch.map((request) => ({ ...asSent(request), session: 10 + index })));
        // A random command may have removed it.
        if (
          runQuery<'volumes'>(root.backup, { kind: 'volumes' }).volumes.every(({ name }) => name !== 'main')
        )
          return;
        // What a clone needs does not move.
        const clones = clonesIn(runQuery<'volumes'>(root.backup, { kind: 'volumes' }));
        if (clones.some(({ source }) => source === 'main')) return;
        root.run(registration('s8'));
        const before = volumeDump(root.backup, 'main');
        const move = new Move(root, 'main', undefined, ['s8']);
        const recount = new Recount(root.primary);
        move.freeze();
        move.record(slice);
        move.copy();
        move.begin();
        move.report();
        assert.deepEqual(volumeDump(move.own.backup, 'main'), before);
        assertSound(move.own.backup);
        recount.step(2);
        move.forget(slice);
        everyStep(() => !recount.step(2));
        assert.deepEqual(recount.wrongCounters(), []);
        assertSound(root.backup);
        moves++;
        rows += before.length;
      },
    ),
    { numRuns: isLong ? 150 : 25 },
  );
  assert.ok(moves > 5 && rows > 10 * moves, `${moves} moves of ${rows} rows`);
});
