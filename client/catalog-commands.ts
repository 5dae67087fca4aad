import type {
  AnsweredCommands,
  CacheOwner,
  Command,
  CommandBody,
  CommandOf,
  CommandResults,
  FlushAnswer,
  FlushRequest,
} from '../wire/catalog-api.ts';
import { CommandSession, type OnceOptions, type RequestOf } from './command-session.ts';
import { describeCommand } from './describe-request.ts';
import type { CallOptions, Exchanger, Subject } from './exchange.ts';
import { postRequest } from './request.ts';
import { type Response, readJson } from './response.ts';
import { CommandsLost, type FlushOutcome, UnflushedCommands } from './unflushed-commands.ts';

/** Options of a request that changes what this client remembers, or has delegated to it. */
export interface OwnedOptions extends OnceOptions {
  readonly cache?: CacheOwner;
}

export interface CommandOptions extends OwnedOptions {
  /** Of live files, what their primaries know counts, in the command and in the answer. @see CommandBody */
  readonly live?: boolean;
}

/** The commands of one client: each is executed once, and a flush covers those that were answered. */
export class CatalogCommands {
  readonly #exchanger: Exchanger;
  readonly #catalog: Subject;
  readonly #commands: CommandSession;
  /** Of commands without a time limit: as long as one has no answer, only 63 later ones of its session can be sent. */
  readonly #unlimited: CommandSession;
  readonly #unflushed = new UnflushedCommands();
  /** A flush found that commands are gone and then failed: the next one that succeeds throws `CommandsLost`. */
  #isLossDue = false;

  constructor(exchanger: Exchanger, catalog: Subject) {
    this.#exchanger = exchanger;
    this.#catalog = catalog;
    const lastOf = (session: number): number => this.#unflushed.lastOf(session);
    this.#commands = new CommandSession(exchanger, catalog, lastOf);
    this.#unlimited = new CommandSession(exchanger, catalog, lastOf);
  }

  /** Whether commands were answered to this client that a loss of power of all servers may take back, or has, unreported so far. */
  get hasUnflushed(): boolean {
    return this.#isLossDue || !this.#unflushed.isEmpty;
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
    return session.once(this.#catalog, what, requestOf, options, (_, ...name) =>
      this.#unflushed.answered(...name),
    );
  }

  /**
   * Sends a request to a server that executes it as commands of this client.
   *
   * @param hasCommands whether commands were executed that a flush is to cover
   */
  executeAt<Value>(
    server: string,
    what: string,
    requestOf: RequestOf,
    options: OwnedOptions,
    hasCommands: (value: Value) => boolean,
  ): Promise<Value> {
    return this.#commands.once<Value>({ primary: server }, what, requestOf, options, (value, ...name) => {
      if (hasCommands(value)) this.#unflushed.answered(...name);
    });
  }

  /** @see ClusterClient.flushCatalog */
  async flush(options?: CallOptions): Promise<void> {
    let hasLost = false;
    try {
      for (const pages = [...this.#unflushed.pages()]; pages.length > 0; ) {
        const { areLost, again } = await this.#flushPage(pages.shift() ?? [], options);
        hasLost ||= areLost;
        if (again.length > 0) pages.push(again);
      }
    } catch (error) {
      // A later flush does not ask for these commands again.
      this.#isLossDue ||= hasLost;
      throw error;
    }
    hasLost ||= this.#isLossDue;
    this.#isLossDue = false;
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
      // The sessions end, so that only what is under way comes before the next flush.
      for (const commands of [this.#commands, this.#unlimited]) commands.renew();
    }
    return outcome;
  }
}

/** Servers of an earlier release flush, and look for nothing. */
async function readMissing(response: Response): Promise<FlushAnswer['missing']> {
  if (response.statusCode === 204) {
    await response.body.bytes();
    return [];
  }
  return (await readJson<FlushAnswer>(response)).missing;
}
