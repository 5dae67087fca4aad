import type { CatalogNumber } from '../../base/ids.ts';
import type {
  Attributes,
  Command,
  CommandOf,
  CommandResults,
  QueryRequest,
  QueryResults,
} from '../../wire/catalog-api.ts';
import { decodeNumbers, type NumbersAnswer } from '../../wire/new-files.ts';
import type { NumbersRequest } from '../../wire/reserved-numbers.ts';
import type { CallOptions, Exchanger } from '../transport/exchange.ts';
import { postRequest } from '../transport/request.ts';
import { CatalogCommands, type CommandOptions } from './catalog-commands.ts';
import { CatalogSubject } from './catalog-subject.ts';
import { CommandsLost } from './unflushed-commands.ts';

/**
 * The catalog of a volume that a directory of the client's volume has become. What the client still knows by numbers of
 * its own volume is changed there in sessions of its own, so that the client's session, grants and flushes stay of one
 * catalog.
 */
export class OtherCatalog {
  readonly #exchanger: Exchanger;
  readonly #subject: CatalogSubject;

  constructor(exchanger: Exchanger, catalog: CatalogNumber) {
    this.#exchanger = exchanger;
    this.#subject = new CatalogSubject(catalog, () => undefined);
  }

  /** Executes a command once. A majority has it on disk when it resolves: no later flush asks this catalog. */
  async execute<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    options: CommandOptions,
  ): Promise<CommandResults[Kind]> {
    const limits = this.#exchanger.limitsOf(options);
    const commands = new CatalogCommands(this.#exchanger, this.#subject, null);
    const result = await commands.execute(command, options);
    const lost = (): never => {
      throw new CommandsLost();
    };
    await commands.flush(lost, { timeoutMs: limits.leftMs() });
    return result;
  }

  /** Reserves a number of this catalog, for one new file in the directory. */
  async reserveInode(owner: number, directory: number, options: CallOptions = {}): Promise<number> {
    const limits = this.#exchanger.limitsOf(options);
    const { volume, placement } = await this.#attributes(directory, options);
    const body: NumbersRequest = {
      owner,
      count: 1,
      volume,
      ...(placement === undefined ? {} : { placement }),
    };
    const request = this.#subject.request(
      postRequest('Cannot reserve inode numbers', '/v1/births/numbers', body),
    );
    const limited = { ...options, timeoutMs: limits.leftMs() };
    return decodeNumbers(await this.#exchanger.ask<NumbersAnswer>(request, limited, this.#subject)).first;
  }

  async #attributes(inode: number, options: CallOptions): Promise<Attributes> {
    const body: QueryRequest = { query: { kind: 'attributes', inode } };
    const request = this.#subject.request(
      postRequest(`Cannot get attributes of inode ${inode}`, '/v1/catalog/queries', body),
    );
    return (await this.#exchanger.ask<QueryResults['attributes']>(request, options, this.#subject))
      .attributes;
  }
}
