/**
 * Goal: an attacker who knows the documents and has a token gains nothing by requests written by hand.
 * Method: real servers with TLS; requests that no client of ours sends, byte by byte if needed.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { emptyTokenFile, issueToken } from '../../client/certificates/token-file.ts';
import type { Role } from '../../wire/access.ts';
import { encodeNewFiles } from '../../wire/new-files.ts';
import { formatTokenFile, type KnownToken, parseTokenFile } from '../../wire/tokens.ts';
import { until } from '../cluster/real-cluster.ts';
import { SecureCluster } from './secure-cluster.ts';
import { ask, close, converse, type Question, send } from './wire-client.ts';

const REQUESTS_OPEN_MAX = 6;
let cluster: SecureCluster;
let book: string;
const texts = new Map<string, string>();

/** Changes the file of tokens, and makes servers read it. */
function tokensBecome(change: (tokens: readonly KnownToken[]) => readonly KnownToken[]): void {
  const file = parseTokenFile(readFileSync(book, 'utf8'));
  writeFileSync(book, formatTokenFile({ ...file, tokens: change(file.tokens) }));
  for (const server of cluster.servers.values()) assert.ok(server.reload());
}

function makeToken(name: string, role: Role, volumes: readonly string[] | null = null): void {
  const { text, known } = issueToken({ name, role, volumes }, null);
  texts.set(name, text);
  tokensBecome((tokens) => [...tokens.filter((one) => one.name !== name), known]);
}

before(async () => {
  cluster = await SecureCluster.start({
    flags: ({ folder }) => {
      book = join(folder, 'tokens.json');
      writeFileSync(book, formatTokenFile(emptyTokenFile()));
      return ['--tokens', book, '--client-requests', String(REQUESTS_OPEN_MAX)];
    },
  });
  makeToken('root', 'admin');
  makeToken('mallory', 'write', ['main']);
  makeToken('reader', 'read');
  for (const volume of ['main', 'other']) {
    const command = { kind: 'volume-create', name: volume, replicas: 3, objectBytes: 131072 };
    // The catalog may have no primary yet.
    await until(`there is a volume "${volume}"`, async () => {
      const json = { session: 1, number: volume.length, command };
      const made = await as('root', 'POST', '/v1/catalog/commands', { json });
      assert.equal(made.status, 200, made.text);
      return true;
    });
    assert.equal(
      (await as('root', 'PUT', `/v1/files/${volume}/secret`, { body: `of ${volume}` })).status,
      201,
    );
  }
});
after(async () => {
  await close();
  await cluster.stop();
});

function as(name: string, method: string, path: string, question: Question = {}) {
  const headers = { authorization: `Bearer ${texts.get(name)}`, ...question.headers };
  return ask(cluster, method, path, { ...question, headers });
}

test('a stream, a download and an upload end with the token that began them', async () => {
  makeToken('watcher', 'write');
  const authorization = `authorization: Bearer ${texts.get('watcher')}`;
  const head = (line: string, ...more: string[]): string =>
    [`${line} HTTP/1.1`, 'host: x', authorization, ...more, '', ''].join('\r\n');
  const begun = await Promise.all(
    [
      head('GET /v1/events'),
      head('GET /v1/files/main/?watch', 'accept: text/event-stream'),
      `${head('PUT /v1/files/main/half', 'content-length: 1000000')}some of it`,
    ].map((text) => send(cluster, text)),
  );
  const upload = begun[2] as TLSSocket;
  for (const socket of begun.slice(0, 2)) await once(socket, 'data');
  const ends = begun.map((socket) => once(socket.on('error', () => undefined).resume(), 'close'));
  tokensBecome((tokens) => tokens.filter(({ name }) => name !== 'watcher'));
  await Promise.all(ends);
  assert.ok(upload.destroyed);
  assert.equal((await as('root', 'GET', '/v1/files/main/half')).status, 404, 'nothing was created');
});

test('one token may have a limited number of requests under way, streams included, and others are not affected', async () => {
  makeToken('greedy', 'read');
  const head = `GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${texts.get('greedy')}\r\n\r\n`;
  const streams = await Promise.all(Array.from({ length: REQUESTS_OPEN_MAX }, () => send(cluster, head)));
  await Promise.all(streams.map((socket) => once(socket, 'data')));
  const refused = await as('greedy', 'GET', '/v1/status');
  assert.equal(refused.status, 503);
  assert.equal(JSON.parse(refused.text).code, 'busy');
  assert.match(refused.text, /has 6 open requests at this server, the maximum/);
  assert.equal((await as('reader', 'GET', '/v1/status')).status, 200);
  for (const socket of streams) socket.destroy();
  let status: number = refused.status;
  while (status === 503) ({ status } = await as('greedy', 'GET', '/v1/status'));
  assert.equal(status, 200, 'A client that ends a request may begin another');
});

