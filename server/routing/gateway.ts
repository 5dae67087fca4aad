import { ERRORS, ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type FileId, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import { type Pace, Retry } from '../../base/retry.ts';
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
  unsyncedText,
  type Whence,
  type WriteGuard,
  type WriteResult,
} from '../../wire/http-api.ts';
import type { LockClaim, LockGrant, LockList, LockOrder, LockRenewal } from '../../wire/lock-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { type Machine, systemMachine } from '../process/machine.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { withAttachments } from './attached-volumes.ts';
import { CatalogGateway, unknownIfAmbiguous } from './catalog-gateway.ts';
import { type CatalogTarget, commandTarget, partsOf, queryTarget, secondTarget } from './catalog-target.ts';
import { withLiveStates } from './live-attributes.ts';
import { isMergeable, isOfUseInPart, mergedAnswers, missingInAll } from './merged-answers.ts';
import { jsonOfAnswer, jsonRequest, type PeerAnswer, PeerHttp, type PeerRequest } from './peer-http.ts';
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
import { untilCreated, untilRemoved } from './volume-lives.ts';
import { withVotingFounders } from './voting-founders.ts';

/** Longest wait for a volume's catalog, if the answers of the others are of use without it. */
const PART_MS_MAX = 3_000;
/** Between attempts of a command whose volume moves to another catalog. */
const MOVING_PACE: Pace = { firstMs: 50, largestMs: 500, spread: [0.5, 1.5] };
/** Servers send these about files of several volumes: one that moves must not delay the others. */
const OF_SEVERAL_VOLUMES: ReadonlySet<Command['kind']> = new Set(['settle', 'plan-files', 'follow-views']);
/** Before any operation that a catalog has: the changes since it are not known. */
export const NO_OPERATION = Number.MAX_SAFE_INTEGER;
const EVERY: CatalogTarget = { kind: 'every' };

export interface GatewayOptions {
  /** The servers with which the cluster began. */
  readonly founders: readonly ServerId[];
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
  readonly founders: readonly ServerId[];
  readonly #snapshots: SnapshotReads;
  readonly #countForward: (server: ServerId) => void;
  readonly #catalogs = new Map<CatalogNumber, CatalogGateway>();

