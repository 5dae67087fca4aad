/**
 * Goal: a mirror between two clusters with TLS and tokens fails over and back as docs/backup.md says, and retained
 * files and snapshots at its target stay, without holding it up for longer than they must.
 * Method: real servers of two sites, each with its own authority and tokens, and the command line.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { DevCluster } from '../../client/dev/dev-cluster.ts';
import { freePorts } from '../../client/dev/free-ports.ts';
import { type CliResult, LAUNCHER, runCli } from '../client/run-cli.ts';
import { until } from './real-cluster.ts';
import { treeText } from './tree-text.ts';

const READY_MS = 60_000;

async function start(): Promise<DevCluster> {
  const cluster = await DevCluster.start({
    ports: await freePorts(1),
    ...{ data: null, isSecure: true, leaseMs: 1_000, clockSkewMs: 100 },
    onUnexpectedEnd: ({ plan }, how) => assert.fail(`${plan.id} ${how}`),
  });
  after(() => cluster.stop());
  return cluster;
}

const [near, far] = [await start(), await start()];
const folder = mkdtempSync(join(tmpdir(), 'leasehold-secure-mirror-'));
after(() => rmSync(folder, { recursive: true }));

type Holder = 'admin' | 'writer' | 'reader';

function file(at: DevCluster, holder: Holder, name: 'ca.pem' | 'token'): string {
  return join(at.credentials ?? '', holder, name);
}

/** Options of a command for a cluster. */
function access(at: DevCluster, holder: Holder): string[] {
  const [ca, token] = [file(at, holder, 'ca.pem'), file(at, holder, 'token')];
  return ['--servers', at.urls.join(','), '--ca', ca, '--token-file', token];
}

/** Options of a mirror for its other cluster. */
function target(at: DevCluster, holder: Holder, volume = 'main'): string[] {
  const [ca, token] = [file(at, holder, 'ca.pem'), file(at, holder, 'token')];
  return ['--to', `${at.urls.join(',')}/${volume}`, '--to-ca', ca, '--to-token-file', token];
}

async function at(cluster: DevCluster, ...words: string[]): Promise<CliResult> {
  const result = await runCli([...words, ...access(cluster, 'admin')]);
  assert.equal(result.code, 0, `${words.join(' ')}: ${result.stderr}`);
  return result;
}

async function put(cluster: DevCluster, path: string, text: string): Promise<void> {
  const local = join(folder, 'put');
  writeFileSync(local, text);
  await at(cluster, 'put', local, path);
}

async function mirror(
  from: DevCluster,
  to: DevCluster,
  volume: string,
  ...words: string[]
): Promise<CliResult> {
  return runCli([
    'mirror',
    volume,
    '--once',
    ...words,
    ...access(from, 'admin'),
    ...target(to, 'admin', volume),
  ]);
}

function promoteAt(cluster: DevCluster, volume: string, holder: Holder = 'admin'): Promise<CliResult> {
  return runCli(['mirror', 'promote', volume, ...access(cluster, holder)]);
}

function succeeded({ code, stderr }: CliResult): string {
  assert.equal(code, 0, stderr);
  return stderr;
}

function assertRefused({ code, stderr }: CliResult, exit: number, why: RegExp): void {
  assert.match(stderr, why);
  assert.equal(code, exit, stderr);
}

async function createVolumes(...names: readonly string[]): Promise<void> {
  for (const cluster of [near, far])
    for (const name of names) await at(cluster, 'volume', 'create', name, '--replicas', '1');
}

