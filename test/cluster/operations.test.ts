import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import {
  link,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ServiceError } from '../../base/errors.ts';
import { readArchive } from '../../client/archive/archive-reader.ts';
import { type BackupReport, backup, emptyReport } from '../../client/backup/volume-backup.ts';
import type { PhaseResult } from '../../client/bench/phase.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import type { TreeReport } from '../../client/tree/report.ts';
import type { Command, Query } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { printedBy } from '../client/run-cli.ts';
import { ask, problemIn } from '../http/ask.ts';
import {
  alertRules,
  assertAnswered,
  assertConventions,
  assertRunbooks,
  dashboardPanels,
  metricsTogether,
  RULES,
} from '../packaging/monitoring.ts';
import { SecureCluster } from '../security/secure-cluster.ts';
import { ask as askSecure, close as closeSecure } from '../security/wire-client.ts';
import { LAUNCHER, RealCluster, until } from './real-cluster.ts';

/**
 * Goal: the operators' tools for watching and maintaining a cluster do with real servers what they say.
 * Method: one cluster for all cases; each has its own volume or folder.
 */
const run = promisify(execFile);

const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');
const [url = ''] = cluster.urls;
const promtool = await run('promtool', ['--version']).then(
  () => false,
  () => 'promtool is not installed',
);

test('alerts and dashboard use metrics that servers export', async () => {
  await leasehold('volume', 'create', 'watched', '--quota', '1GiB', '--quota-files', '1000');
  // By way of each server, so that some are forwarded.
  for (const [place, each] of cluster.urls.entries()) {
    const put = await ask(each, 'PUT', `/v1/files/main/watched-${place}`, { body: 'seen' });
    assert.equal(put.status, 201, put.text);
    for (const from of cluster.urls)
      assert.equal((await ask(from, 'GET', `/v1/files/main/watched-${place}`)).status, 200);
  }
  const secured = await metricsOfSecureServer();
  const read = async () =>
    metricsTogether([
      ...(await Promise.all(cluster.urls.map(async (each) => (await ask(each, 'GET', '/metrics')).text))),
      secured,
    ]);
  // Clocks are compared now and then; a file has a primary for a while.
  await until(
    'the clocks are compared',
    async () => (await read()).get('leasehold_clock_offset_seconds')?.series.length === 6,
  );
  const families = await read();
  assertConventions(families);
  for (const { expr, annotations } of alertRules()) assertAnswered(expr, families, annotations.summary);
  for (const { targets } of dashboardPanels())
    for (const { expr, legendFormat } of targets) assertAnswered(expr, families, legendFormat);
  assertRunbooks(alertRules());
});

/** Metrics that only servers with certificates export. */
async function metricsOfSecureServer(): Promise<string> {
  const secure = await SecureCluster.start({ servers: 1 });
  try {
    return (await askSecure(secure, 'GET', '/metrics')).text;
  } finally {
    await closeSecure();
    await secure.stop();
  }
}

test('a rule that uses an unknown metric is found', async () => {
  const families = metricsTogether([(await ask(url, 'GET', '/metrics')).text]);
  assert.throws(
    () => assertAnswered('leasehold_nothing > 0', families, ''),
    /no server has leasehold_nothing/,
  );
  assert.throws(() => assertAnswered('leasehold_lag_files{color="red"} > 0', families, ''), /no label color/);
  assert.throws(
    () => assertAnswered('leasehold_server_state{state="asleep"} > 0', families, ''),
    /no series of leasehold_server_state has state="asleep"/,
  );
  assert.throws(() => assertAnswered('sum by (color) (leasehold_lag_files)', families, ''), /label color/);
  assert.throws(() => assertAnswered('rate(leasehold_lag_files', families, ''), /not understood/);
});

test('promtool finds nothing wrong with the rules', { skip: promtool }, async () => {
  const { stdout } = await run('promtool', ['check', 'rules', RULES]);
  assert.match(stdout, /SUCCESS/);
});

/**
 * Runs the program against the cluster.
 * @returns what it printed
 */
function leasehold(...argv: string[]): Promise<string> {
  return printedBy([...argv, '--servers', cluster.urls.join(',')]);
}

