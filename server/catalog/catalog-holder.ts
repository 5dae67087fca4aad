import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import type {
  AnsweredCommands,
  CacheAnswer,
  CacheRequest,
  ChangesAnswer,
  ChangesRequest,
  Command,
  CommandRequest,
  CommandResults,
  FlushAnswer,
  GrantedAnswer,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import type { CatalogService, CreationListener } from '../routing/service-interfaces.ts';

export interface CatalogReplica {
  readonly service: CatalogService;
  view(): View;
  /** The replica is empty and may have lost what it acknowledged: the catalog has one copy less. */
  isLost(): boolean;
  /** Whether the error is of a damaged page, and another server has a replica: the caller is to ask that server. */
  isReplaced(error: unknown): boolean;
}

export interface CatalogHolderParts {
  readonly self: ServerId;
  knownView(): { readonly number: number; readonly members: readonly ServerId[] };
  /** Called when the replica here turns out to be no member any more: it must stop requesting the lease. */
  notMember(): void;
  open(): Promise<CatalogReplica>;
}

/** The catalog's service on each server: its replica here, if it is a member; else calls fail with `not-primary`. */
export class CatalogHolder implements CatalogService {
  readonly #parts: CatalogHolderParts;
  #replica: CatalogReplica | null = null;
  #opening: Promise<CatalogReplica> | null = null;
  /** Calls that wait for the replica here; they fail once it is known to be no member. */
  readonly #rejectWaiting = new Set<(error: Error) => void>();
  /** Why the replica here could not be opened; null if that did not fail. */
  #failure: string | null = null;

  constructor(parts: CatalogHolderParts) {
    this.#parts = parts;
  }

  async openReplica(): Promise<void> {
    this.#opening ??= this.#parts.open();
    try {
      this.#replica = await this.#opening;
      this.#failure = null;
    } catch (error) {
      this.#opening = null;
      this.#failure = error instanceof Error ? error.message : String(error);
      throw error;
    }
  }

  /** The replica here is closed: calls fail with `not-primary`, as at a server that is no member. */
  replicaClosed(): void {
    this.#replica = null;
    this.#opening = null;
    this.#refuseWaiting();
  }

  /** Why the replica here cannot be used; null if it can, or there is none. */
  get failure(): string | null {
    return this.#failure;
  }

  view(): View | null {
    return this.#replica?.view() ?? null;
  }

  get votes(): boolean {
    return this.#replica !== null && this.#isMember(this.#replica);
  }

  /** Whether this server is a member of the catalog, but has no replica, or one that has lost its contents. */
  get lacksReplica(): boolean {
    const { self, knownView } = this.#parts;
    if (!(this.#replica === null ? knownView().members.includes(self) : this.votes)) return false;
    return this.#replica?.isLost() ?? true;
  }

  /** The known view of the catalog may have changed: if it excludes the replica here, waiting calls fail. */
  knownViewChanged(): void {
    if (this.#replica === null || this.#isMember(this.#replica)) return;
    this.#parts.notMember();
    this.#refuseWaiting();
  }

  #refuseWaiting(): void {
    for (const reject of [...this.#rejectWaiting]) reject(noReplicaError(null));
  }

  execute(request: CommandRequest, maker?: CreationListener): Promise<CommandResults[Command['kind']]> {
    return this.#ask((service) => service.execute(request, maker));
  }

  query(query: Query, exact?: boolean): Promise<QueryResults[Query['kind']]> {
    return this.#ask((service) => service.query(query, exact));
  }

  queryWithGrants(
    query: Query,
    session: number,
    delegate?: boolean,
  ): Promise<GrantedAnswer<QueryResults[Query['kind']]>> {
    return this.#ask((service) => service.queryWithGrants(query, session, delegate));
  }

  pollCache(request: CacheRequest): Promise<CacheAnswer> {
    return this.#ask((service) => service.pollCache(request));
  }

  changes(request: ChangesRequest): Promise<ChangesAnswer> {
    return this.#ask((service) => service.changes(request));
  }

  flush(answered?: readonly AnsweredCommands[]): Promise<FlushAnswer> {
    return this.#ask((service) => service.flush(answered));
  }

  changeMembers(members: readonly ServerId[]): Promise<View> {
    return this.#ask((service) => service.changeMembers(members));
  }

  status(): ReturnType<CatalogService['status']> {
    const replica = this.#replica;
    const { members } = this.#parts.knownView();
    const unknown = { primary: null, members, invitesQueries: false };
    if (replica === null) return { ...unknown, epoch: 0, seq: 0, committedSeq: 0 };
    const status = replica.service.status();
    // A replica that is no longer a member may not know the new members.
    return this.#isMember(replica) ? status : { ...status, ...unknown };
  }

  /** Whether the replica is a member, by its own view and by the one that other servers reported, if that is newer. */
  #isMember(replica: CatalogReplica): boolean {
    const { self } = this.#parts;
    const known = this.#parts.knownView();
    const view = replica.view();
    return viewVoters(view).includes(self) && (known.number <= view.number || known.members.includes(self));
  }

  /** Calls the replica here. Fails at once if it is no member, and early if it learns that it is no longer one. */
  #ask<Value>(work: (service: CatalogService) => Promise<Value>): Promise<Value> {
    const replica = this.#replica;
    if (replica === null || !this.#isMember(replica)) return Promise.reject(noReplicaError(this.#failure));
    return new Promise((resolve, reject) => {
      this.#rejectWaiting.add(reject);
      work(replica.service)
        .then(resolve, (error) => reject(replica.isReplaced(error) ? damagedError(error) : error))
        .finally(() => this.#rejectWaiting.delete(reject));
    });
  }
}

function damagedError(cause: unknown): ServiceError {
  const why =
    "This server's catalog replica has a damaged page and is being replaced: retry at another server";
  return new ServiceError('not-primary', why, {}, { cause });
}

/** @param failure why the replica here could not be opened; null if there is none */
function noReplicaError(failure: string | null): ServiceError {
  const why = failure === null ? 'has no catalog replica' : `cannot use its catalog replica (${failure})`;
  return new ServiceError('not-primary', `This server ${why}: ask another server`);
}
