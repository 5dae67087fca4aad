import type { Server } from 'node:http';
import type {
  ChannelAnswer,
  ChannelRequest,
  HttpChannel,
  StreamedAnswer,
} from '../../../platform/http-channel.ts';
import { type InjectedAnswer, injectRequest } from './injected-request.ts';
import type { Network } from './network.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import { SimulatedStream } from './simulated-stream.ts';

/** TCP sends unacknowledged segments again about so often. */
const RETRANSMIT_MS = 200;

/** A listening server. */
interface Front {
  readonly process: SimulatedProcess;
  readonly machine: string;
  readonly server: Server;
  /** Requests that it has received and not answered: their connections break at its end. */
  readonly open: Set<() => void>;
}

/** A request on its way, as a gate gets it. */
export interface Passing {
  /** The machine that sends it. */
  readonly from: string;
  readonly origin: string;
  readonly method: string;
  readonly path: string;
  readonly body: string;
}

/** Lets a directed schedule hold or lose single requests and answers. Calls `go` or `lose`, at once or later. */
export type HttpGate = (
  what: 'request' | 'answer',
  passing: Passing,
  go: () => void,
  lose: () => void,
) => void;

/** HTTP of simulated processes: requests enter the real application of a server. */
export class SimulatedHttp {
  readonly network: Network;
  readonly postman: SimulatedProcess;
  readonly #fronts = new Map<string, Front>();
  /** Counts of requests with a fault, by method and first parts of the path. */
  readonly faults = { requestLost: 0, answerLost: 0, late: 0, afterCallerGone: 0 };
  requestCount = 0;
  /** Counts of errors that servers answered, by code. */
  readonly refusals = new Map<string, number>();
  /** All requests and answers pass through it, if it is set. */
  gate: HttpGate | null = null;
  /** Called with each request as it is sent. */
  watch: ((request: Passing) => void) | null = null;
  /** If set, the next answer to a change is lost, and this is called with the origin of its server. */
  atNextChange: ((origin: string) => void) | null = null;

  constructor(network: Network, postman: SimulatedProcess) {
    this.network = network;
    this.postman = postman;
  }