test('a request that names its target in another form is the same request, or refused', async () => {
  const other = await as('root', 'PUT', '/v1/files/other/v1/files?parents=true', { body: 'of other' });
  assert.equal(other.status, 201);
  const bearer = `authorization: Bearer ${texts.get('mallory')}`;
  // The router takes these for /v1/files; code that cuts the prefix off by its length reads "other" after it.
  const targets = [
    'https://XXother/v1/files',
    'http://XXXother/v1/files',
    'HTTPS://XXother/v1/files?watch',
    '/v1/files;other/secret',
    '/v1/files%2Fother/secret',
    '/v1/files?/other/secret',
    '//v1/files/other/secret',
    '/V1/files/other/secret',
    '/v1/./files/other/secret',
    'https://x/v1/files/other/secret',
    'https://x/https://x/v1/files/other/secret',
    'https://x/v1/info/other/secret',
    '/v1/info;other/secret',
  ];
  for (const target of targets) {
    for (const method of ['GET', 'PUT', 'DELETE']) {
      const body = method === 'PUT' ? 'content-length: 5\r\n\r\nstolen'.slice(0, -1) : '\r\n';
      const head = `${method} ${target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${bearer}\r\n${body}`;
      const heard = await converse(cluster, head);
      assert.match(heard, /^HTTP\/1\.1 (?:400|403|404|405) /, `${method} ${target}`);
      assert.doesNotMatch(heard, /of other/);
    }
  }
  assert.equal((await as('root', 'GET', '/v1/files/other/v1/files')).text, 'of other');
  assert.equal((await as('root', 'GET', '/v1/files/other/secret')).text, 'of other');
  // In its own volume the absolute form is valid, as RFC 9112 demands.
  const own = `GET https://x/v1/files/main/secret HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${bearer}\r\n\r\n`;
  assert.match(await converse(cluster, own), /of main/);
});

/** Numbers and names of another volume, in the places of a route's parameters. */
async function strangersParts(): Promise<Record<string, string>> {
  const query = { kind: 'resolve', volume: 'other', path: '/secret', follow: true };
  const { text } = await as('root', 'POST', '/v1/catalog/queries', { json: { query } });
  const { inode } = (JSON.parse(text) as { attributes: { inode: number } }).attributes;
  const upload = await as('root', 'POST', '/v1/files/other/upload', {
    headers: { 'tus-resumable': '1.0.0', 'upload-length': '4' },
  });
  const name = String(upload.headers.location).split('/').at(-1) ?? '';
  return { file: String(inode), volume: 'other', upload: name, name: 'lease', key: 'k', '*': 'other/secret' };
}

test('no route lets a token for one volume reach another, whatever parameters it gets', async () => {
  const parts = await strangersParts();
  const { paths } = JSON.parse((await ask(cluster, 'GET', '/openapi.json')).text) as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  };
  const open = /^\/(?:$|livez|readyz|docs|openapi\.json|web\/)/;
  /** Routes that reveal nothing of any volume, or only what all clients have to know. */
  const ofAll =
    /^\/v1\/(?:status(?:\/self)?|servers|local|certificates\/revoked|uploads|catalog\/(?:cache|flush)|births\/numbers)$/;
  let tried = 0;
  for (const [template, operations] of Object.entries(paths)) {
    if (open.test(template) || ofAll.test(template)) continue;
    const path = template.replaceAll(/\{([a-z]+)\+?\}/gi, (_, name: string) => parts[name] ?? 'other/secret');
    for (const method of Object.keys(operations).map((name) => name.toUpperCase())) {
      if (method === 'OPTIONS') continue;
      for (const json of [undefined, {}, { files: [Number(parts.file)] }]) {
        const answer = await as('mallory', method, path, {
          ...(json === undefined || method === 'GET' || method === 'HEAD' ? {} : { json }),
        });
        assert.ok(answer.status >= 400, `${method} ${path}: ${answer.status} ${answer.text}`);
        assert.doesNotMatch(answer.text, /of other/, `${method} ${path}`);
        tried++;
      }
    }
  }
  assert.ok(tried > 100, `${tried} were tried`);
  assert.equal((await as('root', 'GET', '/v1/files/other/secret')).text, 'of other');
});

