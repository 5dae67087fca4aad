/**
 * Goal: programs that change names and files of a mount all the time notice nothing but a wait while the volume moves
 * to a catalog of its own, also if a server is killed meanwhile: no call fails, and nothing is lost.
 * Method: real servers and mounts. A program in each mount keeps account of what it has changed; afterwards another
 * mount, which was not there before, shows the same.
 */
import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, readlink, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { catalogOfInode } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { noMounts } from '../posix/mounts.ts';
import { ClusterMount, type RunResult, run } from './cluster-mount.ts';
import { createLinks, movePhase, WATCH_MS } from './moving-volumes.ts';
import { RealCluster, until } from './real-cluster.ts';

const PROGRAM = new URL('changing-names.py', import.meta.url).pathname;
const LATE_CREATES = new URL('late-create.py', import.meta.url).pathname;
const CACHES = ['leases', 'ttl:1s', 'strict'];
/** Shorter than a volume may wait, as far as its catalogs are concerned. */
const LIMIT = '20s';
/** Much longer than the limit of the mount that waits. */
const PATIENCE_MS = 20_000;
/** Before the move and after it. */
const ROUNDS = 30;
/** What a server sent before it was stopped has arrived. */
const ARRIVAL_MS = 200;
/** Volumes to move until one of them cannot be copied. */
const ATTEMPTS = 10;

interface Account {
  readonly rounds: number;
  readonly files: Readonly<Record<string, string>>;
  readonly links: Readonly<Record<string, string>>;
  readonly longest: readonly [call: string, seconds: number];
}

const obstacle = await noMounts();
let cluster: RealCluster;
let client: ClusterClient;

before(async () => {
  cluster = await RealCluster.start();
  client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
});

after(async () => {
  await client.close();
  await cluster.stop();
});

/** A program that changes a directory until it is stopped. */
class Changes {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: string[] = [];
  readonly #ended: Promise<unknown>;

