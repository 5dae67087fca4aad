import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';
import { Catalog, main } from './fixture.ts';
import { assertSound } from './soundness.ts';

type Bear = Extract<Command, { kind: 'bear' }>;

const OWNER = 77;
const MINUTE_NS = 60_000_000_000n;

function bearing(...files: { parent: number; name: string; inode: number; sizeBytes?: number }[]): Bear {
  return {
    kind: 'bear',
    owner: OWNER,
    replicas: ['s1', 's2', 's3'],
    objectBytes: 131_072,
    files: files.map((file) => ({
      sizeBytes: 4096,
      ...{ mode: 0o640, uid: 5, gid: 6, contents: { epoch: 1, seq: 1 } },
      ...file,
    })),
  };
}

function codesOf(files: CommandResults['bear']['files']): string[] {
  return Object.values(files).map((file) => (file !== null && 'code' in file ? file.code : 'born'));
}

function reserve(catalog: Catalog, count = 10): number {
  return catalog.run({ kind: 'reserve-inodes', owner: OWNER, count, members: [['s1', 's2', 's3']] }).first;
}

test('files are created with contents that are settled', () => {
  const catalog = new Catalog();
  const first = reserve(catalog);
  const parent = catalog.root;
  const [a, b] = [first, first + 1];
  const bear = bearing({ parent, name: 'a', inode: a }, { parent, name: 'b', inode: b, sizeBytes: 10 });
  const { files, limited } = catalog.run(bear);
  assert.deepEqual(files, { [a]: null, [b]: null });
  assert.equal(limited, false);
  const attributes = catalog.at('/a');
  assert.equal(attributes.inode, a);
  assert.equal(attributes.live, false);
  assert.equal(attributes.sizeBytes, 4096);
  assert.deepEqual(attributes.contents, { epoch: 1, seq: 1 });
  assert.deepEqual(attributes.replicas, ['s1', 's2', 's3']);
  assert.deepEqual([attributes.mode, attributes.uid, attributes.gid, attributes.links], [0o640, 5, 6, 1]);
  const { volume } = catalog.query({ kind: 'volume', name: 'main' });
  assert.deepEqual(
    [volume.inodes, volume.usedBytes, volume.namedInodes, volume.namedBytes],
    [3, 4106, 3, 4106],
  );
  assert.equal(catalog.inode(parent).modifiedNs, catalog.timeNs.toString());
  assertSound(catalog.db);
});

test('a file that is created by number may set its own times', () => {
  const catalog = new Catalog();
  const reserved = { inode: reserve(catalog), owner: OWNER };
  const times = { accessedNs: '3', modifiedNs: '5', changedNs: '7' };
  const place = { parent: catalog.root, name: 'made' };
  const node = { kind: 'create-file', place, mode: 0o600, uid: 1, gid: 1, exclusive: true } as const;
  const { attributes } = catalog.run({ ...node, reserved, times });
  const { accessedNs, modifiedNs, changedNs } = attributes;
  assert.deepEqual({ accessedNs, modifiedNs, changedNs }, times);
  assert.equal(attributes.live, true);
});

test('a refused creation does not affect the others, and its number stays usable', () => {
  const catalog = new Catalog();
  const first = reserve(catalog);
  const parent = catalog.root;
  catalog.file('/taken');
  const { files } = catalog.run(
    bearing(
      { parent, name: 'taken', inode: first },
      { parent, name: 'new', inode: first + 1 },
      { parent, name: 'new', inode: first + 2 },
      { parent: 9_999_999, name: 'x', inode: first + 3 },
      { parent, name: 'others', inode: first + 10 },
    ),
  );
  const codes = codesOf(files);
  assert.deepEqual(codes, ['exists', 'born', 'exists', 'not-found', 'precondition-failed']);
  const reserved = { inode: first, owner: OWNER };
  const create = { kind: 'create-file', mode: 0o600, uid: 1, gid: 1, exclusive: true, reserved } as const;
  const made = catalog.run({ ...create, place: { parent, name: 'made' } });
  assert.equal(made.attributes.inode, first);
  assert.equal(made.created, true);
  catalog.refuse('precondition-failed', { ...create, place: { parent, name: 'twice' } });
});

