import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import * as fc from 'fast-check';
import { type DataRange, readArchive } from '../../client/archive/archive-reader.ts';
import { type ArchiveEntry, BLOCK_BYTES, headersOf, paddingOf } from '../../client/archive/pax.ts';

const run = promisify(execFile);

const PLAIN: ArchiveEntry = {
  kind: 'file',
  path: 'file',
  mode: 0o644,
  uid: 0,
  gid: 0,
  modifiedNs: '0',
  target: '',
  device: 0,
  dataBytes: 0,
  xattrs: new Map(),
  sparseBytes: null,
};

function archiveOf(members: readonly { readonly entry: ArchiveEntry; readonly data: Buffer }[]): Buffer {
  const pieces = members.flatMap(({ entry, data }) => [
    headersOf({ ...entry, dataBytes: data.length }),
    data,
    Buffer.alloc(paddingOf(data.length)),
  ]);
  return Buffer.concat([...pieces, Buffer.alloc(2 * BLOCK_BYTES)]);
}

interface ReadMember {
  readonly entry: ArchiveEntry;
  readonly ranges: readonly DataRange[];
  readonly data: Buffer;
}

async function membersOf(source: AsyncIterable<Uint8Array>): Promise<ReadMember[]> {
  const members: ReadMember[] = [];
  for await (const { entry, ranges, data } of readArchive(source)) {
    const pieces: Buffer[] = [];
    for await (const piece of data) pieces.push(piece);
    members.push({ entry, ranges, data: Buffer.concat(pieces) });
  }
  return members;
}

/** The bytes in pieces of this length: an archive does not arrive block by block. */
async function* inPieces(bytes: Buffer, length: number): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

test('all that is written to an archive is read again', async () => {
  const name = fc
    .string({ unit: 'grapheme', minLength: 1, maxLength: 120 })
    .filter((text) => !/[/\0]|^\.+$/.test(text));
  const path = fc.array(name, { minLength: 1, maxLength: 4 }).map((names) => names.join('/'));
  const members = fc.array(
    fc.record({
      path,
      kind: fc.constantFrom<ArchiveEntry['kind']>(
        'file',
        'directory',
        'symlink',
        'link',
        'fifo',
        'character',
        'block',
      ),
      mode: fc.integer({ min: 0, max: 0o7777 }),
      uid: fc.integer({ min: 0, max: 0xffff_ffff }),
      gid: fc.integer({ min: 0, max: 0xffff_ffff }),
      modifiedNs: fc.bigInt({ min: -(10n ** 18n), max: 4n * 10n ** 18n }).map(String),
      xattrs: fc.dictionary(
        fc.stringMatching(/^user\.[a-z=.]{1,20}$/).filter((key) => !key.includes('=')),
        fc.uint8Array({ maxLength: 300 }),
      ),
      data: fc.uint8Array({ maxLength: 1500 }),
      major: fc.integer({ min: 0, max: 0xfff }),
      minor: fc.integer({ min: 0, max: 0xfffff }),
      piece: fc.integer({ min: 1, max: 700 }),
    }),
    { minLength: 1, maxLength: 6 },
  );
  await fc.assert(
    fc.asyncProperty(members, async (drawn) => {
      const written = drawn.map(({ data, major, minor, xattrs, piece: _piece, ...rest }) => {
        const isDevice = rest.kind === 'character' || rest.kind === 'block';
        const bytes = rest.kind === 'file' ? Buffer.from(data) : Buffer.alloc(0);
        const entry: ArchiveEntry = {
          ...PLAIN,
          ...rest,
          target: rest.kind === 'symlink' || rest.kind === 'link' ? '../elsewhere' : '',
          device: isDevice ? (major << 8) + (minor & 0xff) + (minor >> 8) * 0x10_0000 : 0,
          dataBytes: bytes.length,
          xattrs: new Map(Object.entries(xattrs)),
        };
        return { entry, data: bytes };
      });
      const read = await membersOf(inPieces(archiveOf(written), drawn[0]?.piece ?? 1));
      const plain = (entry: ArchiveEntry) => ({
        ...entry,
        xattrs: [...entry.xattrs].map(([key, value]) => [key, Buffer.from(value).toString('hex')]),
      });
      assert.deepEqual(
        read.map(({ entry }) => plain(entry)),
        written.map(({ entry }) => plain(entry)),
      );
      assert.deepEqual(
        read.map(({ data }) => data),
        written.map(({ data }) => data),
      );
    }),
    { numRuns: 60 },
  );
});

test('a file whose path is too long for the header stays one file, also with the split after a slash', async () => {
  const paths = [98, 99, 100, 101, 102].flatMap((at) =>
    ['x', 'long'].map((name) => `${'d'.repeat(at - 1)}/${name}`),
  );
  const archive = archiveOf(
    paths.map((path) => ({ entry: { ...PLAIN, path }, data: Buffer.from(`of ${path}`) })),
  );
  const read = await membersOf(inPieces(archive, 4096));
  assert.deepEqual(
    read.map(({ entry, data }) => [entry.kind, entry.path, data.toString()]),
    paths.map((path) => ['file', path, `of ${path}`]),
  );
  for (let at = 0; at < archive.length; at += BLOCK_BYTES) {
    const name = archive.toString('latin1', at, at + 100);
    if (name.startsWith('ddd')) assert.notEqual(name.replace(/\0+$/, '').at(-1), '/', name);
  }
});