test('a volume becomes an archive that tar reads, and the archive a volume', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-backup-'));
  t.after(() => rm(folder, { recursive: true }));
  const long = 'n'.repeat(200);
  await mkdir(join(folder, 'in/dir', long), { recursive: true });
  const large = randomBytes(3_000_000);
  await writeFile(join(folder, 'in/dir/large'), large);
  await writeFile(join(folder, 'in/dir', long, long), 'a long name');
  await writeFile(join(folder, 'in/dir/small'), 'small', { mode: 0o640 });
  await link(join(folder, 'in/dir/small'), join(folder, 'in/dir/other name'));
  await symlink('../elsewhere', join(folder, 'in/dir/link'));
  await writeFile(join(folder, 'in/dir/holes'), '');
  await truncate(join(folder, 'in/dir/holes'), 20_000_000);
  for (const path of ['in/dir/large', 'in/dir/small', 'in/dir'])
    await utimes(join(folder, path), 1, 981_173_106.125);
  await run('tar', [
    '--format=posix',
    '--sparse',
    '-cf',
    join(folder, 'in.tar'),
    '-C',
    join(folder, 'in'),
    '.',
  ]);

  await cluster.createVolume('kept');
  await leasehold('restore', join(folder, 'in.tar'), 'kept');
  assert.equal((await ask(url, 'GET', '/v1/files/kept/dir/small')).text, 'small');
  const { inode } = (await cluster.info('s1', 'kept/dir/small')).attributes;
  await command({
    kind: 'set-xattr',
    inode,
    name: 'user.bytes',
    value: Buffer.from([0, 255, 10]).toString('base64'),
    mode: 'set',
  });
  const report = JSON.parse(
    await leasehold('backup', 'kept', join(folder, 'out.tar.gz'), '--json'),
  ) as BackupReport;
  assert.deepEqual([report.torn, report.leftOut, report.readAgain], [[], [], 0]);
  assert.ok(report.dataBytes < 4_000_000, 'Holes use no space');

  await mkdir(join(folder, 'out'));
  await run('tar', ['-xpf', join(folder, 'out.tar.gz'), '-C', join(folder, 'out')]);
  assert.deepEqual(await readFile(join(folder, 'out/dir/large')), large);
  assert.equal(await readFile(join(folder, 'out/dir', long, long), 'utf8'), 'a long name');
  assert.equal(await readlink(join(folder, 'out/dir/link')), '../elsewhere');
  const [small, other, holes, directory] = await Promise.all(
    ['small', 'other name', 'holes', '.'].map((name) => stat(join(folder, 'out/dir', name))),
  );
  assert.equal(small?.ino, other?.ino, 'Two names of one file');
  assert.equal((small?.mode ?? 0) & 0o7777, 0o640);
  assert.deepEqual([small?.mtimeMs, directory?.mtimeMs], [981_173_106_125, 981_173_106_125]);
  assert.deepEqual([holes?.size, (holes?.blocks ?? 1e9) < 2000], [20_000_000, true]);

  // Into a second volume, and out of it again: nothing is lost on the way.
  await cluster.createVolume('again');
  await leasehold('restore', join(folder, 'out.tar.gz'), 'again');
  const copy = (await cluster.info('s2', 'again/dir/small')).attributes;
  assert.deepEqual([copy.links, copy.mode, copy.modifiedNs], [2, 0o640, '981173106125000000']);
  const { value } = await query<{ value: string }>({ kind: 'xattr', inode: copy.inode, name: 'user.bytes' });
  assert.deepEqual([...Buffer.from(value, 'base64')], [0, 255, 10]);
  await assert.rejects(leasehold('restore', join(folder, 'out.tar.gz'), 'again'), {
    code: 4,
    stderr: /--merge/,
  });
  await leasehold('restore', join(folder, 'out.tar.gz'), 'again', '--merge');
  await writeFile(join(folder, 'cut.tar.gz'), (await readFile(join(folder, 'in.tar'))).subarray(0, 100_000));
  await assert.rejects(leasehold('restore', join(folder, 'cut.tar.gz'), 'again', '--merge'), {
    code: 1,
    stderr: /truncated/,
  });
});

