import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, catalogOfInode, ROOT_CATALOG } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type {
  Attributes,
  CacheAnswer,
  CacheRequest,
  Command,
  CommandOf,
  CommandResults,
  GrantedAnswer,
  Query,
  QueryRequest,
  QueryResults,
} from '../../wire/catalog-api.ts';
import { catalogOf } from '../../wire/catalog-of-volume.ts';
import type { ClusterStatus, FileInfo } from '../../wire/http-api.ts';
import type { LocatedPath, PathEnd } from '../../wire/junctions.ts';
import type { LateErrorReport } from '../../wire/late-errors.ts';
import {
  decodeNumbers,
  decodeOutcomes,
  encodeNewFiles,
  type FileWithContents,
  type NewFileOutcome,
  type NewFilesAnswer,
  type NumbersAnswer,
} from '../../wire/new-files.ts';
import type { NumbersRequest, ReservedNumbers } from '../../wire/reserved-numbers.ts';
import { LocalReads } from '../local-reads/local-reads.ts';
import { Access } from '../transport/access.ts';
import { describeQuery } from '../transport/describe-request.ts';
import { type CallOptions, Exchanger, type TimedAnswer } from '../transport/exchange.ts';
import { bytesRequest, type ExchangeRequest, getRequest, postRequest } from '../transport/request.ts';
import { drawSession } from '../transport/request-window.ts';
import type { Response } from '../transport/response.ts';
import { AdminClient } from './admin-client.ts';
import type { CommandOptions, OwnedOptions, SessionOpening } from './catalog-commands.ts';
import type { RequestOf } from './command-session.ts';
import { FileHandle, type FileOptions } from './file-handle.ts';
import { createLockClient, FileLocks, type FileLocksEvents, type LockClient } from './file-locks.ts';
import { HomeCatalog } from './home-catalog.ts';
import { LastPrimaries } from './last-primaries.ts';
import { OtherCatalog } from './other-catalog.ts';
import { QueryServer } from './query-server.ts';
import { encodePlace, type RemotePlace, volumeOf } from './remote-path.ts';
import { SettleBatches } from './settle-batches.ts';
import { UnsyncedFiles } from './unsynced-changes.ts';

const OPERATION_TIMEOUT_MS = 30_000;
const LIST_COUNT_MAX = 1_000;

export interface ClusterClientOptions {
  readonly world: World;
  /** Base URLs of some or all servers of the cluster: `http://127.0.0.1:7401`, `https://fs1.example.org:7401`. */
  readonly servers: readonly string[];
  readonly operationTimeoutMs?: number;
  readonly access?: Access;
  /** The only catalog that this client needs. Absent: it is a client of no volume. @see catalogOfVolume, useVolume */
  readonly catalog?: CatalogNumber;
  /** The volume that this catalog has: the client follows it to a catalog of its own. */
  readonly volume?: string;
  /** Queries include names that another client created in a directory delegated to it and has not yet sent. */
  readonly exact?: boolean;
  readonly localReads?: boolean;
  /** Servers of this zone are asked first for what they can answer as well as others; absent or null: none is. */
  readonly zone?: string | null;
}

export interface ResolveOptions extends CallOptions {
  /** Whether a symbolic link at the end is followed; default: true. */
  readonly follow?: boolean;
  /** The directory at the path, also if another volume is attached there. */
  readonly junction?: 'self';
}

export interface Entry {
  readonly name: string;
  readonly attributes: Attributes;
}

/**
 * The client of a cluster. A call tries one server after another, with the same request id, until one gives a final
 * answer or time is up; failures are `ServiceError`s (docs/errors.md). The primary that an answer names is tried first
 * from then on, which saves forwarding.
 */
export class ClusterClient {
  readonly world: World;
  /** Owner of the inode numbers reserved for this client, in creations with contents and in `create-file`. */
  readonly inodeOwner: number;
  readonly admin: AdminClient;
  readonly #exchanger: Exchanger;
  readonly #home: HomeCatalog;
  readonly #queryServer: QueryServer;
  readonly #exact: boolean;
  readonly #local: LocalReads | null;
  readonly #lockClient: LockClient;
  readonly #primaries = new LastPrimaries();
  readonly #unsynced = new UnsyncedFiles();
  readonly #settleBatches: SettleBatches;

