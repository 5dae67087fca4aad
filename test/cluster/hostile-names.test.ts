/**
 * Goal: one name stays one name, by whichever interface it is written and read, and each interface refuses bytes that
 * are not UTF-8 with a reason, instead of storing another name.
 * Method: every interface stores all names of a set; REST and a mount read them back as bytes.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import { ClusterMount, command, type RunResult, run, runOk } from './cluster-mount.ts';
import { LAUNCHER, RealCluster } from './real-cluster.ts';

const NAMES = [
  // U+FEFF is a byte order mark to many decoders, and three bytes of a name to a file system; short and long texts have
  // different decoders.
  '\ufeff',
  '\ufeffa',
  '\ufeff\ufeff',
  '\ufeffa name of more than twelve bytes',
  'a name of more than twelve bytes',
  // U+FFFD is what decoders write for invalid bytes, and a valid character.
  '\ufffd',
  'a\ufffdb',
  'another name with \ufffd in it',
  // Composed and decomposed, which some file systems treat as equal.
  'Caf\u00e9',
  'Cafe\u0301',
  'ä'.repeat(127),
  'x'.repeat(255),
  '𝄞',
  '\u202egpj.exe',
  '\ufffe',
  ' ',
  ' a ',
  '-rf',
  '...',
  '%',
  '%2F',
  '%00',
  '%ff',
  'a+b',
  'a&b=c',
  '#?;',
  '"quoted"',
  "it's",
  'back\\slash',
  '\\',
  '*',
  '~',
  '$(reboot)',
  '<b>&amp;',
  'two\nlines',
  'two\rlines',
  '\t\u0001\u007f\u0085',
  'main:',
];
const BAD = Buffer.from([0x61, 0xff]);
const TRANSPORTS = { native: await mountObstacle(), kernel: kernelTransportObstacle() };

const cluster = await RealCluster.start({ servers: 1 });
after(() => cluster.stop());
await cluster.createVolume('main');
const base = `${cluster.urls[0]}/v1/files/main`;

function contentsOf(name: string): string {
  return `contents of ${Buffer.from(name).toString('hex')}`;
}

async function madeDirectory(name: string): Promise<string> {
  const { status } = await fetch(`${base}/${name}/`, { method: 'PUT' });
  assert.equal(status, 201);
  return `${base}/${name}/`;
}

/** Checks that the directory has all names of a set with their contents, and no others. */
async function assertStored(directory: string, names: readonly string[] = NAMES): Promise<void> {
  const { entries } = (await (await fetch(directory)).json()) as { entries: { name: string }[] };
  assert.deepEqual(entries.map(({ name }) => name).sort(), [...names].sort());
  for (const name of names) {
    const response = await fetch(`${directory}${encodeURIComponent(name)}`);
    assert.equal(await response.text(), contentsOf(name), JSON.stringify(name));
  }
}

function cli(...argv: string[]): Promise<RunResult> {
  return command(argv, { env: { LEASEHOLD_SERVERS: cluster.urls.join(',') } });
}

/** By the shell, which can pass any byte in an argument. */
function cliByShell(argv: string): Promise<RunResult> {
  const env = { LEASEHOLD_SERVERS: cluster.urls.join(','), NODE: process.execPath, LAUNCHER };
  return run('sh', ['-c', `"$NODE" "$LAUNCHER" ${argv}`], { env });
}

/**
 * A request whose target has bytes that `fetch` would encode.
 * @returns its status
 */
function statusOf(
  method: string,
  target: string,
  headers: Record<string, string>,
  body: Buffer,
): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const sent = request({ host: '127.0.0.1', port: cluster.port('s1'), method, path: target, headers });
  sent.on('error', reject).on('response', (response) => {
    response.resume().on('end', () => resolve(response.statusCode ?? 0));
  });
  sent.end(body);
  return promise;
}

