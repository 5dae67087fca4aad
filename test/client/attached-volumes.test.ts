/**
 * Goal: the command line and REST show a tree of several volumes as one; a junction is only crossed with the right to
 * the attached volume; an interrupted attachment can be completed, and is never crossed before.
 * Method: real servers with tokens; commands and requests as users give them.
 */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, fetch } from 'undici';
import { emptyTokenFile, issueToken } from '../../client/certificates/token-file.ts';
import { formatTokenFile, type KnownToken } from '../../wire/tokens.ts';
import { SecureCluster } from '../security/secure-cluster.ts';
import { type CliResult, runCli } from './run-cli.ts';

const [PRECONDITION, NOT_FOUND, FORBIDDEN, USAGE] = [4, 3, 6, 2];
const TUS = { 'tus-resumable': '1.0.0' };
type User = 'root' | 'main-only';

let cluster: SecureCluster;
let folder: string;
let agent: Agent;
const tokens = new Map<User, string>();

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'leasehold-attached-'));
  const known: KnownToken[] = [];
  for (const [name, volumes] of [
    ['root', null],
    ['main-only', ['main']],
  ] as const) {
    const issued = issueToken({ name, role: 'admin', volumes: volumes === null ? null : [...volumes] }, null);
    tokens.set(name, issued.text);
    known.push(issued.known);
    writeFileSync(join(folder, `token-${name}`), issued.text);
  }
  writeFileSync(join(folder, 'file'), 'contents');
  const book = join(folder, 'tokens.json');
  writeFileSync(book, formatTokenFile({ ...emptyTokenFile(), tokens: known }));
  cluster = await SecureCluster.start({ flags: () => ['--tokens', book] });
  agent = new Agent({ connect: { ca: readFileSync(cluster.authority.ca) } });
  await done('volume', 'create', 'main');
  await done('mkdir', '-p', 'main:/projects/plain');
});
after(async () => {
  await agent.close();
  await cluster.stop();
  rmSync(folder, { recursive: true, force: true });
});