test('a directory is copied in and out, and an interrupted copy continues', async (t) => {
  await cluster.createVolume('trees');
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-tree-'));
  t.after(() => rm(folder, { recursive: true }));
  const [here, out] = [join(folder, 'here'), join(folder, 'out')];
  await mkdir(join(here, 'deep/down'), { recursive: true });
  await writeFile(join(here, 'deep/small'), 'small', { mode: 0o640 });
  await writeFile(join(here, 'deep/down/empty'), '');
  await symlink('../small', join(here, 'deep/down/link'));
  const large = randomBytes(40 * 1024 * 1024);
  await writeFile(join(here, 'large'), large);
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  t.after(() => client.close());
  /** Bytes of incomplete files, on both sides. */
  const partThere = async () => {
    const { inode } = await client.resolve('trees', '/in');
    for await (const { name, attributes } of client.list({ inode }))
      if (name.endsWith('.part')) return attributes.sizeBytes;
    return 0;
  };
  const partHere = async () => {
    const name = (await readdir(out)).find((one) => one.startsWith('.large.') && one.endsWith('.part'));
    return name === undefined ? 0 : (await stat(join(out, name))).size;
  };
  const again = async (...argv: string[]) => JSON.parse(await leasehold(...argv, '--json')) as TreeReport;

  const put = ['put', '-r', here, 'trees:/in'];
  const changed = () => utimes(join(here, 'large'), 1, Date.now() / 1000);
  await breakOff(put, partThere, changed);
  const stored = await again(...put);
  assert.deepEqual([stored.continued, stored.continuedBytes % (16 * 1024 * 1024)], [1, 0]);
  assert.ok(stored.bytes + stored.continuedBytes >= large.length);
  const idle = await again(...put);
  assert.deepEqual([idle.files, idle.links, idle.directories, idle.same], [0, 0, 0, 3]);
  assert.equal(await partThere(), 0, 'The partial file has become the file');

  const get = ['get', '-r', 'trees:/in', out];
  await breakOff(get, partHere, () => rm(out, { recursive: true, force: true }));
  const fetched = await again(...get);
  assert.deepEqual([fetched.continued, fetched.continuedBytes % (16 * 1024 * 1024)], [1, 0]);
  assert.ok((await readFile(join(out, 'large'))).equals(large));
  assert.deepEqual((await again(...get)).same, 3);
  const { stdout } = await run('diff', ['-r', '--no-dereference', here, out]);
  assert.equal(stdout, '');
  assert.equal((await stat(join(out, 'deep/small'))).mode & 0o777, 0o640);
  assert.equal((await again('put', '-r', out, 'trees:/in')).same, 3, 'Times are copied in both directions');

  // An error of a single file does not stop the copy of the others.
  await writeFile(join(here, 'deep/small'), 'not so small');
  await rm(join(here, 'deep/down'), { recursive: true });
  await writeFile(join(here, 'deep/down'), 'was a directory');
  await assert.rejects(leasehold(...put), { code: 1, stderr: /"deep\/down": there is a directory/ });
  assert.equal(await leasehold('get', 'trees:/in/deep/small', '-'), 'not so small');
});

/** Runs a copy of a tree and kills it when more than a section of the large file exists. */
async function breakOff(
  argv: readonly string[],
  partBytes: () => Promise<number>,
  begin: () => Promise<void>,
): Promise<void> {
  for (let turn = 1; ; turn++) {
    await begin();
    const child = spawn(process.execPath, [LAUNCHER, ...argv, '--servers', cluster.urls.join(',')]);
    const end = once(child, 'exit');
    for (let seen = 0; seen <= 16 * 1024 * 1024 && child.exitCode === null; ) {
      seen = await partBytes().catch(() => 0);
      await delay(5);
    }
    child.kill('SIGKILL');
    const [, signal] = await end;
    if (signal === 'SIGKILL') return;
    assert.ok(turn < 5, 'The copy ended before it could be killed');
  }
}