test('a file with a reserved number has the members of the reservation, whichever command creates it', () => {
  const catalog = new Catalog();
  const sets = [
    ['s4', 's1', 's2'],
    ['s5', 's3', 's4'],
  ];
  const { first } = catalog.run({ kind: 'reserve-inodes', owner: OWNER, count: 5, members: sets });
  const parent = catalog.root;
  const create = (inode: number) =>
    ({
      ...({ kind: 'create-file', mode: 0o600, uid: 1, gid: 1, exclusive: true } as const),
      place: { parent, name: `made-${inode}` },
      reserved: { inode, owner: OWNER },
    }) as const;
  // The catalog would now choose other servers: `Catalog.context`.
  assert.deepEqual(catalog.run(create(first)).attributes.replicas, sets[0]);
  assert.deepEqual(catalog.run(create(first + 4)).attributes.replicas, sets[1]);
  const [left, right] = [first + 1, first + 3];
  const bear = (replicas: string[], ...inodes: number[]): Bear => ({
    ...bearing(...inodes.map((inode) => ({ parent, name: `borne-${inode}`, inode }))),
    replicas,
  });
  const other = catalog.run(bear(['s1', 's2', 's3'], left));
  assert.deepEqual(codesOf(other.files), ['precondition-failed']);
  // Each file of one command follows its own reservation.
  const swapped = {
    ...bear(sets[1] ?? [], left, right),
    elsewhere: [{ replicas: sets[0] ?? [], inodes: [right] }],
  };
  assert.deepEqual(codesOf(catalog.run(swapped).files), ['precondition-failed', 'precondition-failed']);
  const each = {
    ...bear(sets[0] ?? [], left, right),
    elsewhere: [{ replicas: sets[1] ?? [], inodes: [right] }],
  };
  assert.deepEqual(catalog.run(each).files, { [left]: null, [right]: null });
  assert.deepEqual([catalog.inode(left).replicas, catalog.inode(right).replicas], sets);
});

test('numbers are reserved with members only; older reservations create no file if members could differ', () => {
  const catalog = new Catalog();
  catalog.refuse('precondition-failed', { kind: 'reserve-inodes', owner: OWNER, count: 5 });
  const first = reserve(catalog, 2);
  // As an earlier release has left it.
  catalog.db.exec("UPDATE reserved SET members = ''");
  const create = (inode: number, name: string) =>
    ({
      ...({ kind: 'create-file', mode: 0o600, uid: 1, gid: 1, exclusive: true } as const),
      place: { parent: catalog.root, name },
      reserved: { inode, owner: OWNER },
    }) as const;
  const register = (id: string): void => {
    const about = { url: `http://${id}`, zone: '', storageId: id, freeBytes: 1, totalBytes: 1 };
    catalog.run({ kind: 'server-register', id, ...about });
  };
  for (const id of ['s1', 's2', 's3']) register(id);
  // With as many servers as replicas, only one member set is possible.
  assert.deepEqual(catalog.run(create(first, 'a')).attributes.replicas, ['s1', 's2', 's3']);
  register('s4');
  catalog.refuse('precondition-failed', create(first + 1, 'b'));
});

test('only its owner uses a number, and no number is used twice', () => {
  const catalog = new Catalog();
  const first = reserve(catalog, 2);
  const parent = catalog.root;
  const create = { kind: 'create-file', mode: 0o600, uid: 1, gid: 1, exclusive: true } as const;
  catalog.refuse('precondition-failed', {
    ...create,
    place: { parent, name: 'stolen' },
    reserved: { inode: first, owner: OWNER + 1 },
  });
  assert.ok(catalog.file('/next').inode >= first + 2);
  catalog.run(bearing({ parent, name: 'a', inode: first }));
  catalog.run({ kind: 'unlink', place: main('/a') });
  catalog.timeNs += 3n;
  catalog.run({ kind: 'collect', beforeNs: catalog.timeNs.toString(), countMax: 10 });
  const { files } = catalog.run(bearing({ parent, name: 'a', inode: first }));
  assert.deepEqual(codesOf(files), ['precondition-failed']);
});

test('an ordinary create finds the file of a creation with contents whose answer was lost, by its number', () => {
  const catalog = new Catalog();
  const first = reserve(catalog);
  const parent = catalog.root;
  catalog.run(bearing({ parent, name: 'a', inode: first }));
  const again = catalog.run({
    ...{ kind: 'create-file', mode: 0o600, uid: 1, gid: 1, exclusive: true },
    place: { parent, name: 'a' },
    reserved: { inode: first, owner: OWNER },
  });
  assert.equal(again.created, false);
  assert.equal(again.attributes.inode, first);
});

