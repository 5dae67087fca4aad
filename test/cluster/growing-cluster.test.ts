/**
 * Goal: a cluster grows from one server to five by `--join` alone, and then survives the loss of any two, also of the
 * first ones. Until then `status` and `ok-to-stop` say exactly what another failure would cost.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { ClusterStatus, StopCheck } from '../../wire/http-api.ts';
import type { GrantedLease } from '../../wire/named-lease-api.ts';
import { RealCluster, until } from './real-cluster.ts';

const TTL_MS = 2_000;
const REQUEST_MS = 30_000;
const cluster = await RealCluster.start({
  servers: 1,
  flags: ['--named-lease-max', `${TTL_MS}ms`, '--replace-after', '1h', '--op-timeout', '5s'],
});
after(() => cluster.stop());
await cluster.createVolume('main');

const fetchAt = (at: string, path: string, init: RequestInit = {}): Promise<Response> =>
  fetch(`${cluster.url(at)}${path}`, { ...init, signal: AbortSignal.timeout(REQUEST_MS) });

async function put(at: string, path: string): Promise<void> {
  const answer = await fetchAt(at, `/v1/files/${path}`, { method: 'PUT', body: path });
  assert.ok(answer.status < 300, `${path}: ${await answer.text()}`);
}

async function command(at: string, command: object): Promise<void> {
  const answer = await fetchAt(at, '/v1/catalog/commands', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ session: Math.floor(Math.random() * 2 ** 50) + 1, number: 1, command }),
  });
  assert.ok(answer.ok, await answer.text());
}

async function stopCheck(at: string, server: string): Promise<StopCheck> {
  const answer = await fetchAt(at, `/v1/servers/${server}/ok-to-stop`);
  assert.equal(answer.status, 200);
  return (await answer.json()) as StopCheck;
}

/** @returns null if the outcome is unknown, or another session holds the lease */
async function acquire(at: string, session: number): Promise<GrantedLease | null> {
  const answer = await fetchAt(at, '/v1/leases/jobs%2Fnightly', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'leasehold-session': String(session) },
    body: JSON.stringify({ owner: `session ${session}`, ttlMs: TTL_MS }),
  });
  return answer.ok ? ((await answer.json()) as GrantedLease) : null;
}

async function replicasOf(at: string, path: string): Promise<string[]> {
  const { replicas } = await cluster.info(at, path);
  return replicas.filter(({ state }) => state === 'current').map(({ server }) => server);
}

function votersOf({ servers }: ClusterStatus): number {
  return Math.min(...servers.map(({ namedLeases }) => namedLeases?.voters ?? 0));
}

/** Waits until status is healthy, and asserts that it is so no earlier than names and leases are on `count` servers. */
async function grownTo(count: number): Promise<void> {
  await until(`names and named leases are on ${count} servers`, async () => {
    const status = await cluster.status('s1');
    const { verdict, reasons, catalog } = status;
    const names = catalog.members.length;
    const said = (what: string) => reasons.some((reason) => reason.startsWith(what));
    // A lease is known, so that it matters how many servers vote.
    if (verdict === 'healthy') assert.deepEqual([names, votersOf(status)], [count, count]);
    else if (names < count) assert.ok(said(`Names are on ${names} of ${count} servers`), reasons.join());
    return verdict === 'healthy';
  });
}

let token = 0;

test('one server is needed by all; of two, the first one alone has the names', async () => {
  await put('s1', 'main/a');
  assert.equal((await cluster.status('s1')).verdict, 'healthy');
  const { ok, reasons, files } = await stopCheck('s1', 's1');
  assert.deepEqual([ok, files.count], [false, 1]);
  for (const what of [
    /^Names would be unavailable/,
    /^Named leases would be/,
    /^1 file would lack a majority/,
  ])
    assert.ok(
      reasons.some((reason) => what.test(reason)),
      reasons.join(),
    );
  await until('a lease is held', async () => {
    token = (await acquire('s1', 1))?.token ?? 0;
    return token > 0;
  });
  await cluster.join('s2', ['s1']);
  await until('status says that names are on one server', async () => {
    const { verdict, reasons } = await cluster.status('s2');
    const said = reasons.includes('Names are on 1 of 2 servers: one more failure loses them; add 1 server');
    return verdict === 'degraded' && said;
  });
});

test('with three servers, nothing depends on one of them', async () => {
  await cluster.join('s3', ['s1']);
  await grownTo(3);
  await command('s1', { kind: 'volume-set', name: 'main', replicas: 3 });
  await until('the file is on three servers', async () => (await replicasOf('s1', 'main/a')).length === 3);
  for (const id of ['s1', 's2', 's3'])
    await until(`${id} can be stopped`, async () => (await stopCheck('s1', id)).ok);
});

test('with five servers, any two can fail, and what needs three of its servers is known', async () => {
  await Promise.all([cluster.join('s4', ['s2']), cluster.join('s5', ['s3'])]);
  await grownTo(5);
  await command('s4', { kind: 'volume-create', name: 'five', replicas: 5, objectBytes: 131_072 });
  const paths = ['main/a', 'main/b', 'main/c', 'main/d'];
  for (const path of [...paths.slice(1), 'five/x']) await put('s5', path);
  await until('all have it', async () => (await replicasOf('s5', 'five/x')).length === 5);
  await until('s1 can be stopped', async () => (await stopCheck('s2', 's1')).ok);
  token = (await acquire('s4', 1))?.token ?? token;
  const servers = await Promise.all(paths.map(async (path) => (await cluster.info('s3', path)).view.members));
  const lost = paths.filter((_, place) => ['s1', 's2'].every((id) => servers[place]?.includes(id)));
  assert.ok(lost.includes('main/a'), 'It was on the first three servers');

  await cluster.kill('s1');
  await until('the second is needed by files of the first alone', async () => {
    const { ok, reasons, files } = await stopCheck('s3', 's2');
    if (ok || reasons.length > 1) return false;
    assert.match(
      reasons[0] ?? '',
      /would lack a majority of their servers while s1 is missing \(for example \d/,
    );
    return files.count === lost.length;
  });
  await cluster.kill('s2');

  await until('names are changed', async () => {
    await put('s3', 'five/y');
    return true;
  });
  const answers = async (path: string): Promise<number> => (await fetchAt('s4', `/v1/files/${path}`)).status;
  for (const path of ['five/x', ...paths.filter((one) => !lost.includes(one))])
    await until(`${path} is read`, async () => (await answers(path)) === 200);
  // The third server may answer reads under its read lease for as long as that lasts.
  for (const path of lost) await until(`${path} has no majority`, async () => (await answers(path)) === 503);
  await until('another session holds the lease', async () => {
    const next = await acquire('s5', 2);
    if (next !== null) assert.ok(next.token > token, `${next.token} follows ${token}`);
    return next !== null;
  });
});