  constructor(options: ClusterClientOptions) {
    const { world, access = Access.NONE, operationTimeoutMs = OPERATION_TIMEOUT_MS, zone = null } = options;
    const { catalog, volume } = options;
    this.world = world;
    this.inodeOwner = drawSession(world);
    this.#lockClient = createLockClient(drawSession(world));
    this.#exchanger = new Exchanger(world, options.servers, operationTimeoutMs, access, zone);
    const parts = {
      exchanger: this.#exchanger,
      catalogOf: (name: string) => this.catalogOfVolume(name),
    };
    this.#home = new HomeCatalog(
      parts,
      catalog === undefined
        ? null
        : { catalog, ...(volume === undefined ? {} : { volume: volumeOf(volume) }) },
    );
    const received = (headers: Response['headers']): void => this.#home.subject.received(headers);
    this.#queryServer = new QueryServer(world, { received }, this.#exchanger.endpoints, this.inodeOwner);
    this.#exact = options.exact ?? false;
    this.#local = options.localReads === true ? new LocalReads(this.#exchanger) : null;
    this.#settleBatches = new SettleBatches(this.#exchanger);
    this.admin = new AdminClient(this.#exchanger);
  }

  get servers(): readonly string[] {
    return this.#exchanger.endpoints.all.map((endpoint) => endpoint.url);
  }

  get catalogPrimary(): string | null {
    return this.#home.subject.primary;
  }

