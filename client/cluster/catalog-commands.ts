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
import { postRequest } from '../transport/request.ts';
import { type Response, readJson } from '../transport/response.ts';
import type { CatalogSubject } from './catalog-subject.ts';
import { CommandSession, type OnceOptions, type RequestOf } from './command-session.ts';
import { type FlushOutcome, UnflushedCommands } from './unflushed-commands.ts';

export interface OwnedOptions extends OnceOptions {
  readonly cache?: CacheOwner;
}

export interface CommandOptions extends OwnedOptions {
  /** Uses the primaries' attributes of live files, in the command and in the answer. @see CommandBody */
  readonly live?: boolean;
}

/** A client's commands of one catalog: each is executed once, and a flush covers all that were answered. */
export class CatalogCommands {
  readonly catalog: CatalogSubject;
  readonly #exchanger: Exchanger;
  readonly #commands: CommandSession;
  /** For commands without a time limit: while one has no answer, only 63 later ones of its session can be sent. */
  readonly #unlimited: CommandSession;
  readonly #unflushed = new UnflushedCommands();

  constructor(exchanger: Exchanger, catalog: CatalogSubject) {
    this.#exchanger = exchanger;
    this.catalog = catalog;
    const lastOf = (session: number): number => this.#unflushed.numberMaxOf(session);
    this.#commands = new CommandSession(exchanger, catalog, lastOf);
    this.#unlimited = new CommandSession(exchanger, catalog, lastOf);
  }

  /** Whether a power failure of all servers may lose commands answered here. */
  get hasUnflushed(): boolean {
    return !this.#unflushed.isEmpty;
  }

  execute<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    { cache, live, ...options }: CommandOptions,
  ): Promise<CommandResults[Kind]> {
    const what = `Cannot ${describeCommand(command)}`;
    const session = options.timeoutMs === Number.POSITIVE_INFINITY ? this.#unlimited : this.#commands;
    const requestOf: RequestOf = ({ session, since }, number) => {
      const body: CommandBody = {
        ...{ session, number },
        ...(since === undefined ? {} : { since }),
        ...(cache === undefined ? {} : { cache }),
        ...(live === true ? { live } : {}),
        command: command as Command,
      };
      return this.catalog.request(postRequest(what, '/v1/catalog/commands', body, { mutation: true }));
    };
    return session.once(this.catalog, what, requestOf, options, (_, ...sessionAndNumber) =>
      this.#unflushed.answered(...sessionAndNumber),
    );
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
      for (const commands of [this.#commands, this.#unlimited]) commands.renew();
    }
    return outcome;
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
