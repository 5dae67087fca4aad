import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket, WebSocketServer } from 'ws';
import type { ServerId } from '../../base/ids.ts';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { mountObstacle } from '../../client/mounts/mount-process.ts';
import { downloadFile } from '../../client/transfer/download.ts';
import { uploadFile } from '../../client/transfer/upload.ts';
import { paramsHash } from '../../server/config/config.ts';
import { FOLDER_FORMAT } from '../../server/storage/folder-meta.ts';
import { WIRE_OLDEST, WIRE_VERSION } from '../../server/transport/frame.ts';
import {
  helloHeaders,
  type Introduction,
  PEER_PATH,
  wireInCommon,
} from '../../server/transport/handshake.ts';
import { systemWorld } from '../../world/system-world.ts';
import { launcherOf } from '../launcher.ts';
import { isLong } from '../long.ts';
import { ClusterMount, run, runOk } from './cluster-mount.ts';
import { earlierClient, earlierRelease } from './earlier-release.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: an upgrade, one server after the other, costs users of the cluster a pause and no error; a release that does
 * not fit is refused with a message, and does no harm.
 * Method: servers of the release before are replaced one after the other, one of them by a kill, while clients of this
 * release write, read and upload, and mounts of both releases create files; commands of each release use servers of the
 * other; then servers meet others that claim other versions.
 */
/** Pause of each of six loads after a step: the proof needs some steps between two faults. */
const PAUSE_MS = isLong ? 0 : 60;

const earlier = new Set(['s1', 's2', 's3']);
const cluster = await RealCluster.start({
  environment: (place) => (earlier.has(`s${place + 1}`) ? earlierRelease() : {}),
});
after(() => cluster.stop());
await cluster.createVolume('main');

const obstacle = await mountObstacle();

/** A command line of some release. */
function command(release: NodeJS.ProcessEnv, ...argv: string[]): Parameters<typeof run> {
  const env = { ...release, LEASEHOLD_SERVERS: cluster.urls.join(',') };
  return [process.execPath, [launcherOf(release), ...argv], { env }];
}

/** What was promised to the commands of every release, with servers of every release. */
async function exchanges(release: NodeJS.ProcessEnv, name: string): Promise<void> {
  const [there, back] = [join(cluster.folder, `${name}-there`), join(cluster.folder, `${name}-back`)];
  writeFileSync(there, randomBytes(300_000));
  await runOk(...command(release, 'put', there, `main:/${name}`));
  await runOk(...command(release, 'get', `main:/${name}`, back));
  assert.ok(readFileSync(back).equals(readFileSync(there)));
}

test('a command of this release works with servers of the one before, and gets an error for what those do not know', async () => {
  await exchanges({}, 'early');
  for (const argv of [
    ['snapshot', 'create', 'main@now'],
    ['trash', 'ls', 'main'],
  ]) {
    const { code, text } = await run(...command({}, ...argv));
    assert.equal(code, 2, text);
    assert.match(text, /the server that was asked is of an earlier release: upgrade all servers/);
  }
});

