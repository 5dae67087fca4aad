/**
 * Goal: a volume with a catalog of its own survives what the root catalog's volumes survive, and its troubles are its
 * own: whatever a mount's fsync or a server's answer acknowledged is there at the end.
 * Method: five real servers; a mount and a REST client write to each of two volumes, one in the root catalog and one
 * with its own, while servers are killed, or lose their data folder.
 */
import assert from 'node:assert/strict';
import { existsSync, rmSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { catalogCell, catalogOfInode } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { systemWorld } from '../../world/system-world.ts';
import { runCli } from '../client/run-cli.ts';
import { noMount } from '../fuse/mounted.ts';
import { ClusterMount, run } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const REQUEST_MS = 30_000;
/** Creates the file, writes and syncs it. */
const WRITE = 'set -C; printf %s "$1" > "$0"; sync "$0"';
/** Longer than any call on a mount. */
const WRITE_MS_MAX = 300_000;
/** Pause of a writer after an answer. */
const PAUSE_MS = 250;
/** For a request that must fail soon. */
const VAIN_MS = 3_000;
const MEMBERS = ['s1', 's2', 's3'];

const cluster = await RealCluster.start({
  servers: 5,
  flags: ['--replace-after', '1h', '--gc-grace', '1500ms', '--lease-idle', '1s', '--named-lease-max', '2s'],
});
after(() => cluster.stop());
await cluster.createVolume('main', 5);
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
const settings = { replicas: 5, objectBytes: 131_072 };
await client.command({ kind: 'catalog-create', name: 'own', members: MEMBERS, ...settings });
await client.command({ kind: 'catalog-create', name: 'other', members: ['s3', 's4', 's5'], ...settings });
const { volume } = await client.query({ kind: 'volume', name: 'own' });
const number = catalogOfInode(volume.root);

async function put(at: string, path: string, signal = AbortSignal.timeout(REQUEST_MS)): Promise<boolean> {
  const answer = await fetch(`${cluster.url(at)}/v1/files/${path}`, { method: 'PUT', body: path, signal });
  return answer.status < 300;
}

async function row(): Promise<ListedCatalog> {
  const { catalogs } = await client.query({ kind: 'catalogs' });
  const found = catalogs.find(({ name }) => name === 'own');
  assert.ok(found !== undefined);
  return found;
}

async function cli(...argv: readonly string[]) {
  const servers = [...cluster.ids, 's6'].filter((id) => cluster.isRunning(id)).map((id) => cluster.url(id));
  return runCli(argv, { env: { LEASEHOLD_SERVERS: servers.join(',') } });
}

async function primaryOf(volumeName: string): Promise<string> {
  const asking = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  try {
    await asking.useVolume(volumeName);
    await asking.command({
      kind: 'make-directory',
      place: { volume: volumeName, path: `/asked-${performance.now()}` },
      ...{ mode: 0o755, uid: 0, gid: 0 },
    });
    const primary = asking.catalogPrimary;
    assert.ok(primary !== null);
    return primary;
  } finally {
    await asking.close();
  }
}

/** Writes files by a mount, each with an fsync, and by REST, until it is stopped; remembers what was acknowledged. */
class Writers {
  readonly volume: string;
  readonly mount: ClusterMount;
  readonly written: string[] = [];
  readonly failures: string[] = [];
  #isOver = false;
  readonly #ended: Promise<unknown>;

  constructor(volumeName: string, mount: ClusterMount) {
    this.volume = volumeName;
    this.mount = mount;
    this.#ended = Promise.all([this.#overMount(), this.#overRest()]);
  }

  async #overMount(): Promise<void> {
    for (let count = 0; !this.#isOver; count++) {
      const path = `${this.volume}/files/m${Math.round(performance.now())}-${count}`;
      const file = this.mount.path('files', path.slice(path.lastIndexOf('/') + 1));
      // In another process. This one starts servers: a child closes the files that it inherits before its program runs,
      // which waits for the mount, and so for servers, while this process waits for the child.
      const { code, text } = await run('sh', ['-ec', WRITE, file, path], { timeoutMs: WRITE_MS_MAX });
      if (code === 0) this.written.push(path);
      else this.failures.push(text);
      await delay(PAUSE_MS);
    }
  }

  async #overRest(): Promise<void> {
    for (let count = 0; !this.#isOver; count++) {
      const path = `${this.volume}/files/r${Math.round(performance.now())}-${count}`;
      const running = cluster.ids.filter((id) => id !== 's1' && cluster.isRunning(id));
      try {
        // A server that is killed leaves the outcome unknown.
        if (await put(running[count % running.length] as string, path)) this.written.push(path);
      } catch (error) {
        if (!(error instanceof TypeError || (error as Error).name === 'TimeoutError')) throw error;
      }
      await delay(PAUSE_MS);
    }
  }

  async progress(count = 3): Promise<void> {
    const before = this.written.length;
    await until(`${this.volume} is written`, async () => this.written.length >= before + count);
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#ended;
    assert.deepEqual(this.failures, [], `Writes to ${this.volume} failed`);
  }
}

const written: string[] = [];

async function underWriters(trouble: (writers: readonly Writers[]) => Promise<void>): Promise<void> {
  const writers = Object.entries(mounts).map(([name, mount]) => new Writers(name, mount));
  try {
    for (const one of writers) await one.progress();
    await trouble(writers);
    for (const one of writers) await one.progress();
  } finally {
    for (const one of writers) {
      await one.stop();
      written.push(...one.written);
    }
  }
}