  listen(process: SimulatedProcess, machine: string, origin: string, server: Server): void {
    const front: Front = { process, machine, server, open: new Set() };
    this.#fronts.set(origin, front);
    process.onEndOnce(() => this.#end(origin, front));
  }

  /** Counts an answer that is a problem document. */
  answered({ statusCode, bytes }: InjectedAnswer): void {
    const code = statusCode < 400 ? undefined : /"code":"([a-z-]+)"/.exec(bytes.toString('latin1'))?.[1];
    if (code !== undefined) this.refusals.set(code, (this.refusals.get(code) ?? 0) + 1);
  }

  #end(origin: string, front: Front): void {
    if (this.#fronts.get(origin) === front) this.#fronts.delete(origin);
    for (const broken of front.open) broken();
    front.open.clear();
  }

  /** @param machine of `process` */
  channel(process: SimulatedProcess, machine: string, origin: string): HttpChannel {
    const open = new Map<Exchange, Promise<unknown>>();
    let isClosed = false;
    const exchanged = (request: ChannelRequest): Exchange =>
      new Exchange(this, process, machine, origin, request);
    return {
      stream: async (request) => {
        if (isClosed) throw new Error('The connections were closed');
        const exchange = exchanged(request);
        open.set(exchange, Promise.resolve());
        return exchange.beginStream(
          (url) => this.#fronts.get(url),
          () => open.delete(exchange),
        );
      },
      request: (request) => {
        if (isClosed) return Promise.reject(new Error('The connections were closed'));
        const exchange = exchanged(request);
        const answer = exchange.begin((url) => this.#fronts.get(url));
        open.set(exchange, answer);
        const ended = (): void => {
          open.delete(exchange);
        };
        answer.then(ended, ended);
        return answer;
      },
      close: async () => {
        await Promise.allSettled(open.values());
      },
      destroy: async () => {
        isClosed = true;
        for (const exchange of [...open.keys()]) exchange.giveUp(new Error('The connections were closed'));
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
  #callerGone = false;
  #isStreamed = false;
  /** The answer, if it is streamed. */
  #stream: SimulatedStream | null = null;
  /** Ends the connection at a server that executes the request. */
  #abandon: (() => void) | null = null;
  #front: Front | null = null;

  constructor(
    http: SimulatedHttp,
    caller: SimulatedProcess,
    machine: string,
    origin: string,
    request: ChannelRequest,
  ) {
    this.#network = http.network;
    this.#postman = http.postman;
    this.#caller = caller;
    this.#machine = machine;
    this.#origin = origin;
    this.#http = http;
    this.#request = request;
    const { body } = request;
    this.#body = body === null || body === undefined ? undefined : Buffer.from(body as Uint8Array);
  }

  begin(find: (origin: string) => Front | undefined): Promise<ChannelAnswer> {
    const { signal } = this.#request;
    const network = this.#network;
    this.#http.requestCount++;
    this.#http.watch?.(this.#passing);
    if (signal?.aborted === true) return Promise.reject(signal.reason as Error);
    if (signal !== undefined) {
      const onAbort = () => this.giveUp(signal.reason);
      signal.addEventListener('abort', onAbort, { once: true });
      const ended = () => signal.removeEventListener('abort', onAbort);
      this.#outcome.promise.then(ended, ended);
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

  /** As `begin`, for a streamed answer. @param ended called when its caller reads no further */
  async beginStream(find: (origin: string) => Front | undefined, ended: () => void): Promise<StreamedAnswer> {
    const { signal } = this.#request;
    this.#isStreamed = true;
    try {
      const { statusCode, headers } = await this.begin(find);
      const body = this.#stream as SimulatedStream;
      const onAbort = (): void => this.giveUp(signal?.reason);
      signal?.addEventListener('abort', onAbort, { once: true });
      body.left = () => {
        signal?.removeEventListener('abort', onAbort);
        ended();
        this.#leave();
      };
      this.#caller.onEndOnce(() => this.#leave());
      return { statusCode, headers, body };
    } catch (error) {
      ended();
      throw error;
    }
  }

  get #passing(): Passing {
    const { method, path } = this.#request;
    const body = this.#body?.toString('latin1') ?? '';
    return { from: this.#machine, origin: this.#origin, method, path, body };
  }

  get #isChange(): boolean {
    const { method, path } = this.#request;
    return method !== 'GET' && /^\/v1\/(data\/|catalog\/commands|births(\?|$))/.test(path);
  }

  /**
   * The caller stops waiting: its side of the connection is closed, and the server learns that, unless it is lost.
   */
  giveUp(reason: unknown): void {
    if (this.#callerGone) return;
    this.#callerGone = true;
    this.#outcome.reject(reason);
    this.#stream?.fail(reason);
    this.#leave();
  }

  /** The server that executes the request learns that its connection has ended. */
  #leave(): void {
    const abandon = this.#abandon;
    if (abandon === null) return;
    const { process } = this.#front as Front;
    this.#network.time.after(this.#network.delayMs(), process, () => {
      if (this.#abandon === abandon) abandon();
    });
  }

  #travel(delayMs: number, isLate: boolean, find: (origin: string) => Front | undefined): void {
    this.#network.time.after(delayMs, this.#postman, () => {
      const front = find(this.#origin);
      if (front === undefined || front.process.hasEnded) {
        this.#fail('ECONNREFUSED', `connect ECONNREFUSED ${this.#origin}`, this.#network.delayMs());
        return;
      }
      if (this.#network.isCut(this.#machine, front.machine)) {
        // A connection that was not established ends with its caller; TCP sends again what was sent on one.
        if (this.#callerGone && this.#network.chance(0.5)) return;
        this.#travel(RETRANSMIT_MS, isLate, find);
        return;
      }
      // Half of the requests on their way are overtaken by the end of their connection.
      if (this.#callerGone && !isLate && this.#network.chance(0.5)) return;
      if (this.#callerGone) this.#http.faults.afterCallerGone++;
      const broken = () =>
        this.#fail('ECONNRESET', 'The server closed the connection', this.#network.delayMs());
      front.open.add(broken);
      this.#network.time.after(0, front.process, () => this.#execute(front, broken));
    });
  }

  /** Runs in the server's process. */
  #execute(front: Front, broken: () => void): void {
    const { method, path, headers } = this.#request;
    const host = this.#origin.slice(this.#origin.indexOf('//') + 2);
    const ended = (): void => {
      front.open.delete(broken);
      this.#abandon = null;
    };
    this.#front = front;
    const abandon = injectRequest(front.server, {
      ...{ method, path, headers: { host, ...headers }, body: this.#body },
      begun: this.#isStreamed ? (head) => this.#begun(front, head, ended) : undefined,
      answered: (answer) => {
        ended();
        this.#http.answered(answer);
        this.#network.time.note(`${method} ${path.split('?')[0]} ${answer.statusCode}`);
        this.#send(front, answer);
      },
      broken: () => {
        ended();
        this.#stream?.break();
        this.#fail('ECONNRESET', 'The server closed the connection', this.#network.delayMs());
      },
    });
    if (front.open.has(broken)) this.#abandon = abandon;
  }

  /** Runs in the server's process. @returns a function that receives the pieces of the answer */
  #begun(front: Front, head: InjectedAnswer, ended: () => void): (piece: Buffer | null) => void {
    const link = [front.machine, this.#machine] as const;
    const stream = new SimulatedStream(this.#network, this.#postman, this.#caller, link);
    this.#stream = stream;
    const broken = (): void => stream.break();
    front.open.add(broken);
    this.#network.time.note(
      `${this.#request.method} ${this.#request.path.split('?')[0]} ${head.statusCode} …`,
    );
    this.#send(front, head);
    return (piece) => {
      if (piece === null) {
        front.open.delete(broken);
        ended();
      }
      stream.send(piece === null ? null : piece.toString());
    };
  }

  #send(front: Front, answer: InjectedAnswer): void {
    const lose = (delayMs: number): void =>
      this.#fail('ECONNRESET', 'The connection broke before the answer', delayMs);
    const { gate, atNextChange } = this.#http;
    if (atNextChange !== null && this.#isChange && answer.statusCode < 300) {
      this.#http.atNextChange = null;
      this.#network.time.after(0, this.#postman, () => atNextChange(this.#origin));
      lose(this.#network.delayMs());
    } else if (this.#network.chance(this.#network.weather.answerLost)) {
      this.#http.faults.answerLost++;
      this.#leave();
      lose(this.#network.upTo(20));
    } else if (gate === null) this.#answer(front, answer);
    else
      gate(
        'answer',
        this.#passing,
        () => this.#answer(front, answer),
        () => lose(0),
      );
  }

  #answer(front: Front, answer: InjectedAnswer): void {
    this.#network.time.after(this.#network.delayMs(front.machine, this.#machine), this.#postman, () => {
      if (this.#callerGone) return;
      if (this.#network.isCut(front.machine, this.#machine)) {
        if (front.process.hasEnded) return;
        this.#network.time.after(RETRANSMIT_MS, this.#postman, () => this.#answer(front, answer));
        return;
      }
      const { statusCode, headers, bytes } = answer;
      this.#network.time.after(0, this.#caller, () =>
        this.#outcome.resolve({
          statusCode,
          headers,
          body: {
            bytes: async () => bytes,
            text: async () => bytes.toString(),
            json: async () => JSON.parse(bytes.toString()) as unknown,
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