test('a file that changes while it is archived is archived as one version', async () => {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  try {
    await cluster.createVolume('busy');
    const sizeBytes = 3 * 1024 * 1024;
    const contents = (letter: string) => Buffer.alloc(sizeBytes, letter);
    await uploadFile(client, 'busy', '/file', Readable.from([contents('a')]));
    const file = client.openFile((await client.resolve('busy', '/file')).inode);
    const report = emptyReport();
    let changed = false;
    async function* disturbed(): AsyncGenerator<Uint8Array, void, undefined> {
      for await (const piece of backup(client, await client.resolve('busy', '/'), report, {})) {
        yield piece;
        if (changed || report.dataBytes === 0) continue;
        // The member's header is written, with its size; now the contents change.
        changed = true;
        for (let at = 0; at < sizeBytes; at += 1024 * 1024)
          await file.write(at, Buffer.alloc(1024 * 1024, 'b'));
      }
    }
    let last = Buffer.alloc(0);
    for await (const { entry, data } of readArchive(disturbed())) {
      const pieces: Buffer[] = [];
      for await (const piece of data) pieces.push(piece);
      if (entry.path === 'file') last = Buffer.concat(pieces);
    }
    assert.ok(changed);
    assert.deepEqual([report.readAgain, report.torn], [1, []]);
    assert.ok(last.equals(contents('b')), 'The last member of the name counts');
  } finally {
    await client.close();
  }
});

test('bench measures, and leaves no files', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-bench-'));
  t.after(() => rm(folder, { recursive: true }));
  await cluster.createVolume('measured');
  const flags = ['--duration', '200ms', '--workers', '2', '--size', '8KiB', '--json'];
  const of = async (...what: string[]) =>
    JSON.parse(await leasehold('bench', ...what, ...flags)) as { phases: PhaseResult[] };
  const { phases } = await of('measured');
  assert.deepEqual(
    phases.map(({ name }) => name),
    ['put', 'get', 'stat', 'overwrite 4 KiB'],
  );
  for (const { name, operations, errors, p50Ms, p99Ms, maxMs } of [
    ...phases,
    ...(await of('--dir', folder)).phases,
  ]) {
    assert.ok(operations > 0, `${name} executed operations`);
    assert.equal(errors, 0);
    assert.ok(p50Ms > 0 && p50Ms <= p99Ms && p99Ms <= maxMs * 1.01, `${name}: ${p50Ms} ${p99Ms} ${maxMs}`);
  }
  assert.equal(await leasehold('ls', 'measured:/'), '');
  assert.deepEqual(await readdir(folder), []);
  await assert.rejects(leasehold('bench', '--json'), { code: 2, stderr: /either a volume or --dir/ });
});

test('a bundle of the doctor has useful files, and no secrets', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-bundle-'));
  t.after(() => rm(folder, { recursive: true }));
  const secret = 'tHe-sEcReT';
  const key = `-----BEGIN PRIVATE KEY-----\n${secret}\n-----END PRIVATE KEY-----`;
  await writeFile(
    join(folder, 's1.toml'),
    `id = "s1"\ntoken = "${secret}"\n[tls]\nprivate-key = '''\n${key}\n'''\n`,
  );
  await writeFile(
    join(folder, 'mount.log'),
    `{"authorization":"Bearer ${secret}","msg":"a line of the log"}\n`,
  );
  const bundle = join(folder, 'bundle.tar.gz');
  const logs = [join(folder, 'mount.log'), cluster.logFile('s1'), join(folder, 'none')];
  const flags = ['--bundle', bundle, '--json', '--config', join(folder, 's1.toml'), '--log', ...logs];
  const said = await leasehold('doctor', ...flags).catch((error: { code: number; stdout: string }) => {
    // What this machine lacks for a mount is not the subject.
    assert.ok([1, 7].includes(error.code), `${error.code}`);
    return error.stdout;
  });
  await run('tar', ['-xzf', bundle, '-C', folder]);
  const of = (path: string) => readFile(join(folder, 'leasehold-bundle', path), 'utf8');
  assert.deepEqual(
    JSON.parse(await of('findings.json')),
    (JSON.parse(said) as { findings: object[] }).findings,
  );
  const first = `servers/127.0.0.1-${cluster.port('s1')}`;
  assert.match(await of(`${first}/metrics.txt`), /^leasehold_build_info/m);
  assert.equal((JSON.parse(await of(`${first}/status.json`)) as { id: string }).id, 's1');
  assert.match(await of(`${first}/readyz.txt`), /^\[\+\]storage ok/);
  assert.match(await of('logs/s1.log'), /server listens/);
  assert.match(await of('logs/mount.log'), /a line of the log/);
  assert.match(await of('logs/none.missing'), /ENOENT/);
  assert.match(await of('configuration/s1.toml'), /^id = "s1"$/m);
  const all = await readdir(join(folder, 'leasehold-bundle'), { recursive: true, withFileTypes: true });
  for (const one of all.filter((entry) => entry.isFile())) {
    assert.ok(!(await readFile(join(one.parentPath, one.name), 'utf8')).includes(secret), one.name);
  }
});