test('contents are kept while their number is reserved; the number becomes void before they are removed', () => {
  const catalog = new Catalog();
  const first = reserve(catalog, 3);
  const parent = catalog.root;
  catalog.run(bearing({ parent, name: 'a', inode: first + 1 }));
  const asked = { kind: 'placed', inodes: [first, first + 1, first + 2, first + 3] } as const;
  const placed = catalog.query({ ...asked, inodes: [...asked.inodes] });
  assert.deepEqual(
    placed.files.map(({ inode }) => inode),
    [first + 1],
  );
  assert.deepEqual(placed.reserved, [first, first + 2]);
  catalog.timeNs += 14n * MINUTE_NS;
  catalog.run({ kind: 'collect', beforeNs: '0', countMax: 10 });
  assert.deepEqual(catalog.query({ ...asked, inodes: [...asked.inodes] }).reserved, [first, first + 2]);
  catalog.timeNs += 2n * MINUTE_NS;
  catalog.run({ kind: 'collect', beforeNs: '0', countMax: 10 });
  assert.deepEqual(catalog.query({ ...asked, inodes: [...asked.inodes] }).reserved, []);
  const { files } = catalog.run(bearing({ parent, name: 'late', inode: first }));
  assert.deepEqual(codesOf(files), ['precondition-failed']);
});

test('files get the present settings of their own volumes', () => {
  const catalog = new Catalog();
  const { inode } = catalog.file('/a');
  const { volume } = catalog.run({ kind: 'volume-create', name: 'other', replicas: 3, objectBytes: 8192 });
  const { attributes } = catalog.run({
    ...{ kind: 'create-file', mode: 0o600, uid: 1, gid: 1, exclusive: true },
    place: { parent: volume.root, name: 'b' },
  });
  const settings = () =>
    catalog
      .query({ kind: 'placed', inodes: [inode, attributes.inode], settings: true })
      .files.map((file) => file.settings);
  const main = { volume: 'main', policy: 'quorum', objectBytes: 131_072, limited: false };
  assert.deepEqual(settings(), [main, { ...main, volume: 'other', objectBytes: 8192 }]);
  catalog.run({ kind: 'volume-set', name: 'other', quotaBytes: 10_000 });
  assert.deepEqual(settings(), [main, { ...main, volume: 'other', objectBytes: 8192, limited: true }]);
});

test("new files inherit their directory's group and default list", () => {
  const catalog = new Catalog();
  const first = reserve(catalog);
  const { inode: parent } = catalog.directory('/d', 0o2775);
  const { files } = catalog.run(bearing({ parent, name: 'a', inode: first }));
  assert.deepEqual(files, { [first]: { mode: 0o640, gid: 20, xattrs: 0 } });
  assert.equal(catalog.at('/d/a').gid, 20);
});

test('quotas hold for all files of one command together', () => {
  const catalog = new Catalog();
  const parent = catalog.root;
  catalog.run({ kind: 'volume-set', name: 'main', quotaBytes: 10_000, quotaInodes: 0 });
  const first = reserve(catalog);
  const births = [0, 1, 2].map((at) => ({ parent, name: `f${at}`, inode: first + at }));
  const { files, limited } = catalog.run(bearing(...births));
  assert.equal(limited, true);
  assert.deepEqual(codesOf(files), ['born', 'born', 'quota-exceeded']);
  const { volume } = catalog.query({ kind: 'volume', name: 'main' });
  assert.equal(volume.namedBytes, 8192);
  assert.equal(catalog.at('/f0').allowedBytes, 4096);
});

test('a forgone request has no effect; if it was executed before, forgo answers its outcome', () => {
  const catalog = new Catalog();
  const first = reserve(catalog);
  const parent = catalog.root;
  const forgo = { kind: 'forgo' } as const;
  const late = bearing({ parent, name: 'late', inode: first });
  assert.deepEqual(catalog.runAs(9, 1, forgo, late), [{}, {}]);
  assert.deepEqual(catalog.names(), []);
  const [before, told] = catalog.runAs(9, 2, late, forgo);
  assert.deepEqual(told, before);
  assert.deepEqual(catalog.names(), ['late']);
});

test('a void number creates no file; a used number is not void', () => {
  const catalog = new Catalog();
  const { first } = catalog.run({ kind: 'reserve-inodes', owner: 7, count: 3, members: [['s1', 's2']] });
  const node = { mode: 0o600, uid: 1, gid: 2, exclusive: true };
  const create = (path: string, inode: number) =>
    ({ kind: 'create-file', place: main(path), ...node, reserved: { inode, owner: 7 } }) as const;
  catalog.run(create('/a', first));
  const inodes = [first, first + 1];
  assert.deepEqual(
    catalog.run({ kind: 'void-inodes', owner: 8, inodes }),
    { voided: [] },
    'Of another client',
  );
  assert.deepEqual(catalog.run({ kind: 'void-inodes', owner: 7, inodes }), { voided: [first + 1] });
  catalog.refuse('precondition-failed', create('/b', first + 1));
  const { reserved } = catalog.query({ kind: 'placed', inodes: [first + 1, first + 2] });
  assert.deepEqual(reserved, [first + 2]);
  catalog.run(create('/b', first + 2));
});