test('an entry of an old archive whose name ends with a slash is a directory', async () => {
  const header = Buffer.from(headersOf({ ...PLAIN, path: 'old/' })).subarray(-BLOCK_BYTES);
  const read = await membersOf(inPieces(Buffer.concat([header, Buffer.alloc(2 * BLOCK_BYTES)]), 512));
  assert.deepEqual(
    read.map(({ entry }) => [entry.kind, entry.path]),
    [['directory', 'old']],
  );
});

const tar = await run('tar', ['--version']).then(
  ({ stdout }) => (stdout.includes('GNU tar') ? false : 'tar is not that of GNU'),
  () => 'tar is not installed',
);

describe('tar', { skip: tar }, () => {
  let folder = '';
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'leasehold-archive-'));
  });
  after(() => rm(folder, { recursive: true }));

  for (const format of ['posix', 'gnu', 'ustar']) {
    test(`reads what it writes as ${format}`, async () => {
      const top = join(folder, format);
      const long = 'n'.repeat(90);
      await mkdir(join(top, long, 'deeper'), { recursive: true });
      await writeFile(join(top, long, 'deeper', 'file'), 'contents');
      await writeFile(join(top, 'empty'), '');
      await symlink('../target', join(top, 'link'));
      await utimes(join(top, 'empty'), 1_000_000, 981_173_106.123456);
      await run('tar', [`--format=${format}`, '-cf', `${top}.tar`, '-C', top, '.']);
      const members = await membersOf(createReadStream(`${top}.tar`));
      const found = new Map(members.map((member) => [member.entry.path.replace(/^\.\//, ''), member]));
      assert.equal(found.get(`${long}/deeper/file`)?.data.toString(), 'contents');
      assert.equal(found.get('link')?.entry.target, '../target');
      assert.equal(found.get(long)?.entry.kind, 'directory');
      const time = format === 'posix' ? /^981173106123/ : /^981173106000000000$/;
      assert.match(found.get('empty')?.entry.modifiedNs ?? '', time);
    });
  }

  test('reads holes as it writes them, and writes them as it reads them', async () => {
    const top = join(folder, 'sparse');
    await mkdir(top);
    await writeFile(join(top, 'holes'), 'begin');
    await truncate(join(top, 'holes'), 10_000_000);
    await run('tar', ['--format=posix', '--sparse', '-cf', `${top}.tar`, '-C', top, 'holes']);
    const [member] = await membersOf(createReadStream(`${top}.tar`));
    assert.equal(member?.entry.path, 'holes');
    assert.equal(member?.entry.sparseBytes, 10_000_000);
    assert.equal(member?.ranges[0]?.offset, 0);
    assert.equal(member?.data.subarray(0, 5).toString(), 'begin');

    const map = Buffer.alloc(BLOCK_BYTES);
    map.write('2\n1000000\n6\n3000000\n0\n');
    const entry = { ...PLAIN, path: 'dir/own', sparseBytes: 3_000_000 };
    await writeFile(
      join(folder, 'own.tar'),
      archiveOf([{ entry, data: Buffer.concat([map, Buffer.from('middle')]) }]),
    );
    await run('tar', ['-xf', join(folder, 'own.tar'), '-C', folder]);
    const bytes = await readFile(join(folder, 'dir/own'));
    assert.equal(bytes.length, 3_000_000);
    assert.equal(bytes.subarray(1_000_000, 1_000_006).toString(), 'middle');
    assert.ok(bytes.subarray(0, 1_000_000).every((byte) => byte === 0));
    assert.ok(bytes.subarray(1_000_006).every((byte) => byte === 0));
  });
});

const whole = archiveOf([{ entry: PLAIN, data: Buffer.from('contents of a file') }]);
const damaged: readonly { readonly name: string; readonly bytes: Buffer; readonly says: RegExp }[] = [
  { name: 'cut in its data', bytes: whole.subarray(0, 3 * BLOCK_BYTES + 4), says: /truncated/ },
  { name: 'without an end', bytes: whole.subarray(0, -2 * BLOCK_BYTES), says: /truncated/ },
  { name: 'no archive', bytes: Buffer.alloc(BLOCK_BYTES, 'x'), says: /not a tar archive/ },
  { name: 'with a flipped bit', bytes: Buffer.from(whole).fill(0xff, 10, 11), says: /damaged/ },
  {
    name: 'with an extended header that lies',
    bytes: Buffer.concat([
      whole.subarray(0, BLOCK_BYTES),
      Buffer.from('99 path=x\n').subarray(0),
      whole.subarray(BLOCK_BYTES + 10),
    ]),
    says: /extended header is damaged/,
  },
];
for (const { name, bytes, says } of damaged) {
  test(`an archive ${name} is refused`, async () => {
    await assert.rejects(membersOf(inPieces(bytes, 100)), says);
  });
}
