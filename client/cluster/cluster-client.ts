import { ServiceError } from '../../base/errors.ts';
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
import type { ClusterStatus, FileInfo } from '../../wire/http-api.ts';
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
import { type CallOptions, Exchanger, type Subject, type TimedAnswer } from '../transport/exchange.ts';
import { bytesRequest, type ExchangeRequest, getRequest, postRequest } from '../transport/request.ts';
import { drawSession } from '../transport/request-window.ts';
import { AdminClient } from './admin-client.ts';
import { CatalogCommands, type CommandOptions, type OwnedOptions } from './catalog-commands.ts';
import type { RequestOf } from './command-session.ts';
import { FileHandle, type FileOptions } from './file-handle.ts';
import { createLockClient, FileLocks, type FileLocksEvents, type LockClient } from './file-locks.ts';
import { LastPrimaries } from './last-primaries.ts';
import { QueryServer } from './query-server.ts';
import { encodePath } from './remote-path.ts';
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
  /** Queries include names that another client created in a directory delegated to it and has not yet sent. */
  readonly exact?: boolean;
  readonly localReads?: boolean;
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
  readonly #catalog: Subject = { primary: null };
  readonly #queryServer: QueryServer;
  readonly #exact: boolean;
  readonly #local: LocalReads | null;
  readonly #commands: CatalogCommands;
  readonly #lockClient: LockClient;
  readonly #primaries = new LastPrimaries();
  readonly #unsynced = new UnsyncedFiles();
  readonly #settleBatches: SettleBatches;

  constructor(options: ClusterClientOptions) {
    const { world, access = Access.NONE, operationTimeoutMs = OPERATION_TIMEOUT_MS } = options;
    this.world = world;
    this.inodeOwner = drawSession(world);
    this.#lockClient = createLockClient(drawSession(world));
    this.#exchanger = new Exchanger(world, options.servers, operationTimeoutMs, access);
    this.#queryServer = new QueryServer(world, this.#exchanger.endpoints, this.inodeOwner);
    this.#exact = options.exact ?? false;
    this.#local = options.localReads === true ? new LocalReads(this.#exchanger) : null;
    this.#settleBatches = new SettleBatches(this.#exchanger);
    this.#commands = new CatalogCommands(this.#exchanger, this.#catalog);
    this.admin = new AdminClient(this.#exchanger);
  }

  get servers(): readonly string[] {
    return this.#exchanger.endpoints.all.map((endpoint) => endpoint.url);
  }

  get catalogPrimary(): string | null {
    return this.#catalog.primary;
  }

  /** Executes a catalog command exactly once. When it resolves, a majority of the catalog's members has it. */
  async command<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    options: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    return this.#learnCapability(await this.#commands.execute(command, options));
  }

  get hasUnflushedCommands(): boolean {
    return this.#commands.hasUnflushed;
  }

  /** Makes all commands answered before survive a power failure of all servers. @throws CommandsLost once, if lost */
  flushCatalog(options?: CallOptions): Promise<void> {
    return this.#commands.flush(options);
  }

  /** Reserves inode numbers for new files, to be used until `untilMs` (monotonic); without `volume`, three replicas. */
  async reserveInodes(
    count: number,
    { volume, ...options }: CallOptions & { readonly volume?: string } = {},
  ): Promise<ReservedNumbers & { readonly untilMs: number }> {
    const { inodeOwner: owner, world } = this;
    const body: NumbersRequest = { owner, count, ...(volume === undefined ? {} : { volume }) };
    // No mutation: numbers that were not received are never used.
    const request = postRequest('Cannot reserve inode numbers', '/v1/births/numbers', body);
    const { answer, sentMs } = await this.#exchanger.askTimed<NumbersAnswer>(
      () => world.nowMs(),
      request,
      options,
      this.#catalog,
    );
    const reserved = decodeNumbers(answer);
    // Servers of earlier releases choose a file's members again, though others may already have its contents.
    if (reserved.sets === undefined)
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
      return bytesRequest(
        what,
        'POST',
        since === undefined ? '/v1/births' : `/v1/births?since=${since}`,
        body,
      );
    };
    // A file that already has a directory entry only gets contents, for which there is no command.
    const hasCommands = (answer: NewFilesAnswer): boolean =>
      decodeOutcomes(answer).some(({ kind }, index) => kind === 'created' && files[index]?.hasEntry !== true);
    const answer = await this.#commands.executeFirstAt(creatingServer, what, requestOf, options, hasCommands);
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
    options?: CallOptions,
  ): Promise<QueryResults[Kind]> {
    const request = catalogQuery({ query: query as Query, ...(this.#exact ? { exact: true } : {}) });
    const subject = this.#exact ? this.#catalog : this.#queryServer;
    return this.#learnCapability(await this.#exchanger.ask<QueryResults[Kind]>(request, options, subject));
  }

  /** As `query`, for a client that caches what is granted or delegated to its session; see `CacheSession`. */
  async queryForCache<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    session: number,
    { delegate, ...options }: CallOptions & { readonly delegate?: boolean } = {},
  ): Promise<GrantedAnswer<QueryResults[Kind]>> {
    const delegation = delegate === undefined ? {} : { delegate };
    const request = catalogQuery({ query: query as Query, cache: session, ...delegation });
    const answer = await this.#exchanger.ask<GrantedAnswer<QueryResults[Kind]>>(
      request,
      options,
      this.#catalog,
    );
    this.#learnCapability(answer.result);
    return answer;
  }

  /** Renews a cache session; the server answers when it has recalls, or after a while. */
  renewCache(request: CacheRequest, options?: CallOptions): Promise<TimedAnswer<CacheAnswer>> {
    const renewal = postRequest('Cannot renew the cache session', '/v1/catalog/cache', request);
    return this.#exchanger.askTimed(() => this.world.nowMs(), renewal, options, this.#catalog);
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
    options: CallOptions & { readonly follow?: boolean } = {},
  ): Promise<Attributes> {
    const answer = await this.query(
      { kind: 'resolve', volume, path, follow: options.follow ?? true },
      options,
    );
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

  /** The replicas of a file with their positions, and its primary. The query opens the file. */
  info(volume: string, path: string, options?: CallOptions): Promise<FileInfo> {
    const url = `/v1/info/${encodeURIComponent(volume)}${encodePath(path)}`;
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

function catalogQuery(body: QueryRequest): ExchangeRequest {
  return postRequest(`Cannot ${describeQuery(body.query)}`, '/v1/catalog/queries', body);
}
