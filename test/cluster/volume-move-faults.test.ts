/**
 * Goal: a volume moves to a catalog of its own whatever server is killed meanwhile: what was acknowledged is there
 * afterwards, under the same inode numbers, and no server removes a replica that is needed.
 * Method: five real servers, each with a replica of each file, and a client of REST that writes during each move. In
 * each phase, the primary of the root catalog or that of the new one is killed. A last volume moves while a server is
 * away, which returns with its list of before.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { systemWorld } from '../../world/system-world.ts';
import { createLinks, LINKS, movePhase, WATCH_MS } from './moving-volumes.ts';
import { RealCluster, until } from './real-cluster.ts';

const REQUEST_MS = 30_000;
const FILES = 12;
const PAUSE_MS = 50;

const cluster = await RealCluster.start({
  servers: 5,
  flags: ['--replace-after', '1h', '--gc-grace', '1500ms', '--lease-idle', '1s'],
});
after(() => cluster.stop());
const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
after(() => client.close());
await cluster.createVolume('stays', 5);

const signal = () => AbortSignal.timeout(REQUEST_MS);

async function put(at: string, path: string): Promise<boolean> {
  const answer = await fetch(`${cluster.url(at)}/v1/files/${path}`, {
    method: 'PUT',
    body: path,
    signal: signal(),
  });
  await answer.arrayBuffer();
  return answer.ok;
}

/** Files of one volume, which a client continues to write. */
class Volume {
  readonly name: string;
  /** Acknowledged. */
  readonly written = new Map<string, number>();
  #isOver = false;

  constructor(name: string) {
    this.name = name;
  }

  async fill(): Promise<void> {
    await cluster.createVolume(this.name, 5);
    for (let file = 0; file < FILES; file++) await this.#write(file);
    await createLinks(client, this.name);
    for (const path of this.written.keys()) this.written.set(path, await this.inodeOf(path));
  }

  async #write(file: number): Promise<void> {
    const path = `${this.name}/file-${file}`;
    const running = cluster.ids.filter((id) => cluster.isRunning(id));
    try {
      // A server that is killed leaves the outcome unknown.
      if (await put(running[file % running.length] as string, path)) this.written.set(path, 0);
    } catch (error) {
      if (!(error instanceof TypeError || (error as Error).name === 'TimeoutError')) throw error;
    }
  }

  /** Writes files until `work` has ended, and three more. */
  async during(work: () => Promise<void>): Promise<void> {
    const writing = (async () => {
      for (let file = FILES; !this.#isOver; file++) {
        await this.#write(file);
        await delay(PAUSE_MS);
      }
    })();
    try {
      await work();
      const before = this.written.size;
      await until(`${this.name} is written`, async () => this.written.size >= before + 3);
    } finally {
      this.#isOver = true;
      await writing;
    }
  }

  async inodeOf(path: string): Promise<number> {
    const query = {
      kind: 'resolve',
      volume: this.name,
      path: path.slice(this.name.length),
      follow: false,
    } as const;
    return (await client.query(query)).attributes.inode;
  }

  async row(): Promise<ListedCatalog | undefined> {
    const { catalogs } = await client.query({ kind: 'catalogs' });
    return catalogs.find(({ name, state }) => name === this.name && state !== 'removed');
  }

  async move(): Promise<void> {
    await client.command({ kind: 'volume-move', name: this.name });
  }

  async moved(): Promise<void> {
    await until(`${this.name} has moved`, async () => (await this.row())?.state === 'ready');
  }

  /** Every server has every file, under the number that it had. */
  async assertAllThere(): Promise<void> {
    for (const [path, inode] of this.written) {
      const now = await this.inodeOf(path);
      if (inode !== 0) assert.equal(now, inode, path);
      const answer = await fetch(`${cluster.url('s1')}/v1/files/${path}`, { signal: signal() });
      assert.equal(await answer.text(), path);
      for (const id of cluster.ids)
        await until(`${path} is at ${id}`, async () => (await replicaAt(id, now)) === path);
    }
    const { volume } = await client.query({ kind: 'volume', name: this.name });
    assert.ok(volume.inodes >= 1 + LINKS + this.written.size, `${volume.inodes}`);
  }
}