test('contents by number need a capability on every route that has them', async () => {
  const { file } = await strangersParts();
  const { paths } = JSON.parse((await ask(cluster, 'GET', '/openapi.json')).text) as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  };
  const ofContents = Object.keys(paths).filter((path) => path.startsWith('/v1/data/{file}'));
  assert.ok(ofContents.length >= 12, ofContents.join(' '));
  for (const template of ofContents) {
    for (const method of Object.keys(paths[template] ?? {})) {
      const path = template.replace('{file}', String(file));
      // A role for all volumes is no capability.
      const role = template.endsWith('/members') ? 'mallory' : 'reader';
      const answer = await as(role, method.toUpperCase(), path, method === 'get' ? {} : { json: {} });
      assert.equal(answer.status, 403, `${method} ${path}: ${answer.text}`);
    }
  }
});

test('numbers in any other form than digits are refused', async () => {
  const { file } = await strangersParts();
  for (const text of [
    `${file}.0`,
    `${file}e0`,
    `0x${Number(file).toString(16)}`,
    `0${file}`,
    ` ${file}`,
    `+${file}`,
  ]) {
    const path = `/v1/data/${encodeURIComponent(text)}?offset=0&length=8`;
    const { status } = await as('root', 'GET', path);
    assert.ok(status === 400 || status === 403 || status === 404, `${text}: ${status}`);
  }
  for (const files of [[file], [[Number(file)]], [`${file}`, 1], [{ valueOf: Number(file) }]]) {
    const { status, text } = await as('mallory', 'POST', '/v1/data/settle', { json: { files } });
    assert.ok(
      status === 400 || status === 403 || status === 404,
      `${JSON.stringify(files)}: ${status} ${text}`,
    );
  }
});

test('uploads of another token: by name, by volume, by a wrong secret', async () => {
  const { upload = '', file = '' } = await strangersParts();
  const headers = {
    'tus-resumable': '1.0.0',
    'upload-offset': '0',
    'content-type': 'application/offset+octet-stream',
  };
  for (const path of [
    `/v1/uploads/other/${upload}`,
    `/v1/uploads/%6fther/${upload}`,
    `/v1/uploads/main/${upload}`,
    `/v1/uploads/main/..%2fother%2f${upload}`,
    `/v1/uploads/main/${file}-${'0'.repeat(32)}`,
  ]) {
    for (const method of ['HEAD', 'PATCH', 'DELETE']) {
      const { status } = await as('mallory', method, path, {
        headers,
        ...(method === 'PATCH' ? { body: 'evil' } : {}),
      });
      assert.ok(status === 403 || status === 404 || status === 400, `${method} ${path}: ${status}`);
    }
  }
  const guessed = upload.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
  assert.equal((await as('root', 'HEAD', `/v1/uploads/other/${guessed}`, { headers })).status, 404);
  const stored = await as('root', 'PATCH', `/v1/uploads/other/${upload}`, { headers, body: 'mine' });
  assert.equal(stored.status, 204);
  assert.equal((await as('root', 'GET', '/v1/files/other/upload')).text, 'mine');
});

test('streams of events need a token like all else, and a token for one volume gets none', async () => {
  for (const path of [
    '/v1/events',
    '/v1/events/self',
    '/v1/events?watch=other:/secret',
    '/v1/leases/x/watch',
  ]) {
    assert.equal((await ask(cluster, 'GET', path)).status, 401, path);
    assert.equal((await as('mallory', 'GET', path)).status, 403, path);
  }
  const watch = '/v1/files/other/?watch&recursive';
  assert.equal((await ask(cluster, 'GET', watch)).status, 401);
  assert.equal((await as('mallory', 'GET', watch)).status, 403);
});

test('a key that another client has used for the same request does not answer mine', async () => {
  const headers = { 'idempotency-key': 'order-1' };
  const path = '/v1/files/main/order';
  assert.equal((await as('mallory', 'PUT', path, { headers, body: 'forged' })).status, 201);
  const own = await as('root', 'PUT', path, { headers, body: 'genuine' });
  assert.ok(own.status === 200 || own.status === 204, own.text);
  assert.equal((await as('root', 'GET', path)).text, 'genuine');
});

