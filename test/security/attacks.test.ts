/**
 * Goal: what an attacker would try by hand, who has read the documents and has a token of his own, gains him nothing.
 * Method: real servers with TLS; requests that no client of ours sends, byte by byte where it has to be.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { drawToken, emptyTokenFile } from '../../client/certificates/token-file.ts';
import type { Role } from '../../wire/access.ts';
import { formatTokenFile, type KnownToken, parseTokenFile } from '../../wire/tokens.ts';
import { SecureCluster } from './secure-cluster.ts';
import { ask, close, type Question, send } from './wire-client.ts';

const REQUESTS_OPEN_MAX = 6;
let cluster: SecureCluster;
let book: string;
const texts = new Map<string, string>();

/** Changes what servers know, and has them read it. */
function tokensBecome(change: (tokens: readonly KnownToken[]) => readonly KnownToken[]): void {
  const file = parseTokenFile(readFileSync(book, 'utf8'));
  writeFileSync(book, formatTokenFile({ ...file, tokens: change(file.tokens) }));
  for (const server of cluster.servers.values()) assert.ok(server.reload());
}

function makeToken(name: string, role: Role, volumes: readonly string[] | null = null): void {
  const { text, known } = drawToken({ name, role, volumes }, null);
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
    await as('root', 'POST', '/v1/catalog/commands', {
      json: { session: 1, number: volume.length, command },
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
  assert.equal((await as('root', 'GET', '/v1/files/main/half')).status, 404, 'nothing came of it');
});

test('one token has so many requests under way, streams included, and the others do not feel it', async () => {
  makeToken('greedy', 'read');
  const head = `GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${texts.get('greedy')}\r\n\r\n`;
  const streams = await Promise.all(Array.from({ length: REQUESTS_OPEN_MAX }, () => send(cluster, head)));
  await Promise.all(streams.map((socket) => once(socket, 'data')));
  const refused = await as('greedy', 'GET', '/v1/status');
  assert.equal(refused.status, 503);
  assert.equal(JSON.parse(refused.text).code, 'busy');
  assert.match(refused.text, /has 6 requests under way at this server already/);
  assert.equal((await as('reader', 'GET', '/v1/status')).status, 200);
  for (const socket of streams) socket.destroy();
  let status: number = refused.status;
  while (status === 503) ({ status } = await as('greedy', 'GET', '/v1/status'));
  assert.equal(status, 200, 'Who ends what he began may begin something else');
});