async function assertAllThere(at: string): Promise<void> {
  for (const path of written) {
    await until(`${path} is read at ${at}`, async () => {
      const answer = await fetch(`${cluster.url(at)}/v1/files/${path}`, {
        signal: AbortSignal.timeout(REQUEST_MS),
      });
      const text = await answer.text();
      assert.notEqual(answer.status, 404, path);
      if (answer.ok) assert.equal(text, path);
      return answer.ok;
    });
  }
}

const skip = noMount;
const mounts: Record<string, ClusterMount> = {};
after(() => Promise.all(Object.values(mounts).map((mount) => mount.stop())));

async function mountAll(): Promise<void> {
  for (const name of ['main', 'own']) mounts[name] = await ClusterMount.start(cluster, name);
}

test('of either catalog the primary is killed under writes', { skip }, async (t) => {
  await mountAll();
  for (const mount of Object.values(mounts)) await mkdir(mount.path('files'));
  await underWriters(async (writers) => {
    for (const name of ['own', 'main']) {
      const primary = await primaryOf(name);
      assert.ok(name === 'main' || MEMBERS.includes(primary), `${primary} is no member`);
      t.diagnostic(`${name}: ${primary} is killed`);
      await cluster.kill(primary);
      for (const one of writers) await one.progress();
      await cluster.restart(primary);
    }
  });
  await assertAllThere('s4');
});

test('without a majority of its catalog a volume is away alone, and returns with all', { skip }, async () => {
  await cluster.kill('s1');
  await cluster.kill('s2');
  await until('the volume is named', async () => {
    const { volumes, unavailable } = await client.query({ kind: 'volumes' }, { timeoutMs: REQUEST_MS });
    const names = volumes.map((one) => one.name).toSorted();
    if (unavailable === undefined) return false;
    assert.deepEqual([names, unavailable], [['main', 'other'], ['own']]);
    return true;
  });
  const main = mounts.main as ClusterMount;
  for (const path of ['main/alone', 'other/alone']) {
    await until(`${path} is written`, () => put('s4', path));
    written.push(path);
  }
  await writeFile(main.path('files', 'alone'), 'main/files/alone', { flush: true });
  written.push('main/files/alone');
  const vain = await fetch(`${cluster.url('s4')}/v1/files/own/alone`, {
    method: 'PUT',
    body: 'alone',
    signal: AbortSignal.timeout(VAIN_MS),
  }).then(
    ({ status }) => status,
    (error: Error) => error.name,
  );
  assert.ok(vain === 503 || vain === 'TimeoutError', String(vain));
  await Promise.all([cluster.restart('s1'), cluster.restart('s2')]);
  await until('the volume is written again', () => put('s4', 'own/again'));
  written.push('own/again');
  await assertAllThere('s1');
});

test('all servers are killed at once under writes, and restart', { skip }, async () => {
  await underWriters(async () => {
    await Promise.all(cluster.ids.map((id) => cluster.kill(id)));
    for (const id of cluster.ids) cluster.spawn(id);
    await cluster.ready();
  });
  await assertAllThere('s5');
});

test('a member whose data folder is replaced gets its replica again', { skip }, async () => {
  await cluster.kill('s2');
  rmSync(cluster.data('s2'), { recursive: true });
  await cluster.restart('s2');
  const database = join(cluster.data('s2'), 'catalogs', String(catalogCell(number)), 'catalog.db');
  await until('s2 has a replica', async () => existsSync(database));
  await until('the cluster is healthy', async () => (await cluster.status('s3')).verdict === 'healthy');
  // With s1 it is a majority only if its replica counts.
  await cluster.kill('s3');
  await until('the volume is written without s3', () => put('s1', 'own/without-s3'));
  written.push('own/without-s3');
  await cluster.restart('s3');
});

test('a server is drained under writes, and removed once nothing needs it; one that has joined takes its place', {
  skip,
}, async () => {
  await cluster.join('s6', ['s1']);
  await underWriters(async () => {
    assert.equal((await cli('server', 'drain', 's1', '--no-wait')).code, 0);
    const early = await cli('server', 'remove', 's1');
    assert.equal(early.code, 4, early.stdout);
    const drained = await cli('server', 'drain', 's1');
    assert.equal(drained.code, 0, drained.stderr);
  });
  // Numbers that are reserved for the mounts' new files count as files of their servers for a quarter of an hour.
  const removed = await cli('server', 'remove', 's1');
  if (removed.code !== 0) assert.match(removed.stderr, /"own" has not confirmed|inode numbers are reserved/);
  const { members } = await row();
  assert.equal(members.length, MEMBERS.length);
  assert.ok(!members.includes('s1'), members.join());
  await cluster.kill('s1');
  await assertAllThere('s3');
});

test('other mounts read all that was acknowledged', { skip }, async () => {
  for (const mount of Object.values(mounts)) {
    const { code, text } = await mount.unmount();
    assert.equal(code, 0, text);
    await mount.stop();
  }
  await mountAll();
  for (const [name, mount] of Object.entries(mounts))
    for (const path of written.filter((one) => one.startsWith(`${name}/`)))
      assert.equal(await readFile(mount.path(path.slice(name.length + 1)), 'utf8'), path);
});
