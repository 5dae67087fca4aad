import { ServiceError } from '../../base/errors.ts';
import { type FileId, isServerId, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type {
  AnsweredCommands,
  Attributes,
  CacheAnswer,
  CacheRequest,
  ChangesAnswer,
  ChangesRequest,
  Command,
  CommandResults,
  ContentVersion,
  FlushAnswer,
  GrantedAnswer,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import {
  encodeWriteParts,
  FILE_BYTES_MAX,
  WRITE_BYTES_MAX,
  type WritePart,
} from '../../wire/file-operation.ts';
import {
  type AcknowledgedRequest,
  type CopyOrder,
  type FileExtent,
  type FileState,
  type FlushResult,
  HEADER_PRIMARY,
  unsyncedText,
  type Whence,
  type WriteGuard,
  type WriteResult,
} from '../../wire/http-api.ts';
import type { LockClaim, LockGrant, LockList, LockOrder, LockRenewal } from '../../wire/lock-api.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { type Machine, systemMachine } from '../process/machine.ts';
import { type NumberedRequest, NumberedRequests } from '../requests/numbered-requests.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { commandTarget, queryTarget } from './catalog-target.ts';
import { withLiveStates } from './live-attributes.ts';
import { type CatalogPosition, type PeerAnswer, PeerHttp, type PeerRequest } from './peer-http.ts';
import type { Trail } from './route-course.ts';
import { type Call, type CallOptions, Router } from './router.ts';
import type {
  ChangeRequest,
  CopyPiece,
  FileLeaseStatus,
  FileLocated,
  FileRead,
  Hole,
  Services,
} from './service-interfaces.ts';
import { type SnapshotContents, SnapshotReads } from './snapshot-reads.ts';
import { ageOfHeaders, stateOfHeaders } from './state-headers.ts';

/** Attempts of `findDurably`: each failed one ended in another epoch of the catalog than it began in. */
const QUERIES_MAX = 8;
const QUERY_RETRY_MS = 500;
/** Executions of a durable command that losses of power took before its flush. */
const LOSSES_MAX = 3;

export interface GatewayOptions {
  readonly world: World;
  readonly services: Services;
  readonly metrics?: MetricsRegistry;
  readonly tls?: PeerTls | null;
  readonly machine?: Machine;
}

export interface WriteOptions extends CallOptions {
  readonly guard?: WriteGuard;
}

export interface SnapshotReadOptions extends CallOptions {
  /** Read the contents as this snapshot of the file's volume shows them. */
  readonly snapshot?: number | undefined;
  /** Contents of another version are refused with `precondition-failed`. */
  readonly asOf?: ContentVersion | undefined;
}

export interface ReadOptions extends SnapshotReadOptions {
  readonly stale?: boolean;
}

/**
 * Serves a client's request: answers it here, or forwards it to the server that can. It waits for a primary that is
 * unknown, unreachable or being elected, with the same request id in every attempt, until the operation time-out.
 */
export class Gateway {
  readonly world: World;
  readonly services: Services;
  readonly peers: PeerHttp;
  readonly router: Router;
  readonly #ownRequests: NumberedRequests;
  readonly #snapshots: SnapshotReads;
  readonly #countForward: (server: ServerId) => void;
  #catalogEpoch = 0;

  constructor({ world, services, metrics, tls = null, machine = systemMachine }: GatewayOptions) {
    this.services = services;
    this.world = world;
    this.#ownRequests = new NumberedRequests(() => drawIncarnation(world));
    this.#snapshots = new SnapshotReads(async (file, snapshot, options) => {
      const query = { kind: 'attributes', inode: file, snapshot } as const;
      return (await this.#catalogQuery(query, options)).attributes;
    });
    this.peers = new PeerHttp(world, services.status.urls, tls, machine);
    this.router = new Router({
      world,
      services,
      queryMembers: (file, timeoutMs) =>
        this.#catalogQuery({ kind: 'attributes', inode: file }, { timeoutMs }),
      ...(metrics === undefined ? {} : { metrics }),
    });
    const forwards = metrics?.counter('leasehold_forwards_total', 'Requests forwarded to another server', [
      'to',
    ]);
    this.#countForward = (server) => forwards?.add(1, { to: server });
  }

  /** The latest operation of the catalog that is known without a request; null if none is. */
  get catalogSeq(): number | null {
    return this.catalogPosition.seq;
  }

  /** As `catalogSeq`, with the newest known epoch of the catalog; 0 if none is. */
  get catalogPosition(): CatalogPosition {
    const { catalogs, status } = this.services;
    const { primary, seq, epoch, committedSeq } = catalogs.root.status();
    if (primary === status.id) return { seq, epoch };
    const reported = this.peers.catalogPosition;
    // A backup that answers queries by itself gets no reports. What it has applied may still be undone.
    const isNewer = epoch >= reported.epoch && committedSeq > (reported.seq ?? 0);
    return isNewer ? { seq: committedSeq, epoch } : reported;
  }

  /** The server to which a client is to send its next query that any member can answer; null if none is known. */
  get catalogReader(): ServerId | null {
    const { catalogs, status } = this.services;
    const { invitesQueries, members } = catalogs.root.status();
    if (invitesQueries) return status.id;
    return members.includes(status.id) ? this.router.catalogPrimary() : this.router.reader;
  }

  /** The epoch of `catalogPosition`; it never decreases. */
  get catalogEpoch(): number {
    return this.#noteCatalogEpoch();
  }

  #noteCatalogEpoch(): number {
    this.#catalogEpoch = Math.max(this.#catalogEpoch, this.catalogPosition.epoch);
    return this.#catalogEpoch;
  }

  drawSession(): number {
    return drawIncarnation(this.world);
  }

  /** To be called when the transport loses a peer: requests forwarded to it are rerouted at once. */
  peerDisconnected(server: ServerId): void {
    this.peers.disconnected(server);
  }

  async close(): Promise<void> {
    this.router.close();
    await this.peers.close();
  }

  /** Executes a command of the catalog; without a client's `request`, under a number of this server's own session. */
  async command<C extends Command>(
    command: C,
    request?: NumberedRequest,
    options: CallOptions = {},
  ): Promise<CommandResults[C['kind']]> {
    if (request === undefined) return this.#ownCommand(command, options, async (result) => result);
    const trail: Trail = { ambiguous: false };
    const bound = options.live === true ? await this.#withNewestContents(command, options) : command;
    const result = await this.#execute(bound, request, options, trail).catch((error: unknown) => {
      throw unknownIfAmbiguous(error, trail, `"${command.kind}" happened`);
    });
    return options.live === true ? this.#withLive(result, options) : result;
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
      if (this.#ownRequests.needsNewSession && (sessions > 1 || this.catalogSeq === null))
        await this.#queryCatalogSeq(options);
      const numbered = this.#ownRequests.acquire(this.catalogSeq);
      const trail: Trail = { ambiguous: false };
      try {
        return await done(await this.#execute(command, numbered, options, trail), numbered);
      } catch (error) {
        if (!(error instanceof ServiceError) || error.code !== 'session-expired') throw error;
        // The catalog forgot our idle session. A command that every attempt refused may be repeated in another one.
        this.#ownRequests.abandon(numbered.session);
        if (trail.ambiguous || sessions === 2)
          throw unknownIfAmbiguous(error, trail, `"${command.kind}" happened`);
      } finally {
        this.#ownRequests.release(numbered);
      }
    }
  }

  /** Answers a query of the catalog, with the primaries' attributes of live files. */
  async query<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    const result = await this.#catalogQuery(query, options);
    // The client's own server merges attributes of live files; a forwarded query gets the catalog's.
    if (options.forwarded === true) return result;
    return (await this.#withLive(result, options)) as QueryResults[Q['kind']];
  }

  /** As `query`, for a client with a cache session: the answer also says what the client may cache. */
  async queryWithGrants<Q extends Query>(
    query: Q,
    session: number,
    options: CallOptions = {},
    delegate = false,
  ): Promise<GrantedAnswer<QueryResults[Q['kind']]>> {
    const body = { query, cache: session, ...(delegate ? { delegate } : {}) };
    const { cell, service } = this.services.catalogs.serving(queryTarget(query));
    const answer = await this.router.route<GrantedAnswer<QueryResults[Query['kind']]>>(
      {
        cell,
        action: `answer "${query.kind}"`,
        local: () => service.queryWithGrants(query, session, delegate),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/queries', body, timeoutMs),
      },
      options,
    );
    const { result } = answer;
    if (result !== null) this.#rememberAllMembers(result);
    const merged =
      result === null || options.forwarded === true ? result : await this.#withLive(result, options);
    return { ...answer, result: merged as QueryResults[Q['kind']] | null };
  }

  /** A client's poll: renews its cache session, and returns the recalls, for which it waits a while. */
  async cache(request: CacheRequest, options: CallOptions = {}): Promise<CacheAnswer> {
    const { cell, service } = this.services.catalogs.serving({ kind: 'every' });
    return this.router.route(
      {
        cell,
        action: 'renew a cache session',
        local: () => service.pollCache(request),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/cache', request, timeoutMs),
      },
      options,
    );
  }

  /** Returns the changes in a directory, or below it; if there are none, waits for some as long as the request says. */
  async changes(request: ChangesRequest, options: CallOptions = {}): Promise<ChangesAnswer> {
    const { cell, service } = this.services.catalogs.serving({ kind: 'inodes', inodes: [request.inode] });
    return this.router.route(
      {
        cell,
        action: `watch directory ${request.inode}`,
        local: () => service.changes(request),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/changes', request, timeoutMs),
      },
      options,
    );
  }

  /** As `query`, with the catalog's own attributes of live files. */
  async queryCatalog<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    return this.#catalogQuery(query, options);
  }

  /** Resolves when all commands answered so far survive a loss of power of all servers. */
  async flushCatalog(options: CallOptions = {}): Promise<void> {
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
      const epoch = this.catalogEpoch;
      const found = await find();
      if (!isFound(found)) return found;
      await this.flushCatalog();
      if (this.catalogEpoch === epoch) return found;
    }
    throw new ServiceError('no-majority', "The catalog's primary changed during every flush: retry later", {
      retryAfterMs: QUERY_RETRY_MS,
    });
  }

  /**
   * Makes all commands answered so far durable, as `flushCatalog`, and searches for `answered`.
   * @returns those that the catalog lost or forgot; a primary of an earlier release does not search, and returns none
   */
  async flushCommands(
    answered: readonly AnsweredCommands[],
    options: CallOptions = {},
  ): Promise<FlushAnswer> {
    const { cell, service } = this.services.catalogs.serving({ kind: 'every' });
    return this.router.route<FlushAnswer>(
      {
        cell,
        action: 'flush the catalog',
        local: async () => {
          const answer = await service.flush(answered);
          // For `findDurably`: once this server is no longer primary, it may know only earlier epochs, from others.
          this.#noteCatalogEpoch();
          return answer;
        },
        remote: async (server, timeoutMs) => {
          const { bytes } = await this.#ask(
            server,
            jsonRequest('/v1/catalog/flush', { answered }),
            timeoutMs,
          );
          return bytes.length === 0 ? { missing: [] } : (JSON.parse(textOf(bytes)) as FlushAnswer);
        },
      },
      options,
    );
  }

  /** Reads bytes, all of one state; fewer than `length` at the end of the file. */
  async read(file: FileId, offset: number, length: number, options: ReadOptions = {}): Promise<FileRead> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      const { stale: _, ...current } = rest;
      return this.#snapshots.use(file, snapshot, current, (shown) =>
        this.read(shown.source, offset, length, { ...current, asOf: shown.asOf }),
      );
    }
    const stale = options.stale === true;
    const { files } = this.services;
    return this.router.route<FileRead>(
      {
        cell: file,
        action: `read file ${file}`,
        // A stale answer may name an earlier primary.
        showsPrimary: !stale,
        local: () => (stale ? files.readStale(file, offset, length) : files.read(file, offset, length, asOf)),
        remote: async (server, timeoutMs) => {
          const consistency = stale ? '&consistency=stale' : '';
          const path = `/v1/data/${file}?offset=${offset}&length=${length}${consistency}${asOfText(asOf)}`;
          const { headers, bytes } = await this.#ask(server, { method: 'GET', path }, timeoutMs);
          return {
            bytes,
            state: stateOfHeaders(file, headers),
            served: 'forwarded',
            ageMs: ageOfHeaders(headers),
          };
        },
      },
      options,
    );
  }

  /** Returns where a file's bytes are on this server's disk, for processes on this machine; never forwarded. */
  async locate(
    file: FileId,
    offset: number,
    length: number,
    options: SnapshotReadOptions = {},
  ): Promise<FileLocated> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      return this.#snapshots.use(file, snapshot, rest, (shown) =>
        this.locate(shown.source, offset, length, { ...rest, asOf: shown.asOf }),
      );
    }
    return this.services.files.locate(file, offset, length, asOf);
  }

  async write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    options: WriteOptions = {},
  ): Promise<WriteResult> {
    const { guard = {} } = options;
    return this.#fileCall(
      file,
      `write file ${file}`,
      () => this.services.files.write(file, request, offset, bytes, guard),
      {
        method: 'PUT',
        path: `/v1/data/${file}?offset=${offset}&${requestText(request)}${guardText(guard)}`,
        contentType: 'application/octet-stream',
        body: bytes,
      },
      options,
    );
  }

  /** Writes bytes at several offsets atomically. */
  async writeParts(
    file: FileId,
    request: ChangeRequest,
    parts: readonly WritePart[],
    options: CallOptions = {},
  ): Promise<WriteResult> {
    return this.#fileCall(
      file,
      `write file ${file}`,
      () => this.services.files.writeParts(file, request, parts),
      {
        method: 'PUT',
        path: `/v1/data/${file}/parts?${requestText(request)}`,
        contentType: 'application/octet-stream',
        body: encodeWriteParts(parts),
      },
      options,
    );
  }

  async truncate(
    file: FileId,
    request: ChangeRequest,
    sizeBytes: number,
    options: CallOptions = {},
  ): Promise<WriteResult> {
    return this.#fileCall(
      file,
      `truncate file ${file}`,
      () => this.services.files.truncate(file, request, sizeBytes),
      { method: 'POST', path: `/v1/data/${file}/truncate?size=${sizeBytes}&${requestText(request)}` },
      options,
    );
  }

  async punch(
    file: FileId,
    request: ChangeRequest,
    hole: Hole,
    options: CallOptions = {},
  ): Promise<WriteResult> {
    const { from, to, grows } = hole;
    return this.#fileCall(
      file,
      `punch a hole into file ${file}`,
      () => this.services.files.punch(file, request, hole),
      {
        method: 'POST',
        path: `/v1/data/${file}/punch?from=${from}&to=${to}&grows=${grows}&${requestText(request)}`,
      },
      options,
    );
  }

  /** Finds where data or a hole begins, at `offset` or after it. */
  async extent(
    file: FileId,
    offset: number,
    whence: Whence,
    options: SnapshotReadOptions = {},
  ): Promise<FileExtent> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      return this.#snapshots.use(file, snapshot, rest, (shown) =>
        this.extent(shown.source, offset, whence, { ...rest, asOf: shown.asOf }),
      );
    }
    return this.#fileCall(
      file,
      `find ${whence === 'data' ? 'data' : 'a hole'} in file ${file}`,
      () => this.services.files.extent(file, offset, whence, asOf),
      { method: 'GET', path: `/v1/data/${file}/extents?offset=${offset}&whence=${whence}${asOfText(asOf)}` },
      options,
    );
  }

  /**
   * Copies the beginning of a range to `file`, as much as fits one operation; the files may be the same. The primary of
   * `file` reads the source like a client. A request is one operation, so it may be repeated. `offset` of the result is
   * the end of the copied bytes in `file`: the caller continues from there, under another request number.
   * @throws ServiceError `bad-request` if the two ranges overlap
   */
  async copy(
    file: FileId,
    request: ChangeRequest,
    order: CopyOrder & { readonly from: FileId },
    options: CallOptions = {},
  ): Promise<WriteResult> {
    const { from, fromOffset, toOffset, length, snapshot } = order;
    if (from === file && snapshot === undefined && Math.abs(fromOffset - toOffset) < length) {
      throw new ServiceError('bad-request', `Cannot copy within file ${file}: the ranges overlap`);
    }
    if (fromOffset + length > FILE_BYTES_MAX || toOffset + length > FILE_BYTES_MAX) {
      throw new ServiceError('bad-request', `A file ends at ${FILE_BYTES_MAX} bytes`);
    }
    return this.#fileCall(
      file,
      `copy to file ${file}`,
      () =>
        this.services.files.copy(file, request, toOffset, () =>
          this.#copyPiece(from, fromOffset, length, snapshot),
        ),
      jsonRequest(`/v1/data/${file}/copy?${requestText(request)}`, order),
      options,
    );
  }

  /** Reads a copy's next piece: a whole hole, however long, or data up to the next hole, limited to one operation. */
  async #copyPiece(from: FileId, offset: number, length: number, snapshot?: number): Promise<CopyPiece> {
    // The write after it gets the other half.
    const options = { timeoutMs: this.services.status.operationTimeoutMs / 2, snapshot };
    const data = await this.extent(from, offset, 'data', options);
    const end = Math.min(data.sizeBytes, offset + length);
    if (offset >= end) return { kind: 'end' };
    const begin = Math.min(data.found ?? end, end);
    if (begin > offset) return { kind: 'hole', length: begin - offset };
    const { found: hole } = await this.extent(from, offset, 'hole', options);
    const until = Math.min(hole === null || hole <= offset ? end : hole, end, offset + WRITE_BYTES_MAX);
    const { bytes } = await this.read(from, offset, until - offset, options);
    return bytes.length === 0 ? { kind: 'end' } : { kind: 'data', bytes };
  }

  /** Resolves when all acknowledged operations survive a loss of power of all servers. @see FileService.flush */
  async flush(
    file: FileId,
    options: CallOptions = {},
    unsynced: readonly AcknowledgedRequest[] = [],
  ): Promise<FlushResult> {
    const query = unsynced.length === 0 ? '' : `?unsynced=${unsyncedText(unsynced)}`;
    return this.#fileCall(
      file,
      `flush file ${file}`,
      () => this.services.files.flush(file, unsynced),
      { method: 'POST', path: `/v1/data/${file}/flush${query}` },
      options,
    );
  }

  /** Resolves when the file can no longer change, and each of its reachable servers can answer reads. */
  async seal(file: FileId, options: CallOptions = {}, expected?: ContentVersion): Promise<FileState> {
    const guard = expected === undefined ? '' : guardText({ contents: expected }).replace('&', '?');
    return this.#fileCall(
      file,
      `seal file ${file}`,
      () => this.services.files.seal(file, expected),
      { method: 'POST', path: `/v1/data/${file}/seal${guard}` },
      options,
    );
  }

  /** Resolves when the catalog has size, modification time and version. */
  async settle(file: FileId, options: CallOptions = {}): Promise<FileState> {
    return this.#fileCall(
      file,
      `settle file ${file}`,
      () => this.services.files.settle(file),
      { method: 'POST', path: `/v1/data/${file}/settle` },
      options,
    );
  }

  async state(file: FileId, options: SnapshotReadOptions = {}): Promise<FileState> {
    const { snapshot, asOf: _, ...rest } = options;
    if (snapshot !== undefined)
      return this.#snapshots.use(file, snapshot, rest, (shown) => this.#stateInSnapshot(file, shown));
    return this.#fileCall(
      file,
      `ask for the state of file ${file}`,
      () => this.services.files.state(file),
      { method: 'GET', path: `/v1/data/${file}/state` },
      options,
    );
  }

  async #stateInSnapshot(file: FileId, { attributes }: SnapshotContents): Promise<FileState> {
    const { sizeBytes, modifiedNs, contents } = attributes;
    const { epoch, seq } = contents;
    return {
      file,
      sizeBytes,
      modifiedNs,
      contents,
      seq,
      epoch,
      primary: this.services.status.id,
      sealed: true,
    };
  }

  /** The file's lease and replicas as its primary sees them; a file without a primary gets one. */
  async leaseStatus(file: FileId, options: CallOptions = {}): Promise<FileLeaseStatus> {
    return this.#fileCall(
      file,
      `ask for the replicas of file ${file}`,
      async () => {
        const { primary } = await this.services.files.becomePrimary(file);
        const standing = this.services.files.leaseStatus(file);
        if (standing?.role === 'primary') return standing;
        throw new ServiceError('not-primary', `The primary of file ${file} has just changed`, { primary });
      },
      { method: 'GET', path: `/v1/data/${file}/standing` },
      options,
    );
  }

  async lock(file: FileId, order: LockOrder, options: CallOptions = {}): Promise<LockGrant> {
    const { since, heard, ...body } = order;
    return this.#fileCall(
      file,
      `lock file ${file}`,
      () => this.services.files.lock(file, order, options.holder ?? null),
      // Servers trust each other about the holder.
      jsonRequest(`/v1/data/${file}/locks${queryText({ holder: options.holder, since, ...heard })}`, body),
      options,
    );
  }

  async renewLocks(file: FileId, claim: LockClaim, options: CallOptions = {}): Promise<LockRenewal> {
    const { since, heard, ...body } = claim;
    return this.#fileCall(
      file,
      `renew the locks on file ${file}`,
      () => this.services.files.renewLocks(file, claim, options.holder ?? null),
      jsonRequest(
        `/v1/data/${file}/locks/renew${queryText({ holder: options.holder, since, ...heard })}`,
        body,
      ),
      options,
    );
  }

  async locks(file: FileId, options: CallOptions = {}): Promise<LockList> {
    return this.#fileCall(
      file,
      `list the locks on file ${file}`,
      () => this.services.files.locks(file),
      { method: 'GET', path: `/v1/data/${file}/locks` },
      options,
    );
  }

  /** Moves the file's replicas. A move continues after the call has timed out; a repeated call waits for its end. */
  async changeMembers(file: FileId, members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    const view = await this.#fileCall(
      file,
      `move the replicas of file ${file}`,
      () => this.services.files.changeMembers(file, members),
      jsonRequest(`/v1/data/${file}/members`, { members }),
      options,
    );
    this.router.rememberMembers(file, view.members);
    return view;
  }

  async changeCatalogMembers(members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    const { cell, service } = this.services.catalogs.serving({ kind: 'root' });
    return this.router.route(
      {
        cell,
        action: 'move the catalog',
        local: () => service.changeMembers(members),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/members', { members }, timeoutMs),
      },
      options,
    );
  }

  /** Makes `catalogSeq` known: any answer of the catalog's primary has it in its headers. */
  async #queryCatalogSeq(options: CallOptions): Promise<void> {
    await this.#catalogQuery({ kind: 'sweeps' }, options);
  }

  async #execute<C extends Command>(
    command: C,
    numbered: NumberedRequest,
    options: CallOptions,
    trail: Trail,
  ): Promise<CommandResults[C['kind']]> {
    const { cacheOwner } = options;
    const { session, number, since } = numbered;
    const fence = since === undefined ? {} : { since };
    const owner = cacheOwner === undefined ? {} : { cache: cacheOwner };
    const request = { session, number, ...fence, ...owner, command };
    const { cell, service } = this.services.catalogs.serving(commandTarget(command));
    const result = await this.router.route<CommandResults[Command['kind']]>(
      {
        cell,
        action: `execute "${command.kind}"`,
        // The client's own server becomes the creating server, because the client is likely to write through it.
        local: () =>
          options.forwarded === true
            ? service.execute(request)
            : service.execute(request, this.services.files),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/commands', request, timeoutMs),
      },
      options,
      trail,
    );
    if ('attributes' in result) this.#rememberMembers(result.attributes);
    // The result has the command's kind.
    return result as CommandResults[C['kind']];
  }

  async #catalogQuery<Q extends Query>(query: Q, options: CallOptions): Promise<QueryResults[Q['kind']]> {
    const { exact = false } = options;
    const body = { query, ...(exact ? { exact } : {}) };
    const { cell, service } = this.services.catalogs.serving(queryTarget(query));
    const result = await this.router.route<QueryResults[Query['kind']]>(
      {
        cell,
        action: `answer "${query.kind}"`,
        showsPrimary: exact,
        atAnyMember: !exact,
        local: () => service.query(query, exact),
        remote: async (server, timeoutMs) => {
          const answer = await this.#ask(server, jsonRequest('/v1/catalog/queries', body), timeoutMs);
          const reader = answer.headers[HEADER_PRIMARY];
          if (!exact && typeof reader === 'string' && isServerId(reader)) this.router.assumeReader(reader);
          return JSON.parse(textOf(answer.bytes)) as QueryResults[Query['kind']];
        },
      },
      options,
    );
    this.#rememberAllMembers(result);
    return result as QueryResults[Q['kind']];
  }

  /** Binds a new modification time to the newest contents, so that it overrides the primary's time for that version. */
  async #withNewestContents<C extends Command>(command: C, options: CallOptions): Promise<C> {
    if (command.kind !== 'set-attributes') return command;
    if (command.modifiedNs === undefined || command.contents !== undefined) return command;
    const { attributes } = await this.query({ kind: 'attributes', inode: command.inode }, options);
    return attributes.kind === 'file' ? { ...command, contents: attributes.contents } : command;
  }

  #withLive<Result extends object>(result: Result, options: CallOptions): Promise<Result> {
    return withLiveStates(
      result,
      (file, timeoutMs) => this.state(file, timeoutMs === undefined ? options : { timeoutMs }),
      this.world,
    );
  }

  #rememberAllMembers(result: QueryResults[Query['kind']]): void {
    if ('attributes' in result) this.#rememberMembers(result.attributes);
    if ('entries' in result) for (const { attributes } of result.entries) this.#rememberMembers(attributes);
  }

  async #fileCall<Result>(
    file: FileId,
    action: string,
    local: () => Promise<Result>,
    request: PeerRequest,
    options: CallOptions,
  ): Promise<Result> {
    const trail: Trail = { ambiguous: false };
    const call: Call<Result> = {
      cell: file,
      action,
      local,
      remote: async (server, timeoutMs) => {
        const { bytes } = await this.#ask(server, request, timeoutMs);
        return JSON.parse(textOf(bytes)) as Result;
      },
    };
    return this.router.route(call, options, trail).catch((error: unknown) => {
      throw unknownIfAmbiguous(error, trail, `it was possible to ${action}`);
    });
  }

  async #askJson<Result>(server: ServerId, path: string, body: unknown, timeoutMs: number): Promise<Result> {
    const { bytes } = await this.#ask(server, jsonRequest(path, body), timeoutMs);
    return JSON.parse(textOf(bytes)) as Result;
  }

  #ask(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer> {
    this.#countForward(server);
    return this.peers.exchange(server, request, timeoutMs);
  }

  #rememberMembers(attributes: Attributes): void {
    if (attributes.kind !== 'file') return;
    this.router.rememberMembers(attributes.inode as FileId, attributes.replicas as readonly ServerId[]);
  }
}