test('each server is upgraded under load, the primary of the catalog after a kill, and no client sees an error', async () => {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const mount = obstacle === null ? await ClusterMount.start(cluster, 'main') : null;
  const before = obstacle === null ? await ClusterMount.startIn(earlierClient(), cluster, 'main') : null;
  const over = new AbortController();
  const failures: unknown[] = [];
  const done = { written: 0, read: 0, uploaded: 0, listed: 0, made: 0, madeBefore: 0 };
  const loop = async (what: keyof typeof done, step: (turn: number) => Promise<void>): Promise<void> => {
    for (let turn = 0; !over.signal.aborted; turn++) {
      try {
        await step(turn);
        done[what] += 1;
        await delay(PAUSE_MS);
      } catch (error) {
        failures.push(error);
        return;
      }
    }
  };
  try {
    await uploadFile(client, 'main', '/journal', Readable.from([Buffer.from('begin\n')]));
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
        assert.ok(sizeBytes >= before, 'Acknowledged contents from before are read');
      }),
      loop('uploaded', async (turn) => {
        const bytes = randomBytes(20_000);
        await uploadFile(client, 'main', `/upload-${turn % 4}`, Readable.from([bytes]));
        const { chunks } = await downloadFile(client, 'main', `/upload-${turn % 4}`);
        const pieces: Uint8Array[] = [];
        for await (const chunk of chunks) pieces.push(chunk);
        assert.ok(Buffer.concat(pieces).equals(bytes));
      }),
      loop('made', async (turn) => {
        if (mount === null) await delay(10);
        else await writeFile(mount.path(`made-${turn}`), `made ${turn}`);
      }),
      loop('madeBefore', async (turn) => {
        if (before === null) {
          await delay(10);
          return;
        }
        await writeFile(before.path('by-the-earlier'), `round ${turn}`);
        assert.equal(await readFile(before.path('by-the-earlier'), 'utf8'), `round ${turn}`);
      }),
      loop('listed', async () => {
        const response = await fetch(`${cluster.url('s1')}/livez`).catch(() => null);
        // A server that is just being restarted does not answer; the library asks another one.
        assert.ok(response === null || response.ok);
        await client.resolve('main', '/journal');
      }),
    ];
    // A primary of the earlier release has backups of this one, and then the other way round.
    const primary = (await cluster.status('s1')).catalog.primary ?? '';
    const [first = '', last = ''] = cluster.ids.filter((id) => id !== primary);
    for (const id of [first, primary, last]) {
      const unknown = client.command({ kind: 'volume-set', name: 'main', trashMs: 60_000 });
      await assert.rejects(unknown, /without the command|There is no such command/);
      await cluster.kill(id, id === primary ? 'SIGKILL' : 'SIGTERM');
      earlier.delete(id);
      await cluster.restart(id);
      const was = { ...done };
      await until(`all works with ${id}`, async () => {
        assert.deepEqual(failures, []);
        return (['written', 'read', 'uploaded', 'made', 'madeBefore'] as const).every(
          (what) => done[what] > was[what],
        );
      });
    }
    over.abort();
    await Promise.all(loads);
    assert.deepEqual(failures, []);
    await client.command({ kind: 'snapshot-create', volume: 'main', name: 'upgraded' });
    if (before !== null) {
      const shown = await readFile(before.path('by-the-earlier'), 'utf8');
      await writeFile(before.path('by-the-earlier'), 'after the snapshot');
      const past = await fetch(`${cluster.url('s1')}/v1/files/main@upgraded/by-the-earlier`);
      assert.equal(await past.text(), shown);
      await before.unmount();
    }
    await mount?.unmount();
    for (let turn = 0; mount !== null && turn < done.made; turn++) {
      const response = await fetch(`${cluster.url(`s${1 + (turn % 3)}`)}/v1/files/main/made-${turn}`);
      assert.equal(await response.text(), `made ${turn}`);
    }
    const { chunks } = await downloadFile(client, 'main', '/journal');
    const pieces: Uint8Array[] = [];
    for await (const chunk of chunks) pieces.push(chunk);
    assert.equal(Buffer.concat(pieces).toString(), acknowledged, 'Each record once, in order');
  } finally {
    over.abort();
    await client.close();
    await mount?.stop();
    await before?.stop();
  }
});

test('a command of the release before works with servers of this one, and names what it does not know itself', async () => {
  await exchanges(earlierClient(), 'late');
  const { code, text } = await run(...command(earlierClient(), 'snapshot', 'ls', 'main'));
  assert.equal(code, 2);
  assert.match(text, /unknown command 'snapshot'/);
});

