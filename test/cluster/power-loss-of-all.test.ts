import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { ServiceError } from '../../base/errors.ts';
import { runQuery } from '../../catalog/queries.ts';
import type { Attributes, VolumeInfo } from '../../wire/catalog-api.ts';
import { forgetBoot } from '../nemesis/disk.ts';
import { LoopDisk } from '../storage/loop-disk.ts';
import { ClusterMount, commandOk, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const SERVERS = 3;
const MAJORITY = 2;
const PAGE = readFileSync(new URL('../../docs/replication.md', import.meta.url), 'utf8');

/** Calls on a mount, in a separate process. */
const CALLS = `
import json, os, sys
os.chdir(sys.argv[1])
def fsync(path, flush=os.fsync):
    fd = os.open(path, os.O_RDONLY)
    flush(fd)
    os.close(fd)
def write(path, text, flags=0, flush=None):
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | flags, 0o644)
    os.write(fd, text.encode())
    if flush: flush(fd)
    return fd
exec(sys.argv[2])
`;

/** The catalog as one disk has it. */
class Catalog {
  readonly #db: Database.Database;

  constructor(folder: string) {
    this.#db = new Database(join(folder, 'catalog.db'));
  }

  at(path: string, volume = 'main'): Attributes | null {
    try {
      return runQuery<'resolve'>(this.#db, { kind: 'resolve', volume, path, follow: false }).attributes;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    }
  }

  volume(name: string): VolumeInfo | undefined {
    return runQuery<'volumes'>(this.#db, { kind: 'volumes' }).volumes.find((one) => one.name === name);
  }

  snapshots(volume: string): string[] {
    return runQuery<'snapshots'>(this.#db, { kind: 'snapshots', volume }).snapshots.map(({ name }) => name);
  }

  xattr(path: string, name: string): string {
    const inode = this.at(path)?.inode ?? 0;
    const { value } = runQuery<'xattr'>(this.#db, { kind: 'xattr', inode, name });
    return Buffer.from(value, 'base64').toString();
  }

  close(): void {
    this.#db.close();
  }
}

/** A change, and what every majority of the catalogs has to show of it after a loss of power. */
interface Step {
  readonly does: string;
  act(): Promise<unknown>;
  shows(catalog: Catalog): boolean;
}

const disks: LoopDisk[] = [];
let cluster: RealCluster;
let kernel: ClusterMount;
let native: ClusterMount;
let why: string | null = null;

before(async () => {
  for (let place = 0; place < SERVERS && why === null; place++) {
    const made = LoopDisk.make('ext4', 128);
    if (made.disk === null) why = made.why;
    else disks.push(made.disk);
  }
  if (why !== null) return;
  cluster = await RealCluster.start({
    servers: SERVERS,
    lease: '1s',
    data: (place) => (disks[place] as LoopDisk).folder,
  });
  await cluster.createVolume('main');
  kernel = await ClusterMount.start(cluster, 'main', '--transport', 'kernel');
  native = await ClusterMount.start(cluster, 'main', '--transport', 'native');
});

after(async () => {
  await kernel?.stop();
  await native?.stop();
  await cluster?.stop();
  for (const disk of disks) disk.abandon();
});

const calls = (mount: ClusterMount, code: string) => runOk('python3', ['-c', CALLS, mount.directory, code]);
const cli = (...argv: readonly string[]) =>
  commandOk(argv, { env: { LEASEHOLD_SERVERS: cluster.urls.join(',') } });

async function rest(method: string, path: string, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(`${cluster.urls[0]}${path}`, { method, ...init });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response;
}

function command(body: object): Promise<Response> {
  const session = Math.floor(Math.random() * 2 ** 50) + 1;
  return rest('POST', '/v1/catalog/commands', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ session, number: 1, since: 0, command: body }),
  });
}

function makeDirectory(path: string): Promise<Response> {
  const place = { volume: 'main', path };
  return command({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
}

const TUS = { 'tus-resumable': '1.0.0' };

const ROWS: Readonly<Record<string, readonly Step[]>> = {
  'mount: `fsync` of a directory': [
    {
      does: 'a file is renamed over another one',
      act: () =>
        calls(
          kernel,
          `
os.close(write('old', 'old', 0, os.fsync)); fsync('.')
os.close(write('new', 'newer', 0, os.fsync))
os.rename('new', 'old')
fsync('.')`,
        ),
      shows: (catalog) => catalog.at('/new') === null && catalog.at('/old') !== null,
    },
    {
      does: 'all other changes of names and attributes',
      act: () =>
        calls(
          kernel,
          `
for name in ['linked', 'gone', 'moded']: os.close(write(name, name))
os.mkdir('no-more'); fsync('.')
os.link('linked', 'second')
os.unlink('gone')
os.chmod('moded', 0o600)
os.chown('moded', 7, 8)
os.utime('moded', ns=(1, 1000000001))
os.setxattr('moded', 'user.a', b'kept')
os.rmdir('no-more')
os.mkdir('made')
os.symlink('made', 'symbolic')
os.mkfifo('fifo')
os.close(write('made/inside', 'inside'))
fsync('made')`,
        ),
      shows: (catalog) => {
        const moded = catalog.at('/moded');
        return (
          catalog.at('/second')?.links === 2 &&
          catalog.at('/gone') === null &&
          (moded?.mode ?? 0) % 0o1000 === 0o600 &&
          moded?.uid === 7 &&
          moded.modifiedNs === '1000000001' &&
          catalog.xattr('/moded', 'user.a') === 'kept' &&
          catalog.at('/no-more') === null &&
          catalog.at('/symbolic')?.target === 'made' &&
          catalog.at('/fifo')?.kind === 'fifo' &&
          catalog.at('/made/inside') !== null
        );
      },
    },
    {
      does: 'a change through the native binding',
      act: () => calls(native, `os.mkdir('by-native'); fsync('.')`),
      shows: (catalog) => catalog.at('/by-native') !== null,
    },
    {
      does: 'what another mount has changed',
      act: async () => {
        await calls(native, `os.mkdir('by-other')`);
        await calls(kernel, `fsync('made')`);
      },
      shows: (catalog) => catalog.at('/by-other') !== null,
    },
  ],
  "mount: `fsync` of the mount's root": [
    {
      does: 'files are removed one after the other, and others made',
      act: async () => {
        await calls(
          kernel,
          `
os.mkdir('many')
for i in range(20): os.close(write('many/%d' % i, 'x'))
fsync('.')
for i in range(20): os.unlink('many/%d' % i)
for i in range(20): os.close(write('many/n%d' % i, 'x'))
fsync('.')`,
        );
      },
      shows: (catalog) =>
        Array.from({ length: 20 }, (_, i) => i).every(
          (i) => catalog.at(`/many/${i}`) === null && catalog.at(`/many/n${i}`) !== null,
        ),
    },
  ],
  'mount: `fsync` or `fdatasync` of a file': [
    {
      does: 'a new file below new directories',
      act: () =>
        calls(
          kernel,
          `os.mkdir('d1'); os.mkdir('d1/d2'); os.close(write('d1/d2/f', 'd1d2f', 0, os.fdatasync))`,
        ),
      shows: (catalog) => catalog.at('/d1/d2/f') !== null,
    },
    {
      does: 'a file gets another name and mode before it is synced again',
      act: () =>
        calls(
          kernel,
          `
os.makedirs('d1', exist_ok=True)
fd = write('d1/before', 'x', 0, os.fsync)
# A file that has a primary, which has flushed the first name.
for i in range(3): os.write(fd, b'x'); os.fsync(fd)
os.rename('d1/before', 'd1/behind')
os.fchmod(fd, 0o640)
os.fsync(fd)`,
        ),
      shows: (catalog) =>
        catalog.at('/d1/before') === null && (catalog.at('/d1/behind')?.mode ?? 0) % 0o1000 === 0o640,
    },
  ],
  'mount: `write` with `O_SYNC` or `O_DSYNC`': [
    ...(['kernel', 'native'] as const).map((transport) => ({
      does: `a new file, with transport=${transport}`,
      act: () => {
        const code = `
fd = os.open('sync-${transport}', os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o644)
for part in ['a', 'l']: os.write(fd, part.encode())
os.rename('sync-${transport}', 'synced-${transport}')
os.write(fd, b'l')`;
        return calls(transport === 'kernel' ? kernel : native, code);
      },
      shows: (catalog: Catalog) =>
        catalog.at(`/sync-${transport}`) === null && catalog.at(`/synced-${transport}`) !== null,
    })),
  ],
  'REST: a change under `/v1/files`, `/v1/uploads`, `/v1/snapshots`, `/v1/trash`': [
    {
      does: 'PUT of a directory',
      act: () => rest('PUT', '/v1/files/main/rest/'),
      shows: (catalog) => catalog.at('/rest') !== null,
    },
    {
      does: 'PUT of a directory whose first answer was lost',
      act: async () => {
        await makeDirectory('/again');
        await rest('PUT', '/v1/files/main/again/');
      },
      shows: (catalog) => catalog.at('/again') !== null,
    },
    {
      does: 'PUT of a file, with the directories that it needs',
      act: () => rest('PUT', '/v1/files/main/rest/a/b/f?parents=true', { body: 'restful' }),
      shows: (catalog) => catalog.at('/rest/a/b/f') !== null,
    },
    {
      does: 'POST with copy-to',
      act: () => rest('POST', '/v1/files/main/rest/a/b/f?copy-to=/rest/copy'),
      shows: (catalog) => catalog.at('/rest/copy') !== null,
    },
    {
      does: 'POST with move-to',
      act: () => rest('POST', '/v1/files/main/rest/copy?move-to=/rest/moved'),
      shows: (catalog) => catalog.at('/rest/copy') === null && catalog.at('/rest/moved') !== null,
    },
    {
      does: 'DELETE of a file',
      act: () => rest('DELETE', '/v1/files/main/rest/moved'),
      shows: (catalog) => catalog.at('/rest/moved') === null,
    },
    {
      does: 'DELETE of an empty directory',
      act: async () => {
        await rest('PUT', '/v1/files/main/rest/empty/');
        await rest('POST', '/v1/catalog/flush');
        await rest('DELETE', '/v1/files/main/rest/empty/');
      },
      shows: (catalog) => catalog.at('/rest/empty') === null,
    },
    {
      does: 'DELETE of a tree',
      act: () => rest('DELETE', '/v1/files/main/rest/a/?recursive=true'),
      shows: (catalog) => catalog.at('/rest/a') === null && catalog.at('/rest') !== null,
    },
    {
      does: 'an upload in pieces is completed, and another one is ended',
      act: async () => {
        const created = await rest('POST', '/v1/files/main/rest/pieces', {
          headers: { ...TUS, 'upload-length': '5' },
        });
        const at = created.headers.get('location') ?? '';
        const headers = { ...TUS, 'upload-offset': '0', 'content-type': 'application/offset+octet-stream' };
        await rest('PATCH', at, { headers, body: 'piece' });
        const ended = await rest('POST', '/v1/files/main/rest/ended', {
          headers: { ...TUS, 'upload-length': '5' },
        });
        await rest('DELETE', ended.headers.get('location') ?? '', { headers: TUS });
      },
      shows: (catalog) => catalog.at('/rest/pieces') !== null && catalog.at('/rest/ended') === null,
    },
    {
      does: 'PUT of a snapshot, and DELETE of another one',
      act: async () => {
        await rest('PUT', '/v1/snapshots/main/kept');
        await rest('PUT', '/v1/snapshots/main/dropped');
        await rest('DELETE', '/v1/snapshots/main/dropped');
      },
      shows: (catalog) => catalog.snapshots('main').join() === 'kept',
    },
  ],
  'REST: `POST /v1/catalog/flush`': [
    {
      does: 'a command and a flush',
      act: async () => {
        await makeDirectory('/raw');
        await rest('POST', '/v1/catalog/flush');
      },
      shows: (catalog) => catalog.at('/raw') !== null,
    },
  ],
  'REST: a command of operators by `POST /v1/catalog/commands`': [
    {
      does: 'a volume is made',
      act: () => cluster.createVolume('by-rest'),
      shows: (catalog) => catalog.volume('by-rest') !== undefined,
    },
    {
      does: 'its quota is set',
      act: () => command({ kind: 'volume-set', name: 'by-rest', quotaBytes: 123_456 }),
      shows: (catalog) => catalog.volume('by-rest')?.quotaBytes === 123_456,
    },
  ],
  'REST: `POST /v1/data/{file}/flush`, `/seal`': [
    {
      does: 'a file is made, written and flushed',
      act: async () => {
        const place = { volume: 'main', path: '/data' };
        const made = await command({
          kind: 'create-file',
          place,
          mode: 0o644,
          uid: 0,
          gid: 0,
          exclusive: true,
        });
        const { attributes } = (await made.json()) as { attributes: Attributes };
        const at = `/v1/data/${attributes.inode}`;
        const headers = { 'content-type': 'application/octet-stream' };
        await rest('PUT', `${at}?offset=0&session=9&number=1&since=0`, { headers, body: 'data' });
        await rest('POST', `${at}/flush`);
      },
      shows: (catalog) => catalog.at('/data') !== null,
    },
  ],
  'command line: a command that succeeds': [
    {
      does: 'volume create',
      act: () => cli('volume', 'create', 'by-line', '--replicas', '3'),
      shows: (catalog) => catalog.volume('by-line') !== undefined,
    },
    {
      does: 'mkdir',
      act: () => cli('mkdir', 'main:/by-line'),
      shows: (catalog) => catalog.at('/by-line') !== null,
    },
    {
      does: 'put',
      act: () => cli('put', fileURLToPath(import.meta.url), 'main:/by-line/put'),
      shows: (catalog) => catalog.at('/by-line/put') !== null,
    },
    {
      does: 'mv',
      act: () => cli('mv', 'main:/by-line/put', 'main:/by-line/moved'),
      shows: (catalog) => catalog.at('/by-line/put') === null && catalog.at('/by-line/moved') !== null,
    },
    {
      does: 'rm',
      act: async () => {
        await rest('POST', '/v1/catalog/flush');
        await cli('rm', 'main:/by-line/moved');
      },
      shows: (catalog) => catalog.at('/by-line/moved') === null && catalog.at('/by-line') !== null,
    },
  ],
};

/** First and second cells of the table. */
function tableOf(page: string): readonly (readonly [string, string])[] {
  const section = page.slice(page.indexOf('### Loss of power of all servers'));
  const rows = section.slice(0, section.indexOf('\n## ')).matchAll(/^\| (.*) \| (.*) \|$/gm);
  return [...rows].map(([, answered = '', survives = '']) => [answered, survives] as const).slice(2);
}

test('each row of the table that promises something is tested below', () => {
  const promised = tableOf(PAGE).filter(([, survives]) => !survives.startsWith('no promise'));
  assert.deepEqual(
    promised.map(([answered]) => answered),
    Object.keys(ROWS),
  );
});

test('README.md, mount.md, guide.md and ARCHITECTURE.md refer to the one table', () => {
  for (const file of [
    '../../README.md',
    '../../docs/mount.md',
    '../../docs/guide.md',
    '../../docs/ARCHITECTURE.md',
  ]) {
    const text = readFileSync(new URL(file, import.meta.url), 'utf8');
    assert.match(text, /replication\.md#loss-of-power-of-all-servers\)/, file);
  }
});

/** Whether the catalog shows the change on a copy of the disk as it is now. */
function isOn(disk: LoopDisk, shows: Step['shows'], t: TestContext): boolean {
  const copy = disk.ifPowerFailed();
  try {
    const catalog = new Catalog(copy.folder);
    try {
      return shows(catalog);
    } finally {
      catalog.close();
    }
  } catch (error) {
    t.diagnostic(`A copy of the catalog: ${String(error)}`);
    return false;
  } finally {
    copy.remove();
  }
}

/**
 * Method: after each step the test copies the images of the disks as they are, which is what a power failure would
 * leave: data that no program synced is in the kernel's memory only. A majority of the copies has to show the change,
 * because after a loss of power of all servers the best of any majority becomes the state of all.
 */
for (const [row, steps] of Object.entries(ROWS)) {
  for (const { does, act, shows } of steps) {
    test(`${row}: ${does}`, async (t) => {
      if (why !== null) return t.skip(why);
      await act();
      let showing = 0;
      // Further copies are not needed once a majority shows it.
      for (const disk of disks) if (showing < MAJORITY && isOn(disk, shows, t)) showing++;
      assert.equal(showing, MAJORITY, 'A majority of the disks has it');
    });
  }
}

test('after a power failure of all servers the cluster serves what it has answered', async (t) => {
  if (why !== null) return t.skip(why);
  await Promise.all(cluster.ids.map((id) => cluster.kill(id)));
  for (const disk of disks) {
    if (!disk.cutPower()) return t.skip('this kernel cannot shut a file system down');
  }
  for (const disk of disks) {
    disk.repower();
    forgetBoot(disk.folder);
  }
  for (const id of cluster.ids) cluster.spawn(id);
  await cluster.ready();
  const contents = async (path: string) => (await rest('GET', `/v1/files/main${path}`)).text();
  assert.equal(await contents('/old'), 'newer');
  assert.equal(await contents('/d1/d2/f'), 'd1d2f');
  assert.equal(await contents('/synced-kernel'), 'all');
  assert.equal(await contents('/synced-native'), 'all');
  assert.equal(await contents('/rest/pieces'), 'piece');
  assert.equal(await contents('/data'), 'data');
  await until('all is whole again', () =>
    cli('status').then(
      () => true,
      () => false,
    ),
  );
});