  constructor(directory: string) {
    this.#child = spawn('python3', [PROGRAM, directory], { cwd: '/', stdio: ['pipe', 'pipe', 'inherit'] });
    this.#ended = once(this.#child, 'close');
    createInterface(this.#child.stdout).on('line', (line) => this.#lines.push(line));
  }

  /** How many rounds are certainly over. @throws if a call has failed */
  get rounds(): number {
    assert.equal(this.#child.exitCode, null, this.#lines.join('\n'));
    return Number(this.#lines.at(-1) ?? 0);
  }

  async stop(): Promise<Account> {
    this.#child.stdin.end();
    await this.#ended;
    assert.equal(this.#child.exitCode, 0, this.#lines.join('\n'));
    return JSON.parse(this.#lines.at(-1) as string) as Account;
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

async function assertIsThere(directory: string, { files, links }: Account): Promise<void> {
  const names = await readdir(directory);
  assert.deepEqual(names.sort(), [...Object.keys(files), ...Object.keys(links)].sort());
  for (const [name, text] of Object.entries(files))
    assert.equal(await readFile(join(directory, name), 'utf8'), text, name);
  for (const [name, target] of Object.entries(links))
    assert.equal(await readlink(join(directory, name)), target, name);
}

/** What gets a catalog of its own. */
interface Mover {
  readonly what: string;
  /** Whether a server is killed meanwhile, for each test. */
  readonly kills: readonly boolean[];
  /** The directory in which programs work, from the root of the mount. */
  readonly top: string;
  /** @returns the catalog */
  begin(volume: string): Promise<number>;
  isDone(volume: string): Promise<boolean>;
}

const MOVERS: readonly Mover[] = [
  {
    what: 'a volume moves',
    kills: [false, true],
    top: '.',
    begin: async (name) => (await client.command({ kind: 'volume-move', name })).catalog.number,
    isDone: async (volume) => (await client.catalogOfVolume(volume)) !== 0,
  },
  {
    what: 'a directory becomes a volume',
    kills: [true],
    top: 'top',
    async begin(volume) {
      const { catalog } = await client.command({
        ...{ kind: 'volume-split', name: `${volume}-top`, volume, path: '/top' },
      });
      return catalog.number;
    },
    async isDone(volume) {
      const { catalogs } = await client.query({ kind: 'catalogs' });
      return catalogs.some(({ name, state }) => name === `${volume}-top` && state === 'ready');
    },
  },
];

for (const [place, { what, kills, top, begin, isDone }] of MOVERS.entries())
  for (const isKilled of kills)
    test(`${what} under programs that change it${isKilled ? ', while a server is killed' : ''}`, {
      skip: obstacle,
    }, async (t) => {
      const volume = `${isKilled ? 'killed' : 'moved'}-${place}`;
      await cluster.createVolume(volume);
      const mounts: ClusterMount[] = [];
      for (const cache of CACHES)
        mounts.push(await ClusterMount.start(cluster, volume, '--op-timeout', LIMIT, '-o', `cache=${cache}`));
      t.after(() => Promise.all(mounts.map((mount) => mount.stop())));
      const [first] = mounts;
      await mkdir((first as ClusterMount).path(top), { recursive: true });
      const directories = mounts.map((_, index) => join(top, `changes-${index}`));
      for (const [index, mount] of mounts.entries()) await mkdir(mount.path(directories[index] as string));
      const all = mounts.map((mount, index) => new Changes(mount.path(directories[index] as string)));
      t.after(() => {
        for (const changes of all) changes.kill();
      });
      const roundsMore = async (count: number): Promise<void> => {
        const wanted = all.map((changes) => changes.rounds + count);
        await until(`${count} rounds more`, async () =>
          all.every((changes, index) => changes.rounds >= (wanted[index] as number)),
        );
      };
      await roundsMore(ROUNDS);
      const catalog = await begin(volume);
      if (isKilled) {
        const primary = client.catalogPrimary;
        assert.ok(primary !== null, "The answer to a command names the catalog's primary");
        const phase = await movePhase(client, catalog);
        await cluster.kill(primary);
        t.diagnostic(`${primary}, the primary of the root catalog, was killed: the move was ${phase}`);
        await cluster.restart(primary);
      }
      await until('it has a catalog of its own', () => isDone(volume));
      await roundsMore(ROUNDS);
      const accounts = await Promise.all(all.map((changes) => changes.stop()));
      for (const [index, { longest, rounds }] of accounts.entries())
        t.diagnostic(
          `${CACHES[index]}: ${rounds} rounds; the longest call, ${longest[0]}, took ${longest[1].toFixed(1)} s`,
        );
      const fresh = await ClusterMount.start(cluster, volume);
      mounts.push(fresh);
      for (const [index, account] of accounts.entries()) {
        const directory = directories[index] as string;
        await assertIsThere(fresh.path(directory), account);
        for (const mount of mounts) await assertIsThere(mount.path(directory), account);
      }
    });

test('files that a mount could not send before their directory became a volume are created in that volume', {
  skip: obstacle,
}, async (t) => {
  const volume = 'late';
  await cluster.createVolume(volume);
  const mount = await ClusterMount.start(cluster, volume, '--op-timeout', LIMIT, '-o', 'cache=leases');
  t.after(async () => {
    process.kill(mount.pid, 'SIGCONT');
    await mount.stop();
  });
  await mkdir(mount.path('top'));
  const program = spawn('python3', [LATE_CREATES, mount.path('top'), String(mount.pid)], {
    cwd: '/',
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  t.after(() => {
    program.kill('SIGKILL');
  });
  const lines: string[] = [];
  createInterface(program.stdout).on('line', (line) => lines.push(line));
  const ended = once(program, 'close');
  await until('the mount is stopped', async () => lines.length > 0 || program.exitCode !== null);
  const path = '/top';
  const split = { kind: 'volume-split', name: 'late-top', volume, path } as const;
  const { catalog } = await client.command(split);
  await until('the directory is a volume', async () => {
    const { catalogs } = await client.query({ kind: 'catalogs' });
    return catalogs.some(({ number, state }) => number === catalog.number && state === 'ready');
  });
  process.kill(mount.pid, 'SIGCONT');
  program.stdin.end('\n');
  const [code] = await ended;
  assert.equal(code, 0, lines.join('\n'));
  for (const name of JSON.parse(lines.at(-1) as string) as readonly string[]) {
    const { inode } = await client.resolve('late-top', `/${name}`);
    assert.equal(catalogOfInode(inode), catalog.number, `${name} was not sent before`);
  }
});

interface StoppedMove {
  readonly volume: string;
  readonly mount: ClusterMount;
  /** The only member of the new catalog. */
  readonly member: string;
}

/** Moves a volume with `d/old`, whose changes wait since its copy was stopped. */
async function stopCopy(t: TestContext): Promise<StoppedMove> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const volume = `waiting-${attempt}`;
    await cluster.createVolume(volume);
    await createLinks(client, volume);
    const mount = await ClusterMount.start(cluster, volume, '--op-timeout', '5s');
    t.after(() => mount.stop());
    await mkdir(mount.path('d'));
    await writeFile(mount.path('d', 'old'), 'old');
    // The primary of the root catalog freezes the volume once the new catalog is open.
    const member = cluster.ids.find((id) => id !== client.catalogPrimary) as string;
    const { catalog } = await client.command({ kind: 'volume-move', name: volume, members: [member] });
    while ((await movePhase(client, catalog.number)) === 'begun') await delay(WATCH_MS);
    cluster.signal(member, 'SIGSTOP');
    await delay(ARRIVAL_MS);
    const { catalogs } = await client.query({ kind: 'catalogs' });
    const { state, moving } = catalogs.find(({ number }) => number === catalog.number) ?? {};
    t.diagnostic(`attempt ${attempt}: the catalog is ${state}, the volume ${moving ?? 'moved'}`);
    if (state === 'creating') return { volume, mount, member };
    cluster.signal(member, 'SIGCONT');
  }
  throw new Error('Each volume had moved before its copy was stopped');
}

test('calls wait longer than their limit while the volume cannot be copied', {
  skip: obstacle,
}, async (t) => {
  const { volume, mount, member } = await stopCopy(t);
  const waiting: Promise<RunResult>[] = [];
  try {
    const refused = client.command(
      { kind: 'make-directory', place: { volume, path: '/refused' }, mode: 0o755, uid: 0, gid: 0 },
      { signal: AbortSignal.timeout(PATIENCE_MS) },
    );
    for (const call of ['mkdir new', 'echo more >> old'])
      waiting.push(run('sh', ['-ec', call], { cwd: mount.path('d'), timeoutMs: 200_000 }));
    await assert.rejects(refused, { name: 'TimeoutError' });
    assert.equal(await readFile(mount.path('d', 'old'), 'utf8'), 'old', 'Reads continue');
  } finally {
    cluster.signal(member, 'SIGCONT');
  }
  for (const { code, text, tookMs } of await Promise.all(waiting)) {
    assert.equal(code, 0, text);
    assert.ok(tookMs > PATIENCE_MS / 2, `It took ${tookMs} ms only`);
  }
  assert.equal(await readFile(mount.path('d', 'old'), 'utf8'), 'oldmore\n');
  await rename(mount.path('d', 'old'), mount.path('d', 'new', 'old'));
  assert.notEqual(await client.catalogOfVolume(volume), 0);
});