test('the mark of a forwarded request makes no client a server, and sends nothing in circles', async () => {
  const { file } = await strangersParts();
  const forged = { 'leasehold-forwarded': '1' };
  const lock = {
    client: 1,
    stamp: 1,
    pending: [],
    number: 1,
    owner: 'o',
    kind: 'posix',
    type: 'shared',
    start: 0,
    end: 1,
    pid: 1,
    waitMs: 0,
  };
  const holder = `/v1/data/${file}/locks?holder=root`;
  assert.equal((await as('mallory', 'POST', holder, { headers: forged, json: lock })).status, 403);
  const settle = { kind: 'settle', files: [] };
  const told = { session: 77, number: 1, command: settle };
  assert.equal(
    (await as('root', 'POST', '/v1/catalog/commands', { headers: forged, json: told })).status,
    403,
  );
  assert.equal((await ask(cluster, 'GET', '/v1/status', { headers: forged })).status, 401);
  // If the catalog's primary is another server, the answer names it, at once and from here.
  const query = { query: { kind: 'volumes' } };
  const statuses = await Promise.all(
    ['s1', 's2', 's3'].map(async (at) => {
      const answer = await as('root', 'POST', '/v1/catalog/commands', {
        at,
        headers: forged,
        json: { session: 78, number: 1, command: { kind: 'volume-remove', name: 'none' } },
      });
      assert.ok((await as('root', 'POST', '/v1/catalog/queries', { at, json: query })).status === 200);
      return answer.status;
    }),
  );
  assert.ok(statuses.filter((status) => status === 421).length >= 1, statuses.join());
});

test('refusals do not reveal which other volumes exist', async () => {
  const refusals = await Promise.all(
    ['other', 'none'].map(async (volume) => {
      const answers = [
        await as('mallory', 'GET', `/v1/files/${volume}/secret`),
        await as('mallory', 'GET', `/v1/trash/${volume}`),
        await as('mallory', 'GET', `/v1/snapshots/${volume}`),
        await as('mallory', 'GET', `/v1/files/${volume}@kept/secret`),
        await as('mallory', 'POST', `/v1/files/main/secret?copy-to=${volume}:/x`),
        await as('mallory', 'POST', '/v1/catalog/queries', {
          json: { query: { kind: 'volume', name: volume } },
        }),
      ];
      return answers.map(({ status, text }) => `${status} ${text}`);
    }),
  );
  assert.deepEqual(refusals[0], refusals[1]);
});

test("creations with contents and the trash: of another volume, of a number that is not reserved, of another client's number", async () => {
  const { file } = await strangersParts();
  const parent = async (volume: string): Promise<number> => {
    const query = { kind: 'resolve', volume, path: '/', follow: true };
    const { text } = await as('root', 'POST', '/v1/catalog/queries', { json: { query } });
    return (JSON.parse(text) as { attributes: { inode: number } }).attributes.inode;
  };
  const times = { accessedNs: null, modifiedNs: null, changedNs: null };
  const body = (inode: number, into: number, number: number, named: { hasEntry?: true } = {}): Uint8Array =>
    encodeNewFiles({
      ...{ owner: 4711, session: 4711, number },
      newFiles: [
        {
          parent: into,
          name: 'born',
          inode,
          mode: 0o644,
          uid: 0,
          gid: 0,
          contents: Buffer.from('evil'),
          ...named,
          ...times,
        },
      ],
    });
  const [own, other] = [await parent('main'), await parent('other')];
  const bear = (bytes: Uint8Array) =>
    as('mallory', 'POST', '/v1/births', {
      headers: { 'content-type': 'application/octet-stream' },
      body: Buffer.from(bytes),
    });
  assert.equal((await bear(body(999_999, other, 1))).status, 403, 'in a directory of another volume');
  const taken = await bear(body(Number(file), own, 2));
  assert.doesNotMatch(taken.text, /"born"/, 'with the number of another file');
  assert.equal((await as('root', 'GET', '/v1/files/other/secret')).text, 'of other');
  const reserved = await as('mallory', 'POST', '/v1/births/numbers', { json: { owner: 4711, count: 1 } });
  const { first } = JSON.parse(reserved.text) as { readonly first: number };
  const create = {
    ...{
      kind: 'create-file',
      place: { parent: other, name: 'empty' },
      reserved: { inode: first, owner: 4711 },
    },
    ...{ mode: 0o644, uid: 0, gid: 0, exclusive: true },
  };
  const json = { session: 4712, number: 1, since: 1, command: create };
  const created = await as('root', 'POST', '/v1/catalog/commands', { json });
  assert.equal(created.status, 200, created.text);
  const filled = await bear(body(first, own, 3, { hasEntry: true }));
  assert.equal(filled.status, 403, `a file of another volume that has its name: ${filled.text}`);
  assert.equal((await as('root', 'GET', '/v1/files/other/empty')).text, '');
  assert.equal(
    (await ask(cluster, 'POST', '/v1/births/numbers', { json: { owner: 1, count: 1 } })).status,
    401,
  );
  assert.equal(
    (await as('reader', 'POST', '/v1/births/numbers', { json: { owner: 1, count: 1 } })).status,
    403,
  );

  await as('root', 'PUT', '/v1/files/other/thrown', { body: 'away' });
  await as('root', 'DELETE', '/v1/files/other/thrown');
  for (const path of [
    `/v1/trash/main/${file}/restore?to=/mine`,
    '/v1/trash/other/1/restore',
    `/v1/trash/%6fther/${file}/restore`,
  ]) {
    const { status, text } = await as('mallory', 'POST', path);
    assert.ok(status === 403 || status === 404 || status === 409, `${path}: ${status} ${text}`);
  }
  const { status } = await as('mallory', 'DELETE', `/v1/trash/main/${file}`);
  assert.ok(status === 403 || status === 404, String(status));
  assert.equal((await as('root', 'GET', '/v1/files/other/secret')).text, 'of other');
});

