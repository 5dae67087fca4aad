import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createReadStream, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { isLong } from '../long.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { memoryPeakMiB, RealCluster, until } from './real-cluster.ts';

const LEASE_MS = 2_000;
/** How long a call on the mount with a short time limit waits for the cluster. */
const MOUNT_TIMEOUT_MS = 3_000;
const SLACK_MS = 6_000;
const FILE_MIB = isLong ? 1024 : 24;
const MEMORY_MIB_MAX = 512;

const TRANSPORTS = [
  { transport: 'native', obstacle: await mountObstacle() },
  { transport: 'kernel', obstacle: kernelTransportObstacle() },
] as const;

if (TRANSPORTS.some(({ obstacle }) => obstacle === null)) {
  const cluster = await RealCluster.start({ lease: `${LEASE_MS}ms` });
  after(() => cluster.stop());
  const all = TRANSPORTS.filter(({ obstacle }) => obstacle === null);
  // The death of servers does not depend on the transport to the kernel.
  const usable = isLong ? all : all.slice(-1);
  const mounts: { readonly transport: string; readonly mount: ClusterMount }[] = [];
  for (const { transport } of usable) {
    await cluster.createVolume(transport);
    const mount = await ClusterMount.start(cluster, transport, '--transport', transport);
    after(() => mount.stop());
    mounts.push({ transport, mount });
  }
  // The runner must know all tests before it ends any.
  for (const { transport, mount } of mounts) define(cluster, transport, mount);
}
for (const { transport, obstacle } of TRANSPORTS) {
  if (obstacle === null) continue;
  test(
    `a mount of a real cluster (${transport})`,
    { skip: `Nothing can be mounted: ${obstacle}` },
    () => undefined,
  );
}

