import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import type { ServerId } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster-client.ts';
import { paramsHash } from '../../server/config.ts';
import { FOLDER_FORMAT } from '../../server/storage/data-folder.ts';
import { WIRE_OLDEST, WIRE_VERSION } from '../../server/transport/frame.ts';
import {
  helloHeaders,
  type Introduction,
  PEER_PATH,
  wireInCommon,
} from '../../server/transport/handshake.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: an upgrade, one server after the other, costs whoever uses the cluster a pause and no error; a release that does not fit is
 * refused with a word, and does no harm.
 * Method: each server is restarted in order while clients write, read and upload; then servers are met that claim other versions.
 */
const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');

test('each server is restarted under load, and nobody sees an error', { timeout: 120_000 }, async () => {
  const client = new ClusterClient({ servers: cluster.urls });
  const over = new AbortController();
  const failures: unknown[] = [];
  const done = { written: 0, read: 0, uploaded: 0, listed: 0 };
  const loop = async (what: keyof typeof done, step: (turn: number) => Promise<void>): Promise<void> => {
    for (let turn = 0; !over.signal.aborted; turn++) {
      try {
        await step(turn);
        done[what] += 1;
      } catch (error) {
        failures.push(error);
        return;
      }
    }
  };
  try {
    await client.upload('main', '/journal', Readable.from([Buffer.from('begin\n')]));
    const { inode } = await client.resolve('main', '/journal');
    const file = client.openFile(inode);
    let acknowledged = 'begin\n';
    const loads = [
      loop('written', async (turn) => {
        const line = `record ${turn}\n`;
        await file.write('append', Buffer.from(line));
        acknowledged += line;
      }),
      loop('read', async () => {
        const before = acknowledged.length;
        const { sizeBytes } = await file.read(0, 16);
        assert.ok(sizeBytes >= before, 'What was acknowledged before is read');
      }),
      loop('uploaded', async (turn) => {
        const bytes = randomBytes(20_000);
        await client.upload('main', `/upload-${turn % 4}`, Readable.from([bytes]));
        const { chunks } = await client.download('main', `/upload-${turn % 4}`);
        const pieces: Uint8Array[] = [];
        for await (const chunk of chunks) pieces.push(chunk);
        assert.ok(Buffer.concat(pieces).equals(bytes));
      }),
      loop('listed', async () => {
        const response = await fetch(`${cluster.url('s1')}/livez`).catch(() => null);
        // A server that is just being restarted answers nothing; the library asks another one.
        assert.ok(response === null || response.ok);
        await client.resolve('main', '/journal');
      }),
    ];
    for (const id of cluster.ids) {
      const before = { ...done };
      await cluster.kill(id, 'SIGTERM');
      await cluster.restart(id);
      for (const what of ['written', 'read', 'uploaded'] as const)
        assert.ok(done[what] > before[what], `${what} while ${id} was restarted`);
    }
    over.abort();
    await Promise.all(loads);
    assert.deepEqual(failures, []);
    const { chunks } = await client.download('main', '/journal');
    const pieces: Uint8Array[] = [];
    for await (const chunk of chunks) pieces.push(chunk);
    assert.equal(Buffer.concat(pieces).toString(), acknowledged, 'Each record once, in order');
  } finally {
    over.abort();
    await client.close();
  }
});

for (const { name, newest, oldest, common } of [
  { name: 'a later version only', newest: WIRE_VERSION + 1, oldest: '', common: null },
  { name: 'later versions only', newest: WIRE_VERSION + 4, oldest: `${WIRE_VERSION + 1}`, common: null },
  {
    name: 'this version and a later one',
    newest: WIRE_VERSION + 1,
    oldest: `${WIRE_VERSION}`,
    common: WIRE_VERSION,
  },
  { name: 'this version and earlier ones', newest: WIRE_VERSION, oldest: '1', common: WIRE_VERSION },
  { name: 'an earlier version only', newest: WIRE_OLDEST - 1, oldest: '', common: null },
  { name: 'a range without a version', newest: WIRE_VERSION, oldest: `${WIRE_VERSION + 1}`, common: null },
]) {
  test(`a server that speaks ${name}: ${common === null ? 'refused' : `version ${common}`}`, () => {
    assert.equal(wireInCommon(`${newest}`, oldest), common);
  });
}

test('while a server of the catalog does not know a command, it is not given, and everything else is', async () => {
  await cluster.kill('s3', 'SIGTERM');
  const earlier = await OtherServer.start(cluster.port('s3'), { 'leasehold-commands': undefined });
  const client = new ClusterClient({ servers: ['s1', 's2'].map((id) => cluster.url(id)) });
  try {
    await Promise.all(['s1', 's2'].map((id) => earlier.meet(cluster.port(id))));
    const set = { kind: 'volume-set', name: 'main' } as const;
    await until('it is refused', async () =>
      client.command({ ...set, trashMs: 60_000 }).then(
        () => false,
        (error: unknown) =>
          /^Server s3 runs a release that does not know this/.test(
            String((error as Error).message).replace(/^.*: (?=Server)/, ''),
          ),
      ),
    );
    assert.equal((await client.command({ ...set, quotaInodes: 1_000 })).volume.quotaInodes, 1_000);
  } finally {
    await earlier.stop();
  }
  await cluster.restart('s3');
  await until('all know it', async () =>
    client.command({ kind: 'volume-set', name: 'main', trashMs: 60_000 }).then(
      ({ volume }) => volume.trashMs === 60_000,
      () => false,
    ),
  );
  await client.close();
});