test('a trace follows a request from server to server', async () => {
  const traceId = randomBytes(16).toString('hex');
  const sender = '00f067aa0ba902b7';
  const headers = { traceparent: `00-${traceId}-${sender}-01`, tracestate: 'vendor=1' };
  // Two of three are not the catalog's primary and have to forward it.
  for (const [place, each] of cluster.urls.entries()) {
    const response = await fetch(`${each}/v1/files/main/traced-${place}`, {
      method: 'PUT',
      body: 'traced',
      headers,
    });
    assert.equal(response.status, 201);
  }
  interface Line {
    readonly server: string;
    readonly msg: string;
    readonly trace_id?: string;
    readonly span_id?: string;
    readonly parent_id?: string;
  }
  const lines = (): Line[] =>
    cluster.ids
      .flatMap((id) => cluster.log(id).trim().split('\n'))
      .map((line) => JSON.parse(line) as Line)
      .filter(({ trace_id, msg }) => trace_id === traceId && msg === 'request (sampled trace)');
  const received = () => lines().filter(({ parent_id }) => parent_id === sender);
  await until('each request is logged', async () => received().length === cluster.ids.length);
  const forwarded = lines().filter(({ parent_id }) => parent_id !== sender);
  assert.ok(forwarded.length > 0, 'Part of it was executed elsewhere');
  for (const { parent_id, server } of forwarded) {
    const from = received().find(({ span_id }) => span_id === parent_id);
    assert.ok(
      from !== undefined && from.server !== server,
      'A forwarded request names the server that forwarded it',
    );
  }
  const malformed = { traceparent: `00-${'0'.repeat(32)}-${sender}-01` };
  assert.equal((await fetch(`${url}/livez`, { headers: malformed })).status, 200, 'It is ignored');
});