function define(cluster: RealCluster, transport: string, mount: ClusterMount): void {
  const volume = transport;

  test(`${FILE_MIB} MiB are copied in while their primary is killed, and all bytes arrive (${transport})`, async (t) => {
    const source = join(cluster.folder, 'source');
    t.after(() => rmSync(source, { force: true }));
    await runOk('sh', ['-c', `head -c ${FILE_MIB}M /dev/urandom > "$0"`, source]);
    const killed = Promise.withResolvers<void>();
    t.after(() => killed.resolve());
    const copying = run('sh', ['-c', 'cat > "$0"', mount.path('big')], {
      timeoutMs: 300_000,
      input: untilKilled(source, killed.promise),
    });
    await until(
      'a quarter is written',
      async () => (await cluster.info('s1', `${volume}/big`)).size > FILE_MIB << 18,
    );
    const primary = await cluster.primaryOf(`${volume}/big`);
    const peaks = new Map(cluster.ids.map((id) => [id, memoryPeakMiB(cluster.pid(id))]));
    await cluster.kill(primary);
    killed.resolve();
    cluster.spawn(primary);
    const copied = await copying;
    assert.equal(copied.code, 0, copied.text);
    t.diagnostic(
      `it took ${(copied.tookMs / 1000).toFixed(1)} s (${Math.round(FILE_MIB / (copied.tookMs / 1000))} MiB/s), the kill of ${primary} included`,
    );
    await cluster.ready();
    const wanted = await hashOf(createReadStream(source));
    for (const id of cluster.ids) {
      const { body } = await fetch(`${cluster.url(id)}/v1/files/${volume}/big`);
      assert.ok(body !== null);
      assert.equal(await hashOf(body), wanted, `What ${id} returns is what was copied`);
    }
    await runOk('cmp', [source, mount.path('big')]);
    await cluster.current(`${volume}/big`, 60_000);

    for (const id of cluster.ids) {
      const mib = Math.max(peaks.get(id) ?? 0, memoryPeakMiB(cluster.pid(id)));
      t.diagnostic(`${id} has held ${Math.round(mib)} MiB at the most`);
      assert.ok(mib < MEMORY_MIB_MAX, `${id} used ${mib} MiB of memory`);
    }
    const mib = memoryPeakMiB(mount.pid);
    t.diagnostic(`the mount has held ${Math.round(mib)} MiB at the most`);
    assert.ok(mib < MEMORY_MIB_MAX, `The mount used ${mib} MiB of memory`);
  });

  test(`without a majority calls on the mount fail in time, and work again with one (${transport})`, async (t) => {
    await runOk('sh', ['-c', 'mkdir "$0" && echo one > "$0/a" && echo two > "$0/b"', mount.path('dir')]);
    const impatient = await ClusterMount.start(
      cluster,
      volume,
      ...['--op-timeout', `${MOUNT_TIMEOUT_MS}ms`, '--transport', transport],
    );
    t.after(() => impatient.stop());
    const [survivor, ...gone] = ['s2', 's1', 's3'] as [string, ...string[]];
    for (const id of gone) await cluster.kill(id);
    // Several calls in succession may each wait; none waits for ever. Until its lease ends, the remaining server
    // rightly serves files of which it is primary; no name can be created or removed.
    const commands: ['fails' | 'works' | 'either', string, string[]][] = [
      ['either', 'ls', ['-l', impatient.path('dir')]],
      ['fails', 'ls', [impatient.path('never-seen')]],
      ['either', 'cat', [impatient.path('dir', 'a')]],
      ['either', 'sh', ['-c', 'cat "$0" > /dev/null', impatient.path('big')]],
      // It opens the directory before it queries the free space: attributes that no session has been granted since are
      // requested.
      ['either', 'df', [impatient.directory]],
      ['works', 'stat', ['-f', impatient.directory]],
      ['fails', 'sh', ['-c', 'echo three > "$0"', impatient.path('dir', 'c')]],
      ['fails', 'rm', [impatient.path('dir', 'b')]],
    ];
    // A program makes several calls, and if a lookup fails, the kernel repeats it for one process after the other.
    const limitMs = 5 * MOUNT_TIMEOUT_MS + SLACK_MS;
    await Promise.all(
      commands.map(async ([expected, program, argv]) => {
        const { code, text, tookMs } = await run(program, argv, { timeoutMs: 60_000 });
        const [said] = text.trim().split('\n').slice(-1);
        t.diagnostic(
          `${program} ${argv.join(' ')}: exit code ${code} after ${Math.round(tookMs)} ms: ${said}`,
        );
        assert.ok(code !== null && tookMs < limitMs, `${program} took ${tookMs} ms`);
        if (expected === 'fails') assert.notEqual(code, 0, `${program} ${argv} cannot have worked`);
        if (expected === 'works') assert.equal(code, 0, text);
      }),
    );

    const [back, late] = gone as [string, string];
    cluster.spawn(back);
    const backMs = performance.now();
    await until('the mount can be written', async () => {
      const { code } = await run('sh', ['-c', 'echo again > "$0"', impatient.path('dir', 'again')]);
      return code === 0;
    });
    t.diagnostic(`written ${Math.round(performance.now() - backMs)} ms after the second server was started`);
    assert.equal(
      (await runOk('cat', [impatient.path('dir', 'a'), impatient.path('dir', 'again')])).text,
      'one\nagain\n',
    );
    assert.match((await runOk('ls', [impatient.path('dir')])).text, /^a\nagain\n/);
    await cluster.restart(late);
    await until('all is well', async () => (await cluster.status(survivor)).verdict === 'healthy');
    const { text } = await runOk('sh', ['-c', 'cat "$0"/*', impatient.path('dir')]);
    assert.match(text, /^one\nagain\n/);
  });

  test(`after an unmount no process is left, and what was written is stored (${transport})`, async () => {
    await runOk('sh', ['-c', 'echo last > "$0"', mount.path('last')]);
    await mount.unmount();
    // It has ended; the process that reaps orphans here may need a moment longer.
    await until('its process has ended', async () => !existsSync(`/proc/${mount.pid}`));
    const table = await runOk('cat', ['/proc/self/mounts']);
    assert.ok(!table.text.includes(mount.directory), 'It is not mounted');
    const answer = await fetch(`${cluster.url('s3')}/v1/files/${volume}/last`);
    assert.equal(await answer.text(), 'last\n');
  });
}

async function hashOf(source: AsyncIterable<Uint8Array>): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of source) hash.update(chunk);
  return hash.digest('hex');
}

/** The last quarter follows after the kill, however fast the copy is: the kill is in its middle. */
async function* untilKilled(source: string, killed: Promise<void>): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of createReadStream(source) as AsyncIterable<Buffer>) {
    if (bytes > FILE_MIB * 0.75 * 2 ** 20) await killed;
    bytes += chunk.length;
    yield chunk;
  }
}