  constructor({ world, services, founders, metrics, tls = null, machine = systemMachine }: GatewayOptions) {
    this.services = services;
    this.founders = founders;
    this.world = world;
    this.#snapshots = new SnapshotReads(async (file, snapshot, options) => {
      const query = { kind: 'attributes', inode: file, snapshot } as const;
      return (await this.queryCatalog(query, options)).attributes;
    });
    this.peers = new PeerHttp(world, services.status.urls, tls, machine);
    this.router = new Router({
      world,
      services,
      queryMembers: (file, timeoutMs) =>
        this.queryCatalog({ kind: 'attributes', inode: file }, { timeoutMs }),
      ...(metrics === undefined ? {} : { metrics }),
    });
    const forwards = metrics?.counter('leasehold_forwards_total', 'Requests forwarded to another server', [
      'to',
    ]);
    this.#countForward = (server) => forwards?.add(1, { to: server });
  }

  get root(): CatalogGateway {
    return this.catalog(ROOT_CATALOG);
  }

  catalog(number: CatalogNumber): CatalogGateway {
    const known = this.#catalogs.get(number);
    if (known !== undefined) return known;
    const { world, services, router, peers } = this;
    const catalog = new CatalogGateway({
      ...{ number, world, services, router, peers },
      ask: (server, request, timeoutMs) => this.#ask(server, request, timeoutMs),
      answered: (result) => this.#rememberAllMembers(result),
    });
    this.#catalogs.set(number, catalog);
    return catalog;
  }

  /** The catalog of a file, or of another inode, as far as this server knows. */
  ofInode(inode: number): CatalogGateway {
    return this.catalog(this.services.catalogs.ofInode(inode));
  }

  /** The catalog that answers a query of a client, as far as this server knows. */
  ofQuery(query: Query, options: CallOptions): CatalogGateway {
    return this.catalog(this.#numberOf(queryTarget(query), options));
  }

  /** The catalog of a volume, as far as this server knows. */
  ofVolume(name: string): CatalogGateway {
    return this.catalog(this.services.catalogs.ofVolume(name));
  }

  /** The latest operation of the root catalog that is known without a request; null if none is. */
  get catalogSeq(): number | null {
    return this.root.seq;
  }

  /** The newest known epoch of the root catalog; it never decreases. */
  get catalogEpoch(): number {
    return this.root.epoch;
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

  /**
   * Executes a command in the catalog to which it belongs; without a client's `request`, under a number of this
   * server's own session.
   */
  async command<C extends Command>(
    command: C,
    request?: NumberedRequest,
    options: CallOptions = {},
  ): Promise<CommandResults[C['kind']]> {
    const isLive = request !== undefined && options.live === true;
    const bound = isLive ? await this.#withNewestContents(command, options) : command;
    const result = await this.#executed(bound, request, options);
    if (options.forwarded !== true) await this.#untilCarriedOut(command.kind, result, options);
    return isLive ? this.#withLive(result, options) : result;
  }

  /** Volumes with a catalog of their own are created and removed by their members, and attached by the list. */
  async #untilCarriedOut(
    kind: Command['kind'],
    result: CommandResults[Command['kind']],
    { timeoutMs = this.services.status.operationTimeoutMs }: CallOptions,
  ): Promise<void> {
    const { catalog } = result as { readonly catalog?: ListedCatalog };
    if (catalog === undefined) return;
    const { catalogs } = this.services;
    if (kind === 'catalog-create') await untilCreated(this.world, catalogs, catalog, timeoutMs);
    if (kind === 'volume-remove') await untilRemoved(this.world, catalogs, catalog, timeoutMs);
    if (kind === 'volume-attach' || kind === 'volume-detach') await catalogs.refresh();
  }

  #executed<C extends Command>(
    command: C,
    request: NumberedRequest | undefined,
    options: CallOptions,
  ): Promise<CommandResults[C['kind']]> {
    return this.#whenMoved(command.kind, options, () =>
      this.#inCatalog(commandTarget(command), options, (catalog) => {
        this.#assertInOneCatalog(command, options);
        return catalog.command(command, this.#sinceOf(catalog, request, options), options);
      }),
    );
  }

  /**
   * Repeats a command that is refused while its volume moves to another catalog, within the time limit. A client that
   * names a catalog waits by itself, and so do commands about files of several volumes.
   */
  async #whenMoved<Result>(
    kind: Command['kind'],
    { timeoutMs = this.services.status.operationTimeoutMs, onlyThere, forwarded }: CallOptions,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const { world } = this;
    const deadlineMs = world.nowMs() + timeoutMs;
    const retry = new Retry({ deadlineMs: () => deadlineMs, pace: MOVING_PACE, lastWait: 'fail' }, () =>
      world.random(),
    );
    for (;;) {
      try {
        return await work();
      } catch (error) {
        const isMoving = error instanceof ServiceError && error.code === 'moving';
        if (!isMoving || onlyThere || forwarded || OF_SEVERAL_VOLUMES.has(kind)) throw error;
        const step = retry.next({ kind: 'later' }, world.nowMs());
        if (step.kind !== 'wait') throw error;
        await world.sleep(step.ms);
      }
    }
  }

  /** A client that names no catalog knows positions of the root catalog only. */
  #sinceOf(
    catalog: CatalogGateway,
    request: NumberedRequest | undefined,
    options: CallOptions,
  ): NumberedRequest | undefined {
    if (request === undefined || catalog.number === (options.catalog ?? ROOT_CATALOG)) return request;
    const { session, number } = request;
    return { session, number };
  }

  /** @throws ServiceError `cross-volume` */
  #assertInOneCatalog(command: Command, { forwarded = false }: CallOptions): void {
    const second = secondTarget(command);
    if (second === null || forwarded) return;
    if (this.#numberOf(second, {}) === this.#numberOf(commandTarget(command), {})) return;
    // By this server's list, which may be outdated.
    const text = 'Source and target are on different volumes';
    throw new ServiceError('cross-volume', text, { elsewhere: true });
  }

  /** As `command`; resolves when the changes survive a loss of power of all servers. */
  async durably<C extends Command>(
    command: C,
    request?: NumberedRequest,
    options: CallOptions = {},
  ): Promise<CommandResults[C['kind']]> {
    return this.#whenMoved(command.kind, options, () =>
      this.#inCatalog(commandTarget(command), options, (catalog) => {
        this.#assertInOneCatalog(command, options);
        return catalog.durably(command, this.#sinceOf(catalog, request, options));
      }),
    );
  }

  /**
   * Answers a query of the catalog, with the primaries' attributes of live files, and with the founders as voters of
   * named leases while the catalog has no view of these.
   */
  async query<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    const result = await this.queryCatalog(query, options);
    // The client's own server merges attributes of live files; a forwarded query gets the catalog's.
    if (options.forwarded === true) return result;
    const withFounders = withVotingFounders(query, result, this.founders);
    return this.#withLive(withAttachments(withFounders, this.services.catalogs), options);
  }

  /** As `query`, with the catalog's own attributes of live files. Several catalogs may have to answer. */
  async queryCatalog<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    const target = queryTarget(query);
    if (!isMergeable(query.kind) || options.catalog !== undefined || options.forwarded === true)
      return this.#inCatalog(target, options, (catalog) => catalog.query(query, options));
    const { inodeCatalogs } = this.services.catalogs;
    try {
      return await this.#queryParts(query, target, options);
    } catch (error) {
      const isOutdated = error instanceof ServiceError && error.details.elsewhere === true;
      // The list was fetched for the refusal: inodes may have moved since the one before.
      if (!isOutdated || inodeCatalogs === this.services.catalogs.inodeCatalogs) throw error;
      return this.#queryParts(query, target, options);
    }
  }

  async #queryParts<Q extends Query>(
    query: Q,
    target: CatalogTarget,
    options: CallOptions,
  ): Promise<QueryResults[Q['kind']]> {
    const parts = partsOf(query, target, this.services.catalogs);
    const answers = await Promise.all(
      parts.map(([catalog, part]) => this.#partAnswered(part, target, { ...options, catalog })),
    );
    const known = answers.filter((answer) => typeof answer === 'object');
    const merged = mergedAnswers(query.kind as Q['kind'], known);
    const unavailable = parts.flatMap(([number], place) =>
      answers[place] === 'unavailable' ? (this.services.catalogs.row(number)?.name ?? []) : [],
    );
    return unavailable.length === 0 ? merged : { ...merged, unavailable };
  }

  /** @returns the answer of the catalog that `options` names; or why there is none, if the others are of use alone */
  async #partAnswered<Q extends Query>(
    query: Q,
    target: CatalogTarget,
    options: CallOptions,
  ): Promise<QueryResults[Q['kind']] | 'unavailable' | 'removed'> {
    const isNeeded = options.catalog === ROOT_CATALOG || !isOfUseInPart(query.kind);
    const limitMs = isNeeded ? Number.POSITIVE_INFINITY : PART_MS_MAX;
    const timeoutMs = Math.min(options.timeoutMs ?? this.services.status.operationTimeoutMs, limitMs);
    try {
      return await this.#inCatalog(EVERY, options, (catalog) =>
        catalog.query(query, { ...options, timeoutMs }),
      );
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      // Every catalog that serves is asked: one that was removed meanwhile has nothing.
      if (target.kind === 'every' && error.details.elsewhere === true) return 'removed';
      if (!isNeeded && ERRORS[error.code].remedy === 'retry') return 'unavailable';
      throw error;
    }
  }

  /** As `query`, for a client with a cache session: the answer also says what the client may cache. */
  async queryWithGrants<Q extends Query>(
    query: Q,
    session: number,
    options: CallOptions = {},
    delegate = false,
  ): Promise<GrantedAnswer<QueryResults[Q['kind']]>> {
    return this.#inCatalog(queryTarget(query), options, async (catalog) => {
      // The session is one of the catalog that the client names.
      if (catalog.number !== (options.catalog ?? ROOT_CATALOG))
        return { result: await this.query(query, options), granted: null };
      const answer = await catalog.queryWithGrants(query, session, options, delegate);
      const { result } = answer;
      const merged =
        result === null || options.forwarded === true ? result : await this.#withLive(result, options);
      return { ...answer, result: merged };
    });
  }

  /** A client's poll: renews its cache session, and returns the recalls, for which it waits a while. */
  cache(request: CacheRequest, options: CallOptions = {}): Promise<CacheAnswer> {
    return this.#inCatalog(EVERY, options, (catalog) => catalog.cache(request, options));
  }

  /**
   * Returns the changes in a directory, or below it, and the catalog that knows them; if there are none, waits for some
   * as long as the request says.
   * @param options.catalog of which the request has an operation; in another one the changes begin anew
   */
  changes(
    request: ChangesRequest,
    options: CallOptions = {},
  ): Promise<ChangesAnswer & { readonly catalog: CatalogNumber }> {
    return this.#inCatalog({ kind: 'inodes', inodes: [request.inode] }, options, async (catalog) => {
      const isKnown = request.after === null || catalog.number === (options.catalog ?? catalog.number);
      const asked = isKnown ? request : { ...request, after: NO_OPERATION };
      return { ...(await catalog.changes(asked, options)), catalog: catalog.number };
    });
  }

  /**
   * Makes all commands answered so far durable, and searches for `answered`; in all catalogs if the client names none.
   * @returns those that the catalogs lost or forgot; a primary of an earlier release does not search, and returns none
   */
  async flushCommands(
    answered: readonly AnsweredCommands[],
    options: CallOptions = {},
  ): Promise<FlushAnswer> {
    const flush = (catalog: CatalogGateway) => catalog.flushCommands(answered, options);
    if (options.catalog !== undefined || options.forwarded === true)
      return this.#inCatalog(EVERY, options, flush);
    const { catalogs } = this.services;
    const ofRoot = await flush(this.root);
    // The client may have changed a volume whose catalog is not listed here yet.
    await catalogs.refresh();
    const flushed = async (number: CatalogNumber): Promise<FlushAnswer> => {
      try {
        return await flush(this.catalog(number));
      } catch (error) {
        // Its volume is removed.
        if (error instanceof ServiceError && error.details.elsewhere === true) return { missing: answered };
        throw error;
      }
    };
    const others = catalogs.numbers().filter((number) => number !== ROOT_CATALOG);
    return { missing: missingInAll([ofRoot, ...(await Promise.all(others.map(flushed)))]) };
  }

  /** Finds something of a volume, durably, in its catalog. @see CatalogGateway.findDurably */
  async findDurably<Found>(
    volume: string,
    find: () => Promise<Found>,
    isFound?: (found: Found) => boolean,
  ): Promise<Found> {
    for (;;) {
      const catalog = this.ofVolume(volume);
      const found = await catalog.findDurably(find, isFound);
      // If this server's list of catalogs was outdated, another catalog was flushed than that which answered.
      if (this.ofVolume(volume) === catalog) return found;
    }
  }

  /**
   * Calls `work` with the catalog of a request. If it turns out that this server's list of catalogs is outdated, it
   * fetches the list, and calls again.
   */
  async #inCatalog<Result>(
    target: CatalogTarget,
    options: CallOptions,
    work: (catalog: CatalogGateway) => Promise<Result>,
  ): Promise<Result> {
    const { catalogs } = this.services;
    try {
      return await work(this.catalog(this.#numberOf(target, options)));
    } catch (error) {
      const isOutdated = error instanceof ServiceError && error.details.elsewhere === true;
      if (!isOutdated || options.forwarded === true || options.onlyThere === true) throw error;
      await catalogs.refresh();
      return work(this.catalog(this.#numberOf(target, options, 'newest')));
    }
  }

  /**
   * @param list the newest one is known to be here; else a client may know of a later move
   * @throws ServiceError `bad-request` if the request is about inodes of several catalogs
   */
  #numberOf(
    target: CatalogTarget,
    { catalog, forwarded = false, onlyThere = false }: CallOptions,
    list: 'newest' | 'any' = 'any',
  ): CatalogNumber {
    // The peer has chosen it, and names all but the root catalog.
    if (forwarded) return catalog ?? ROOT_CATALOG;
    if (onlyThere && target.kind !== 'root') return catalog ?? ROOT_CATALOG;
    switch (target.kind) {
      case 'root':
        return ROOT_CATALOG;
      case 'volume':
        return (list === 'any' ? catalog : undefined) ?? this.services.catalogs.ofVolume(target.name);
      case 'every':
        return catalog ?? ROOT_CATALOG;
      case 'inodes': {
        const { catalogs } = this.services;
        const numbers = target.inodes.map((inode) => catalogs.ofInode(inode));
        const [number = catalog ?? ROOT_CATALOG, ...others] = new Set(numbers);
        if (others.length > 0)
          throw new ServiceError('bad-request', 'The request is about inodes of several volumes', {
            elsewhere: true,
          });
        return number === ROOT_CATALOG && list === 'any' ? (catalog ?? number) : number;
      }
    }
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

  /**
   * Moves the file's replicas. A move continues after the call has timed out; a repeated call waits for its end.
   * @see FileService.changeMembers
   */
  async changeMembers(
    file: FileId,
    members: readonly ServerId[],
    options: CallOptions & { readonly decidedBy?: number | undefined } = {},
  ): Promise<View> {
    const { decidedBy } = options;
    const view = await this.#fileCall(
      file,
      `move the replicas of file ${file}`,
      () => this.services.files.changeMembers(file, members, decidedBy),
      jsonRequest(`/v1/data/${file}/members`, { members, decidedBy }),
      options,
    );
    this.router.rememberMembers(file, view.members);
    return view;
  }

  changeCatalogMembers(members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    return this.#inCatalog(EVERY, options, (catalog) => catalog.changeMembers(members, options));
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

  #rememberAllMembers(result: CommandResults[Command['kind']] | QueryResults[Query['kind']]): void {
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
      remote: async (server, timeoutMs) => jsonOfAnswer<Result>(await this.#ask(server, request, timeoutMs)),
    };
    return this.router.route(call, options, trail).catch((error: unknown) => {
      throw unknownIfAmbiguous(error, trail, `it was possible to ${action}`);
    });
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

function queryText(parameters: Readonly<Record<string, string | number | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, `${value}`);
  return query.size === 0 ? '' : `?${query}`;
}
