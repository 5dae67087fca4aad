import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { ChannelAnswer, ChannelRequest, HttpChannel } from '../../../http-parts/http-channel.ts';
import type { Network } from './network.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { Due } from './virtual-time.ts';

interface Injected {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly rawPayload: Buffer;
}

type Inject = (
  dispatch: (request: IncomingMessage, response: ServerResponse) => void,
  options: {
    readonly method: string;
    readonly url: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly payload?: Buffer;
    readonly remoteAddress: string;
    readonly signal: AbortSignal;
  },
) => Promise<Injected>;

/** What fastify itself injects requests with: it makes requests and answers of Node's classes without a socket. */
const fastifyParts = createRequire(createRequire(import.meta.url).resolve('fastify'));
const inject = fastifyParts('light-my-request') as Inject;

/** TCP sends again what was not acknowledged, about so often. */
const RETRANSMIT_MS = 200;

/** A server that listens. */
interface Front {
  readonly process: SimulatedProcess;
  readonly machine: string;
  readonly server: Server;
  /** Requests that it has received and not answered: their connections break at its end. */
  readonly open: Set<() => void>;
}

/** A request on its way, as a gate sees it. */
export interface Passing {
  /** The machine that sends it. */
  readonly from: string;
  readonly origin: string;
  readonly method: string;
  readonly path: string;
  readonly body: string;
}

/** A directed schedule has single requests and answers wait, or be lost. Calls `go` or `lose`, at once or later. */
export type HttpGate = (
  what: 'request' | 'answer',
  passing: Passing,
  go: () => void,
  lose: () => void,
) => void;

/** HTTP of simulated processes: requests enter the real application of a server. */
export class SimulatedHttp {
  readonly #network: Network;
  readonly #postman: SimulatedProcess;
  readonly #fronts = new Map<string, Front>();
  /** By method and first parts of the path: how often a fault met such a request. */
  readonly faults = { requestLost: 0, answerLost: 0, late: 0, afterCallerGone: 0 };
  requestCount = 0;
  /** By code of the catalogue of failures: how often a server answered with it. */
  readonly refusals = new Map<string, number>();
  /** Through which all requests and answers pass, if there is one. */
  gate: HttpGate | null = null;

  constructor(network: Network, postman: SimulatedProcess) {
    this.#network = network;
    this.#postman = postman;
  }

