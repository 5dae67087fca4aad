import { ServiceError } from '../../../base/errors.ts';
import { type CatalogNumber, catalogOfInode, ROOT_CATALOG } from '../../../base/ids.ts';
import type { CommandOptions } from '../../../client/cluster/catalog-commands.ts';
import { ClusterClient, type ClusterClientOptions } from '../../../client/cluster/cluster-client.ts';
import type { FileHandle, FileOptions } from '../../../client/cluster/file-handle.ts';
import type { CallOptions } from '../../../client/transport/exchange.ts';
import { type CatalogTarget, commandTarget, queryTarget } from '../../../server/routing/catalog-target.ts';
import type { Command, CommandOf, CommandResults, Query, QueryResults } from '../../../wire/catalog-api.ts';

/** A program's clients of all volumes that it uses, each of which names its volume's catalog, as one client. */
export class VolumesClient extends ClusterClient {
  readonly #options: ClusterClientOptions;
  readonly #clients = new Map<CatalogNumber, ClusterClient>();
  /** By volume; a name may get another catalog. */
  readonly #numbers = new Map<string, CatalogNumber>();

  constructor(options: ClusterClientOptions) {
    super(options);
    this.#options = options;
  }

  override command<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    options?: CommandOptions,
  ): Promise<CommandResults[Kind]> {
    return this.#at(commandTarget(command), options, (client) =>
      client === this ? super.command(command, options) : client.command(command, options),
    );
  }

  override query<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    options?: CallOptions,
  ): Promise<QueryResults[Kind]> {
    return this.#at(queryTarget<Query['kind']>(query), options, (client) =>
      client === this ? super.query(query, options) : client.query(query, options),
    );
  }

  override openFile(file: number, options?: FileOptions): FileHandle {
    const client = this.#client(catalogOfInode(file));
    return client === this ? super.openFile(file, options) : client.openFile(file, options);
  }

  /** Each call finds its catalog by itself. */
  override async useVolume(): Promise<void> {}

  override async flushCatalog(options?: CallOptions): Promise<void> {
    await super.flushCatalog(options);
    for (const client of this.#clients.values()) await client.flushCatalog(options);
  }

  override async close(): Promise<void> {
    await Promise.all([...this.#clients.values()].map((client) => client.close()));
    await super.close();
  }

  async #at<Value>(
    target: CatalogTarget,
    options: CallOptions | undefined,
    ask: (client: ClusterClient) => Promise<Value>,
  ): Promise<Value> {
    if (target.kind === 'inodes')
      return ask(this.#client(catalogOfInode(target.inodes[0] ?? 0))).catch((error: unknown) => {
        const movedTo = error instanceof ServiceError ? error.details.movedTo : undefined;
        if (movedTo === undefined) throw error;
        return ask(this.#client(movedTo));
      });
    if (target.kind !== 'volume') return ask(this);
    const { name } = target;
    const known = this.#numbers.get(name);
    try {
      return await ask(this.#client(known ?? (await this.#find(name, options))));
    } catch (error) {
      if (known === undefined || !(error instanceof ServiceError) || error.code !== 'not-found') throw error;
      const found = await this.#find(name, options);
      if (found === known) throw error;
      return ask(this.#client(found));
    }
  }

  async #find(volume: string, options: CallOptions | undefined): Promise<CatalogNumber> {
    const number = await this.catalogOfVolume(volume, options);
    this.#numbers.set(volume, number);
    return number;
  }

  #client(catalog: CatalogNumber): ClusterClient {
    if (catalog === ROOT_CATALOG) return this;
    const known = this.#clients.get(catalog);
    const client = known ?? new ClusterClient({ ...this.#options, catalog });
    this.#clients.set(catalog, client);
    return client;
  }
}
