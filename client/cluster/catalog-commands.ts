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
import type { CallOptions, Exchanger, Subject } from '../transport/exchange.ts';
import { postRequest } from '../transport/request.ts';
import { type Response, readJson } from '../transport/response.ts';
import { CommandSession, type OnceOptions, type RequestOf } from './command-session.ts';
import { CommandsLost, type FlushOutcome, UnflushedCommands } from './unflushed-commands.ts';

export interface OwnedOptions extends OnceOptions {
  readonly cache?: CacheOwner;
}

export interface CommandOptions extends OwnedOptions {
  /** Uses the primaries' attributes of live files, in the command and in the answer. @see CommandBody */
  readonly live?: boolean;
}

/** The catalog commands of one client: each is executed once, and a flush covers all that were answered. */
export class CatalogCommands {
  readonly #exchanger: Exchanger;
  readonly #catalog: Subject;
  readonly #commands: CommandSession;
  /** For commands without a time limit: while one has no answer, only 63 later ones of its session can be sent. */
  readonly #unlimited: CommandSession;
  readonly #unflushed = new UnflushedCommands();
  /** A flush found that commands are lost and then failed: the next one that succeeds throws `CommandsLost`. */
  #isLossUnreported = false;

  constructor(exchanger: Exchanger, catalog: Subject) {
    this.#exchanger = exchanger;
    this.#catalog = catalog;
    const lastOf = (session: number): number => this.#unflushed.numberMaxOf(session);
    this.#commands = new CommandSession(exchanger, catalog, lastOf);
    this.#unlimited = new CommandSession(exchanger, catalog, lastOf);
  }

  /** Whether a power failure of all servers may lose commands answered here, or has and was not yet reported. */
  get hasUnflushed(): boolean {
    return this.#isLossUnreported || !this.#unflushed.isEmpty;
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
      return postRequest(what, '/v1/catalog/commands', body, { mutation: true });
    };
    return session.once(this.#catalog, what, requestOf, options, (_, ...sessionAndNumber) =>
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
      requestOf,
      options,
      (value, ...sessionAndNumber) => {
        if (hasCommands(value)) this.#unflushed.answered(...sessionAndNumber);
      },
    );
  }

  /** Makes the answered commands survive a power failure of all servers. @throws CommandsLost once, if some are lost */
  async flush(options?: CallOptions): Promise<void> {
    let hasLost = false;
    try {
      for (const pages = [...this.#unflushed.pages()]; pages.length > 0; ) {
        const { areLost, again } = await this.#flushPage(pages.shift() ?? [], options);
        hasLost ||= areLost;
        if (again.length > 0) pages.push(again);
      }
    } catch (error) {
      // A later flush does not ask about these commands again.
      this.#isLossUnreported ||= hasLost;
      throw error;
    }
    hasLost ||= this.#isLossUnreported;
    this.#isLossUnreported = false;
    if (hasLost) throw new CommandsLost();
  }

  async #flushPage(
    answered: readonly AnsweredCommands[],
    options: CallOptions | undefined,
  ): Promise<FlushOutcome> {
    const body: FlushRequest = { answered: [...answered] };
    const request = postRequest('Cannot flush the catalog', '/v1/catalog/flush', body);
    const missing = await this.#exchanger.perform(this.#catalog, request, readMissing, options);
    const outcome = this.#unflushed.flushed(answered, missing);
    if (outcome.again.length > 0) {
      // Both sessions end, so that only commands in flight precede the next flush.
      for (const commands of [this.#commands, this.#unlimited]) commands.renew();
    }
    return outcome;
  }
}

/** Reads the answer of a flush; 204 comes from servers of an earlier release, which do not search for lost commands. */
async function readMissing(response: Response): Promise<FlushAnswer['missing']> {
  if (response.statusCode === 204) {
    await response.body.bytes();
    return [];
  }
  return (await readJson<FlushAnswer>(response)).missing;
}