test('snapshots: of another volume, by a client that may only write, by number, and under invalid names', async () => {
  makeToken('warden', 'admin', ['main']);
  const { file } = await strangersParts();
  for (const volume of ['main', 'other']) {
    assert.equal((await as('root', 'PUT', `/v1/snapshots/${volume}/kept`)).status, 201);
    assert.equal((await as('root', 'PUT', `/v1/files/${volume}/secret`, { body: 'later' })).status, 204);
  }
  // What it may do.
  assert.equal((await as('mallory', 'GET', '/v1/files/main@kept/secret')).text, 'of main');
  assert.equal((await as('warden', 'PUT', '/v1/snapshots/main/own')).status, 201);
  assert.equal((await as('warden', 'DELETE', '/v1/snapshots/main/own')).status, 204);
  // What neither may do.
  const refused: [string, string, string][] = [
    ['mallory', 'PUT', '/v1/snapshots/main/evil'],
    ['mallory', 'DELETE', '/v1/snapshots/main/kept'],
    ['reader', 'PUT', '/v1/snapshots/main/evil'],
    ['reader', 'DELETE', '/v1/snapshots/other/kept'],
  ];
  for (const name of ['mallory', 'warden']) {
    refused.push(
      [name, 'GET', '/v1/snapshots/other'],
      [name, 'GET', '/v1/snapshots/%6fther'],
      [name, 'PUT', '/v1/snapshots/other/evil'],
      [name, 'DELETE', '/v1/snapshots/other/kept'],
      [name, 'GET', '/v1/files/other@kept/secret'],
      [name, 'GET', '/v1/files/other%40kept/secret'],
      [name, 'GET', '/v1/files/other@kept/?list'],
      [name, 'GET', '/v1/info/other@kept/secret'],
      [name, 'POST', '/v1/files/other@kept/secret?copy-to=main:/stolen'],
      [name, 'GET', `/v1/data/${file}`],
    );
  }
  for (const [name, method, path] of refused) {
    const { status, text } = await as(name, method, path);
    assert.equal(status, 403, `${name}: ${method} ${path}: ${status} ${text}`);
  }
  const { status } = await ask(cluster, 'GET', '/v1/files/main@kept/secret');
  assert.equal(status, 401);

  // By commands and queries, with invalid volumes.
  for (const volume of ['other', 'other@main', 'other@kept', 'main@../other']) {
    for (const kind of ['snapshot-create', 'snapshot-remove']) {
      const command = { kind, volume, name: 'kept' };
      const answer = await as('warden', 'POST', '/v1/catalog/commands', {
        json: { session: 4712, number: 1, command },
      });
      assert.ok(
        [400, 403, 409, 422].includes(answer.status),
        `${kind} ${volume}: ${answer.status} ${answer.text}`,
      );
    }
  }
  const shown = { kind: 'attributes', inode: Number(file), snapshot: 1 };
  assert.equal((await as('warden', 'POST', '/v1/catalog/queries', { json: { query: shown } })).status, 403);

  // Invalid names.
  for (const name of [
    '..',
    '%2e%2e',
    '.hidden',
    'a%2fb',
    'a@b',
    'a%0d%0aX-Evil:%201',
    '%00',
    'UPPER',
    'x'.repeat(64),
  ]) {
    const made = await as('root', 'PUT', `/v1/snapshots/main/${name}`);
    assert.ok(made.status >= 400 && made.status < 500, `${name}: ${made.status} ${made.text}`);
  }
  for (const tree of ['main@', 'main@..', 'main@kept@kept', 'main@none', 'main@kept%2f..%2f..%2fother']) {
    const read = await as('root', 'GET', `/v1/files/${tree}/secret`);
    assert.ok(read.status === 404 || read.status === 400, `${tree}: ${read.status} ${read.text}`);
  }
  for (const [method, path] of [
    ['PUT', '/v1/files/main@kept/new'],
    ['DELETE', '/v1/files/main@kept/secret'],
    ['POST', '/v1/files/main/secret?copy-to=main@kept:/new'],
    ['POST', '/v1/files/main@kept/secret?move-to=main:/new'],
  ] as const) {
    const answer = await as('root', method, path, method === 'PUT' ? { body: 'evil' } : {});
    assert.ok(answer.status >= 400 && answer.status < 500, `${method} ${path}: ${answer.status}`);
  }
  const listed = JSON.parse((await as('reader', 'GET', '/v1/snapshots/main')).text) as {
    readonly snapshots: readonly { readonly name: string }[];
  };
  assert.deepEqual(
    listed.snapshots.map(({ name }) => name),
    ['kept'],
  );
  assert.equal((await as('root', 'GET', '/v1/files/other@kept/secret')).text, 'of other');
});

