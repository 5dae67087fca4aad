import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import { commandVersion } from '../../catalog/versions.ts';
import { Placement } from '../../server/process/placement.ts';
import type { PlacedPosition, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { PlacementClass } from '../../wire/placement-class.ts';
import { Catalog, main, SERVERS } from './fixture.ts';

/** Five registered servers, the first ones with the label `ssd`, in zones by their number. */
function labelled(ssd: number): Catalog {
  const placement = new Placement({ configured: [], isConnected: () => true });
  class Placed extends Catalog {
    override readonly context = {
      nowNs: 0n,
      placement: (count: number, servers: readonly ServerInfo[], required: PlacementClass): ServerId[] =>
        servers.length === 0
          ? SERVERS.slice(0, count)
          : placement.choose(count, servers, required).toSorted(),
      capacity: (servers: readonly ServerInfo[], required: PlacementClass): number =>
        servers.length === 0 ? SERVERS.length : placement.capacity(servers, required),
    };
  }
  const catalog = new Placed();
  for (const [index, id] of SERVERS.entries()) {
    const room = { storageId: id, freeBytes: 50, totalBytes: 100 };
    catalog.run({ kind: 'server-register', id, url: `http://${id}:1`, zone: `z${index % 3}`, ...room });
    catalog.run({ kind: 'server-label', id, labels: [index < ssd ? 'ssd' : 'hdd'] });
  }
  return catalog;
}

function misplaced(catalog: Catalog, { away = [] as string[], countMax = 9 } = {}): number[] {
  const found: number[] = [];
  for (let after: PlacedPosition | null = null; ; ) {
    const query = { kind: 'files-misplaced', away, after, countMax } as const;
    const page: QueryResults['files-misplaced'] = catalog.query(query);
    assert.ok(page.files.length <= countMax);
    found.push(...page.files.map(({ inode }) => inode));
    if (page.next === null) return found;
    after = page.next;
  }
}

function membersOf(catalog: Catalog, inode: number): readonly string[] {
  return catalog.inode(inode).replicas;
}

test('labels of a server replace the earlier ones, and stay when it registers again', () => {
  const catalog = labelled(1);
  const labels = () => catalog.query({ kind: 'servers', counts: false }).servers[0]?.labels;
  const { server } = catalog.run({ kind: 'server-label', id: 's1', labels: ['ssd', 'fast', 'ssd'] });
  assert.deepEqual(
    [server.labels, labels()],
    [
      ['fast', 'ssd'],
      ['fast', 'ssd'],
    ],
    'Sorted, each once',
  );
  const room = { storageId: 's1', freeBytes: 1, totalBytes: 100 };
  catalog.run({ kind: 'server-register', id: 's1', url: 'http://s1:1', ...room });
  catalog.run({ kind: 'server-remove', id: 's1', dead: true });
  catalog.run({ kind: 'server-add', id: 's1', url: 'http://s1:1' });
  assert.deepEqual(labels(), ['fast', 'ssd']);
  catalog.run({ kind: 'server-label', id: 's1', labels: [] });
  assert.equal(labels(), undefined);
  catalog.refuse('not-found', { kind: 'server-label', id: 'none', labels: [] });
});

test('commands with labels or zones need the version that knows them', () => {
  assert.equal(commandVersion({ kind: 'server-label', id: 's1', labels: [] }), 12);
  assert.equal(commandVersion({ kind: 'volume-set', name: 'main', zones: ['a'] }), 12);
  const volume = { kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4_096 } as const;
  assert.equal(commandVersion({ ...volume, labels: ['ssd'] }), 12);
  assert.equal(commandVersion(volume), 1);
});

test('files of a volume are created on servers with its labels and in its zones', () => {
  const catalog = labelled(4);
  const { volume } = catalog.run({ kind: 'volume-set', name: 'main', labels: ['ssd'] });
  assert.deepEqual([volume.labels, volume.zones], [['ssd'], undefined]);
  assert.deepEqual(catalog.query({ kind: 'volume', name: 'main' }).volume.labels, ['ssd']);
  for (let index = 0; index < 20; index++)
    assert.ok(!membersOf(catalog, catalog.file(`/f${index}`).inode).includes('s5'));
  const zones = ['z0', 'z1'];
  catalog.refuse('precondition-failed', { kind: 'volume-set', name: 'main', zones: ['z0'] });
  catalog.run({ kind: 'volume-set', name: 'main', zones });
  assert.deepEqual(membersOf(catalog, catalog.file('/both').inode), ['s1', 's2', 's4']);
  const orphan = catalog.run({ kind: 'create-orphan', volume: 'main', mode: 0o644, uid: 0, gid: 0 });
  assert.deepEqual(orphan.attributes.replicas, ['s1', 's2', 's4']);
  catalog.run({ kind: 'volume-set', name: 'main', labels: [], zones: [] });
  assert.equal(catalog.query({ kind: 'volume', name: 'main' }).volume.labels, undefined);
});

test('more replicas than servers that may hold them are refused, unless they are to come', () => {
  const catalog = labelled(2);
  const set = { kind: 'volume-set' as const, name: 'main', labels: ['ssd'] };
  catalog.refuse('precondition-failed', set);
  catalog.run({ ...set, replicas: 2 });
  catalog.refuse('precondition-failed', { kind: 'volume-set', name: 'main', replicas: 3 });
  catalog.run({ kind: 'volume-set', name: 'main', replicas: 3, force: true });
  assert.deepEqual(membersOf(catalog, catalog.file('/a').inode), ['s1', 's2'], 'Fewer, and not elsewhere');
  const create = { kind: 'volume-create', name: 'tape', replicas: 1, objectBytes: 4_096 } as const;
  catalog.refuse('precondition-failed', { ...create, labels: ['tape'] });
  catalog.run({ ...create, labels: ['tape'], force: true });
  const place = { volume: 'tape', path: '/a' };
  const file = { kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: false } as const;
  catalog.refuse('no-space', file);
  catalog.refuse('no-space', { kind: 'create-orphan', volume: 'tape', mode: 0o644, uid: 0, gid: 0 });
  catalog.run({ kind: 'server-label', id: 's5', labels: ['tape'] });
  const { inode } = catalog.run(file).attributes;
  catalog.run({ kind: 'server-label', id: 's5', labels: [] });
  assert.equal(catalog.run(file).attributes.inode, inode, 'One that exists is opened');
});

test('files on servers that are not allowed are found, while others could take their replicas', () => {
  const catalog = labelled(4);
  const files = Array.from({ length: 12 }, (_, index) => catalog.file(`/f${index}`).inode);
  const other = { kind: 'volume-create', name: 'other', replicas: 3, objectBytes: 4_096 } as const;
  catalog.run(other);
  const place = { volume: 'other', path: '/a' };
  catalog.run({ kind: 'create-file', place, mode: 0o644, uid: 0, gid: 0, exclusive: true });
  assert.deepEqual(misplaced(catalog), []);
  catalog.run({ kind: 'volume-set', name: 'main', labels: ['ssd'] });
  const wrong = files.filter((inode) => membersOf(catalog, inode).includes('s5'));
  assert.ok(wrong.length > 0 && wrong.length < files.length);
  for (const countMax of [9, 1])
    assert.deepEqual(
      misplaced(catalog, { countMax }).toSorted((a, b) => a - b),
      wrong,
    );
  const away = ['s1', 's2', 's3', 's4'];
  assert.deepEqual(misplaced(catalog, { away }), [], 'No other can take them');
  for (const inode of wrong) {
    const view = { number: 2, members: ['s1', 's2', 's3'] };
    catalog.run({ kind: 'follow-view', inode, view });
  }
  assert.deepEqual(misplaced(catalog), []);
  catalog.run({ kind: 'server-label', id: 's1', labels: [] });
  assert.ok(misplaced(catalog).length >= wrong.length, 'A change of labels touches no file');
  const [file] = catalog.query({ kind: 'placed', inodes: [files[0] as number] }).files;
  assert.deepEqual(file?.class, { labels: ['ssd'] });
});

test('a file of a volume with labels has not too few replicas if all allowed servers have it', () => {
  const catalog = labelled(3);
  catalog.run({ kind: 'volume-set', name: 'main', labels: ['ssd'] });
  const { inode } = catalog.file('/a');
  const counted = (away: string[]) =>
    catalog
      .query({ kind: 'files-miscounted', servers: 5, away, after: null, countMax: 9 })
      .files.map((file) => file.inode);
  catalog.run({ kind: 'set-replicas', inode, count: 4 });
  assert.deepEqual(counted([]), []);
  catalog.run({ kind: 'server-label', id: 's4', labels: ['ssd'] });
  assert.deepEqual(counted([]), [inode]);
  assert.deepEqual(counted(['s4']), []);
});

test('reserved numbers keep their servers when the labels of the volume change', () => {
  const catalog = labelled(4);
  const owner = 77;
  const members = [['s3', 's4', 's5']];
  const { first } = catalog.run({ kind: 'reserve-inodes', owner, count: 2, members });
  catalog.run({ kind: 'volume-set', name: 'main', labels: ['ssd'] });
  const file = { kind: 'create-file', mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  const { attributes } = catalog.run({ ...file, place: main('/a'), reserved: { inode: first, owner } });
  assert.deepEqual(attributes.replicas, ['s3', 's4', 's5'], 'Contents may be stored there already');
  assert.deepEqual(misplaced(catalog), [attributes.inode], 'The steward moves it');
});

/** Five servers of which two have the label `ssd`, and `/fast`, whose class is two replicas on them. */
function withFastDirectory(): { readonly catalog: Catalog; readonly fast: number } {
  const catalog = labelled(2);
  const fast = catalog.directory('/fast').inode;
  catalog.run({ kind: 'set-placement', inode: fast, class: { labels: ['ssd'], zones: [], replicas: 2 } });
  return { catalog, fast };
}

function miscounted(catalog: Catalog): number[] {
  const query = { kind: 'files-miscounted', servers: 5, after: null, countMax: 99 } as const;
  return catalog.query(query).files.map(({ inode }) => inode);
}

test('what is created in a directory with a class has it, at any depth', () => {
  const { catalog, fast } = withFastDirectory();
  const found = { directory: fast, volume: 'main', labels: ['ssd'], replicas: 2 };
  assert.deepEqual(catalog.query({ kind: 'placement-classes' }).classes, [found]);
  const { classes } = catalog.query({ kind: 'placement-classes', paths: true });
  assert.deepEqual(classes, [{ ...found, path: '/fast' }]);
  const below = catalog.directory('/fast/below');
  assert.equal(below.placement, fast);
  for (const path of ['/fast/a', '/fast/below/b']) {
    const { replicas, placement } = catalog.file(path);
    assert.deepEqual([replicas, placement], [['s1', 's2'], fast]);
  }
  const { replicas, placement } = catalog.file('/c');
  assert.deepEqual([replicas.length, placement], [3, undefined]);
  const byParent = { kind: 'create-file', mode: 0o644, uid: 0, gid: 0, exclusive: true } as const;
  const made = catalog.run({ ...byParent, place: { parent: below.inode, name: 'd' } }).attributes;
  assert.deepEqual(made.replicas, ['s1', 's2']);
  assert.deepEqual([misplaced(catalog), miscounted(catalog)], [[], []]);
});

test('a directory replaces the labels and zones of its volume, and may lift them', () => {
  const catalog = labelled(3);
  catalog.run({ kind: 'volume-set', name: 'main', labels: ['ssd'] });
  const free = catalog.directory('/free').inode;
  catalog.run({ kind: 'set-placement', inode: free, class: { labels: [], zones: [], replicas: 5 } });
  assert.deepEqual(catalog.file('/free/a').replicas, SERVERS);
  assert.deepEqual(catalog.file('/b').replicas, ['s1', 's2', 's3']);
  assert.deepEqual([misplaced(catalog), miscounted(catalog)], [[], []]);
});

test('a change of a class is for all files that have it; a new class for new files, unless it is inherited', () => {
  const { catalog, fast } = withFastDirectory();
  const [a, b] = [catalog.file('/fast/a').inode, catalog.file('/b').inode];
  const hdd = { labels: ['hdd'], zones: [], replicas: null };
  catalog.run({ kind: 'set-placement', inode: fast, class: hdd });
  assert.deepEqual([misplaced(catalog), miscounted(catalog)], [[a], [a]]);
  catalog.run({
    kind: 'set-placement',
    inode: catalog.root,
    class: { labels: ['ssd'], zones: [], replicas: 2 },
  });
  assert.ok(!misplaced(catalog).includes(b), 'It was there before');
  const inherit = { kind: 'inherit-placement', inode: catalog.root, countMax: 1 } as const;
  const first = catalog.run({ ...inherit, after: '' });
  assert.deepEqual(first, { directories: [], next: 'b' });
  assert.equal(catalog.inode(b).placement, catalog.root);
  assert.deepEqual(catalog.run({ ...inherit, after: 'b' }), { directories: [], next: 'fast' });
  assert.deepEqual(catalog.run({ ...inherit, after: 'fast' }), { directories: [], next: null });
  assert.equal(catalog.inode(fast).placement, fast, 'It has a class of its own');
  assert.ok(miscounted(catalog).includes(b), 'It has three replicas, and the class two');
  const below = catalog.directory('/below').inode;
  catalog.run({ kind: 'set-placement', inode: catalog.root, class: null });
  const all = catalog.run({ ...inherit, after: '', countMax: 9 });
  assert.deepEqual(all, { directories: [below], next: null });
  assert.deepEqual([catalog.inode(b).placement, catalog.inode(below).placement], [undefined, undefined]);
});

test('files keep their class when they or their directories are renamed; without it, they have that of the volume', () => {
  const { catalog, fast } = withFastDirectory();
  const a = catalog.file('/fast/a').inode;
  const b = catalog.file('/b').inode;
  const rename = (from: string, to: string) =>
    catalog.run({ kind: 'rename', from: main(from), to: main(to), mode: 'replace' });
  rename('/fast/a', '/a');
  rename('/b', '/fast/b');
  rename('/fast', '/quick');
  assert.deepEqual([catalog.inode(a).placement, catalog.inode(b).placement], [fast, undefined]);
  assert.equal(catalog.query({ kind: 'placement-classes', paths: true }).classes[0]?.path, '/quick');
  assert.deepEqual(catalog.file('/quick/c').replicas, ['s1', 's2']);
  rename('/quick/b', '/b');
  catalog.run({ kind: 'unlink', place: main('/quick/c') });
  catalog.run({ kind: 'remove-directory', place: main('/quick') });
  assert.deepEqual(catalog.query({ kind: 'placement-classes' }).classes, []);
  const [placed] = catalog.query({ kind: 'placed', inodes: [a] }).files;
  assert.deepEqual([placed?.wanted, placed?.class], [3, undefined]);
  assert.ok(miscounted(catalog).includes(a));
});

test('an upload has the class of the directory that it is linked in', () => {
  const { catalog, fast } = withFastDirectory();
  const own = { mode: 0o644, uid: 0, gid: 0 };
  const upload = (place?: ReturnType<typeof main>, placement?: number) =>
    catalog.run({
      ...{ kind: 'create-orphan' as const, volume: 'main', ...own },
      ...(place && { place }),
      ...(placement !== undefined && { placement }),
    }).attributes;
  const name = (inode: number, path: string) =>
    catalog.run({ kind: 'replace', inode, place: main(path), expect: { kind: 'anything' } }).attributes;
  const known = upload(main('/fast/a'), fast);
  assert.deepEqual(known.replicas, ['s1', 's2']);
  assert.deepEqual(miscounted(catalog), [], 'It is not moved to servers of the volume meanwhile');
  assert.equal(name(known.inode, '/fast/a').placement, fast);
  assert.deepEqual(misplaced(catalog), []);
  const unknown = upload();
  assert.equal(name(unknown.inode, '/fast/b').placement, fast);
  assert.deepEqual(miscounted(catalog), [unknown.inode], 'The steward moves it');
  assert.equal(upload(main('/none/a')).replicas.length, 3, 'Its linking is refused later');
  const tape = catalog.directory('/tape').inode;
  const lacking = { labels: ['tape'], zones: [], replicas: 1 };
  catalog.refuse('precondition-failed', { kind: 'set-placement', inode: tape, class: lacking });
  catalog.run({ kind: 'set-placement', inode: tape, class: lacking, force: true });
  catalog.refuse('no-space', { kind: 'create-orphan', volume: 'main', ...own, place: main('/tape/a') });
  const file = { kind: 'create-file', ...own, exclusive: true } as const;
  catalog.refuse('no-space', { ...file, place: main('/tape/a') });
});

test('contents that a server has stored by the class of the volume do not replace a file of another class', () => {
  const { catalog } = withFastDirectory();
  const owner = 7;
  const reserve = (members: string[]) =>
    catalog.run({ kind: 'reserve-inodes', owner, count: 1, members: [members] }).first;
  const stored = (inode: number, replicas: string[]) =>
    ({
      ...{ kind: 'replace-with-contents' as const, place: main('/fast/a'), inode, owner, replicas },
      ...{ objectBytes: 131_072, mode: 0o644, uid: 0, gid: 0, sizeBytes: 1, modifiedNs: '5' },
      ...{ contents: { epoch: 1, seq: 2 }, expect: { kind: 'anything' as const } },
    }) as const;
  catalog.refuse('bad-request', stored(reserve(['s3', 's4', 's5']), ['s3', 's4', 's5']));
  const { attributes } = catalog.run(stored(reserve(['s1', 's2']), ['s1', 's2']));
  assert.deepEqual([misplaced(catalog), attributes.replicas], [[], ['s1', 's2']]);
});

test('only directories have a class', () => {
  const { catalog, fast } = withFastDirectory();
  const { inode } = catalog.file('/a');
  const hdd = { labels: ['hdd'], zones: [], replicas: null };
  catalog.refuse('not-directory', { kind: 'set-placement', inode, class: hdd });
  catalog.refuse('not-found', { kind: 'set-placement', inode: 999, class: hdd });
  catalog.refuse('not-found', { kind: 'set-placement', inode: catalog.root, class: null });
  catalog.run({ kind: 'set-placement', inode: fast, class: null });
  assert.equal(catalog.file('/fast/a').replicas.length, 3);
});

test('a catalog has a bounded number of classes, as each costs steps', () => {
  const catalog = labelled(5);
  const free = { labels: [], zones: [], replicas: null };
  const classed = () => catalog.query({ kind: 'placement-classes' }).classes.length;
  for (let index = 0; index < 1_000; index++)
    catalog.run({ kind: 'set-placement', inode: catalog.directory(`/d${index}`).inode, class: free });
  catalog.refuse('too-large', { kind: 'set-placement', inode: catalog.root, class: free });
  const [first] = catalog.query({ kind: 'placement-classes' }).classes;
  assert.ok(first !== undefined);
  catalog.run({ kind: 'set-placement', inode: first.directory, class: { ...free, replicas: 2 } });
  catalog.run({ kind: 'set-placement', inode: first.directory, class: null });
  assert.equal(classed(), 999);
});