/**
 * Turns `session-expired` into `unknown` if an earlier attempt may have had an effect: after `session-expired` a client
 * sends the request again in a new session, which would execute it twice. Returns other errors as they are.
 */
function unknownIfAmbiguous(error: unknown, { ambiguous }: Trail, what: string): unknown {
  if (!ambiguous || !(error instanceof ServiceError) || error.code !== 'session-expired') return error;
  return new ServiceError(
    'unknown',
    `Unknown outcome: the session expired before it was known whether ${what}`,
    {},
    { cause: error },
  );
}

function jsonRequest(path: string, body: unknown): PeerRequest {
  return { method: 'POST', path, contentType: 'application/json', body: JSON.stringify(body) };
}

function requestText(request: ChangeRequest): string {
  const { session, number, since, answered = 0, under } = request;
  const locks = under === undefined ? '' : `&under=${under.client}-${under.stamp}`;
  return `session=${session}&number=${number}&since=${since}&answered=${answered}${locks}`;
}

/** Parsed by `guardOf` of the data routes. */
function guardText({ contents, sizeBytes, changedNs }: WriteGuard): string {
  const ifContents = contents === undefined ? '' : `&if-contents=${contents.epoch}-${contents.seq}`;
  const ifSize = sizeBytes === undefined ? '' : `&if-size=${sizeBytes}`;
  return `${ifContents}${ifSize}${changedNs === undefined ? '' : `&if-changed=${changedNs}`}`;
}

function asOfText(asOf: ContentVersion | undefined): string {
  return asOf === undefined ? '' : `&as-of=${asOf.epoch}-${asOf.seq}`;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
}

function queryText(parameters: Readonly<Record<string, string | number | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, `${value}`);
  return query.size === 0 ? '' : `?${query}`;
}
