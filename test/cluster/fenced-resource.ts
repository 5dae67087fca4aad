import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ask } from '../http/ask.ts';

/** Much longer than any takeover: then something is wrong. */
const NEXT_MS_MAX = 60_000;

/** A request to the resource, accepted or refused. */
export interface Act {
  readonly who: string;
  readonly token: number;
  /** Processes that sent it: the command, and the supervisor that is its parent. */
  readonly pid: number;
  readonly supervisor: number;
  readonly atMs: number;
  readonly accepted: boolean;
}

/** A resource that refuses a request with a smaller fencing token than it has seen. */
export class FencedResource {
  readonly acts: Act[] = [];
  readonly #server: Server;
  readonly #waiting = new Set<() => void>();
  #tokenMax = 0;

  private constructor() {
    this.#server = createServer((request, response) => {
      response.writeHead(this.#admit(request) ? 204 : 409).end();
    });
  }

  static async start(): Promise<FencedResource> {
    const resource = new FencedResource();
    resource.#server.listen(0, '127.0.0.1');
    await once(resource.#server, 'listening');
    return resource;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Resolves with the first act for which `wanted` holds, among those from now on. */
  async next(wanted: (act: Act) => boolean): Promise<Act> {
    const from = this.acts.length;
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => reject(new Error(`No wanted act in ${NEXT_MS_MAX} ms`)), NEXT_MS_MAX);
    try {
      for (;;) {
        const found = this.acts.slice(from).find(wanted);
        if (found !== undefined) return found;
        await Promise.race([late, new Promise<void>((resolve) => this.#waiting.add(resolve))]);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Sends a request with a token.
   * @returns the status of the answer
   */
  async act(token: number): Promise<number> {
    const headers = { 'fencing-token': String(token), who: 'test', pid: '0', supervisor: '0' };
    return (await ask(this.url, 'POST', '/', { headers })).status;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #admit({ headers }: IncomingMessage): boolean {
    const token = Number(headers['fencing-token']);
    const accepted = token >= this.#tokenMax;
    if (accepted) this.#tokenMax = token;
    const [pid, supervisor] = [Number(headers.pid), Number(headers.supervisor)];
    this.acts.push({ who: String(headers.who), token, pid, supervisor, atMs: performance.now(), accepted });
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
    return accepted;
  }
}