test('no role changes or removes what is retained, or makes its date earlier', async () => {
  assert.equal((await as('root', 'PUT', '/v1/files/main/kept', { body: 'kept' })).status, 201);
  const retain = '/v1/files/main/kept?retain=';
  assert.equal((await as('reader', 'POST', `${retain}30d`)).status, 403);
  assert.equal((await as('mallory', 'POST', '/v1/files/other/secret?retain=30d')).status, 403);
  const retained = await as('mallory', 'POST', `${retain}2090-01-31`);
  assert.equal(retained.status, 200, retained.text);
  const snapshot = '/v1/snapshots/main/retained';
  assert.equal((await as('mallory', 'PUT', `${snapshot}?retain=30d`)).status, 403);
  assert.equal((await as('root', 'PUT', `${snapshot}?retain=2090-01-31`)).status, 201);
  assert.equal((await as('mallory', 'POST', `${snapshot}?retain=2091-01-31`)).status, 403);
  const refused: [string, string, Question][] = [
    ['POST', `${retain}30d`, {}],
    ['DELETE', '/v1/files/main/kept?trash=false', {}],
    ['PUT', '/v1/files/main/kept', { body: 'other' }],
    ['PATCH', '/v1/files/main/kept?append', { body: 'x' }],
    ['POST', '/v1/files/main/kept?move-to=/elsewhere', {}],
    ['DELETE', snapshot, {}],
    ['POST', `${snapshot}?retain=30d`, {}],
  ];
  for (const [method, path, question] of refused) {
    const { status, text } = await as('root', method, path, question);
    assert.equal(status, 409, `${method} ${path}: ${status} ${text}`);
  }
  // Commands of servers, which could report other contents, or what the clock shows.
  const { inode } = JSON.parse(retained.text) as { readonly inode: number };
  const contents = { epoch: 9, seq: 9 };
  for (const command of [
    { kind: 'settle', files: [{ inode, sizeBytes: 0, modifiedNs: '5', contents }] },
    { kind: 'collect', beforeNs: '9000000000000000000', countMax: 9 },
    { kind: 'catalog-report', number: 1, report: { kind: 'retained', untilNs: '5' } },
  ]) {
    const json = { session: 59_001, number: 1, command };
    assert.equal((await as('root', 'POST', '/v1/catalog/commands', { json })).status, 403, command.kind);
  }
  for (const command of [
    { kind: 'retain', inode, retain: { untilNs: '99999999999999999999' } },
    { kind: 'retain', inode, retain: { forMs: -1 } },
    { kind: 'retain', inode, retain: {} },
    { kind: 'retain', inode },
  ]) {
    const json = { session: 59_002, number: 1, command };
    const { status } = await as('mallory', 'POST', '/v1/catalog/commands', { json });
    assert.equal(status, 400, JSON.stringify(command));
  }
  assert.equal((await as('reader', 'GET', '/v1/files/main/kept')).text, 'kept');
});