  listen(process: SimulatedProcess, machine: string, origin: string, server: Server): void {
    const front: Front = { process, machine, server, open: new Set() };
    this.#fronts.set(origin, front);
    process.onEndOnce(() => this.#end(origin, front));
  }

  /** A server has stopped to listen. */
  unlisten(origin: string, server: Server): void {
    const front = this.#fronts.get(origin);
    if (front?.server === server) this.#end(origin, front);
  }

  /** Counts an answer that is a problem document. */
  answered({ statusCode, rawPayload }: Injected): void {
    const code = statusCode < 400 ? undefined : /"code":"([a-z-]+)"/.exec(rawPayload.toString('latin1'))?.[1];
    if (code !== undefined) this.refusals.set(code, (this.refusals.get(code) ?? 0) + 1);
  }

  #end(origin: string, front: Front): void {
    if (this.#fronts.get(origin) === front) this.#fronts.delete(origin);
    for (const broken of front.open) broken();
    front.open.clear();
  }

  /** @param machine where `process` runs */
  channel(process: SimulatedProcess, machine: string, origin: string): HttpChannel {
    const controller = new AbortController();
    const open = new Set<Promise<unknown>>();
    return {
      request: (request) => {
        if (controller.signal.aborted) return Promise.reject(new Error('The connections were closed'));
        const exchange = new Exchange(this.#network, this.#postman, process, machine, origin, this, request);
        const answer = exchange.begin((url) => this.#fronts.get(url), controller.signal);
        open.add(answer);
        answer.then(
          () => open.delete(answer),
          () => open.delete(answer),
        );
        return answer;
      },
      close: async () => {
        await Promise.allSettled(open);
      },
      destroy: async () => {
        controller.abort(new Error('The connections were closed'));
      },
    };
  }
}

/** One request and its answer, on a connection of its own. */
class Exchange {
  readonly #network: Network;
  readonly #postman: SimulatedProcess;
  readonly #caller: SimulatedProcess;
  readonly #machine: string;
  readonly #origin: string;
  readonly #http: SimulatedHttp;
  readonly #request: ChannelRequest;
  /** Copied as a socket would. */
  readonly #body: Buffer | undefined;
  readonly #outcome = Promise.withResolvers<ChannelAnswer>();
  readonly #serverGone = new AbortController();
  #callerGone = false;
  #isExecuting = false;
  #pending: Due | null = null;

  constructor(
    network: Network,
    postman: SimulatedProcess,
    caller: SimulatedProcess,
    machine: string,
    origin: string,
    http: SimulatedHttp,
    request: ChannelRequest,
  ) {
    this.#network = network;
    this.#postman = postman;
    this.#caller = caller;
    this.#machine = machine;
    this.#origin = origin;
    this.#http = http;
    this.#request = request;
    const { body } = request;
    this.#body = body === null || body === undefined ? undefined : Buffer.from(body as Uint8Array);
  }

  begin(find: (origin: string) => Front | undefined, closed: AbortSignal): Promise<ChannelAnswer> {
    const { signal } = this.#request;
    const network = this.#network;
    this.#http.requestCount++;
    const gone = (reason: unknown): void => this.#giveUp(reason);
    for (const one of [signal, closed]) {
      if (one === undefined) continue;
      if (one.aborted) return Promise.reject(one.reason as Error);
      const onAbort = () => gone(one.reason);
      one.addEventListener('abort', onAbort, { once: true });
      this.#outcome.promise.then(
        () => one.removeEventListener('abort', onAbort),
        () => one.removeEventListener('abort', onAbort),
      );
    }
    if (network.chance(network.weather.requestLost)) {
      this.#http.faults.requestLost++;
      this.#fail('ECONNRESET', 'The connection broke before the request arrived', network.upTo(20));
      return this.#outcome.promise;
    }
    const isLate = network.chance(network.weather.late);
    if (isLate) this.#http.faults.late++;
    const { gate } = this.#http;
    if (gate === null)
      this.#travel(isLate ? network.upTo(network.weather.lateMs) : network.delayMs(), isLate, find);
    else
      gate(
        'request',
        this.#passing,
        () => this.#travel(network.delayMs(), true, find),
        () => this.#fail('ECONNRESET', 'The connection broke before the request arrived', 0),
      );
    return this.#outcome.promise;
  }

  get #passing(): Passing {
    const { method, path } = this.#request;
    const body = this.#body?.toString('latin1') ?? '';
    return { from: this.#machine, origin: this.#origin, method, path, body };
  }

  /** The caller waits no longer: its side of the connection is closed, and the server learns so, unless that is lost. */
  #giveUp(reason: unknown): void {
    if (this.#callerGone) return;
    this.#callerGone = true;
    this.#outcome.reject(reason);
    if (!this.#isExecuting) return;
    this.#pending = this.#network.time.after(this.#network.delayMs(), this.#postman, () =>
      this.#serverGone.abort(),
    );
  }

  #travel(delayMs: number, isLate: boolean, find: (origin: string) => Front | undefined): void {
    this.#network.time.after(delayMs, this.#postman, () => {
      const front = find(this.#origin);
      if (front === undefined || front.process.hasEnded) {
        this.#fail('ECONNREFUSED', `connect ECONNREFUSED ${this.#origin}`, this.#network.delayMs());
        return;
      }
      if (this.#network.isCut(this.#machine, front.machine)) {
        // A connection that was not made ends with its caller; TCP sends again what was sent on one.
        if (this.#callerGone && this.#network.chance(0.5)) return;
        this.#travel(RETRANSMIT_MS, isLate, find);
        return;
      }
      // Half of the requests that are still on their way are overtaken by the end of their connection.
      if (this.#callerGone && !isLate && this.#network.chance(0.5)) return;
      if (this.#callerGone) this.#http.faults.afterCallerGone++;
      const broken = () =>
        this.#fail('ECONNRESET', 'The server closed the connection', this.#network.delayMs());
      front.open.add(broken);
      this.#network.time.after(0, front.process, () => this.#execute(front, broken));
    });
  }

  /** In the server's process. */
  #execute(front: Front, broken: () => void): void {
    this.#isExecuting = true;
    const { method, path, headers } = this.#request;
    const host = this.#origin.slice(this.#origin.indexOf('//') + 2);
    const answered = inject(
      (request, response) => {
        response.sendDate = false;
        // The body is there as a whole: nothing comes too slowly.
        request.setTimeout = () => request;
        front.server.emit('request', request, response);
      },
      {
        method,
        url: path,
        headers: { host, ...headers },
        ...(this.#body === undefined ? {} : { payload: this.#body }),
        remoteAddress: '127.0.0.1',
        signal: this.#serverGone.signal,
      },
    );
    answered.then(
      (answer) => {
        front.open.delete(broken);
        this.#pending?.cancel();
        this.#http.answered(answer);
        this.#network.time.note(`${method} ${path.split('?')[0]} ${answer.statusCode}`);
        const { weather } = this.#network;
        const { gate } = this.#http;
        if (this.#network.chance(weather.answerLost)) {
          this.#http.faults.answerLost++;
          this.#fail('ECONNRESET', 'The connection broke before the answer', this.#network.upTo(20));
        } else if (gate === null) this.#answer(front, answer);
        else
          gate(
            'answer',
            this.#passing,
            () => this.#answer(front, answer),
            () => this.#fail('ECONNRESET', 'The connection broke before the answer', 0),
          );
      },
      () => {
        front.open.delete(broken);
        this.#fail('ECONNRESET', 'The server closed the connection', this.#network.delayMs());
      },
    );
  }

  #answer(front: Front, answer: Injected): void {
    this.#network.time.after(this.#network.delayMs(front.machine, this.#machine), this.#postman, () => {
      if (this.#callerGone) return;
      if (this.#network.isCut(front.machine, this.#machine)) {
        if (front.process.hasEnded) return;
        this.#network.time.after(RETRANSMIT_MS, this.#postman, () => this.#answer(front, answer));
        return;
      }
      const { statusCode, headers, rawPayload } = answer;
      this.#network.time.after(0, this.#caller, () =>
        this.#outcome.resolve({
          statusCode,
          headers,
          body: {
            bytes: async () => rawPayload,
            text: async () => rawPayload.toString(),
            json: async () => JSON.parse(rawPayload.toString()) as unknown,
          },
        }),
      );
    });
  }

  #fail(code: string, message: string, delayMs: number): void {
    this.#network.time.after(delayMs, this.#caller, () =>
      this.#outcome.reject(Object.assign(new Error(message), { code })),
    );
  }
}
