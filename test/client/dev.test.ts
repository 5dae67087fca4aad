import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { access, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { freePortsInARow } from '../../client/dev/free-ports.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { mountAt, processes } from '../../client/mounts/mount-table.ts';
import { until } from '../cluster/real-cluster.ts';
import { LAUNCHER, runCli } from './run-cli.ts';

interface FirstLine {
  readonly servers: readonly {
    readonly id: string;
    readonly url: string;
    readonly pid: number;
    readonly data: string;
  }[];
  readonly mount: string | null;
}

const obstacle = await mountObstacle();
const skip = obstacle === null ? false : `no mount here: ${obstacle}`;

/** Goal: `leasehold dev`, `mount` and `umount` with real servers, as a user meets them. */
describe('a whole cluster on this machine', () => {
  let folder: string;
  let dev: ChildProcess;
  let first: FirstLine;
  let env: Record<string, string>;
  const said: string[] = [];
  /** Started by hand, after it was killed. */
  let restarted: ChildProcess | undefined;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'leasehold-dev-'));
    const [port] = await freePortsInARow(3);
    const mount = obstacle === null ? ['--mount', join(folder, 'mnt')] : [];
    const argv = [
      'dev',
      '--json',
      '--port',
      `${port}`,
      '--data',
      join(folder, 'data'),
      '--lease',
      '1s',
      ...mount,
    ];
    dev = spawn(process.execPath, [LAUNCHER, ...argv, '--clock-skew', '50ms'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    dev.stderr?.setEncoding('utf8').on('data', (text: string) => said.push(text));
    assert.ok(dev.stdout !== null);
    const lines = createInterface({ input: dev.stdout });
    const line = await Promise.race([once(lines, 'line'), once(dev, 'exit').then(() => null)]);
    assert.ok(line !== null, `dev ended: ${said.join('')}`);
    first = JSON.parse(String(line[0])) as FirstLine;
    env = { LEASEHOLD_SERVERS: first.servers.map(({ url }) => url).join(',') };
  });

  after(async () => {
    if (dev.exitCode === null) dev.kill('SIGKILL');
    if (restarted?.exitCode === null) restarted.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  });

  test('its first line names the servers, and they serve', async () => {
    assert.deepEqual(
      first.servers.map(({ id }) => id),
      ['s1', 's2', 's3'],
    );
    for (const { url, pid, data } of first.servers) {
      assert.equal((await fetch(`${url}/readyz`)).status, 200);
      process.kill(pid, 0);
      await access(data);
      const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
      assert.ok(
        argv.includes('--max-semi-space-size=16'),
        'Set in V8 at its start, and inherited by the processes that it starts',
      );
    }
    const { volumes } = JSON.parse((await runCli(['volume', 'ls', '--json'], { env })).stdout);
    assert.equal(volumes[0].name, 'main');
    assert.equal(volumes[0].replicas, 3);
    assert.equal((await runCli(['status'], { env })).code, 0);
  });

  test('a file that was put is read through the mount, and the other way round', { skip }, async () => {
    assert.ok(first.mount !== null);
    assert.equal((await runCli(['put', '-', 'main:/put'], { env, input: 'over HTTP' })).code, 0);
    assert.equal(await readFile(join(first.mount, 'put'), 'utf8'), 'over HTTP');
    await writeFile(join(first.mount, 'written'), 'through the mount');
    assert.equal((await runCli(['get', 'main:/written', '-'], { env })).stdout, 'through the mount');
  });

  test('a working mount is not mounted over, one whose process died is healed', { skip }, async () => {
    assert.ok(first.mount !== null);
    const mount = first.mount;
    const twice = await runCli(['mount', 'main', mount], { env });
    assert.equal(twice.code, 4);
    assert.match(twice.stderr, /is mounted there already/);
    const daemon = (await processes()).find(
      ({ argv }) => argv.includes('mount-daemon') && argv.at(-1) === mount,
    );
    assert.ok(daemon !== undefined);
    process.kill(daemon.pid, 'SIGKILL');
    const isLeft = async (): Promise<boolean> => (await processes()).some(({ pid }) => pid === daemon.pid);
    await until('the process has ended', async () => !(await isLeft()));
    const healed = await runCli(['mount', 'main', mount, '--json', '--log', join(folder, 'healed.log')], {
      env,
    });
    assert.equal(healed.code, 0, healed.stderr);
    assert.equal(await readFile(join(mount, 'put'), 'utf8'), 'over HTTP');
    const { pid } = JSON.parse(healed.stdout);
    const busy = spawn('sleep', ['60'], { cwd: mount });
    try {
      await once(busy, 'spawn');
      const refused = await runCli(['umount', mount]);
      assert.equal(refused.code, 4);
      assert.match(
        refused.stderr,
        new RegExp(`in use\\n {2}process ${busy.pid} \\(sleep 60\\): its working directory`),
      );
    } finally {
      busy.kill();
      await once(busy, 'exit');
    }
    assert.equal((await runCli(['umount', mount])).code, 0);
    // It has ended; the process that reaps orphans here may need a moment longer.
    await until('its process has ended', async () => !existsSync(`/proc/${pid}`));
    assert.equal(await mountAt(mount), null);
    assert.equal(
      (await runCli(['mount', 'main', mount, '--log', join(folder, 'again.log')], { env })).code,
      0,
    );
  });

  test('a killed primary is replaced, and dev reports that it has ended', async () => {
    assert.equal((await runCli(['put', '-', 'main:/kept'], { env, input: 'before' })).code, 0);
    const info = JSON.parse((await runCli(['info', 'main:/kept', '--json'], { env })).stdout);
    const primary = first.servers.find(({ id }) => id === info.primary);
    assert.ok(primary !== undefined);
    process.kill(primary.pid, 'SIGKILL');
    assert.equal((await runCli(['get', 'main:/kept', '-'], { env })).stdout, 'before');
    assert.equal((await runCli(['put', '-', 'main:/kept'], { env, input: 'after' })).code, 0);
    assert.equal((await runCli(['get', 'main:/kept', '-'], { env })).stdout, 'after');
    const status = await runCli(['status', '--json'], { env });
    assert.equal(status.code, 7, status.stdout);
    const again = new RegExp(
      `Server ${primary.id} was ended by SIGKILL; the other servers continue\n.*: npx leasehold (server .*)\n`,
    );
    const [, command = ''] = again.exec(said.join('')) ?? [];
    assert.notEqual(command, '', said.join(''));
    restarted = spawn(process.execPath, [LAUNCHER, ...command.split(' ')], { stdio: 'ignore' });
    await until(`${primary.id} is back`, async () => (await runCli(['status'], { env })).code === 0);
  });

  test('SIGTERM ends servers and mount, exits with 0, and names the server that was started elsewhere', async () => {
    dev.kill('SIGTERM');
    const [code, signal] = await once(dev, 'exit');
    assert.equal(code, 0, `${signal ?? ''} ${said.join('')}`);
    assert.match(
      said.join(''),
      new RegExp(`keeps running, because it was started elsewhere; to stop it: kill ${restarted?.pid}\n`),
    );
    assert.equal(restarted?.exitCode, null);
    restarted?.kill('SIGTERM');
    await once(restarted as ChildProcess, 'exit');
    for (const { pid } of first.servers) assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
    if (first.mount !== null) assert.equal(await mountAt(first.mount), null);
    await access(join(folder, 'data', 's1'));
  });
});

