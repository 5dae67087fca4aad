import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Timer } from '../../base/world.ts';
import { createServer } from '../../platform/node-http.ts';
import { streamEventText } from '../../wire/sse.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ServerProcess } from './server-process.ts';

const HOST = '127.0.0.1';
const KEY_BYTES = 18;
const READY_TIMEOUT_MS = 30_000;
const HEARTBEAT_MS = 2_000;

export type ActState = 'to-come' | 'now' | 'done' | 'failed';

export interface DemoProgress {
  readonly acts: readonly {
    readonly title: string;
    readonly state: ActState;
    readonly lines: readonly string[];
  }[];
  readonly waits: boolean;
}

const ORDERS = ['kill', 'pause', 'resume', 'cut', 'heal', 'restart'] as const;
type Order = (typeof ORDERS)[number];

/**
 * Executes the dashboard's commands for the servers of this process: kill, pause, cut off, restart. It listens on
 * loopback, accepts pages of these servers alone, and requires the key that the servers give those pages.
 */
export class DevControl {
  readonly #server: Server;
  readonly #key = systemWorld.randomBytes(KEY_BYTES).toString('base64url');
  readonly #listeners = new Set<ServerResponse>();
  #servers: readonly ServerProcess[] = [];
  #story: DemoProgress | null = null;
  #next: (() => void) | null = null;
  readonly #heartbeat: Timer;

  private constructor() {
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => {
        send(response, 500, error instanceof Error ? error.message : String(error));
      });
    });
    this.#heartbeat = systemWorld.every(HEARTBEAT_MS, () => this.#broadcast()).unref();
  }

  static async start(): Promise<DevControl> {
    const control = new DevControl();
    await new Promise<void>((resolve, reject) => {
      control.#server.once('error', reject);
      control.#server.listen(0, HOST, resolve);
    });
    return control;
  }

  /** Its URL with the key, for the servers' environment. */
  get address(): string {
    return `http://${HOST}:${(this.#server.address() as AddressInfo).port}#${this.#key}`;
  }

  watchServers(servers: readonly ServerProcess[]): void {
    this.#servers = servers;
    for (const server of servers) server.onChange(() => this.#broadcast());
  }

  publish(story: DemoProgress): void {
    this.#story = story;
    this.#broadcast();
  }

  next(): Promise<void> {
    return new Promise((resolve) => {
      this.#next = resolve;
    });
  }

  async close(): Promise<void> {
    this.#heartbeat.cancel();
    for (const response of this.#listeners) response.end();
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { origin } = request.headers;
    const isOurs = this.#servers.some(({ plan }) => {
      const { protocol, port } = new URL(plan.url);
      return ['127.0.0.1', 'localhost'].some((host) => origin === `${protocol}//${host}:${port}`);
    });
    if (origin !== undefined && isOurs) response.setHeader('access-control-allow-origin', origin);
    response.setHeader('vary', 'Origin');
    if (request.method === 'OPTIONS') {
      response.setHeader('access-control-allow-headers', 'authorization');
      response.setHeader('access-control-allow-methods', 'GET, POST');
      return send(response, isOurs ? 204 : 403, '');
    }
    if (!this.#hasKey(request.headers.authorization)) return send(response, 401, 'The key is wrong');
    const path = request.url ?? '/';
    if (request.method === 'GET' && path === '/events') return this.#streamTo(response);
    if (request.method === 'POST' && path === '/next') {
      this.#next?.();
      this.#next = null;
      return send(response, 204, '');
    }
    const [, id, order] = /^\/servers\/([a-z0-9-]+)\/([a-z]+)$/.exec(path) ?? [];
    const server = this.#servers.find(({ plan }) => plan.id === id);
    if (request.method !== 'POST' || server === undefined || !isOrder(order)) {
      return send(response, 404, `There is nothing at ${path}`);
    }
    await executeOrder(server, order);
    return send(response, 204, '');
  }

  #hasKey(authorization: string | undefined): boolean {
    const given = Buffer.from(authorization ?? '');
    const wanted = Buffer.from(`Bearer ${this.#key}`);
    return given.length === wanted.length && timingSafeEqual(given, wanted);
  }

  #streamTo(response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    this.#listeners.add(response);
    response.on('close', () => this.#listeners.delete(response));
    response.write(this.#text());
  }

  #broadcast(): void {
    for (const response of this.#listeners) {
      // A slow reader gets the newest state with a later write.
      if (!response.writableNeedDrain) response.write(this.#text());
    }
  }

  #text(): string {
    const servers = this.#servers.map(({ plan, state, pid }) => ({ id: plan.id, state, pid }));
    return streamEventText('state', JSON.stringify({ servers, story: this.#story }));
  }
}

/** Executes a command of the dashboard, or of a key in the terminal. */
export async function executeOrder(server: ServerProcess, order: Order): Promise<void> {
  switch (order) {
    case 'kill':
      return server.kill();
    case 'pause':
      return server.pause();
    case 'resume':
      return server.resume();
    case 'cut':
      return server.disconnect();
    case 'heal':
      return server.reconnect();
    case 'restart':
      if (server.state !== 'dead') return;
      await server.start();
      return server.waitUntilReady(READY_TIMEOUT_MS);
  }
}

function isOrder(text: string | undefined): text is Order {
  return ORDERS.some((order) => order === text);
}

function send(response: ServerResponse, status: number, text: string): void {
  if (response.headersSent) {
    response.end();
    return;
  }
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(text);
}
