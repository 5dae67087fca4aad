import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/actions.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Command, CommandRequest, CommandResults, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { CatalogService } from '../services.ts';

/** A replica of the catalog, ready to be used. */
export interface CatalogReplica {
  readonly service: CatalogService;
  view(): View;
}

export interface CatalogHolderParts {
  readonly self: ServerId;
  /** Who holds the catalog, as far as this server has heard. */
  members(): readonly ServerId[];
  /** Opens the replica on this server's disk, making an empty one, which learns the rest, if there is none. */
  open(): Promise<CatalogReplica>;
}

/**
 * The catalog as a server has it that may come to hold a replica, and may give it up again. Without one it refuses
 * everything with the names of those who have one.
 */
export class CatalogHolder implements CatalogService {
  readonly #parts: CatalogHolderParts;
  #replica: CatalogReplica | null = null;
  #opening: Promise<CatalogReplica> | null = null;

  constructor(parts: CatalogHolderParts) {
    this.#parts = parts;
  }

  /** Has a replica here when it resolves. */
  async hold(): Promise<void> {
    this.#opening ??= this.#parts.open();
    try {
      this.#replica = await this.#opening;
    } catch (error) {
      this.#opening = null;
      throw error;
    }
  }

  /** The view of the replica here; null where there is none. */
  view(): View | null {
    return this.#replica?.view() ?? null;
  }

  execute(request: CommandRequest): Promise<CommandResults[Command['kind']]> {
    return this.#service().then((service) => service.execute(request));
  }

  query(query: Query): Promise<QueryResults[Query['kind']]> {
    return this.#service().then((service) => service.query(query));
  }

  flush(): Promise<void> {
    return this.#service().then((service) => service.flush());
  }

  changeMembers(members: readonly ServerId[]): Promise<View> {
    return this.#service().then((service) => service.changeMembers(members));
  }

  status(): ReturnType<CatalogService['status']> {
    const replica = this.#replica;
    const members = this.#parts.members();
    if (replica === null) return { primary: null, epoch: 0, seq: 0, members };
    const status = replica.service.status();
    // A replica that is out may never have heard who came after it.
    return this.#votes(replica) ? status : { ...status, primary: null, members };
  }

  #votes(replica: CatalogReplica): boolean {
    return viewVoters(replica.view()).includes(this.#parts.self);
  }

  /** Asked late, since a replica may have come or gone since the call began. */
  async #service(): Promise<CatalogService> {
    if (this.#replica !== null && this.#votes(this.#replica)) return this.#replica.service;
    throw new ServiceError('not-primary', 'This server holds no replica of the catalog');
  }
}
