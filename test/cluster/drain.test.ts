/**
 * Goal: an orderly end of a server cuts no request, so that no client's request fails during a rolling restart.
 * Method: clients with open connections read and write while each server is ended and started again; like a load
 * balancer, they use another server only if none listens. A slow upload and a slow download are under way at each end.
 */
import assert from 'node:assert/strict';
import { Agent, type IncomingMessage, request } from 'node:http';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { isLong } from '../long.ts';
import { RealCluster } from './real-cluster.ts';

const cluster = await RealCluster.start();
after(() => cluster.stop());
await cluster.createVolume('main');

interface Answer {
  readonly status: number;
  readonly connection: string | undefined;
  readonly body: Buffer;
}

/** Pause of each client after an answer; with it, nine clients leave servers time to end under load. */
const PAUSE_MS = isLong ? 0 : 20;
/** In the long form each server ends and starts again. */
const ENDS = isLong ? 3 : 1;
/**
 * A connection that was idle for longer, in milliseconds, is not used again: a server that ends keeps it for a second.
 * A request that this process, without processor time, has sent later than that is sent again.
 */
const REUSED_MS = 500;
/** A server that ends cuts an upload after five seconds: one that this process has sent more slowly proves nothing. */
const UPLOAD_MS_MAX = 4_000;

/** One request; `pieces` are sent one by one, with a pause before each. */
function send(
  agent: Agent,
  id: string,
  method: string,
  path: string,
  pieces: readonly Buffer[] = [],
  pauseMs = 0,
  isSent: () => void = () => undefined,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(cluster.url(id));
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const headers = method === 'PUT' ? { 'content-length': length } : {};
    const sent = request({ agent, hostname, port, method, path: `/v1/files/main/${path}`, headers });
    sent.on('error', reject);
    sent.on('finish', isSent);
    sent.on('response', (response: IncomingMessage) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const { statusCode: status = 0, headers } = response;
        resolve({ status, connection: headers.connection, body: Buffer.concat(chunks) });
      });
    });
    const write = async (): Promise<void> => {
      for (const piece of pieces) {
        if (pauseMs > 0) await delay(pauseMs);
        sent.write(piece);
      }
      sent.end();
    };
    void write();
  });
}

/** Reads and writes over its own connections until it is ended. */
class Load {
  readonly failures: string[] = [];
  requests = 0;
  #isOver = false;
  readonly #ended: Promise<unknown>;

  constructor(clients: number) {
    this.#ended = Promise.all(Array.from({ length: clients }, (_, place) => this.#run(place)));
  }

  async #run(place: number): Promise<void> {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    let answeredMs = performance.now();
    const { ids } = cluster;
    let at = place % ids.length;
    for (let number = 0; !this.#isOver; number++) {
      const text = Buffer.from(`${place} ${number}`);
      const [method, pieces] = number % 2 === 0 ? ['PUT', [text]] : ['GET', []];
      const path = `f${place}-${number - (number % 2)}`;
      let sentMs = Number.POSITIVE_INFINITY;
      const isSent = (): void => {
        sentMs = performance.now();
      };
      const isReused = performance.now() - answeredMs <= REUSED_MS;
      try {
        if (!isReused) agent.destroy();
        const id = ids[at] as string;
        const { status } = await send(agent, id, method as string, path, pieces as Buffer[], 0, isSent);
        answeredMs = performance.now();
        this.requests++;
        if (status >= 300) this.failures.push(`${method} ${path} at ${ids[at]}: ${status}`);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ECONNREFUSED') {
          // No byte was sent: the same request goes to the next server.
          at = (at + 1) % ids.length;
          number--;
        } else if (isReused && sentMs - answeredMs > REUSED_MS) {
          // The connection had been idle for too long when the request left: both requests may be repeated.
          agent.destroy();
          answeredMs = Number.NEGATIVE_INFINITY;
          number--;
        } else this.failures.push(`${method} ${path} at ${ids[at]}: ${error}`);
      }
      await delay(PAUSE_MS + place * 2);
    }
    agent.destroy();
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#ended;
  }
}

test('each server is ended and started again under load, and no request fails', async (t) => {
  const load = new Load(9);
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  try {
    for (const id of cluster.ids.slice(0, ENDS)) {
      const idle = new Agent({ keepAlive: true, maxSockets: 1 });
      await send(idle, id, 'PUT', `idle-${id}`, [Buffer.from('kept')]);
      const pieces = Array.from({ length: 4 }, () => Buffer.alloc(5_000, id));
      let uploadedMs = Number.POSITIVE_INFINITY;
      const uploaded = send(agent, id, 'PUT', `slow-${id}`, pieces, 400, () => {
        uploadedMs = performance.now();
      }).catch((error: unknown) => ({ error }));
      await delay(300);
      const ended = cluster.kill(id, 'SIGTERM');
      const signalledMs = performance.now();
      // On a connection that was idle when the server began to end.
      await delay(100);
      if (performance.now() - signalledMs < REUSED_MS) {
        const late = await send(idle, id, 'GET', `idle-${id}`);
        assert.equal(late.status, 200, late.body.toString());
        assert.equal(late.connection, 'close', 'The client learns that the connection ends');
      } else t.diagnostic(`${id} had ended before this process could ask again`);
      idle.destroy();
      const outcome = await uploaded;
      const isSlow = uploadedMs - signalledMs > UPLOAD_MS_MAX;
      if (isSlow) t.diagnostic(`the upload to ${id} was sent too slowly to be waited for`);
      else if ('error' in outcome) throw outcome.error;
      else assert.equal(outcome.status, 201, outcome.body.toString());
      assert.equal(await ended, 0, 'It ends in good order');
      await cluster.restart(id);
      if (isSlow) continue;
      const read = await send(agent, id, 'GET', `slow-${id}`);
      assert.deepEqual(read.body, Buffer.concat(pieces));
    }
  } finally {
    await load.stop();
  }
  t.diagnostic(`${load.requests} requests`);
  assert.deepEqual(load.failures, []);
});

test('a server ends once, however many signals it receives', async () => {
  const ended = cluster.kill('s1', 'SIGTERM');
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGTERM'] as const) {
    await delay(50);
    try {
      process.kill(cluster.pid('s1'), signal);
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH');
    }
  }
  assert.equal(await ended, 0);
  assert.match(cluster.log('s1'), /releasing leases/);
  await cluster.restart('s1');
});