test('the demo kills a primary and finds every byte', async () => {
  const { code, stdout, stderr } = await runCli([
    ...['demo', '--auto', '--kills', '1', '--json'],
    // The promised bound grows with the lease; the delay that a busy machine adds does not.
    ...['--lease', '5s', '--clock-skew', '50ms'],
  ]);
  assert.equal(code, 0, stderr);
  const result = JSON.parse(stdout);
  assert.deepEqual([result.lost, result.duplicated, result.corrupt], [0, 0, 0]);
  assert.equal(result.rounds.length, 1);
  const [round] = result.rounds;
  assert.ok(round.writeGapMs > 0 && round.writeGapMs <= round.boundMs && round.boundMs === result.boundMs);
  assert.ok(result.acknowledgedWrites > 50, 'A demo without an event proves nothing');
  assert.ok(result.comparedBytes > 10_000);
  assert.ok(round.staleReads.count > 0, "A request that is content with any replica's state does not wait");
  assert.equal(round.staleReads.failed, 0);
  assert.deepEqual([result.noMajority.ok, result.noMajority.code], [true, 'no-majority']);
  assert.ok(
    result.fencing.ok && result.fencing.epochAfter > result.fencing.epochBefore,
    result.fencing.answer,
  );
  assert.ok(result.acts.every(({ state }: { state: string }) => state === 'done'));
  if (result.mount) assert.ok(result.copy.equal);
});
