import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import type { LockList } from '../../wire/lock-api.ts';
import { isLong, onlyLong, SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

const LEASE_MS = 2_000;
/** Locks outlive the last request of their client for three leases. */
const LOCK_LEASE_MS = 3 * LEASE_MS;
const KILLS = isLong ? 2 : 1;
const COUNTER = fileURLToPath(new URL('lock-counter.py', import.meta.url));
const FAR = fileURLToPath(new URL('far-locks.py', import.meta.url));
const HOLDER = fileURLToPath(new URL('lock-holder.py', import.meta.url));
const WRITER = fileURLToPath(new URL('lock-writer.py', import.meta.url));

const obstacle = await mountObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;

if (skip === false) await define();
else test('locks between mounts', { skip }, () => undefined);

/** A program that holds a lock, or waits for one. */
class Holder {
  readonly #child: ChildProcess;
  #text = '';

  constructor(kind: 'posix' | 'flock', path: string) {
    this.#child = spawn('python3', [HOLDER, kind, path], { cwd: '/', stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stdout?.on('data', (chunk: Buffer) => {
      this.#text += chunk.toString();
    });
  }

  get said(): readonly string[] {
    return this.#text.split('\n').filter((line) => line !== '');
  }

  async says(word: string): Promise<void> {
    await until(`a program says "${word}"`, () => Promise.resolve(this.said.includes(word)), 60_000);
  }

  /** @param writes the byte that it writes under the lock */
  goOn(writes = '7'): void {
    this.#child.stdin?.end(`${writes}\n`);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async ended(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, 'exit');
  }
}