function runAs(user: User, ...argv: readonly string[]): Promise<CliResult> {
  const access = [
    ...['--servers', cluster.urls.join(','), '--ca', cluster.authority.ca],
    ...['--token-file', join(folder, `token-${user}`)],
  ];
  const words = argv.map((word) => word.replace(/^\.\//, `${folder}/`));
  const length = ['volume', 'trash', 'placement', 'replica', 'snapshot'].includes(argv[0] ?? '') ? 2 : 1;
  return runCli([...words.slice(0, length), ...access, ...words.slice(length)]);
}

async function done(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runAs('root', ...argv);
  assert.equal(code, 0, `leasehold ${argv.join(' ')}: ${stderr}`);
  return stdout;
}

async function refused(code: number, message: RegExp, ...argv: readonly string[]): Promise<void> {
  const result = await runAs('root', ...argv);
  assert.equal(result.code, code, `leasehold ${argv.join(' ')}: ${result.stderr}`);
  assert.match(result.stderr, message);
}

interface Asked {
  readonly user?: User;
  readonly server?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

async function rest(method: string, path: string, asked: Asked = {}) {
  const { user = 'root', server = 's1', headers, body } = asked;
  const answer = await fetch(`${cluster.url(server)}/v1/${path}`, {
    ...{ method, dispatcher: agent, redirect: 'manual' },
    headers: { authorization: `Bearer ${tokens.get(user)}`, ...headers },
    ...(body === undefined ? {} : { body }),
  });
  const location = answer.headers.get('location') ?? '';
  return { status: answer.status, location, text: await answer.text() };
}

async function listed(name: string): Promise<{ readonly attached?: number; readonly attachedAt?: string }> {
  const { volumes } = JSON.parse(await done('volume', 'ls', '--json'));
  return volumes.find((one: { readonly name: string }) => one.name === name) ?? {};
}

test('a volume is created and attached by one command, which also completes an interrupted one', async () => {
  await refused(USAGE, /without --own-catalog/, 'volume', 'create', 'no', '--at', 'main:/no');
  await refused(PRECONDITION, /no catalog of its own/, 'volume', 'attach', 'main', 'main:/loop');
  const create = ['volume', 'create', 'team', '--own-catalog', '--trash', '1h', '--at', 'main:/projects/a'];
  await refused(
    NOT_FOUND,
    /leads through a name that is not there/,
    ...create.slice(0, -1),
    'main:/nowhere/a',
  );
  assert.equal((await listed('team')).attached, undefined, 'It is created, but not attached');
  assert.match(await done(...create), /Attached the volume team at main:\/projects\/a/);
  assert.match(await done(...create), /There is a volume team already/);
  assert.equal((await listed('team')).attachedAt, 'main:/projects/a');
  assert.match(await done('volume', 'ls'), /^team .* main:\/projects\/a$/m);
});

test('commands follow a path into the attached volume', async () => {
  await done('put', './file', 'main:/projects/a/');
  assert.equal(await done('get', 'team:/file', '-'), 'contents');
  assert.equal(await done('get', 'main:/projects/a/file', '-'), 'contents');
  assert.equal(await done('ls', 'main:/projects/a'), 'file\n');
  assert.match(await done('ls', 'main:/projects'), /^a\/ => team:\/$/m);
  assert.match(await done('stat', 'main:/projects/a/file'), /path +team:\/file/);
  await done('mkdir', 'main:/projects/a/d');
  await done('mkdir', '-p', 'main:/projects/a/e/f');
  await done('mv', 'main:/projects/a/file', 'main:/projects/a/d');
  await done('cp', 'main:/projects/a/d/file', 'main:/copy');
  await done('cp', '-r', 'main:/projects/a/d', 'main:/projects/a/g');
  assert.equal(await done('get', 'team:/g/file', '-'), 'contents');
  assert.match(await done('info', 'main:/projects/a/g/file'), /path +team:\/g\/file/);
  assert.match(await done('replica', 'ls', 'main:/projects/a/g/file'), /REPLICA/);
  await done('placement', 'set', 'main:/projects/a/e', '--replicas', '3');
  assert.match(await done('placement', 'get', 'main:/projects/a/e'), /set at team:\/e$/m);
  await done('rm', 'main:/projects/a/g/file');
  assert.match(await done('trash', 'ls', 'main:/projects/a'), /\/g\/file/);
  await done('trash', 'restore', 'main:/projects/a/g/file', '--to', 'main:/projects/a/restored');
  assert.equal(await done('get', 'team:/restored', '-'), 'contents');
  await done('rm', '-r', 'main:/projects/a/g');
  await done('put', './file', 'main:/projects/plain/file');
});

test('names cannot leave their volume, and a junction cannot be removed', async () => {
  await refused(
    PRECONDITION,
    /stays within its volume/,
    ...['mv', 'main:/projects/plain/file', 'main:/projects/a/'],
  );
  await refused(PRECONDITION, /volume team is attached there/, 'rm', '-r', 'main:/projects/a');
  await refused(PRECONDITION, /volume team is attached there/, 'rm', '-r', 'main:/projects');
  await refused(PRECONDITION, /attached/, 'volume', 'rm', 'team');
  await refused(PRECONDITION, /attached/, 'volume', 'attach', 'team', 'main:/second');
  assert.equal((await runAs('root', 'stat', 'main:/second')).code, NOT_FOUND, 'Nothing of it is left');
  await refused(PRECONDITION, /cannot be attached in itself/, 'volume', 'attach', 'team', 'team:/d/loop');
  await done('mkdir', '-p', 'main:/projects/plain');
  await done('mv', 'main:/projects/a', 'main:/projects/b');
  assert.equal((await listed('team')).attachedAt, 'main:/projects/b');
  assert.equal(await done('get', 'main:/projects/b/d/file', '-'), 'contents');
  await done('mv', 'main:/projects/b', 'main:/projects/a');
});

test('trees end at attached volumes, and say so', async () => {
  await done('put', './file', 'main:/projects/plain/file');
  const got = join(folder, 'got');
  assert.match(
    await done('get', '-r', 'main:/', got),
    /^Volume team is attached at projects\/a: .* not copied$/m,
  );
  assert.deepEqual(readdirSync(join(got, 'projects/a')), []);
  assert.equal(readFileSync(join(got, 'projects/plain/file'), 'utf8'), 'contents');
  writeFileSync(join(got, 'projects/a/new'), 'x');
  assert.match(await done('put', '-r', got, 'main:/'), /^Volume team is attached at projects\/a: /m);
  assert.equal((await runAs('root', 'stat', 'team:/new')).code, NOT_FOUND);
  assert.match(await done('cp', '-r', 'main:/projects', 'main:/other'), /^Volume team is attached at \/a: /m);
  assert.equal(await done('ls', 'main:/other/a'), '');
  for (const flags of [[], ['--no-snapshot']]) {
    const archive = join(folder, `archive${flags.length}`);
    const { code, stderr } = await runAs('root', 'backup', ...flags, 'main', archive);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /Volume team is attached at projects\/a: what it has is not archived/);
    assert.ok(existsSync(archive));
  }
  const made = await done('snapshot', 'create', 'main@now');
  assert.match(made, /^Volume team is attached at projects\/a: what it has is not in the snapshot$/m);
  assert.equal(await done('ls', 'main@now:/projects/a'), '');
  await done('snapshot', 'rm', 'main@now');
  const inside = join(folder, 'inside');
  mkdirSync(join(inside, 'deep'), { recursive: true });
  writeFileSync(join(inside, 'deep/file'), 'deep');
  await done('put', '-r', inside, 'main:/projects/a/inside');
  assert.equal(await done('get', 'team:/inside/deep/file', '-'), 'deep');
  await done('rm', '-r', 'main:/projects/a/inside');
});

test('REST follows paths through junctions, at every server', async () => {
  const at = 'files/main/projects/a';
  for (const server of ['s1', 's2', 's3']) {
    const found = await rest('GET', `${at}/d/file`, { server });
    assert.deepEqual([found.status, found.text], [200, 'contents']);
  }
  assert.equal((await rest('PUT', `${at}/new`, { body: 'new' })).status, 201);
  assert.equal((await rest('GET', 'files/team/new')).text, 'new');
  assert.equal((await rest('PATCH', `${at}/new?append`, { body: 'er' })).status, 204);
  assert.equal((await rest('PUT', `${at}/x/`)).status, 201);
  assert.equal((await rest('POST', `${at}/new?move-to=/projects/a/x/new`)).status, 204);
  assert.equal((await rest('POST', `${at}/x/new?copy-to=/copied`)).status, 201);
  assert.equal((await rest('GET', 'files/main/copied')).text, 'newer');
  const moved = await rest('POST', 'files/main/copied?move-to=/projects/a/copied');
  assert.deepEqual([moved.status, JSON.parse(moved.text).code], [409, 'cross-volume']);
  const { entries } = JSON.parse((await rest('GET', 'files/main/projects/')).text);
  assert.equal(entries[0].attached, 'team');
  assert.deepEqual(JSON.parse((await rest('GET', `info/main/projects/a/x/new`)).text).volume, 'team');
  const locate = JSON.parse((await rest('GET', 'locate/main/projects/a/x/new')).text);
  assert.deepEqual([locate.volume, locate.path, locate.catalog > 0], ['team', '/x/new', true]);
  const upload = await rest('POST', `${at}/piecemeal`, { headers: { ...TUS, 'upload-length': '3' } });
  assert.equal(upload.status, 201);
  assert.match(upload.location, /\/v1\/uploads\/team\//);
  const piece = { ...TUS, 'upload-offset': '0', 'content-type': 'application/offset+octet-stream' };
  const path = new URL(upload.location, cluster.url('s2')).pathname.slice('/v1/'.length);
  assert.equal((await rest('PATCH', path, { server: 's2', headers: piece, body: 'abc' })).status, 204);
  assert.equal((await rest('GET', 'files/team/piecemeal')).text, 'abc');
  const form = '--b\r\ncontent-disposition: form-data; name="file"; filename="form"\r\n\r\nyes\r\n--b--\r\n';
  const multipart = { 'content-type': 'multipart/form-data; boundary=b' };
  assert.equal((await rest('POST', `${at}/`, { headers: multipart, body: form })).status, 201);
  assert.equal((await rest('GET', 'files/team/form')).text, 'yes');
  assert.equal((await rest('POST', `${at}/form?clear-flags=immutable`)).status, 200);
  for (const name of ['form', 'piecemeal']) assert.equal((await rest('DELETE', `${at}/${name}`)).status, 204);
  assert.equal((await rest('DELETE', `${at}/x/?recursive=true`)).status, 204);
  const junction = await rest('DELETE', `${at}/?recursive=true`);
  assert.deepEqual([junction.status, JSON.parse(junction.text).code], [409, 'attached']);
  assert.equal((await rest('DELETE', 'files/main/copied')).status, 204);
});

test('every server follows an attachment at once, and none a detached one', async () => {
  await done('volume', 'create', 'new', '--own-catalog');
  for (const turn of ['1', '2', '3', '4', '5']) {
    const at = `junctions/main/now-${turn}`;
    assert.equal((await rest('PUT', `${at}?volume=new`)).status, 201);
    // The list of these servers may not have it yet.
    const file = `files/main/now-${turn}/file`;
    const written = await Promise.all([
      rest('PATCH', `${file}?append`, { server: 's2', body: 'x' }),
      rest('PUT', `${file}-${turn}`, { server: 's3', body: turn }),
    ]);
    assert.deepEqual(
      written.map(({ status }) => status),
      [turn === '1' ? 404 : 204, 201],
      written.map(({ text }) => text).join(),
    );
    if (turn === '1') assert.equal((await rest('PUT', file, { body: '' })).status, 201);
    assert.equal((await rest('DELETE', at)).status, 204);
    for (const server of ['s2', 's3']) assert.equal((await rest('GET', file, { server })).status, 404);
  }
  assert.equal((await rest('GET', 'files/new/file')).text, 'xxxx');
});

test('a token for the outer volume does not reach the attached one', async () => {
  const user = 'main-only';
  for (const [method, path, body] of [
    ['GET', 'files/main/projects/a/d/file'],
    ['GET', 'files/main/projects/a/'],
    ['PUT', 'files/main/projects/a/evil', 'x'],
    ['DELETE', 'files/main/projects/a/d/file'],
    ['POST', 'files/main/projects/a/d/file?copy-to=/stolen'],
    ['POST', 'files/main/projects/plain/file?copy-to=/projects/a/evil'],
    ['GET', 'info/main/projects/a/d/file'],
    ['GET', 'locate/main/projects/a/d/file'],
    ['PUT', 'junctions/main/mine?volume=team'],
    ['DELETE', 'junctions?volume=team'],
  ] as const) {
    const { status, text } = await rest(method, path, { user, ...(body === undefined ? {} : { body }) });
    assert.equal(status, 403, `${method} ${path}: ${text}`);
  }
  assert.equal((await runAs(user, 'get', 'main:/projects/a/d/file', '-')).code, FORBIDDEN);
  const own = await runAs(user, 'ls', 'main:/projects');
  assert.match(own.stdout, /^a\//m);
  assert.equal((await rest('GET', 'files/main/projects/plain/file', { user })).status, 200);
});

test('volumes can be nested, and a detached one keeps its files', async () => {
  await done('volume', 'create', 'deep', '--own-catalog', '--at', 'main:/projects/a/deep');
  assert.equal((await listed('deep')).attachedAt, 'team:/deep');
  await done('put', './file', 'main:/projects/a/deep/file');
  assert.equal(await done('get', 'deep:/file', '-'), 'contents');
  assert.equal((await rest('GET', 'files/main/projects/a/deep/file')).text, 'contents');
  await done('volume', 'detach', 'team');
  await refused(PRECONDITION, /below itself/, 'volume', 'attach', 'team', 'deep:/loop');
  await done('volume', 'attach', 'team', 'main:/projects/a');
  await done('volume', 'detach', 'main:/projects/a/deep');
  await refused(NOT_FOUND, /There is nothing at "team:\/deep"/, 'ls', 'main:/projects/a/deep');
  await refused(NOT_FOUND, /There is nothing at "team:\/deep"/, 'volume', 'detach', 'main:/projects/a/deep');
  assert.equal(await done('get', 'deep:/file', '-'), 'contents');
  await done('volume', 'attach', 'deep', 'main:/deep');
  await done('volume', 'detach', 'deep');
  await refused(NOT_FOUND, /not attached/, 'volume', 'detach', 'deep');
  assert.equal((await runAs('root', 'ls', 'main:/deep')).code, NOT_FOUND);
  assert.equal((await listed('deep')).attached, undefined);
  await done('rm', 'deep:/file');
  await done('volume', 'rm', 'deep');
});
