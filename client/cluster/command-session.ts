import { isRefusal, ServiceError } from '../../base/errors.ts';
import { ROOT_CATALOG } from '../../base/ids.ts';
import type { Query } from '../../wire/catalog-api.ts';
import type { CallOptions, ExchangeOutcome, Exchanger, Subject } from '../transport/exchange.ts';
import { inTime, type WaitLimits } from '../transport/in-time.ts';
import { type ExchangeRequest, postRequest } from '../transport/request.ts';
import { RequestWindow } from '../transport/request-window.ts';
import { readJson } from '../transport/response.ts';
import { sendOnce, type Ticket } from '../transport/send-once.ts';
import type { CatalogSubject } from './catalog-subject.ts';

/** The root catalog answers it alone, also if the servers run an earlier release. */
const OF_ROOT: Query = { kind: 'servers', counts: false };
const OF_VOLUME: Query = { kind: 'volumes' };

export type RequestOf = (window: RequestWindow, number: number) => ExchangeRequest;

/** Executes the first command of a session. @throws if no other may be sent in it */
export type OpenSession = (window: RequestWindow, options: CallOptions) => Promise<void>;

export interface OnceOptions extends CallOptions {
  /** Called when the outcome of the command is unknown, before the call fails. */
  readonly unknown?: () => void;
}

/**
 * Commands of one session at a time, each executed once. A session belongs to one epoch of the catalog: after a power
 * failure of all servers, which begins another epoch, no later command can be mistaken for a lost one.
 */
export class CommandSession {
  readonly #exchanger: Exchanger;
  readonly #catalog: CatalogSubject;
  readonly #numberMaxOf: (session: number) => number;
  readonly #open: OpenSession;
  #window: Promise<RequestWindow> | null = null;

  constructor(
    exchanger: Exchanger,
    catalog: CatalogSubject,
    numberMaxOf: (session: number) => number,
    open: OpenSession,
  ) {
    this.#exchanger = exchanger;
    this.#catalog = catalog;
    this.#numberMaxOf = numberMaxOf;
    this.#open = open;
  }

  /** Ends the session: the next command begins another. */
  renew(): void {
    this.#window = null;
  }

  /** Has a request executed once. Sends it in a new session if the cluster forgot this one and has not executed it. */
  once<Value>(
    subject: Subject,
    what: string,
    requestOf: RequestOf,
    options: OnceOptions,
    answered: (value: Value, session: number, number: number) => void,
  ): Promise<Value> {
    const { timeoutMs: limitMs = this.#exchanger.operationTimeoutMs } = options;
    const limits = this.#exchanger.limitsOf(options);
    const late = () =>
      new ServiceError('no-majority', `${what}: no server began a command session within ${limitMs} ms`);
    const acquire = (isAnother: boolean): Promise<Ticket> => {
      const begin = () => this.#window ?? this.#begin(what, isAnother, options);
      return this.#acquire(begin, limits, late);
    };
    const send = async ({ window, number }: Ticket): Promise<ExchangeOutcome<Value>> => {
      const limited = { ...options, timeoutMs: limits.leftMs() };
      const request = requestOf(window, number);
      const outcome = await this.#exchanger.exchange(subject, request, readJson<Value>, limited);
      if (outcome.kind === 'answered') answered(outcome.value, window.session, number);
      return outcome;
    };
    return sendOnce(acquire, send, (error) => {
      // A final answer holds for all copies of the request; after any other failure a copy may still be executed.
      if (!isRefusal(error)) options.unknown?.();
    });
  }

  /** @returns a number that may be sent, of a session that began in the newest known epoch of the catalog */
  async #acquire(
    begin: () => Promise<RequestWindow>,
    limits: WaitLimits,
    late: () => Error,
  ): Promise<Ticket> {
    const isNewest = (epoch: number): boolean => epoch >= this.#catalog.epoch;
    for (;;) {
      const beginning = begin();
      const window = await inTime(this.#exchanger.world, beginning, limits, late);
      if (isNewest(window.epoch)) {
        const number = await window.acquire(limits);
        const forgotten = (): void => this.#dropSession(beginning);
        if (isNewest(window.epoch) && number <= this.#numberMaxOf(window.session))
          return { window, number, forgotten };
        window.release(number);
      }
      this.#dropSession(beginning);
    }
  }

  #dropSession(beginning: Promise<RequestWindow>): void {
    if (this.#window === beginning) this.#window = null;
  }

  /** Begins a session. It names an operation before its first command, which distinguishes it from a forgotten one. */
  #begin(what: string, isAnother: boolean, options: CallOptions): Promise<RequestWindow> {
    const begin = async (): Promise<RequestWindow> => {
      // Any query will do that only this catalog answers, and that every user may send: its answer names an operation.
      // Other commands may wait for the same answer, so neither the signal nor the time limit of this command ends it.
      const { signal: _signal, timeoutMs: _timeoutMs, ...rest } = options;
      const asked = this.#catalog.number === ROOT_CATALOG ? OF_ROOT : OF_VOLUME;
      const query = postRequest(what, '/v1/catalog/queries', { query: asked });
      if (isAnother || this.#catalog.seq === null)
        await this.#exchanger.ask(this.#catalog.request(query), rest, this.#catalog);
      const window = new RequestWindow(this.#exchanger.world, this.#catalog.seq, this.#catalog.epoch);
      await this.#open(window, rest);
      return window;
    };
    const beginning = begin();
    this.#window = beginning;
    beginning.catch(() => this.#dropSession(beginning));
    return beginning;
  }
}
