/**
 * Goal: a chain of backups restores each of its snapshots exactly; a chain that is damaged, truncated, incomplete or
 * mixed up is refused with the name of the backup; an interrupted backup leaves none.
 * Method: a real cluster, random changes between backups, and the command line.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Prng } from '../../base/prng.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { assertRefused, LAUNCHER, printedBy } from '../client/run-cli.ts';
import { isLong } from '../long.ts';
import { RandomChanges } from './random-changes.ts';
import { RealCluster, until } from './real-cluster.ts';
import { treeText } from './tree-text.ts';

const ROUNDS = isLong ? 12 : 3;
const CHANGES = isLong ? 150 : 40;

const cluster = await RealCluster.start({ flags: ['--op-timeout', '10s'] });
after(() => cluster.stop());
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
const folder = mkdtempSync(join(tmpdir(), 'leasehold-backup-'));
after(() => rmSync(folder, { recursive: true }));
const keyFile = join(folder, 'key');
writeFileSync(keyFile, 'b25lIHNlY3JldCBmb3IgYWxsIHRoZSB0ZXN0cyBoZXJl\n');
const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };

function cli(...words: string[]): Promise<string> {
  return printedBy(words, { env });
}

function refused(exit: number, why: RegExp, ...words: string[]): Promise<void> {
  return assertRefused(words, exit, why, { env });
}

interface WrittenJson {
  readonly name: string;
  readonly snapshot: string;
  readonly records: number;
  readonly bytes: number;
}

/** Backs up after each round of changes. @returns the tree of each snapshot */
async function makeChain(
  volume: string,
  place: string,
  options: readonly string[],
): Promise<Map<string, string[]>> {
  await cluster.createVolume(volume);
  const changes = new RandomChanges(client, volume, new Prng(volume.length));
  const trees = new Map<string, string[]>();
  for (let round = 0; round < ROUNDS; round++) {
    await changes.make(CHANGES);
    const since = round === 0 ? [] : ['--since', 'last'];
    const written = JSON.parse(
      await cli('backup', volume, place, ...since, ...options, '--json'),
    ) as WrittenJson;
    trees.set(written.snapshot, await treeText(client, `${volume}@${written.snapshot}`));
  }
  return trees;
}

const encrypted = join(folder, 'encrypted');
mkdirSync(encrypted);
let trees = new Map<string, string[]>();

test('each snapshot of an encrypted chain is restored as it was', async () => {
  trees = await makeChain('encrypted', encrypted, ['--key-file', keyFile]);
  const names = readdirSync(encrypted);
  assert.equal(names.length, ROUNDS);
  assert.equal(names.filter((name) => name.endsWith('.full.lhb')).length, 1);
  for (const name of names)
    assert.ok(!readFileSync(join(encrypted, name)).includes('contents of'), 'It is encrypted');
  const { snapshots } = await client.query({ kind: 'snapshots', volume: 'encrypted' });
  assert.deepEqual(
    snapshots.map(({ name }) => name),
    [[...trees.keys()].at(-1)],
    'Only the latest base stays',
  );
  for (const [index, [snapshot, tree]] of [...trees].entries()) {
    const volume = `restored-${index}`;
    await cluster.createVolume(volume);
    await cli('restore', encrypted, volume, '--snapshot', snapshot, '--key-file', keyFile);
    assert.deepEqual(await treeText(client, volume), tree);
  }
  const verified = JSON.parse(await cli('backup', 'verify', encrypted, '--key-file', keyFile, '--json'));
  assert.equal(verified.verified.length, ROUNDS);
  assert.deepEqual(verified.problems, []);
});

test('an increment has what has changed, and no more', async () => {
  await cluster.createVolume('few');
  const changes = new RandomChanges(client, 'few', new Prng(3));
  await changes.make(CHANGES);
  const place = join(folder, 'few/');
  const full = JSON.parse(await cli('backup', 'few', place, '--json')) as WrittenJson;
  await changes.put('/one-more', 'contents of one more');
  const next = JSON.parse(await cli('backup', 'few', place, '--since', 'last', '--json')) as WrittenJson;
  assert.ok(full.records > 10);
  assert.deepEqual([next.records, next.bytes], [2, 'contents of one more'.length], 'The root and the file');
  await refused(4, /there is no backup of snapshot few@none/, 'backup', 'few', place, '--since', 'none');
  await cli('snapshot', 'rm', `few@${next.snapshot}`);
  await refused(4, /its snapshot few@chain-.* was removed/, 'backup', 'few', place, '--since', 'last');
});