test('a volume exceeds its quota by no kind of write', async () => {
  await leasehold('volume', 'create', 'limited', '--quota', '3MiB', '--quota-files', '5');
  const piece = Buffer.alloc(1024 * 1024, 'x');
  const put = (server: string, name: string, body: Uint8Array) =>
    ask(server, 'PUT', `/v1/files/limited/${name}`, { body });
  assert.equal((await put(url, 'whole', piece)).status, 201);
  const [, second = '', third = ''] = cluster.urls;
  const refused = await put(second, 'too-large', Buffer.alloc(2.5 * 1024 * 1024));
  assert.deepEqual([refused.status, problemIn(refused).code], [507, 'quota-exceeded']);
  assert.equal((await ask(third, 'GET', '/v1/files/limited/too-large')).status, 404);

  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  try {
    // Written in place, as programs on mounts do: two files at a time, none of them synced.
    const create = async (name: string) => {
      const place = { volume: 'limited', path: name };
      const made = await client.command({
        kind: 'create-file',
        place,
        mode: 0o644,
        uid: 0,
        gid: 0,
        exclusive: true,
      });
      return client.openFile(made.attributes.inode, { replicas: made.attributes.replicas });
    };
    const first = await create('/one');
    const files = [first, await create('/two')];
    let bytes = 0;
    const codes = new Set<string>();
    await Promise.all(
      files.map(async (file) => {
        for (let turn = 0; turn < 40; turn++) {
          try {
            await file.write('append', piece.subarray(0, 64 * 1024));
            bytes += 64 * 1024;
          } catch (error) {
            if (!(error instanceof ServiceError)) throw error;
            codes.add(error.code);
          }
        }
      }),
    );
    assert.deepEqual([...codes], ['quota-exceeded']);
    assert.ok(
      bytes <= 2 * 1024 * 1024 && bytes > 1.5 * 1024 * 1024,
      `${bytes} bytes beside the first mebibyte`,
    );
    await first.write(0, Buffer.from('in place'));
    await assert.rejects(first.truncate(10 * 1024 * 1024), { code: 'quota-exceeded' });
    await first.truncate(0);
    for (const file of files) await file.settle();
    const { volume } = await client.query({ kind: 'volume', name: 'limited' });
    assert.deepEqual([volume.namedInodes, volume.quotaBytes], [4, 3 * 1024 * 1024]);
    assert.ok(volume.namedBytes < 3 * 1024 * 1024);
    await client.command({
      kind: 'make-directory',
      place: { volume: 'limited', path: '/d' },
      mode: 0o755,
      uid: 0,
      gid: 0,
    });
    const sixth = await put(third, 'sixth', Buffer.from('x'));
    assert.equal(problemIn(sixth).code, 'quota-exceeded');
    await leasehold('volume', 'set', 'limited', '--quota-files', 'none', '--quota', '10MiB');
    assert.equal((await put(third, 'sixth', Buffer.alloc(4 * 1024 * 1024))).status, 201);
    assert.match(await leasehold('volume', 'ls'), /^limited .* of 10\.0 MiB\s+–\s+–\s+–\s+root$/m);
  } finally {
    await client.close();
  }
});

test('files and directories are copied within the cluster', async () => {
  await cluster.createVolume('origin');
  await cluster.createVolume('copies');
  const sizeBytes = 3 * 1024 * 1024;
  const bytes = randomBytes(sizeBytes);
  for (const path of ['tree/large', 'tree/deep/down/large'])
    assert.equal(
      (await ask(url, 'PUT', `/v1/files/origin/${path}?parents=true`, { body: bytes })).status,
      201,
    );
  await leasehold('cp', 'origin:/tree/large', 'copies:/one');
  assert.deepEqual((await ask(url, 'GET', '/v1/files/copies/one')).bytes, bytes);
  await assert.rejects(leasehold('cp', 'origin:/tree/large', 'copies:/one', '--no-replace'), { code: 4 });
  await assert.rejects(leasehold('cp', 'origin:/tree', 'copies:/'), { code: 4, stderr: /--recursive/ });
  const told = JSON.parse(await leasehold('cp', '-r', 'origin:/tree', 'copies:/', '--json'));
  const sum = {
    files: 2,
    directories: 3,
    links: 0,
    bytes: 2 * sizeBytes,
    same: 0,
    skipped: [],
    junctions: [],
  };
  assert.deepEqual(told, { from: 'origin:/tree', to: 'copies:/tree', ...sum });
  assert.deepEqual((await ask(url, 'GET', '/v1/files/copies/tree/deep/down/large')).bytes, bytes);
  // As after an interruption.
  await leasehold('rm', 'copies:/tree/deep/down/large');
  const rest = await leasehold('cp', '-r', '--resume', 'origin:/tree', 'copies:/tree');
  assert.match(rest, /^Copied 1 files, 3\.0 MiB, to copies:\/tree; 1 existed already$/m);
  assert.deepEqual((await ask(url, 'GET', '/v1/files/copies/tree/deep/down/large')).bytes, bytes);
});

async function post<Answer>(path: string, body: unknown): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return (await response.json()) as Answer;
}

function query<Answer>(asked: Query): Promise<Answer> {
  return post('/v1/catalog/queries', { query: asked });
}

function command<Answer>(asked: Command): Promise<Answer> {
  return post('/v1/catalog/commands', { session: randomInt(1, 2 ** 47), number: 1, command: asked });
}
