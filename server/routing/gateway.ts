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
  FlushAnswer,
  GrantedAnswer,
  Query,
  QueryResults,
} from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { type Machine, systemMachine } from '../process/machine.ts';
import type { NumberedRequest } from '../requests/numbered-requests.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { withAttachments } from './attached-volumes.ts';
import { CatalogGateway } from './catalog-gateway.ts';
import { type CatalogTarget, commandTarget, partsOf, queryTarget, secondTarget } from './catalog-target.ts';
import { FileFills, type FileFillsParts } from './file-fills.ts';
import { FileGateway } from './file-gateway.ts';
import { withLiveStates } from './live-attributes.ts';
import { isMergeable, isOfUseInPart, mergedAnswers, missingInAll } from './merged-answers.ts';
import { type PeerAnswer, PeerHttp, type PeerRequest } from './peer-http.ts';
import { type CallOptions, Router } from './router.ts';
import type { Services } from './service-interfaces.ts';
import { SharedFile, SharedReads } from './shared-reads.ts';
import { SnapshotReads } from './snapshot-reads.ts';
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
  readonly copyAt: FileFillsParts['copyAt'];
  readonly metrics?: MetricsRegistry;
  readonly tls?: PeerTls | null;
  readonly machine?: Machine;
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
  /** Requests about the contents of files. */
  readonly files: FileGateway;
  /** Gives files of clones contents of their own. */
  readonly fills: FileFills;
  readonly #countForward: (server: ServerId) => void;
  readonly #catalogs = new Map<CatalogNumber, CatalogGateway>();

  constructor(options: GatewayOptions) {
    const { world, services, founders, copyAt, metrics, tls = null, machine = systemMachine } = options;
    this.services = services;
    this.founders = founders;
    this.world = world;
    this.peers = new PeerHttp(world, services.status.urls, tls, machine);
    this.router = new Router({
      world,
      services,
      queryMembers: async (file, timeoutMs) => {
        const query = { kind: 'attributes', inode: file } as const;
        const { attributes } = await this.queryCatalog(query, { timeoutMs });
        if (attributes.shared === true) throw new SharedFile(attributes);
      },
      ...(metrics === undefined ? {} : { metrics }),
    });
    const forwards = metrics?.counter('leasehold_forwards_total', 'Requests forwarded to another server', [
      'to',
    ]);
    this.#countForward = (server) => forwards?.add(1, { to: server });
    this.fills = new FileFills({
      world,
      copyAt,
      open: async (file) => {
        // Copies survive a loss of power: so must the choice of their members, which view 1 has one set of.
        const { members } = await this.durably({ kind: 'clone-open', inode: file });
        return members as readonly ServerId[] | null;
      },
      filled: async (file) => {
        await this.durably({ kind: 'clone-filled', inode: file });
      },
    });
    this.files = new FileGateway({
      ...{ world, services },
      router: this.router,
      snapshots: new SnapshotReads(async (file, snapshot, options) => {
        const query = { kind: 'attributes', inode: file, snapshot } as const;
        return (await this.queryCatalog(query, options)).attributes;
      }),
      shared: new SharedReads((file, options) =>
        this.queryCatalog({ kind: 'shared-contents', inode: file }, options),
      ),
      fills: this.fills,
      ask: (server, request, timeoutMs) => this.#ask(server, request, timeoutMs),
    });
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
      (file, timeoutMs) => this.files.state(file, timeoutMs === undefined ? options : { timeoutMs }),
      this.world,
    );
  }

  #rememberAllMembers(result: CommandResults[Command['kind']] | QueryResults[Query['kind']]): void {
    if ('attributes' in result) this.#rememberMembers(result.attributes);
    if ('entries' in result) for (const { attributes } of result.entries) this.#rememberMembers(attributes);
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
