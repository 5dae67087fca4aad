import { ServiceError } from '../../base/errors.ts';
import type {
  AnsweredCommands,
  CacheOwner,
  Command,
  CommandBody,
  CommandOf,
  CommandResults,
  FlushAnswer,
  FlushRequest,
} from '../../wire/catalog-api.ts';
import { describeCommand } from '../transport/describe-request.ts';
import type { CallOptions, Exchanger } from '../transport/exchange.ts';
import { type ExchangeRequest, postRequest } from '../transport/request.ts';
import type { RequestWindow } from '../transport/request-window.ts';
import { type Response, readJson } from '../transport/response.ts';
import type { CatalogSubject } from './catalog-subject.ts';
import { CommandSession, type OnceOptions, type OpenSession, type RequestOf } from './command-session.ts';
import { type FlushOutcome, UnflushedCommands } from './unflushed-commands.ts';

export interface OwnedOptions extends OnceOptions {
  readonly cache?: CacheOwner;
}

export interface CommandOptions extends OwnedOptions {
  /** Uses the primaries' attributes of live files, in the command and in the answer. @see CommandBody */
  readonly live?: boolean;
}

/** A command that begins each session of a client: with it, another client finds the session and can end it. */
export interface SessionOpening {
  command(session: number): Command;
  /** Called when it is executed. @throws if no other command may be sent in the session */
  executed(): void;
}

/** The number of the last command of a session that another client has ended. */
const LAST_NUMBER = 2 ** 52;

/** A client's commands of one catalog: each is executed once, and a flush covers all that were answered. */
export class CatalogCommands {
  readonly catalog: CatalogSubject;
  readonly #exchanger: Exchanger;
  readonly #commands: CommandSession;
  /** For commands without a time limit: while one has no answer, only 63 later ones of its session can be sent. */
  readonly #unlimited: CommandSession;
  readonly #unflushed = new UnflushedCommands();
  #opening: SessionOpening | null;

  constructor(exchanger: Exchanger, catalog: CatalogSubject, opening: SessionOpening | null) {
    this.#exchanger = exchanger;
    this.catalog = catalog;
    this.#opening = opening;
    const lastOf = (session: number): number => this.#unflushed.numberMaxOf(session);
    const open: OpenSession = (window, options) => this.#open(window, options);
    this.#commands = new CommandSession(exchanger, catalog, lastOf, open);
    this.#unlimited = new CommandSession(exchanger, catalog, lastOf, open);
  }

  /** Begins new sessions. @param opening null: without a command of their own */
  openSessionsWith(opening: SessionOpening | null): void {
    this.#opening = opening;
    this.#renew();
  }

  /** Whether a power failure of all servers may lose commands answered here. */
  get hasUnflushed(): boolean {
    return !this.#unflushed.isEmpty;
  }

  execute<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    { cache, live, ...options }: CommandOptions,
  ): Promise<CommandResults[Kind]> {
    const session = options.timeoutMs === Number.POSITIVE_INFINITY ? this.#unlimited : this.#commands;
    const requestOf: RequestOf = ({ session, since }, number) =>
      this.#request({
        ...{ session, number },
        ...(since === undefined ? {} : { since }),
        ...(cache === undefined ? {} : { cache }),
        ...(live === true ? { live } : {}),
        command: command as Command,
      });
    const what = `Cannot ${describeCommand(command)}`;
    return session.once(this.catalog, what, requestOf, options, (_, ...sessionAndNumber) =>
      this.#unflushed.answered(...sessionAndNumber),
    );
  }

  /**
   * Executes a command as the last one of another client's session: what is late of that is refused from then on.
   * @throws ServiceError `session-expired` if the catalog has forgotten the session, and refuses all of it by that
   */
  async endSession(session: number, last: Command, options: CallOptions): Promise<void> {
    const request = this.#request({ session, number: LAST_NUMBER, command: last });
    await this.#exchanger.perform(this.catalog, request, readJson, options);
  }

  async #open(window: RequestWindow, options: CallOptions): Promise<void> {
    const opening = this.#opening;
    if (opening === null) return;
    const { session, since } = window;
    const number = await window.acquire(this.#exchanger.limitsOf(options));
    const fence = since === undefined ? {} : { since };
    const request = this.#request({ session, number, ...fence, command: opening.command(session) });
    await this.#exchanger.perform(this.catalog, request, readJson, options);
    window.release(number);
    this.#unflushed.answered(session, number);
    opening.executed();
  }

  #request(body: CommandBody): ExchangeRequest {
    const what = `Cannot ${describeCommand(body.command)}`;
    return this.catalog.request(postRequest(what, '/v1/catalog/commands', body, { mutation: true }));
  }

  /**
   * Sends a request that contains commands, at first to `server`; if that does not answer, to the others.
   * @param hasCommands whether an answer reports commands that a flush must cover
   */
  executeFirstAt<Value>(
    server: string,
    what: string,
    requestOf: RequestOf,
    options: OwnedOptions,
    hasCommands: (value: Value) => boolean,
  ): Promise<Value> {
    return this.#commands.once<Value>(
      { primary: server },
      what,
      (...numbered) => this.catalog.request(requestOf(...numbered)),
      options,
      (value, ...sessionAndNumber) => {
        if (hasCommands(value)) this.#unflushed.answered(...sessionAndNumber);
      },
    );
  }

  /** Makes the answered commands survive a power failure of all servers. Calls `lost` at once if some are lost. */
  async flush(lost: () => void, options?: CallOptions): Promise<void> {
    try {
      for (const pages = [...this.#unflushed.pages()]; pages.length > 0; ) {
        const { areLost, again } = await this.#flushPage(pages.shift() ?? [], options);
        if (areLost) lost();
        if (again.length > 0) pages.push(again);
      }
    } catch (error) {
      if (!isRemoved(error)) throw error;
      // A volume may be removed as a lost one, with what nothing had made durable.
      if (this.hasUnflushed) lost();
      this.#unflushed.removed();
    }
  }

  async #flushPage(
    answered: readonly AnsweredCommands[],
    options: CallOptions | undefined,
  ): Promise<FlushOutcome> {
    const body: FlushRequest = { answered: [...answered] };
    const request = this.catalog.request(postRequest('Cannot flush the catalog', '/v1/catalog/flush', body));
    const missing = await this.#exchanger.perform(this.catalog, request, readMissing, options);
    const outcome = this.#unflushed.flushed(answered, missing);
    if (outcome.again.length > 0) {
      // Both sessions end, so that only commands in flight precede the next flush.
      this.#renew();
    }
    return outcome;
  }

  #renew(): void {
    for (const commands of [this.#commands, this.#unlimited]) commands.renew();
  }
}

/** Whether a catalog is removed with its volume: no flush has anything left to cover. */
function isRemoved(error: unknown): boolean {
  return (
    error instanceof ServiceError &&
    error.code === 'not-found' &&
    error.details.elsewhere === true &&
    error.details.movedTo === undefined
  );
}

/** Reads the answer of a flush; 204 comes from servers of an earlier release, which do not search for lost commands. */
async function readMissing(response: Response): Promise<FlushAnswer['missing']> {
  if (response.statusCode === 204) {
    await response.body.bytes();
    return [];
  }
  return (await readJson<FlushAnswer>(response)).missing;
}
