import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { examineCluster, examinePorts } from '../../client/doctor/cluster.ts';
import { examineDataFolder } from '../../client/doctor/data-folder.ts';
import type { Finding } from '../../client/doctor/finding.ts';
import { examineMachine } from '../../client/doctor/machine.ts';
import { unmountDirectory } from '../../client/mounts/unmount.ts';
import { noMount, TestMount } from '../fuse/mounted.ts';

const NOBODY = 65_534;

const skip = process.platform !== 'linux' && 'it reads /proc';

function lines(findings: readonly Finding[]): string[] {
  return findings.map(({ state, found }) => `${state}: ${found}`);
}

test('a data folder: missing, empty, of another user, damaged, not stopped in order, in order', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-doctor-'));
  t.after(() => rm(folder, { recursive: true }));
  const last = async () => (await examineDataFolder(folder)).at(-1) as Finding;
  const meta = (facts: object) =>
    writeFile(join(folder, 'META'), JSON.stringify({ server: 's1', cluster: 'default', ...facts }));

  assert.deepEqual(lines(await examineDataFolder(join(folder, 'missing'))), [
    'failed: it cannot be used: no such file or directory',
  ]);
  assert.equal((await last()).state, 'ok');
  await writeFile(join(folder, 'letter'), 'text');
  assert.match((await last()).found, /META is missing/);
  await writeFile(join(folder, 'META'), '{ "server": ');
  assert.deepEqual([(await last()).state, (await last()).found], ['failed', 'its META is damaged']);
  await meta({ clean: false });
  assert.deepEqual(
    [(await last()).state, /not shut down cleanly/.test((await last()).found)],
    ['warning', true],
  );
  await writeFile(join(folder, 'lock.pid'), `${process.pid} on here`);
  assert.equal((await last()).state, 'ok', 'its server runs');
  await rm(join(folder, 'lock.pid'));
  await meta({ clean: true });
  assert.equal((await last()).state, 'ok');
  await meta({ clean: true, failed: true });
  assert.match((await last()).found, /the disk failed/);
});

test('a port: free, or used by a process that is named', { skip }, async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const [taken] = await examinePorts([`127.0.0.1:${port}`]);
  assert.equal(taken?.state, 'failed');
  assert.match(taken?.found ?? '', new RegExp(`^it is used by process ${process.pid} \\(`));
  server.close();
  await once(server, 'close');
  assert.deepEqual(lines(await examinePorts([`http://127.0.0.1:${port}`])), ['ok: it is free']);
  assert.deepEqual(await examinePorts(['192.0.2.1:7401']), [], 'not an address of this machine');
});

test('a port of a hidden process: a server identifies itself, any other is suspected', {
  skip: skip || (process.getuid?.() !== 0 && 'only root can hide a process from another user'),
}, async (t) => {
  const answers: object[] = [{ id: 's1', state: 'serving' }, { hello: 'world' }];
  const server = createHttpServer((_, response) => response.end(JSON.stringify(answers.shift())));
  t.after(() => server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const seen = async () => lines(await asNobody(`http://127.0.0.1:${port}`));
  assert.deepEqual(await seen(), ['ok: server s1 has it']);
  assert.deepEqual(await seen(), ['warning: it is used by a process that is not visible to this user']);
});

/** As `examinePorts`, by a user who cannot see other users' processes. */
async function asNobody(address: string): Promise<readonly Finding[]> {
  const source = new URL('../../client/doctor/cluster.ts', import.meta.url).href;
  const code = `console.log(JSON.stringify(await (await import('${source}')).examinePorts(['${address}'])))`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
    uid: NOBODY,
    gid: NOBODY,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return JSON.parse(await text(child.stdout)) as readonly Finding[];
}

test('a cluster that does not answer, and a program on its port that is no server', async (t) => {
  const server = createServer((socket) => socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n'));
  t.after(() => server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const findings = await examineCluster([`http://127.0.0.1:${port}`], '1.0.0');
  assert.deepEqual(lines(findings), [
    'failed: it does not answer: HTTP status 404',
    'failed: no server answers',
  ]);
  assert.ok(findings.every(({ fix }) => fix !== ''));
});

test('a clock is suspected by certain bounds only, not by a poor estimate', async (t) => {
  const timing = { leaseMs: 2_000, clockSkewMaxMs: 100 };
  const offsets = { s2: { offsetMs: 400, errorMs: 390 } };
  const server = createHttpServer((request, response) => {
    const self = { id: 's1', state: 'serving', version: '1.0.0', clockOffsets: offsets };
    const cluster = { verdict: 'healthy', reasons: [], timing };
    response.end(JSON.stringify(request.url === '/v1/status/self' ? self : cluster));
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const clock = async () => (await examineCluster([`http://127.0.0.1:${port}`], '1.0.0')).at(-1) as Finding;
  const poor = await clock();
  assert.equal(poor.state, 'ok');
  assert.match(poor.found, /^s2 differs from it by 400 ms ± 390 ms/);
  offsets.s2.errorMs = 10;
  assert.equal((await clock()).state, 'warning');
});

test('each prerequisite of a mount on this machine is checked once', { skip }, async () => {
  const findings = await examineMachine(true);
  const names = findings.map(({ name }) => name).filter((name) => !name.startsWith('mount'));
  assert.deepEqual(names, [
    'node',
    'kernel',
    'device',
    'fusermount3',
    'libfuse',
    'transports',
    'fuse.conf',
    'open files',
    'memory',
  ]);
  assert.equal(findings[0]?.state, 'ok', 'Otherwise the test could not have come here');
});

test('a mount whose process is stopped is not queried, and keeps no file open', {
  skip: noMount,
}, async (t) => {
  const mount = await TestMount.start(t, 20_000);
  mount.signal('SIGSTOP');
  const finding = (await examineMachine(true)).find(({ name }) => name === `mount ${mount.directory}`);
  assert.deepEqual([finding?.state, finding?.found], ['failed', `its process ${mount.daemonPid} is stopped`]);
  mount.signal('SIGCONT');
  assert.equal(await unmountDirectory(mount.directory), null);
});