const FORM = { 'content-type': 'multipart/form-data; boundary=x' };
function formOf(names: readonly Buffer[]): Buffer {
  const parts = names.map((name) => {
    const contents = contentsOf(name.toString());
    // As browsers encode names in forms ([HTML], "Multipart form data").
    const escaped = name.toString('latin1').replace(/["\r\n]/g, encodeURIComponent);
    const head = `--x\r\nContent-Disposition: form-data; name="f"; filename="${escaped}"\r\n\r\n`;
    return Buffer.concat([Buffer.from(head, 'latin1'), Buffer.from(`${contents}\r\n`)]);
  });
  return Buffer.concat([...parts, Buffer.from('--x--\r\n')]);
}

function tus(directory: string, name: Buffer): Promise<Response> {
  const body = contentsOf(name.toString());
  return fetch(directory, {
    method: 'POST',
    headers: {
      'tus-resumable': '1.0.0',
      'upload-length': String(body.length),
      'upload-metadata': `filename ${name.toString('base64')}`,
      'content-type': 'application/offset+octet-stream',
    },
    body,
  });
}

for (const [transport, obstacle] of Object.entries(TRANSPORTS)) {
  const skip = obstacle === null ? false : `Nothing can be mounted: ${obstacle}`;

  test(`names through a mount (${transport})`, { skip }, async (t) => {
    const directory = await madeDirectory(transport);
    const mount = await ClusterMount.start(cluster, 'main', '--transport', transport);
    t.after(() => mount.stop());
    // The binding decodes names itself and cannot distinguish U+FFFD from invalid bytes: it refuses both.
    const isRefused = (name: string) => transport === 'native' && name.includes('\ufffd');
    const names = NAMES.filter((name) => !isRefused(name));
    const script = [
      'import os, sys, json',
      'os.chdir(os.fsencode(sys.argv[1]))',
      'def tried(call, *arguments):',
      '  try:',
      '    call(*arguments)',
      '    return None',
      '  except OSError as error: return error.errno',
      'def store(name):',
      '  with open(os.fsencode(name), "xb") as file: file.write(b"contents of " + name.encode().hex().encode())',
      'names, refused = json.loads(sys.argv[2]), json.loads(sys.argv[3])',
      'for name in names: store(name)',
      'for name in refused: assert tried(store, name) == 84, name',
      'for call in (os.mkdir, os.stat, os.unlink): assert tried(call, b"a\\xff") == 84, call',
      'assert tried(os.symlink, b"a\\xff", b"link") == 84',
      'os.symlink("\\ufeff to be kept", "link")',
      'assert os.readlink(b"link") == b"\\xef\\xbb\\xbf to be kept"',
      'os.unlink("link")',
      'open("file", "x").close()',
      'assert tried(os.setxattr, "file", b"user.\\xff", b"1") == 84',
      'assert tried(os.getxattr, "file", b"user.\\xff") == 84',
      'os.setxattr("file", "user.\\ufeff", b"1")',
      'assert os.listxattr("file")[0].encode() == b"user.\\xef\\xbb\\xbf"',
      'os.unlink("file")',
      'assert sorted(os.listdir(b".")) == sorted(os.fsencode(name) for name in names)',
    ].join('\n');
    const refused = NAMES.filter(isRefused);
    const path = mount.path(transport);
    const env = { PYTHONUTF8: '1' };
    await runOk('python3', ['-c', script, path, JSON.stringify(names), JSON.stringify(refused)], { env });
    await assertStored(directory, names);
  });
}

test('names through REST', async () => {
  const directory = await madeDirectory('rest');
  const raw = '/v1/files/main/rest/';
  for (const name of NAMES) {
    const { status } = await fetch(directory + encodeURIComponent(name), {
      method: 'PUT',
      body: contentsOf(name),
    });
    assert.equal(status, 201, JSON.stringify(name));
  }
  await assertStored(directory);
  // Moved by a query, and back.
  for (const name of ['\ufeffa', 'a\ufffdb']) {
    const from = directory + encodeURIComponent(name);
    const to = `/rest/${name} moved`;
    const moved = await fetch(`${from}?move-to=${encodeURIComponent(to)}`, { method: 'POST' });
    assert.equal(moved.status, 204);
    const back = await fetch(`${base}${encodeURI(to)}?move-to=${encodeURIComponent(`/rest/${name}`)}`, {
      method: 'POST',
    });
    assert.equal(back.status, 204);
  }
  await assertStored(directory);
  const empty = Buffer.alloc(0);
  assert.equal(await statusOf('PUT', `${raw}a%ff`, {}, empty), 400);
  assert.equal(await statusOf('PUT', `${raw}a\xff`, {}, empty), 400);
  assert.equal(await statusOf('POST', `${raw}%25?move-to=/rest/a%ff`, {}, empty), 400);
  assert.equal(await statusOf('POST', `${raw}%25?move-to=/rest/a\xff`, {}, empty), 400);
  const json = { 'content-type': 'application/json' };
  const command = {
    kind: 'make-directory',
    place: { volume: 'main', path: '/rest/NAME' },
    mode: 493,
    uid: 0,
    gid: 0,
  };
  const [before, behind] = JSON.stringify({ session: 1, number: 1, since: 0, command }).split('NAME') as [
    string,
    string,
  ];
  const body = (name: Buffer) => Buffer.concat([Buffer.from(before), name, Buffer.from(behind)]);
  assert.equal(await statusOf('POST', '/v1/catalog/commands', json, body(BAD)), 400);
  await assertStored(directory);
});

test('names through forms', async () => {
  const directory = await madeDirectory('form');
  // A form cannot express them: browsers escape only quotation marks and ends of lines, and the parser reads \\ as \.
  const names = NAMES.filter((name) => name !== '\\');
  const stored = await fetch(directory, {
    method: 'POST',
    headers: FORM,
    body: formOf(names.map((name) => Buffer.from(name))),
  });
  assert.equal(stored.status, 201, await stored.text());
  await assertStored(directory, names);
  const refused = await fetch(directory, { method: 'POST', headers: FORM, body: formOf([BAD]) });
  assert.deepEqual(
    [refused.status, ((await refused.json()) as { detail: string }).detail],
    [400, 'A name in the form is not UTF-8'],
  );
  await assertStored(directory, names);
});

test('names through tus', async () => {
  const directory = await madeDirectory('tus');
  for (const name of NAMES) assert.equal((await tus(directory, Buffer.from(name))).status, 201);
  await assertStored(directory);
  assert.equal((await tus(directory, BAD)).status, 400);
  await assertStored(directory);
});

/** A local tree with all names, and with some that a cluster cannot have. */
function localTree(name: string): string {
  const tree = join(cluster.folder, name);
  mkdirSync(join(tree, 'd'), { recursive: true });
  for (const one of NAMES) writeFileSync(join(tree, one), contentsOf(one));
  const at = (bytes: Buffer) => Buffer.concat([Buffer.from(`${tree}/`), bytes]);
  writeFileSync(at(BAD), 'not to be stored');
  symlinkSync(BAD, join(tree, 'wrong link'));
  symlinkSync('\ufeff\ufffd', join(tree, 'd', 'right link'));
  return tree;
}

/** What is stored of such a tree. */
async function assertTreeStored(directory: string): Promise<void> {
  const { entries } = (await (await fetch(directory)).json()) as { entries: { name: string }[] };
  assert.deepEqual(entries.map(({ name }) => name).sort(), [...NAMES, 'd'].sort());
  for (const name of NAMES) {
    const response = await fetch(`${directory}${encodeURIComponent(name)}`);
    assert.equal(await response.text(), contentsOf(name), JSON.stringify(name));
  }
  const below = (await (await fetch(`${directory}d/`)).json()) as { entries: { target: string }[] };
  assert.deepEqual(
    below.entries.map(({ target }) => target),
    ['\ufeff\ufffd'],
  );
}

test('names through the command line: it copies all possible names, and reports the others with the reason', async () => {
  const tree = localTree('put');
  const put = await cli('put', '--recursive', tree, 'main:/put');
  assert.equal(put.code, 1, put.text);
  assert.match(put.text, /Cannot copy "a\\xff": its name is not UTF-8/);
  assert.match(put.text, /Cannot copy "wrong link": the target of the link is not UTF-8: a\\xff/);
  assert.match(put.text, /2 items were not copied/);
  await assertTreeStored(`${base}/put/`);

  const got = join(cluster.folder, 'got');
  const get = await cli('get', '--recursive', 'main:/put', got);
  assert.equal(get.code, 0, get.text);
  assert.deepEqual(readdirSync(got).sort(), [...NAMES, 'd'].sort());
  for (const name of NAMES) assert.equal(readFileSync(join(got, name), 'utf8'), contentsOf(name));

  for (const name of ['\ufeffa', 'a\ufffdb']) {
    const one = await cli('put', join(tree, name), `main:/one ${name}`);
    assert.equal(one.code, 0, one.text);
    assert.equal((await fetch(`${base}/${encodeURIComponent(`one ${name}`)}`)).status, 200);
  }
  const refused = await cliByShell(`put "${tree}/$(printf 'a\\377')" main:/wrong`);
  assert.deepEqual([refused.code, /Cannot use an argument that is not UTF-8/.test(refused.text)], [2, true]);
});

test('names through archives', async () => {
  const tree = localTree('archived');
  for (const format of ['gnu', 'posix']) {
    const archive = join(cluster.folder, `${format}.tar`);
    await runOk('tar', ['-C', tree, `--format=${format}`, '-cf', archive, '.']);
    const directory = await madeDirectory(format);
    const restored = await cli('restore', archive, `main:/${format}`);
    assert.equal(restored.code, 1, restored.text);
    assert.match(restored.text, /Cannot restore ".\/a\\xff": its name is not UTF-8/);
    assert.match(restored.text, /Cannot restore ".\/wrong link": the target of the link is not UTF-8/);
    await assertTreeStored(directory);
  }
  const again = join(cluster.folder, 'again.tar');
  const backup = await cli('backup', 'main:/posix', again);
  assert.equal(backup.code, 0, backup.text);
  const unpacked = join(cluster.folder, 'unpacked');
  mkdirSync(unpacked);
  await runOk('tar', ['-C', unpacked, '-xf', again]);
  assert.deepEqual(readdirSync(unpacked).sort(), [...NAMES, 'd'].sort());
});