test('a single file continues another one beside it', async () => {
  await cluster.createVolume('single');
  const changes = new RandomChanges(client, 'single', new Prng(4));
  await changes.make(10);
  const [first, second] = [join(folder, 'files/a.lhb'), join(folder, 'files/b.lhb')];
  await cli('snapshot', 'create', 'single@monday');
  await cli('backup', 'single@monday', first);
  await changes.make(10);
  await cli('snapshot', 'create', 'single@tuesday');
  await cli('backup', 'single@tuesday', second, '--since', 'monday');
  await cluster.createVolume('single-restored');
  await cli('restore', second, 'single-restored');
  assert.deepEqual(await treeText(client, 'single-restored'), await treeText(client, 'single@tuesday'));
  await refused(1, /exists already/, 'backup', 'single@tuesday', second);
  await refused(2, /tar archive/, 'backup', 'single', join(folder, 'archive.tar'), '--since', 'monday');
});

test('what is wrong with a chain is found and named', async () => {
  const names = readdirSync(encrypted).sort();
  const [full = '', second = '', last = ''] = [names[0], names[1], names.at(-1)];
  const key = ['--key-file', keyFile];
  const broken = async (why: RegExp, spoil: (place: string) => void, exit = 8): Promise<void> => {
    const place = mkdtempSync(join(folder, 'broken-'));
    cpSync(encrypted, place, { recursive: true });
    spoil(place);
    await refused(exit, why, 'backup', 'verify', place, ...key);
  };
  const flip = (path: string, at: (length: number) => number): void => {
    const bytes = readFileSync(path);
    const index = at(bytes.length);
    bytes[index] = (bytes[index] as number) ^ 1;
    writeFileSync(path, bytes);
  };
  await broken(
    new RegExp(`${second}: it continues the backup of snapshot "chain-.*which is missing`),
    (place) => rmSync(join(place, full)),
  );
  await broken(new RegExp(`${full}: it is damaged: chunk`), (place) =>
    flip(join(place, full), (length) => length - 20),
  );
  await broken(new RegExp(`${last}: it is damaged: chunk`), (place) =>
    flip(join(place, last), (length) => length - 1),
  );
  await broken(/its header is damaged|no backup of this program/, (place) =>
    flip(join(place, second), () => 60),
  );
  await broken(new RegExp(`${second}: it is truncated`), (place) =>
    truncateSync(join(place, second), readFileSync(join(place, second)).length - 30),
  );
  await broken(/there are bytes after its end/, (place) =>
    writeFileSync(join(place, full), Buffer.concat([readFileSync(join(place, full)), Buffer.from('x')])),
  );
  // The header of one with the chunks of another.
  await broken(/damaged|another one/, (place) => {
    const [a, b] = [readFileSync(join(place, full)), readFileSync(join(place, last))];
    const headerEnd = (bytes: Buffer): number =>
      bytes.indexOf('\n', bytes.indexOf('\n', bytes.indexOf('\n') + 1) + 1) + 1;
    writeFileSync(join(place, last), Buffer.concat([b.subarray(0, headerEnd(b)), a.subarray(headerEnd(a))]));
  });
  await refused(8, /it is encrypted/, 'backup', 'verify', encrypted);
  const other = join(folder, 'other-key');
  writeFileSync(other, 'another secret that is long enough');
  await refused(8, /another one/, 'backup', 'verify', encrypted, '--key-file', other);
  writeFileSync(other, 'short');
  await refused(2, /less than 12 bytes/, 'backup', 'verify', encrypted, '--key-file', other);

  const place = mkdtempSync(join(folder, 'missing-'));
  cpSync(encrypted, place, { recursive: true });
  rmSync(join(place, second));
  await cluster.createVolume('unrestored');
  await refused(
    8,
    /The chain is broken: .*increment.lhb continues the backup of snapshot "chain-/,
    'restore',
    place,
    'unrestored',
    ...key,
  );
  // What is before the gap can be restored.
  await cli('restore', place, 'unrestored', ...key, '--snapshot', [...trees.keys()][0] as string);
});

test('a backup that is killed leaves no backup', async () => {
  await cluster.createVolume('killed');
  const file = await client.command({
    ...{
      kind: 'create-file',
      place: { volume: 'killed', path: '/large' },
      mode: 0o644,
      uid: 0,
      gid: 0,
      exclusive: true,
    },
  });
  const handle = client.openFile(file.attributes.inode);
  for (let piece = 0; piece < 48; piece++) await handle.write(piece * 2 ** 20, Buffer.alloc(2 ** 20, piece));
  const place = join(folder, 'killed/');
  const child = spawn(process.execPath, [LAUNCHER, 'backup', 'killed', place], {
    env: { ...process.env, ...env },
  });
  const isWriting = async (): Promise<boolean> => {
    try {
      return readdirSync(place).some((name) => name.endsWith('.part'));
    } catch {
      return false;
    }
  };
  await until('the backup writes', isWriting);
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.deepEqual(
    readdirSync(place).filter((name) => name.endsWith('.lhb')),
    [],
  );
  await cli('backup', 'killed', place);
  await cli('backup', 'verify', place);
});