test('a server that restarts with the release before follows no command that it does not know, until it is upgraded', async () => {
  const client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  const behind = async (): Promise<readonly string[]> => {
    const all = await Promise.all(['s1', 's2'].map((id) => cluster.status(id)));
    return all.flatMap(({ servers }) => servers.flatMap(({ catalogBehind }) => catalogBehind ?? []));
  };
  try {
    await cluster.kill('s3');
    const kept = { kind: 'volume-create', name: 'kept', replicas: 3, objectBytes: 131_072 } as const;
    await client.command({ ...kept, trashMs: 60_000 });
    await uploadFile(client, 'kept', '/thrown', Readable.from([Buffer.from('away')]));
    await client.command({ kind: 'unlink', place: { volume: 'kept', path: '/thrown' } });
    earlier.add('s3');
    cluster.spawn('s3');
    await until('the others say that it does not follow', async () => (await behind()).includes('s3'));
    await uploadFile(client, 'main', '/meanwhile-served', Readable.from([Buffer.from('served')]));
    // As the holder of the catalog's lease it would not become primary: no name could be changed until it ends.
    for (const [id, other] of [
      ['s1', 's2'],
      ['s2', 's1'],
    ] as const) {
      await cluster.kill(id);
      await until("the lease is another server's", async () => {
        const { primary } = (await cluster.status(other)).catalog;
        return primary !== null && primary !== id;
      });
      cluster.spawn(id);
      await client.command({ kind: 'volume-set', name: 'main', quotaInodes: 2_000 });
      await until('all but s3 follow', async () => new Set(await behind()).size === 1);
    }
    await cluster.kill('s3');
    earlier.delete('s3');
    await cluster.restart('s3');
    await until('it follows', async () => (await behind()).length === 0);
    const trash = await fetch(`${cluster.url('s3')}/v1/trash/kept`);
    const { files } = (await trash.json()) as { readonly files: readonly { readonly path: string }[] };
    assert.deepEqual(
      files.map(({ path }) => path),
      ['/thrown'],
    );
  } finally {
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

test('while a server of the catalog does not know a command, the command is refused, and all others work', async () => {
  await cluster.kill('s3', 'SIGTERM');
  const earlier = await OtherServer.start(cluster.port('s3'), { 'leasehold-commands': undefined });
  const client = new ClusterClient({
    world: systemWorld,
    servers: ['s1', 's2'].map((id) => cluster.url(id)),
  });
  try {
    await Promise.all(['s1', 's2'].map((id) => earlier.meet(cluster.port(id))));
    const set = { kind: 'volume-set', name: 'main' } as const;
    await until('it is refused', async () =>
      client.command({ ...set, trashMs: 60_000 }).then(
        () => false,
        (error: unknown) =>
          /^Server s3 runs a release without the command/.test(
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

test('a server that claims a later version is refused with a message in both logs, and the others continue', async () => {
  await cluster.kill('s3', 'SIGTERM');
  const later = await OtherServer.start(cluster.port('s3'), {
    'leasehold-wire': `${WIRE_VERSION + 1}`,
    'leasehold-wire-oldest': `${WIRE_VERSION + 1}`,
  });
  try {
    await until('the log of s1 says why', async () =>
      cluster.log('s1').includes(`s1 up to ${WIRE_VERSION};`),
    );
    const response = await later.knock(cluster.port('s1'));
    assert.match(
      response,
      new RegExp(
        `^426 No common protocol version: the peer speaks up to ${WIRE_VERSION + 1}, s1 up to ${WIRE_VERSION};`,
      ),
    );
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

test('a data folder of a later release is refused, and left unchanged', async () => {
  await cluster.kill('s3', 'SIGTERM');
  const file = join(cluster.data('s3'), 'META');
  const text = readFileSync(file, 'utf8');
  const later = JSON.stringify({ ...(JSON.parse(text) as object), format: FOLDER_FORMAT + 1 });
  writeFileSync(file, later);
  const child = cluster.spawn('s3');
  cluster.foreseeEnd('s3');
  const code = await new Promise((resolve) => child.once('exit', resolve));
  assert.equal(code, 2);
  const formats = `its format is ${FOLDER_FORMAT + 1}, and this release supports up to ${FOLDER_FORMAT}`;
  const said = new RegExp(`${formats}\\. Run the release that wrote it`);
  // Its last lines may reach the log after it has ended.
  await until('its refusal is in the log', async () => said.test(cluster.log('s3')), 10_000);
  assert.equal(readFileSync(file, 'utf8'), later);
  writeFileSync(file, text);
  await cluster.restart('s3');
});

/** Another release in the place of s3: it answers servers that connect, and connects, with its own versions. */
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

  /** @param versions headers that differ; undefined for those that it does not send */
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

  /** Connects, and stays connected. It sends only keepalives. */
  async meet(port: number): Promise<void> {
    const socket = new WebSocket(`ws://127.0.0.1:${port}${PEER_PATH}`, { headers: this.#headers });
    this.#sockets.push(socket);
    await once(socket, 'open');
    // A server that connects proves so that it runs.
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
