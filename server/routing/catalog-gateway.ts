import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type CellId, catalogCell, isServerId, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type {
  AnsweredCommands,
  CacheAnswer,
  CacheRequest,
  ChangesAnswer,
  ChangesRequest,
  Command,
  CommandResults,
  FlushAnswer,
  GrantedAnswer,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import { HEADER_PRIMARY } from '../../wire/http-api.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { type NumberedRequest, NumberedRequests } from '../requests/numbered-requests.ts';
import {
  type CatalogPosition,
  jsonOfAnswer,
  jsonRequest,
  type PeerAnswer,
  type PeerHttp,
  type PeerRequest,
} from './peer-http.ts';
import type { Trail } from './route-course.ts';
import type { CallOptions, Router } from './router.ts';
import type { CatalogService, Services } from './service-interfaces.ts';

/** Attempts of `findDurably`: each failed one ended in another epoch of the catalog than it began in. */
const QUERIES_MAX = 8;
const QUERY_RETRY_MS = 500;
/** Executions of a durable command that losses of power took before its flush. */
const LOSSES_MAX = 3;

export interface CatalogGatewayParts {
  readonly number: CatalogNumber;
  readonly world: World;
  readonly services: Services;
  readonly router: Router;
  readonly peers: PeerHttp;
  ask(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer>;
  /** Called with each answer of the catalog that names files' members. */
  answered(result: CommandResults[Command['kind']] | QueryResults[Query['kind']]): void;
}

/** This server's way to one catalog: it has sessions, a position and epochs of its own. */
export class CatalogGateway {
  readonly number: CatalogNumber;
  readonly #parts: CatalogGatewayParts;
  readonly #cell: CellId;
  readonly #ownRequests: NumberedRequests;
  #epoch = 0;

  constructor(parts: CatalogGatewayParts) {
    this.#parts = parts;
    this.number = parts.number;
    this.#cell = catalogCell(parts.number);
    this.#ownRequests = new NumberedRequests(() => drawIncarnation(parts.world));
  }

  /** The catalog's primary, as far as this server knows. */
  get primary(): ServerId | null {
    return this.#parts.router.primaryOf(this.#cell);
  }

  /** Its members, as far as this server knows. */
  get members(): readonly ServerId[] {
    return this.#parts.router.membersOfCatalog(this.#cell);
  }

  /** The latest operation that is known without a request; null if none is. */
  get seq(): number | null {
    return this.position.seq;
  }

  /** As `seq`, with the newest known epoch; 0 if none is. */
  get position(): CatalogPosition {
    const { services, peers } = this.#parts;
    const reported = peers.catalogPosition(this.number);
    const status = services.catalogs.at(this.#cell)?.status();
    if (status === undefined) return reported;
    const { primary, seq, epoch, committedSeq } = status;
    if (primary === services.status.id) return { seq, epoch };
    // A backup that answers queries by itself gets no reports. What it has applied may still be undone.
    const isNewer = epoch >= reported.epoch && committedSeq > (reported.seq ?? 0);
    return isNewer ? { seq: committedSeq, epoch } : reported;
  }

  /** The server to which a client is to send its next query that any member can answer; null if none is known. */
  get reader(): ServerId | null {
    const { services, router } = this.#parts;
    const { invitesQueries = false, members = [] } = services.catalogs.at(this.#cell)?.status() ?? {};
    if (invitesQueries) return services.status.id;
    return members.includes(services.status.id) ? this.primary : router.readerOf(this.#cell);
  }

  /** The epoch of `position`; it never decreases. */
  get epoch(): number {
    return this.#noteEpoch();
  }

  #noteEpoch(): number {
    this.#epoch = Math.max(this.#epoch, this.position.epoch);
    return this.#epoch;
  }

  /** Executes a command; without a client's `request`, under a number of this server's own session. */
  async command<C extends Command>(
    command: C,
    request?: NumberedRequest,
    options: CallOptions = {},
  ): Promise<CommandResults[C['kind']]> {
    if (request === undefined) return this.#ownCommand(command, options, async (result) => result);
    const trail: Trail = { ambiguous: false };
    return this.#execute(command, request, options, trail).catch((error: unknown) => {
      throw unknownIfAmbiguous(error, trail, `"${command.kind}" happened`);
    });
  }

  /**
   * As `command`; resolves when the changes survive a loss of power of all servers. If such a loss takes the command
   * before its flush, it is executed again.
   */
  async durably<C extends Command>(
    command: C,
    request?: NumberedRequest,
  ): Promise<CommandResults[C['kind']]> {
    const covered = async (result: CommandResults[C['kind']], { session, number }: NumberedRequest) => {
      const { missing } = await this.flushCommands([{ session, numbers: [number] }]);
      return missing.length === 0 ? result : null;
    };
    for (let losses = 0; losses < LOSSES_MAX; losses++) {
      const result =
        request === undefined
          ? await this.#ownCommand(command, {}, covered)
          : await covered(await this.command(command, request), request);
      if (result !== null) return result;
    }
    throw new ServiceError(
      'storage',
      `"${command.kind}" was lost ${LOSSES_MAX} times in power failures of all servers of the catalog`,
    );
  }

  /**
   * Executes a command under a number of this server's own session, and once more in a new session if the catalog had
   * forgotten the session.
   * @param done uses the result; until it ends, the catalog remembers the outcome of the number
   */
  async #ownCommand<C extends Command, Value>(
    command: C,
    options: CallOptions,
    done: (result: CommandResults[C['kind']], numbered: NumberedRequest) => Promise<Value>,
  ): Promise<Value> {
    for (let sessions = 1; ; sessions++) {
      if (this.#ownRequests.needsNewSession && (sessions > 1 || this.seq === null))
        await this.#querySeq(options);
      const numbered = this.#ownRequests.acquire(this.seq);
      const trail: Trail = { ambiguous: false };
      try {
        return await done(await this.#execute(command, numbered, options, trail), numbered);
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        // It would be repeated under another number, and executed twice if the move is aborted.
        if (error.code === 'moving' && trail.ambiguous)
          throw unknownOutcome(error, 'the volume began to move', `"${command.kind}" happened`);
        if (error.code !== 'session-expired')
          throw unknownIfAmbiguous(error, trail, `"${command.kind}" happened`);
        // The catalog forgot our idle session. A command that every attempt refused may be repeated in another one.
        this.#ownRequests.abandon(numbered.session);
        if (trail.ambiguous || sessions === 2)
          throw unknownIfAmbiguous(error, trail, `"${command.kind}" happened`);
      } finally {
        this.#ownRequests.release(numbered);
      }
    }
  }

  /** Answers a query with the catalog's own attributes of live files. */
  async query<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    const { exact = false } = options;
    const body = { query, ...(exact ? { exact } : {}) };
    const { router, answered } = this.#parts;
    const result = await router.route<QueryResults[Query['kind']]>(
      {
        cell: this.#cell,
        action: `answer "${query.kind}"`,
        showsPrimary: exact,
        atAnyMember: !exact,
        local: async () => this.#service(options).query(query, exact),
        remote: async (server, timeoutMs) => {
          const answer = await this.#ask(server, jsonRequest('/v1/catalog/queries', body), timeoutMs);
          const reader = answer.headers[HEADER_PRIMARY];
          if (!exact && typeof reader === 'string' && isServerId(reader))
            router.assumeReader(this.#cell, reader);
          return jsonOfAnswer<QueryResults[Query['kind']]>(answer);
        },
      },
      options,
    );
    answered(result);
    return result as QueryResults[Q['kind']];
  }

  /** As `query`, for a client with a cache session: the answer also says what the client may cache. */
  async queryWithGrants<Q extends Query>(
    query: Q,
    session: number,
    options: CallOptions = {},
    delegate = false,
  ): Promise<GrantedAnswer<QueryResults[Q['kind']]>> {
    const body = { query, cache: session, ...(delegate ? { delegate } : {}) };
    const answer = await this.#route<GrantedAnswer<QueryResults[Query['kind']]>>(
      `answer "${query.kind}"`,
      (service) => service.queryWithGrants(query, session, delegate),
      ['/v1/catalog/queries', body],
      options,
    );
    if (answer.result !== null) this.#parts.answered(answer.result);
    return answer as GrantedAnswer<QueryResults[Q['kind']]>;
  }

  /** A client's poll: renews its cache session, and returns the recalls, for which it waits a while. */
  cache(request: CacheRequest, options: CallOptions = {}): Promise<CacheAnswer> {
    return this.#route(
      'renew a cache session',
      (service) => service.pollCache(request),
      ['/v1/catalog/cache', request],
      options,
    );
  }

  /** Returns the changes in a directory, or below it; if there are none, waits for some as long as the request says. */
  changes(request: ChangesRequest, options: CallOptions = {}): Promise<ChangesAnswer> {
    return this.#route(
      `watch directory ${request.inode}`,
      (service) => service.changes(request),
      ['/v1/catalog/changes', request],
      options,
    );
  }

  changeMembers(members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    return this.#route(
      'move the catalog',
      (service) => service.changeMembers(members),
      ['/v1/catalog/members', { members }],
      options,
    );
  }

  /** Resolves when all commands answered so far survive a loss of power of all servers. */
  async flush(options: CallOptions = {}): Promise<void> {
    await this.flushCommands([], options);
  }

  /**
   * Calls `find`, and flushes the catalog if it found something, which then survives a loss of power of all
   * servers. A loss before the flush may take it, and begins another epoch of the catalog: then all is repeated.
   */
  async findDurably<Found>(
    find: () => Promise<Found>,
    isFound: (found: Found) => boolean = (found) => found !== null,
  ): Promise<Found> {
    for (let attempts = 0; attempts < QUERIES_MAX; attempts++) {
      const { epoch } = this;
      const found = await find();
      if (!isFound(found)) return found;
      await this.flush();
      if (this.epoch === epoch) return found;
    }
    throw new ServiceError('no-majority', "The catalog's primary changed during every flush: retry later", {
      retryAfterMs: QUERY_RETRY_MS,
    });
  }

  /**
   * Makes all commands answered so far durable, as `flush`, and searches for `answered`.
   * @returns those that the catalog lost or forgot; a primary of an earlier release does not search, and returns none
   */
  async flushCommands(
    answered: readonly AnsweredCommands[],
    options: CallOptions = {},
  ): Promise<FlushAnswer> {
    return this.#parts.router.route<FlushAnswer>(
      {
        cell: this.#cell,
        action: 'flush the catalog',
        local: async () => {
          const answer = await this.#service(options).flush(answered);
          // For `findDurably`: once this server is no longer primary, it may know only earlier epochs, from others.
          this.#noteEpoch();
          return answer;
        },
        remote: async (server, timeoutMs) => {
          const request = jsonRequest('/v1/catalog/flush', { answered });
          const answer = await this.#ask(server, request, timeoutMs);
          return answer.bytes.length === 0 ? { missing: [] } : jsonOfAnswer<FlushAnswer>(answer);
        },
      },
      options,
    );
  }

  /** Makes `seq` known: any answer of the catalog's primary has it in its headers. */
  async #querySeq(options: CallOptions): Promise<void> {
    await this.query({ kind: 'sweeps' }, options);
  }

  async #execute<C extends Command>(
    command: C,
    numbered: NumberedRequest,
    options: CallOptions,
    trail: Trail,
  ): Promise<CommandResults[C['kind']]> {
    const { files } = this.#parts.services;
    const { cacheOwner } = options;
    const { session, number, since } = numbered;
    const fence = since === undefined ? {} : { since };
    const owner = cacheOwner === undefined ? {} : { cache: cacheOwner };
    const request = { session, number, ...fence, ...owner, command };
    const result = await this.#route<CommandResults[Command['kind']]>(
      `execute "${command.kind}"`,
      // The client's own server becomes the creating server, because the client is likely to write through it.
      (service) => (options.forwarded === true ? service.execute(request) : service.execute(request, files)),
      ['/v1/catalog/commands', request],
      options,
      trail,
    );
    this.#parts.answered(result);
    // The result has the command's kind.
    return result as CommandResults[C['kind']];
  }

  /**
   * This server's part of the catalog. That a server does not know a catalog is no answer of the catalog: only a server
   * that can fetch the list says that there is none, and a peer has others asked.
   */
  #service({ forwarded = false }: CallOptions): CatalogService {
    const { catalogs } = this.#parts.services;
    const service = catalogs.at(this.#cell);
    if (service !== null) return service;
    const row = catalogs.row(this.number);
    const serves = row !== null && row.state !== 'removed';
    if (serves || forwarded)
      throw new ServiceError(
        'not-primary',
        `This server does not serve catalog ${this.number}: ask another one`,
      );
    const text = row === null ? `There is no catalog ${this.number}` : `Volume "${row.name}" is removed`;
    throw new ServiceError('not-found', text, { elsewhere: true });
  }

  #route<Result>(
    action: string,
    local: (service: CatalogService) => Promise<Result>,
    [path, body]: readonly [path: string, body: unknown],
    options: CallOptions,
    trail: Trail | null = null,
  ): Promise<Result> {
    return this.#parts.router.route<Result>(
      {
        cell: this.#cell,
        action,
        local: async () => local(this.#service(options)),
        remote: async (server, timeoutMs) =>
          jsonOfAnswer<Result>(await this.#ask(server, jsonRequest(path, body), timeoutMs)),
      },
      options,
      trail,
    );
  }

  #ask(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer> {
    return this.#parts.ask(server, { ...request, catalog: this.number }, timeoutMs);
  }
}

/**
 * Turns an error after which the request would be executed in a new session, or in another catalog, into `unknown` if
 * an earlier attempt may have had an effect: it would be executed twice. Returns other errors as they are. A catalog
 * that the volume has left (`movedTo`) has executed no attempt: it would have returned the outcome.
 */
export function unknownIfAmbiguous(error: unknown, { ambiguous }: Trail, what: string): unknown {
  if (!ambiguous || !(error instanceof ServiceError)) return error;
  const isExpired = error.code === 'session-expired';
  const { elsewhere, movedTo } = error.details;
  if (!isExpired && (elsewhere !== true || movedTo !== undefined)) return error;
  const why = isExpired ? 'the session expired' : 'the catalog was closed';
  return unknownOutcome(error, why, what);
}

function unknownOutcome(cause: ServiceError, why: string, what: string): ServiceError {
  const text = `Unknown outcome: ${why} before it was known whether ${what}`;
  return new ServiceError('unknown', text, {}, { cause });
}