/** @returns the contents of the server's replica; null if it has none */
async function replicaAt(id: string, inode: number): Promise<string | null> {
  const path = `/v1/data/${inode}?offset=0&length=100&consistency=stale`;
  const answer = await fetch(`${cluster.url(id)}${path}`, { signal: signal() });
  const text = await answer.text();
  return answer.ok ? text : null;
}

/** Each server has looked for garbage since: it has removed the replica of a file that is deleted now. */
async function garbageIsCollected(...volumes: readonly string[]): Promise<void> {
  for (const volume of volumes) {
    const path = `${volume}/garbage`;
    assert.ok(await put('s1', path));
    const query = { kind: 'resolve', volume, path: '/garbage', follow: false } as const;
    const { inode } = (await client.query(query)).attributes;
    for (const id of cluster.ids)
      await until(`the file is at ${id}`, async () => (await replicaAt(id, inode)) === path);
    const { status } = await fetch(`${cluster.url('s2')}/v1/files/${path}`, {
      method: 'DELETE',
      signal: signal(),
    });
    assert.equal(status, 204);
    for (const id of cluster.ids)
      await until(`${id} removes it`, async () => (await replicaAt(id, inode)) === null);
  }
}

/** Fills a volume and writes it until `work` has ended; all is there then, though garbage was collected. */
async function throughout(name: string, work: (volume: Volume) => Promise<void>): Promise<void> {
  const volume = new Volume(name);
  await volume.fill();
  await volume.during(() => work(volume));
  await garbageIsCollected(name, 'stays');
  await volume.assertAllThere();
}

type Victim = 'root' | 'own';

async function primaryOf(victim: Victim, number: number): Promise<string | null> {
  const { catalog, catalogs = [] } = await cluster.status(
    cluster.ids.find((id) => cluster.isRunning(id)) as string,
  );
  return victim === 'root'
    ? catalog.primary
    : (catalogs.find((one) => one.number === number)?.primary ?? null);
}

const MOVED = ['moved', 'forgotten'];
const PHASES = ['begun', 'frozen', 'numbered', ...MOVED];
const KILLS: readonly (readonly [phase: string, victim: Victim])[] = [
  ['begun', 'root'],
  ['frozen', 'root'],
  ['numbered', 'root'],
  ['numbered', 'own'],
  ['moved', 'root'],
  ['moved', 'own'],
];

for (const [phase, victim] of KILLS)
  test(`the primary of the ${victim} catalog is killed once the move is ${phase}`, (t) =>
    throughout(`${victim}-${phase}`, async (volume) => {
      await volume.move();
      const number = (await volume.row())?.number ?? 0;
      let reached = '';
      let primary: string | null = null;
      while (primary === null) {
        reached = (await movePhase(client, number)) ?? '';
        if (PHASES.indexOf(reached) >= PHASES.indexOf(phase)) primary = await primaryOf(victim, number);
        else await delay(WATCH_MS);
      }
      t.diagnostic(`${primary} is killed: the move is ${reached}`);
      await cluster.kill(primary);
      await volume.moved();
      await cluster.restart(primary);
    }));

test('a server that was away during the move returns with its old list, and removes nothing', async () => {
  const volume = new Volume('away');
  await volume.fill();
  // The primary sees that each server knows moves.
  await volume.move();
  const { catalog } = await client.command({ kind: 'volume-move-abort', name: 'away' });
  assert.equal(catalog?.state, 'removed');
  const primary = await primaryOf('root', 0);
  const away = cluster.ids.find((id) => id !== primary) as string;
  await cluster.kill(away);
  await volume.during(async () => {
    await volume.move();
    await volume.moved();
  });
  await cluster.restart(away);
  await garbageIsCollected('away', 'stays');
  await volume.assertAllThere();
});

test('all servers are killed at once during a move', () =>
  throughout('all', async (volume) => {
    await volume.move();
    await Promise.all(cluster.ids.map((id) => cluster.kill(id)));
    for (const id of cluster.ids) cluster.spawn(id);
    await cluster.ready();
    await volume.moved();
  }));

test('a move that is ended leaves the volume as it is', () =>
  throughout('ended', async (volume) => {
    await volume.move();
    const { catalog } = await client
      .command({ kind: 'volume-move-abort', name: 'ended' })
      .catch((error: { readonly code: string }) => {
        // It was faster.
        assert.equal(error.code, 'precondition-failed');
        return { catalog: { state: 'ready' } };
      });
    assert.ok(catalog !== undefined);
  }));