async function define(): Promise<void> {
  const cluster = await RealCluster.start({ servers: SERVERS_OF_FORM, lease: `${LEASE_MS}ms` });
  after(() => cluster.stop());
  await cluster.createVolume('main');
  // Through the library, a lock on a file that changed elsewhere would wait for what the kernel caches.
  const flags = ['--transport', 'auto', '--cache', 'strict'];
  const mounts = (await Promise.all([0, 1].map(() => ClusterMount.start(cluster, 'main', ...flags)))) as [
    ClusterMount,
    ClusterMount,
  ];
  after(() => Promise.all(mounts.map((mount) => mount.stop())));
  const [left, right] = mounts;

  async function makeFile(name: string): Promise<void> {
    await runOk('sh', ['-c', 'printf %032d 0 > "$0"', left.path(name)]);
  }

  /** Waits until the file's primary reports its locks so. */
  async function untilLocks(name: string, what: string, holds: (locks: LockList) => boolean): Promise<void> {
    const { file } = await cluster.info(await cluster.primaryOf(`main/${name}`), `main/${name}`);
    await until(what, async () => {
      const asked = cluster.ids.find((id) => cluster.isRunning(id)) as string;
      const response = await fetch(`${cluster.url(asked)}/v1/data/${file}/locks`);
      return response.ok && holds((await response.json()) as LockList);
    });
  }

  const somebodyWaits = (name: string): Promise<void> =>
    untilLocks(name, 'a client waits', ({ waiting }) => waiting > 0);

  /**
   * All programs count at the same time.
   * @returns the file's contents afterwards
   */
  async function count(
    kind: string,
    name: string,
    times: number,
    at: readonly ClusterMount[],
  ): Promise<number> {
    const counted = await Promise.all(
      at.map((mount) =>
        run('python3', [COUNTER, kind, mount.path(name), String(times)], { timeoutMs: 120_000 }),
      ),
    );
    for (const { code, text } of counted) assert.deepEqual([code, text.trim()], [0, String(times)], text);
    return Number((await runOk('head', ['-c', '32', right.path(name)])).text);
  }

  test('bytes from 2^53 on are locked one by one, and not all together, over both transports', async (t) => {
    await makeFile('far');
    const native = await ClusterMount.start(cluster, 'main', '--transport', 'native', '--cache', 'strict');
    t.after(() => native.stop());
    await runOk('python3', [FAR, left.path('far'), native.path('far')]);
    await runOk('python3', [FAR, native.path('far'), right.path('far')]);
  });

  // Locks of `flock` are those of the mount that is killed below.
  for (const kind of isLong ? (['posix', 'flock'] as const) : (['posix'] as const)) {
    test(`two mounts count with ${kind} locks, and no addition is lost`, async () => {
      await makeFile(kind);
      const each = isLong ? 20 : 8;
      assert.equal(await count(kind, kind, each, [left, right, left]), 3 * each);
    });
  }

  test('two mounts also count through libfuse', {
    skip: onlyLong('the test of bytes from 2^53 on'),
  }, async (t) => {
    const native = await ClusterMount.start(cluster, 'main', '--transport', 'native');
    t.after(() => native.stop());
    await makeFile('native');
    assert.equal(await count('posix', 'native', 5, [native, right]), 10);
  });

  test('a wait for a lock ends with the signal that interrupts it', async (t) => {
    const native = await ClusterMount.start(cluster, 'main', '--transport', 'native');
    t.after(() => native.stop());
    await makeFile('interrupted');
    const holder = new Holder('posix', left.path('interrupted'));
    await holder.says('held');
    for (const mount of [right, native]) {
      const waiting = new Holder('posix', mount.path('interrupted'));
      await somebodyWaits('interrupted');
      waiting.signal('SIGINT');
      await waiting.says('interrupted');
      await waiting.ended();
    }
    holder.goOn();
    await holder.ended();
    const next = new Holder('posix', right.path('interrupted'));
    await next.says('held');
    next.goOn();
    await next.ended();
  });

  test('a primary that ends in good order without locks leaves no time for reclaiming locks', {
    skip: onlyLong('test/server/file-locks.test.ts'),
  }, async () => {
    await makeFile('ended');
    const primary = await cluster.primaryOf('main/ended');
    const { epoch: before } = await cluster.info(primary, 'main/ended');
    await cluster.kill(primary, 'SIGTERM');
    let firstMs: number | null = null;
    let lastMs = Number.POSITIVE_INFINITY;
    await untilLocks('ended', 'another server is primary, and knows', (locks) => {
      if (locks.epoch <= before) return false;
      firstMs ??= locks.graceMs;
      lastMs = locks.graceMs;
      // The notification may arrive a moment after the lease; without it the time passes by itself.
      return lastMs === 0 || firstMs - lastMs > LEASE_MS;
    });
    assert.equal(lastMs, 0);
    cluster.spawn(primary);
    await cluster.ready();
  });

  test('a lock outlives its primary, and a waiting client gets it only when it is released', {
    skip: onlyLong('test/client/file-locks.test.ts'),
  }, async () => {
    await makeFile('failover');
    const holder = new Holder('posix', left.path('failover'));
    await holder.says('held');
    const waiting = new Holder('posix', right.path('failover'));
    await somebodyWaits('failover');
    const primary = await cluster.primaryOf('main/failover');
    const { epoch: before } = await cluster.info(primary, 'main/failover');
    await cluster.kill(primary);
    cluster.spawn(primary);
    await untilLocks(
      'failover',
      'the time to claim is over',
      ({ epoch, graceMs }) => epoch > before && graceMs === 0,
    );
    await somebodyWaits('failover');
    assert.deepEqual(waiting.said, []);
    holder.goOn();
    await holder.ended();
    assert.deepEqual(holder.said, ['held', 'wrote', 'released']);
    await waiting.says('held');
    waiting.goOn();
    await waiting.ended();
    await cluster.ready();
  });

  test('two mounts continue to count while primaries are killed, and a lock never has two holders', {
    skip: onlyLong('test/simulation/cluster/cluster.test.ts, with its names,'),
  }, async (t) => {
    await makeFile('killed');
    const over = new AbortController();
    const killing = (async () => {
      let kills = 0;
      while (!over.signal.aborted && kills < KILLS) {
        await delay(1_500);
        const primary = await cluster.primaryOf('main/killed');
        await cluster.kill(primary);
        cluster.spawn(primary);
        await cluster.ready();
        kills++;
      }
      return kills;
    })();
    try {
      assert.equal(await count('posix', 'killed', 60, [left, right]), 120);
    } finally {
      over.abort();
    }
    const kills = await killing;
    assert.ok(kills > 0, 'A primary was killed while they counted');
    t.diagnostic(`${kills} primaries were killed`);
  });

  test('the lock of a killed mount is free when its lease has ended', async (t) => {
    await makeFile('dead');
    const mount = await ClusterMount.start(cluster, 'main');
    t.after(() => mount.stop());
    const holder = new Holder('flock', mount.path('dead'));
    await holder.says('held');
    process.kill(mount.pid, 'SIGKILL');
    const beganMs = performance.now();
    const next = new Holder('flock', right.path('dead'));
    await next.says('held');
    assert.ok(performance.now() - beganMs > LOCK_LEASE_MS / 2, 'The mount might still have been running');
    next.goOn();
    holder.goOn();
    await Promise.all([next.ended(), holder.ended()]);
  });

  test('a client that cannot renew a lock in time can no longer write under it', async (t) => {
    await makeFile('frozen');
    const mount = await ClusterMount.start(cluster, 'main');
    t.after(() => mount.stop());
    const holder = new Holder('posix', mount.path('frozen'));
    await holder.says('held');
    process.kill(mount.pid, 'SIGSTOP');
    const next = new Holder('posix', right.path('frozen'));
    await next.says('held');
    process.kill(mount.pid, 'SIGCONT');
    holder.goOn();
    await holder.ended();
    assert.deepEqual(holder.said, ['held', 'EIO', 'released']);
    next.goOn();
    await next.ended();
    assert.deepEqual(next.said, ['held', 'wrote', 'released']);
    // Once closed, the file is usable like any other.
    const again = new Holder('posix', mount.path('frozen'));
    await again.says('held');
    again.goOn();
    await again.ended();
    assert.deepEqual(again.said, ['held', 'wrote', 'released']);
    assert.match(await readFile(mount.log, 'utf8'), /locks were lost/);
  });

  test('a write under a lock that is lost before a sync replaces nothing, and the sync reports it', async (t) => {
    await makeFile('unsynced');
    const mount = await ClusterMount.start(cluster, 'main', '--cache', 'strict');
    t.after(() => mount.stop());
    const writing = run('python3', [WRITER, mount.path('unsynced'), String(mount.pid)]);
    await untilLocks('unsynced', 'it has the lock', ({ locks }) => locks.length > 0);
    const next = new Holder('posix', right.path('unsynced'));
    await next.says('held');
    next.goOn('8');
    await next.ended();
    assert.deepEqual(next.said, ['held', 'wrote', 'released']);
    process.kill(mount.pid, 'SIGCONT');
    const { text } = await writing;
    assert.equal((await readFile(right.path('unsynced'), 'latin1'))[40], '8');
    assert.deepEqual(text.trim().split('\n'), ['stopped', 'EIO', 'unlocked', 'closed']);
  });

  test('a mount that ends releases its locks at once', async (t) => {
    await makeFile('left');
    const mount = await ClusterMount.start(cluster, 'main');
    t.after(() => mount.stop());
    const holder = new Holder('posix', mount.path('left'));
    await holder.says('held');
    const next = new Holder('posix', right.path('left'));
    await somebodyWaits('left');
    assert.deepEqual(next.said, []);
    const beganMs = performance.now();
    process.kill(mount.pid, 'SIGTERM');
    await next.says('held');
    t.diagnostic(`the lock was free after ${Math.round(performance.now() - beganMs)} ms`);
    next.goOn();
    holder.goOn();
    await Promise.all([next.ended(), holder.ended()]);
  });
}
