import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { printedBy, runCli } from '../client/run-cli.ts';
import { type Answer, ask, problemIn } from '../http/ask.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: whichever route a change takes, and whichever server is primary, a retained file keeps its contents and its
 * name, and a retained snapshot stays; then their dates come.
 * Method: a real cluster; administrators' commands, REST, backups and a mount against files of the root catalog and of
 * a volume's own.
 */
const cluster = await RealCluster.start({ flags: ['--gc-grace', '1s'] });
after(() => cluster.stop());
const folder = mkdtempSync(join(tmpdir(), 'retention-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const env = { LEASEHOLD_SERVERS: cluster.urls.join(',') };
let asked = cluster.ids[0] ?? '';

const leasehold = (...argv: string[]): Promise<string> => printedBy(argv, { env });

/** Repeats a request as often as an election demands. */
async function at(method: string, path: string, body?: string): Promise<Answer> {
  let answer: Answer | null = null;
  await until(`${asked} answers ${method} ${path}`, async () => {
    answer = await ask(cluster.url(asked), method, path, body === undefined ? {} : { body });
    return answer.status !== 503;
  });
  assert.ok(answer !== null);
  return answer;
}

async function done(method: string, path: string, body?: string): Promise<Answer> {
  const answer = await at(method, path, body);
  assert.ok(answer.status < 300, answer.text);
  return answer;
}

const dateNs = (date: string): string => `${BigInt(Date.parse(date)) * 1_000_000n}`;

/** As the root catalog lists it. */
async function retainedNsOf(volume: string): Promise<string | undefined> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ query: { kind: 'catalogs' } });
  const { text } = await ask(cluster.url(asked), 'POST', '/v1/catalog/queries', { headers, body });
  const { catalogs } = JSON.parse(text) as { catalogs: { name: string; retainedNs?: string }[] };
  return catalogs.find(({ name }) => name === volume)?.retainedNs;
}

async function refused(method: string, path: string, body?: string): Promise<void> {
  const answer = await at(method, path, body);
  assert.equal(answer.status, 409, `${method} ${path}: ${answer.text}`);
  assert.equal(problemIn(answer).code, 'protected');
}

async function failed(argv: string[], message: RegExp): Promise<void> {
  const { code, stderr } = await runCli(argv, { env });
  assert.equal(code, 4, `${argv.join(' ')}: ${stderr}`);
  assert.match(stderr, message);
}

async function assertRetained(volume: string): Promise<void> {
  const files = `/v1/files/${volume}`;
  await refused('PUT', `${files}/d/f`, 'other');
  await refused('PUT', `${files}/d/f`, 'x'.repeat(1_000_000));
  await refused('PATCH', `${files}/d/f?offset=0`, 'other');
  await refused('PATCH', `${files}/d/f?append`, 'other');
  await refused('DELETE', `${files}/d/f?trash=false`);
  await refused('DELETE', `${files}/d/?recursive=true`);
  await refused('POST', `${files}/d/f?move-to=/g`);
  await refused('POST', `${files}/other?copy-to=/d/f`);
  await refused('POST', `${files}/d/f?retain=1h`);
  assert.equal((await done('GET', `${files}/d/f`)).text, 'contents');
}

for (const volume of ['main', 'own'])
  test(`no request changes or removes a retained file of volume "${volume}", before and after a failover`, async () => {
    if (volume === 'own') await leasehold('volume', 'create', 'own', '--own-catalog', '--trash', '1d');
    else await leasehold('volume', 'create', 'main', '--trash', '1d');
    const files = `/v1/files/${volume}`;
    await done('PUT', `${files}/d/f?parents=true`, 'first');
    await done('PUT', `${files}/other`, 'other');
    await done('PATCH', `${files}/d/f?offset=0`, 'cont');
    await done('PATCH', `${files}/d/f?offset=4`, 'ents');
    assert.equal(await leasehold('retain', `${volume}:/d/f`), 'none\n');
    const { text } = await done('POST', `${files}/d/f?retain=2090-01-31`);
    assert.equal((JSON.parse(text) as { retainUntil: string }).retainUntil, '2090-01-31T00:00:00Z');
    assert.match((await done('GET', `${files}/d/`)).text, /"retainUntil":"2090-01-31T00:00:00Z"/);
    assert.equal(
      await leasehold('retain', '--until', '2090-02-01', `${volume}:/d/f`),
      '2090-02-01T00:00:00Z\n',
    );
    // Before the answer, the root catalog knows the date, as of the next hour.
    if (volume === 'own') assert.equal(await retainedNsOf('own'), dateNs('2090-02-01T01:00:00Z'));
    assert.match(await leasehold('stat', `${volume}:/d/f`), /retained +until 2090-02-01 00:00:00 UTC/);
    await assertRetained(volume);
    await failed(['retain', '--for', '30d', `${volume}:/d/f`], /never shortened/);
    await failed(['rm', '--force', '--no-trash', `${volume}:/d/f`], /retained until 2090-02-01T00:00:00Z/);
    await failed(['rm', '-r', `${volume}:/d`], /retained until/);
    await leasehold('flags', '--clear', 'immutable,append-only', `${volume}:/d/f`);
    await leasehold('volume', 'set', volume, '--quota', '1', '--trash', '0');
    await leasehold('trash', 'empty', volume);
    await leasehold('volume', 'set', volume, '--quota', 'none');
    const archive = join(folder, `${volume}.tar`);
    await leasehold('backup', `${volume}:/d`, archive);
    await failed(['restore', '--merge', archive, `${volume}:/d`], /retained until/);
    writeFileSync(join(folder, 'f'), 'new');
    await failed(['put', join(folder, 'f'), `${volume}:/d/f`], /retained until/);
    const removal = await runCli(['volume', 'rm', volume], { env });
    assert.notEqual(removal.code, 0, removal.stdout);

    const { headers } = await done('GET', `${files}/d/f`);
    const victim = String(headers['leasehold-primary'] ?? cluster.ids[0]);
    asked = cluster.ids.find((id) => id !== victim) ?? '';
    await cluster.kill(victim);
    await assertRetained(volume);
    await cluster.spawn(victim);
    await assertRetained(volume);

    await done('PUT', `${files}/brief`, 'brief');
    await done('POST', `${files}/brief?retain=2s`);
    await refused('DELETE', `${files}/brief`);
    await until('the date has come', async () => (await at('DELETE', `${files}/brief`)).status === 204);
  });

