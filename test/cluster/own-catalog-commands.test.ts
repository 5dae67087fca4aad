/**
 * Goal: the command line creates, lists, uses and removes a volume with a catalog of its own, and its other commands do
 * not need this catalog.
 * Method: five real servers, all members of the root catalog; first one and then a majority of the three members of the
 * volume's catalog are killed.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { type CliResult, runCli } from '../client/run-cli.ts';
import { RealCluster, until } from './real-cluster.ts';

const DEGRADED = 7;
const PRECONDITION = 4;

const cluster = await RealCluster.start({ servers: 5 });
after(() => cluster.stop());
const file = join(cluster.folder, 'file');
writeFileSync(file, 'contents');

interface Listing {
  readonly volumes: readonly { readonly name: string; readonly root: number }[];
  readonly unavailable: readonly string[];
  readonly catalogs: readonly {
    readonly name: string;
    readonly number: number;
    readonly members: readonly string[];
    readonly primary: string | null;
  }[];
}

function run(...argv: readonly string[]): Promise<CliResult> {
  const running = cluster.ids.filter((id) => cluster.isRunning(id)).map((id) => cluster.url(id));
  return runCli(argv, { env: { LEASEHOLD_SERVERS: running.join(',') } });
}

async function done(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await run(...argv);
  assert.equal(code, 0, `leasehold ${argv.join(' ')}: ${stderr}`);
  return stdout;
}

async function listing(): Promise<Listing & { readonly code: number | null }> {
  const { code, stdout, stderr } = await run('volume', 'ls', '--json');
  assert.ok(stdout !== '', stderr);
  return { code, ...(JSON.parse(stdout) as Listing) };
}

/** Waits until the catalog of the volume has a primary that runs. */
async function untilPrimary(): Promise<Listing['catalogs'][number]> {
  let found: Listing['catalogs'][number] | undefined;
  await until('the catalog has a primary', async () => {
    found = (await listing()).catalogs.find(({ name }) => name === 'own');
    return typeof found?.primary === 'string' && cluster.isRunning(found.primary);
  });
  return found as Listing['catalogs'][number];
}

test('a volume with its own catalog is created, used, and survives a failure', async () => {
  await done('volume', 'create', 'main');
  await done('volume', 'create', 'own', '--own-catalog');
  assert.equal((await run('volume', 'create', 'own')).code, PRECONDITION, 'The name is taken');
  const { members, primary } = await untilPrimary();
  assert.equal(members.length, 3);
  const shown = await done('volume', 'ls');
  assert.match(shown, /^main .* root$/m);
  assert.match(shown, new RegExp(`^own .* ${members.join(', ')}; primary ${primary}$`, 'm'));
  for (const volume of ['main', 'own']) {
    await done('mkdir', `${volume}:/d`);
    await done('put', file, `${volume}:/d/`);
    assert.equal(await done('get', `${volume}:/d/file`, '-'), 'contents');
  }
  await cluster.kill(String(primary));
  await done('put', file, 'own:/d/more');
  const next = await untilPrimary();
  assert.notEqual(next.primary, primary);
  await cluster.restart(String(primary));
});

test('while its catalog has no majority, it is named, and commands about others need it not', async () => {
  const { members } = await untilPrimary();
  const [first, second] = members as [string, string];
  await cluster.kill(first);
  await cluster.kill(second);
  const { code, unavailable, volumes } = await listing();
  assert.deepEqual([code, unavailable, volumes.map(({ name }) => name)], [DEGRADED, ['own'], ['main']]);
  const status = await run('status');
  assert.equal(status.code, DEGRADED);
  assert.match(status.stdout, /No majority of the catalog's servers serves volume own: start /);
  await done('mkdir', 'main:/while-it-is-away');
  await done('server', 'label', 's1', 'ssd');
  await done('volume', 'create', 'another');
  await done('volume', 'rm', 'another');
  assert.notEqual((await run('mkdir', 'own:/e', '--timeout', '2s')).code, 0);
  await cluster.restart(first);
  await cluster.restart(second);
  await untilPrimary();
  assert.equal(await done('get', 'own:/d/more', '-'), 'contents');
});

test('it is removed once it is empty, and its name can be used again', async () => {
  const before = await untilPrimary();
  const refused = await run('volume', 'rm', 'own');
  assert.equal(refused.code, PRECONDITION, refused.stderr);
  assert.match(refused.stderr, /"own" is not empty/);
  await done('rm', '-r', 'own:/d');
  await done('volume', 'rm', 'own');
  assert.deepEqual(
    (await listing()).volumes.map(({ name }) => name),
    ['main'],
  );
  assert.equal((await run('ls', 'own:/')).code, 3);
  await done('volume', 'create', 'own', '--own-catalog');
  assert.equal(await done('ls', 'own:/'), '');
  assert.ok((await untilPrimary()).number > before.number);
  await done('put', file, 'own:/again');
});

test('only once its catalog is lost, it can be removed without it', async () => {
  const { members } = await untilPrimary();
  const [first, second] = members as [string, string];
  const refused = await run('volume', 'rm', 'own', '--lost');
  assert.equal(refused.code, PRECONDITION, refused.stderr);
  assert.match(refused.stderr, /"own" is not lost: /);
  assert.equal(await done('get', 'own:/again', '-'), 'contents');
  await cluster.kill(first);
  await cluster.kill(second);
  await done('volume', 'rm', 'own', '--lost');
  const { code, unavailable, volumes } = await listing();
  assert.deepEqual([code, unavailable, volumes.map(({ name }) => name)], [0, [], ['main']]);
  // Their replicas of the catalog are older than its removal.
  await cluster.restart(first);
  await cluster.restart(second);
  assert.equal((await run('ls', 'own:/')).code, 3);
  await done('volume', 'create', 'own', '--own-catalog');
  assert.equal(await done('ls', 'own:/'), '');
});