test('a server that claims a later version is refused with a word, in its log as in ours, and the others go on', async () => {
  await cluster.kill('s3', 'SIGTERM');
  const later = await OtherServer.start(cluster.port('s3'), {
    'leasehold-wire': `${WIRE_VERSION + 1}`,
    'leasehold-wire-oldest': `${WIRE_VERSION + 1}`,
  });
  try {
    await until('the log of s1 says why', async () =>
      cluster.log('s1').includes(`met ${WIRE_VERSION} of s1`),
    );
    const response = await later.knock(cluster.port('s1'));
    assert.match(response, new RegExp(`^426 Wire version ${WIRE_VERSION + 1} met ${WIRE_VERSION} of s1`));
    assert.equal((await fetch(`${cluster.url('s1')}/readyz`)).status, 200);
    const put = await fetch(`${cluster.url('s2')}/v1/files/main/meanwhile`, {
      method: 'PUT',
      body: 'served',
    });
    assert.equal(put.status, 201);
  } finally {
    await later.stop();
  }
  await cluster.restart('s3');
});

test('a data folder of a later release is refused, and left as it is', async () => {
  await cluster.kill('s3', 'SIGTERM');
  const file = join(cluster.data('s3'), 'META');
  const text = readFileSync(file, 'utf8');
  const later = JSON.stringify({ ...(JSON.parse(text) as object), format: FOLDER_FORMAT + 1 });
  writeFileSync(file, later);
  const child = cluster.spawn('s3');
  const code = await new Promise((resolve) => child.once('exit', resolve));
  assert.equal(code, 2);
  assert.match(
    cluster.log('s3'),
    /has format 2, and this program knows formats up to 1\. Run the version that wrote it/,
  );
  assert.equal(readFileSync(file, 'utf8'), later);
  writeFileSync(file, text);
  await cluster.restart('s3');
});

/** Another release in the place of s3: it answers those who dial it, and dials, with versions of its own. */
class OtherServer {
  readonly #http: Server;
  readonly #acceptor: WebSocketServer;
  readonly #headers: Record<string, string>;
  readonly #sockets: WebSocket[] = [];

  private constructor(http: Server, acceptor: WebSocketServer, headers: Record<string, string>) {
    this.#acceptor = acceptor;
    this.#http = http;
    this.#headers = headers;
  }

  /** @param versions headers in which it differs; undefined for those that it does not send */
  static async start(port: number, versions: Record<string, string | undefined>): Promise<OtherServer> {
    const own: Introduction = {
      server: 's3' as Introduction['server'],
      incarnation: 4711 as Introduction['incarnation'],
      cluster: 'default',
      paramsHash: paramsHash({
        leaseMs: 2_000,
        clockSkewMaxMs: 100,
        namedLeaseMaxMs: 15_000,
        leaseAlgorithm: 'flease',
        catalogMembers: cluster.ids as ServerId[],
      }),
    };
    const all = { ...helloHeaders(own, null), ...versions };
    const headers = Object.fromEntries(
      Object.entries(all).filter((header): header is [string, string] => header[1] !== undefined),
    );
    const http = createServer();
    const acceptor = new WebSocketServer({ server: http, path: PEER_PATH });
    acceptor.on('headers', (lines) => {
      for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
    });
    http.listen(port, '127.0.0.1');
    await once(http, 'listening');
    return new OtherServer(http, acceptor, headers);
  }

  /** Connects, and stays connected. It says nothing but that it lives. */
  async meet(port: number): Promise<void> {
    const socket = new WebSocket(`ws://127.0.0.1:${port}${PEER_PATH}`, { headers: this.#headers });
    this.#sockets.push(socket);
    await once(socket, 'open');
    // Who dials shows so that it lives.
    const pings = setInterval(() => socket.ping(), 200);
    socket.on('close', () => clearInterval(pings));
    socket.ping();
  }

  /** @returns status and reason with which a server refuses this one, or `welcome` */
  async knock(port: number): Promise<string> {
    const socket = new WebSocket(`ws://127.0.0.1:${port}${PEER_PATH}`, { headers: this.#headers });
    const { promise, resolve } = Promise.withResolvers<string>();
    socket.on('error', () => undefined);
    socket.on('open', () => resolve('welcome'));
    socket.on('unexpected-response', async (_request, response) => {
      let body = '';
      for await (const chunk of response) body += chunk;
      resolve(`${response.statusCode} ${body.trim()}`);
    });
    const answer = await promise;
    socket.terminate();
    return answer;
  }

  async stop(): Promise<void> {
    for (const socket of [...this.#sockets, ...this.#acceptor.clients]) socket.terminate();
    this.#http.closeAllConnections();
    this.#http.close();
    await once(this.#http, 'close');
  }
}