test('a retained snapshot is not removed; pruning leaves it', async () => {
  await leasehold('snapshot', 'create', 'main@daily', '--retain', '2s');
  await leasehold('snapshot', 'create', 'main@monthly', '--retain', '400d');
  await leasehold('snapshot', 'create', 'main@plain');
  await failed(['snapshot', 'rm', '--force', 'main@monthly'], /"main@monthly" is retained until/);
  await refused('DELETE', '/v1/snapshots/main/monthly');
  await failed(['snapshot', 'retain', 'main@monthly', '--for', '1d'], /never shortened/);
  assert.match(await leasehold('snapshot', 'ls', 'main'), /main@monthly .* retained until 20/);
  const longer = JSON.parse(
    (await done('POST', '/v1/snapshots/main/plain?retain=2090-01-31')).text,
  ) as object;
  assert.equal((longer as { retainUntil: string }).retainUntil, '2090-01-31T00:00:00Z');
  await until('the date has come', async () => {
    const pruned = await leasehold('snapshot', 'prune', 'main', '--keep', '0');
    assert.match(pruned, /kept main@monthly: retained until/);
    assert.match(pruned, /kept main@plain: retained until 2090/);
    return pruned.includes('removed main@daily');
  });
  assert.equal((await at('PUT', '/v1/snapshots/main/x?retain=soon')).status, 400);
});

test('all files in a directory are retained by one command', async () => {
  for (const name of ['a', 'b', 'c/d']) await done('PUT', `/v1/files/main/all/${name}?parents=true`, name);
  await leasehold('retain', '--until', '2095-01-01', 'main:/all/a');
  const text = await leasehold('retain', '-r', '--until', '2091-01-01', 'main:/all');
  assert.equal(text, 'retained 2 files; 1 are retained longer already\n');
  await refused('DELETE', '/v1/files/main/all/c/d');
  await failed(['retain', '--until', '2091-01-01', 'main:/all'], /it is a directory/);
});

/** Changes by system calls, of a file that is open before it is retained. */
const PROGRAM = `
import errno, os, sys
path = os.path.join(sys.argv[1], 'f')
def outcome(name, call):
    try: print(name, call() or 'ok')
    except OSError as error: print(name, errno.errorcode.get(error.errno))
before = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
os.pwrite(before, b'kept', 0)
name = 'leasehold.retain_until'
outcome('none', lambda: os.getxattr(path, name))
outcome('wrong', lambda: os.setxattr(path, name, b'soon'))
outcome('past', lambda: os.setxattr(path, name, b'2001-01-01'))
outcome('set', lambda: os.setxattr(path, name, b'2090-01-31'))
outcome('shorter', lambda: os.setxattr(path, name, b'30d'))
outcome('remove', lambda: os.removexattr(path, name))
outcome('get', lambda: os.getxattr(path, name).decode())
outcome('write-before', lambda: (os.pwrite(before, b'x', 0), os.fsync(before)) and None)
outcome('open', lambda: os.open(path, os.O_WRONLY))
outcome('truncate', lambda: os.truncate(path, 1))
outcome('chmod', lambda: os.chmod(path, 0o600))
outcome('unlink', lambda: os.unlink(path))
outcome('rename', lambda: os.rename(path, path + '2'))
outcome('read', lambda: open(path).read())
`;
const OUTCOMES = {
  ...{ none: 'ENODATA', wrong: 'EINVAL', past: 'EINVAL', set: 'ok', shorter: 'EPERM', remove: 'ENOTSUP' },
  ...{
    get: '2090-01-31T00:00:00Z',
    'write-before': 'EPERM',
    open: 'EPERM',
    truncate: 'EPERM',
    chmod: 'EPERM',
  },
  ...{ unlink: 'EPERM', rename: 'EPERM', read: 'kept' },
};
const obstacle = kernelTransportObstacle();
const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;
const hasGetfattr = spawnSync('getfattr', ['--version']).status === 0;

test('a mount shows and sets the date, and programs receive EPERM', { skip }, async (t) => {
  await cluster.createVolume('mounted');
  const mount = await ClusterMount.start(cluster, 'mounted', '--transport', 'kernel');
  t.after(() => mount.stop());
  const { text } = await runOk('python3', ['-c', PROGRAM, mount.directory]);
  const lines = text.trim().split('\n');
  assert.deepEqual(Object.fromEntries(lines.map((line) => line.split(' '))), OUTCOMES);
  const other = await ClusterMount.start(cluster, 'mounted', '--transport', 'kernel');
  t.after(() => other.stop());
  await assert.rejects(open(join(other.directory, 'f'), 'r+'), { code: 'EPERM' });
  if (!hasGetfattr) return;
  const shown = await run('getfattr', ['-d', '-m', 'leasehold.', join(other.directory, 'f')]);
  assert.match(shown.text, /leasehold\.retain_until="2090-01-31T00:00:00Z"/);
});