  /** Executes a catalog command exactly once. When it resolves, a majority of the catalog's members has it. */
  async command<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    options: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    const result = await this.#home.request(
      (commands, limited) => commands.execute(command, limited),
      options,
    );
    return this.#learnCapability(result);
  }

  /**
   * The same for an inode that the client knows by its number, also if its directory has become another volume, or if
   * it was created there: then that volume's catalog executes the command, and has flushed it when it resolves. The
   * client's own catalog is asked first about a number that it gave out: an earlier attempt may have been executed
   * there, and it refuses with `movedTo` only what it has not executed, and never will.
   */
  async commandWhereMoved<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    options: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    const limits = this.#exchanger.limitsOf(options);
    const numberedBy = 'inode' in command ? catalogOfInode(command.inode) : ROOT_CATALOG;
    if (numberedBy !== ROOT_CATALOG && numberedBy !== this.catalog)
      return this.commandAt(numberedBy, command, options);
    try {
      return await this.command(command, options);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.details.movedTo === undefined) throw error;
      return this.commandAt(error.details.movedTo, command, { ...options, timeoutMs: limits.leftMs() });
    }
  }

  /**
   * Has another catalog execute a command; a majority of its members has it on disk when it resolves. The client caches
   * nothing of that catalog by its session here, so the command recalls what any client caches of what it changes.
   */
  async commandAt<Kind extends Command['kind']>(
    catalog: CatalogNumber,
    command: CommandOf<Kind>,
    { cache: _, ...options }: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    const other = new OtherCatalog(this.#exchanger, catalog);
    return this.#learnCapability(await other.execute(command, options));
  }

  /** Reserves a number of another catalog, to be used by `commandAt`, for one new file in a directory there. */
  reserveInodeAt(catalog: CatalogNumber, directory: number, options?: CallOptions): Promise<number> {
    return new OtherCatalog(this.#exchanger, catalog).reserveInode(this.inodeOwner, directory, options);
  }

  /** The number of the catalog that has a volume. @param tree the volume, or a snapshot of it */
  async catalogOfVolume(tree: string, options?: CallOptions): Promise<CatalogNumber> {
    const query = { kind: 'volume', name: volumeOf(tree) } as const;
    const request = postRequest(`Cannot ${describeQuery(query)}`, '/v1/catalog/queries', { query });
    const { volume } = await this.#exchanger.ask<QueryResults['volume']>(request, options, this.#queryServer);
    return catalogOf(volume);
  }

  /**
   * Later requests are for the catalog of this volume: their session begins at its position, and a flush waits for no
   * other catalog. If there is no such volume, the later request fails, and says so.
   */
  async useVolume(tree: string, options?: CallOptions): Promise<void> {
    const catalog = await this.catalogOfVolume(tree, options).catch((error: unknown) => {
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    });
    if (catalog !== null) this.#home.use(volumeOf(tree), catalog);
  }

  /** The catalog that requests are for. */
  get catalog(): CatalogNumber {
    return this.#home.subject.number;
  }

  /** Calls `moved` when the volume has left the root catalog: no session that began there is of use any more. */
  onMoved(moved: () => void): void {
    this.#home.onMoved(moved);
  }

  /** @see MoveWait.deadlineMs */
  deadlineMs(beganMs: number, limitMs: number): number {
    return this.#exchanger.moveWait.deadlineMs(beganMs, limitMs);
  }

  /** Later commands are in new sessions, which begin with this command; null: with none. @see endSession */
  openSessionsWith(opening: SessionOpening | null): void {
    this.#home.openSessionsWith(opening);
  }

  /** @see CatalogCommands.endSession */
  endSession(session: number, last: Command, options: CallOptions = {}): Promise<void> {
    return this.#home.request((commands, limited) => commands.endSession(session, last, limited), options);
  }

  get hasUnflushedCommands(): boolean {
    return this.#home.hasUnflushed;
  }

  /** Makes all commands answered before survive a power failure of all servers. @throws CommandsLost once, if lost */
  flushCatalog(options?: CallOptions): Promise<void> {
    return this.#home.flush(options);
  }

  /**
   * Reserves inode numbers for new files, to be used until `untilMs` (monotonic); without `volume`, three replicas.
   * @param placement the directory whose placement class the files will have; absent: the volume's
   */
  async reserveInodes(
    count: number,
    {
      volume,
      placement,
      ...options
    }: CallOptions & { readonly volume?: string; readonly placement?: number } = {},
  ): Promise<ReservedNumbers & { readonly untilMs: number }> {
    const { inodeOwner: owner, world } = this;
    const body: NumbersRequest = {
      ...{ owner, count },
      ...(volume === undefined ? {} : { volume }),
      ...(placement === undefined ? {} : { placement }),
    };
    // No mutation: numbers that were not received are never used.
    const request = postRequest('Cannot reserve inode numbers', '/v1/births/numbers', body);
    const { answer, sentMs } = await this.#home.request(
      ({ catalog }, limited) =>
        this.#exchanger.askTimed<NumbersAnswer>(
          () => world.nowMs(),
          catalog.request(request),
          limited,
          catalog,
        ),
      options,
    );
    const reserved = decodeNumbers(answer);
    // Servers of earlier releases choose a file's members again, though others may already have its contents, or choose
    // those of the volume for each directory.
    if (reserved.sets === undefined || reserved.placement !== placement)
      throw new ServiceError(
        'precondition-failed',
        'Cannot reserve inode numbers: the server runs an earlier release; upgrade all servers',
      );
    return { ...reserved, untilMs: sentMs + reserved.validMs };
  }

  /**
   * Creates files with all of their contents, exactly once. Of a created file, a majority of its replicas has the
   * contents and a majority of the catalog's members has the name; its size and times are settled.
   * @param creatingServer the server that creates files with these numbers, as `reserveInodes` returned it; one per
   *   request
   * @param files at most `NEW_FILES_MAX`, within the limits of `wire/new-files.ts`; the caller leaves the contents
   *   unchanged until it resolves
   * @returns the outcome of each file, in their order
   * @throws ServiceError `unknown` if the outcome is not known; otherwise nothing happened
   */
  async createWithContents(
    creatingServer: string,
    files: readonly FileWithContents[],
    options: OwnedOptions = {},
  ): Promise<readonly NewFileOutcome[]> {
    const cache = options.cache === undefined ? {} : { cache: options.cache };
    const what = `Cannot create ${files.length} files`;
    const requestOf: RequestOf = ({ session, since }, number) => {
      const body = encodeNewFiles({ session, number, owner: this.inodeOwner, ...cache, newFiles: files });
      // Not in the body: here servers of an earlier release ignore it.
      const path = since === undefined ? '/v1/births' : `/v1/births?since=${since}`;
      return bytesRequest(what, 'POST', path, body);
    };
    // A file that already has a directory entry only gets contents, for which there is no command.
    const hasCommands = (answer: NewFilesAnswer): boolean =>
      decodeOutcomes(answer).some(({ kind }, index) => kind === 'created' && files[index]?.hasEntry !== true);
    const answer = await this.#home.request(async (commands, limited) => {
      // Numbers that another catalog has reserved may have moved here with the volume: `create-file` finds out.
      const { number } = commands.catalog;
      if (files.some(({ inode }) => catalogOfInode(inode) !== number)) return null;
      return commands.executeFirstAt(creatingServer, what, requestOf, limited, hasCommands);
    }, options);
    if (answer === null) return files.map(() => ({ kind: 'not-created' }));
    const outcomes = decodeOutcomes(answer);
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.kind !== 'created') continue;
      this.#learnCapability(outcome);
      const { inode, contents } = outcome.attributes;
      if ((files[index]?.contents.length ?? 0) > 0) this.#unsynced.created(inode, contents);
    }
    return outcomes;
  }

  /** Queries the catalog; attributes of files that are being written come from their primaries. */
  async query<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    options: CallOptions = {},
  ): Promise<QueryResults[Kind]> {
    const request = queryRequest({ query: query as Query, ...(this.#exact ? { exact: true } : {}) });
    const result = await this.#home.request(({ catalog }, limited) => {
      const subject = this.#exact ? catalog : this.#queryServer;
      return this.#exchanger.ask<QueryResults[Kind]>(catalog.query(request), limited, subject);
    }, options);
    return this.#learnCapability(result);
  }

  /** As `query`, for a client that caches what is granted or delegated to its session; see `CacheSession`. */
  async queryForCache<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    session: number,
    { delegate, ...options }: CallOptions & { readonly delegate?: boolean } = {},
  ): Promise<GrantedAnswer<QueryResults[Kind]>> {
    const delegation = delegate === undefined ? {} : { delegate };
    const request = queryRequest({ query: query as Query, cache: session, ...delegation });
    const answer = await this.#home.request(
      ({ catalog }, limited) =>
        this.#exchanger.ask<GrantedAnswer<QueryResults[Kind]>>(catalog.query(request), limited, catalog),
      options,
    );
    this.#learnCapability(answer.result);
    return answer;
  }

  /** Renews a cache session; the server answers when it has recalls, or after a while. */
  renewCache(request: CacheRequest, options?: CallOptions): Promise<TimedAnswer<CacheAnswer>> {
    const { subject } = this.#home;
    const renewal = postRequest('Cannot renew the cache session', '/v1/catalog/cache', request);
    return this.#exchanger.askTimed(() => this.world.nowMs(), subject.request(renewal), options, subject);
  }

  /** Opens contents by inode number. Nothing is sent before the first call on the handle. */
  openFile(file: number, options: FileOptions = {}): FileHandle {
    const subject = this.#primaries.subject(file, options.replicas?.[0] ?? null);
    const unsynced = this.#unsynced.of(file);
    return new FileHandle(this.#exchanger, file, unsynced, options, this.#local, subject);
  }

  /** Notes a file's creating server: if it has a replica, it orders the first changes, so they are sent to it first. */
  noteCreator({ inode, replicas }: Pick<Attributes, 'inode' | 'replicas'>, creator: string | null): void {
    if (creator !== null && replicas.includes(creator)) this.#primaries.note(inode, creator);
  }

  /** As `FileHandle.settle`, delayed and batched, for closed files: until then their primaries report the sizes. */
  settleSoon(handle: FileHandle): Promise<void> {
    return this.#settleBatches.settle(handle);
  }

  /** Opens this client's locks on a file. All its users share one instance: two would not know of each other. */
  fileLocks(
    file: number,
    events: FileLocksEvents,
    options: { readonly replicas?: readonly string[] } = {},
  ): FileLocks {
    return new FileLocks(this.#exchanger, file, this.#lockClient, options.replicas ?? [], events);
  }

  async resolve(
    volume: string,
    path: string,
    { follow = true, junction, ...options }: ResolveOptions = {},
  ): Promise<Attributes> {
    const end = junction === undefined ? {} : { junction };
    const answer = await this.query({ kind: 'resolve', volume, path, follow, ...end }, options);
    return answer.attributes;
  }

  /** Lists a directory in bytewise order of names, page by page. */
  async *list(
    directory: Pick<Attributes, 'inode' | 'snapshot'>,
    options?: CallOptions,
  ): AsyncGenerator<Entry, void, undefined> {
    const { inode, snapshot } = directory;
    const shown = snapshot === undefined ? {} : { snapshot };
    let after = '';
    for (;;) {
      const page = await this.query(
        { kind: 'list', inode, after, countMax: LIST_COUNT_MAX, ...shown },
        options,
      );
      yield* page.entries;
      const last = page.entries.at(-1);
      if (!page.more || last === undefined) return;
      after = last.name;
    }
  }

  /** Reports an operation that was acknowledged here and then dropped, to a server that publishes it. */
  async reportLateError(error: LateErrorReport): Promise<void> {
    const request = postRequest('Cannot report a late error', '/v1/mounts/late-errors', error);
    await this.#exchanger.perform({ primary: null }, request, async () => undefined);
  }

  status(options?: CallOptions): Promise<ClusterStatus> {
    return this.#exchanger.ask(getRequest('Cannot get the status of the cluster', '/v1/status'), options);
  }

  /** Where a path leads, through attached volumes. @param end `name`: a volume attached at its end is not entered */
  locate(place: RemotePlace, end: PathEnd, options?: CallOptions): Promise<LocatedPath> {
    const url = `/v1/locate/${encodePlace(place)}?end=${end}`;
    return this.#exchanger.ask(getRequest(`Cannot find ${place.volume}:${place.path}`, url), options);
  }

  /** The replicas of a file with their positions, and its primary. The query opens the file. */
  info(volume: string, path: string, options?: CallOptions): Promise<FileInfo> {
    const url = `/v1/info/${encodePlace({ volume, path })}`;
    return this.#exchanger.ask(getRequest(`Cannot get information on ${volume}:${path}`, url), options);
  }

  /** Keeps the capability for a file's contents that an answer with attributes has. */
  #learnCapability<Answer>(answer: Answer): Answer {
    this.#exchanger.capabilities.learn(answer);
    return answer;
  }

  close(): Promise<void> {
    this.#local?.close();
    return this.#exchanger.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function queryRequest(body: QueryRequest): ExchangeRequest {
  return postRequest(`Cannot ${describeQuery(body.query)}`, '/v1/catalog/queries', body);
}