/** Runs a mirror of `main` until a copy has the file. */
async function mirrorUntilCopied(path: string): Promise<() => Promise<void>> {
  const argv = ['mirror', 'main', '--every', '100ms', ...access(near, 'admin'), ...target(far, 'admin')];
  const child = spawn(process.execPath, [LAUNCHER, ...argv], { stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = once(child, 'exit');
  await until('a copy has the file', async () => {
    const { snapshots } = await far.client.query({ kind: 'snapshots', volume: 'main' });
    const copy = snapshots.findLast(({ name }) => /^mirror-main-[0-9]+$/.test(name));
    if (copy === undefined) return false;
    await far.client.resolve(`main@${copy.name}`, path);
    return true;
  });
  return async () => {
    child.kill('SIGTERM');
    await ended;
  };
}

test('a mirror needs the certificates of both clusters, and the role admin in both', async () => {
  const words = ['mirror', 'main', '--once'];
  const cases: readonly (readonly [exit: number, why: RegExp, words: readonly string[]])[] = [
    [
      6,
      /"writer" has the role write; this request needs the role admin/,
      [...access(near, 'writer'), ...target(far, 'admin')],
    ],
    [
      6,
      /"writer" has the role write; this request needs the role admin/,
      [...access(near, 'admin'), ...target(far, 'writer')],
    ],
    [
      6,
      /"reader" has the role read; this request needs the role write/,
      [...access(near, 'admin'), ...target(far, 'reader')],
    ],
    // The token of one cluster is not known to the other.
    [
      6,
      /token is unknown.*--to-token-file/s,
      [...access(near, 'admin'), ...target(far, 'admin').slice(0, 4)],
    ],
    [6, /certificate.*--to-ca/s, [...access(near, 'admin'), ...target(far, 'admin').slice(0, 2)]],
  ];
  for (const [exit, why, more] of cases) assertRefused(await runCli([...words, ...more]), exit, why);

  // Named leases are of the whole cluster.
  const [one, [server]] = [join(folder, 'one'), near.servers];
  const tokens = join(near.credentials ?? '', 's1', 'tokens.json');
  succeeded(
    await runCli([
      ...['token', 'create', 'one', '--role', 'admin', '--volume', 'main'],
      ...['--tokens', tokens, '--out', one],
    ]),
  );
  process.kill(server?.pid ?? 0, 'SIGHUP');
  const limited = [...access(near, 'admin').with(-1, one), ...target(far, 'admin')];
  await until('the token for one volume is known, and refused', async () =>
    /"one" may only use the volumes main/.test((await runCli([...words, ...limited])).stderr),
  );
});

test('the copy of a site that is lost takes over, and gives back', async () => {
  await put(near, 'main:/kept', 'of near');
  await put(near, 'main:/changed', 'of near');
  const stop = await mirrorUntilCopied('/changed');
  await Promise.all(near.servers.map((server) => server.kill()));
  await stop();
  assertRefused(await promoteAt(far, 'main', 'writer'), 6, /needs the role admin/);
  succeeded(await promoteAt(far, 'main'));
  await put(far, 'main:/changed', 'of far');

  for (const server of near.servers) {
    await server.start();
    await server.waitUntilReady(READY_MS);
  }
  await put(near, 'main:/late', 'what no copy has');
  assertRefused(await mirror(far, near, 'main'), 4, /or was promoted/);
  const [, kept = ''] =
    /kept as (main@replaced-main-[0-9]+)/.exec(succeeded(await mirror(far, near, 'main', '--replace'))) ?? [];
  assert.equal((await at(near, 'get', `${kept}:/late`, '-')).stdout, 'what no copy has');
  succeeded(await promoteAt(near, 'main'));
  assert.deepEqual(await treeText(near.client, 'main'), await treeText(far.client, 'main'));
  succeeded(await mirror(near, far, 'main', '--replace'));
});

test('a retained file or snapshot of the copy stays, and holds the mirror up only by a change of it', async () => {
  await createVolumes('kept');
  for (const name of ['a', 'b', 'c']) await put(near, `kept:/${name}`, 'contents');
  await at(near, 'retain', '--for', '1h', 'kept:/a');
  succeeded(await mirror(near, far, 'kept'));
  assert.equal((await at(far, 'retain', 'kept:/a')).stdout, 'none\n', 'A retention is not copied');

  await at(far, 'retain', '--for', '1h', 'kept:/b');
  await at(far, 'snapshot', 'retain', 'kept@mirror-main-1', '--for', '1h');
  for (const text of ['one', 'two', 'three']) {
    await put(near, 'kept:/c', text);
    succeeded(await mirror(near, far, 'kept'));
  }
  const { stdout } = await at(far, 'snapshot', 'ls', 'kept');
  assert.match(stdout, /^kept@mirror-main-1 .*retained/m);
  assert.doesNotMatch(stdout, /mirror-main-2 /);

  const copy = await treeText(far.client, 'kept@mirror-main-4');
  await put(near, 'kept:/b', 'other');
  await put(near, 'kept:/c', 'four');
  assertRefused(
    await mirror(near, far, 'kept'),
    4,
    /Cannot change kept:\/b: it is retained until .*\n.*--to URL,URL\/VOLUME/,
  );
  await at(near, 'rm', 'kept:/b');
  assertRefused(await mirror(near, far, 'kept'), 4, /Cannot change kept:\/b: it is retained until /);
  assert.deepEqual(await treeText(far.client, 'kept@mirror-main-4'), copy);
  succeeded(await promoteAt(far, 'kept'));
  assert.deepEqual(await treeText(far.client, 'kept'), copy);

  // The way back: the old site retains a file that the other one has changed meanwhile.
  await put(far, 'kept:/a', 'changed at far');
  const before = await treeText(near.client, 'kept');
  assertRefused(
    await mirror(far, near, 'kept', '--replace'),
    4,
    /Cannot change kept:\/a: it is retained until /,
  );
  const { stdout: snapshots } = await at(near, 'snapshot', 'ls', 'kept');
  const [, kept = ''] = /^(kept@replaced-main-[0-9]+) /m.exec(snapshots) ?? [];
  assert.deepEqual(await treeText(near.client, kept), before, 'Nothing is lost');
});

test('nothing is changed if a retained file prevents a replacement or a promotion', async () => {
  await createVolumes('used');
  await put(near, 'used:/a', 'near');
  await at(far, 'mkdir', 'used:/d');
  for (const name of ['a', 'd/b']) await put(far, `used:/${name}`, 'far');
  await at(far, 'retain', '--for', '1h', 'used:/d/b');
  const before = await treeText(far.client, 'used');
  assertRefused(
    await mirror(near, far, 'used', '--replace'),
    4,
    /Cannot change used:\/d\/b: it is retained until /,
  );
  assert.deepEqual(await treeText(far.client, 'used'), before);
  assert.equal((await at(far, 'snapshot', 'ls', 'used')).stdout, '');

  await createVolumes('foreign');
  await put(near, 'foreign:/a', 'near');
  succeeded(await mirror(near, far, 'foreign'));
  await at(far, 'mkdir', 'foreign:/d');
  for (const name of ['d/b', 'e']) await put(far, `foreign:/${name}`, 'by another client');
  await at(far, 'retain', '--for', '1h', 'foreign:/d/b');
  const present = await treeText(far.client, 'foreign');
  assertRefused(
    await promoteAt(far, 'foreign'),
    4,
    /Cannot change foreign:\/d\/b: .*\n.*cp -r foreign@mirror-main-1:\//,
  );
  assert.deepEqual(await treeText(far.client, 'foreign'), present);
  await at(far, 'cp', '-r', 'foreign@mirror-main-1:/', 'used:/copy');
  assert.equal((await at(far, 'get', 'used:/copy/a', '-')).stdout, 'near');
});
