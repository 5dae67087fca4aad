import { ServiceError } from '../base/errors.ts';
import type { World } from '../base/world.ts';
import type { NumbersRequest, ReservedNumbers } from '../wire/birth-numbers.ts';
import { type Birth, type BirthAnswer, type BirthOutcome, encodeBirths } from '../wire/births.ts';
import type {
  Attributes,
  CacheAnswer,
  CacheRequest,
  Command,
  CommandOf,
  CommandResults,
  Query,
  QueryRequest,
  QueryResults,
  RememberedAnswer,
} from '../wire/catalog-api.ts';
import type { ClusterStatus, FileInfo } from '../wire/http-api.ts';
import type { LateErrorReport } from '../wire/late-errors.ts';
import { Access } from './access.ts';
import { AdminClient } from './admin-client.ts';
import { CatalogCommands, type CommandOptions, type OwnedOptions } from './catalog-commands.ts';
import type { RequestOf } from './command-session.ts';
import { describeQuery } from './describe-request.ts';
import { type CallOptions, Exchanger, type Subject, type TimedAnswer } from './exchange.ts';
import { FileHandle, type FileOptions } from './file-handle.ts';
import { FileLocks, type FileLocksEvents, type LockClient, lockClient } from './file-locks.ts';
import { LastPrimaries } from './last-primaries.ts';
import { LocalReads } from './local-reads/local-reads.ts';
import { encodePath } from './remote-path.ts';
import { bytesRequest, type ExchangeRequest, getRequest, postRequest } from './request.ts';
import { drawSession } from './request-window.ts';
import { SettleBatches } from './settle-batches.ts';
import { UnsyncedFiles } from './unsynced-changes.ts';

const OPERATION_TIMEOUT_MS = 30_000;
const LIST_COUNT_MAX = 1_000;

export interface ClusterClientOptions {
  /** The clocks, timers and random numbers of the process: `systemWorld`, or a simulation's. */
  readonly world: World;
  /** Base URLs of some or all servers of the cluster: `http://127.0.0.1:7401`, `https://fs1.example.org:7401`. */
  readonly servers: readonly string[];
  /** How long one call may take in all, retries included. */
  readonly operationTimeoutMs?: number;
  /** Who this client is, and whose certificates it believes; absent where nobody asks. */
  readonly access?: Access;
  /** Names that another client has made in a directory that is delegated to it are told of, though it may not have told of them yet. */
  readonly exact?: boolean;
  /** Contents are read from the disks of servers on this machine where that can be. */
  readonly localReads?: boolean;
}

export interface Entry {
  readonly name: string;
  readonly attributes: Attributes;
}

/**
 * A cluster as its users see it. Every call asks one server after the other, with the same request id,
 * until one answers for good or time is up; failures are `ServiceError`s of the catalogue. The primary
 * that an answer names is asked first from then on, which saves the hop of a forwarded request.
 */
export class ClusterClient {
  readonly world: World;
  /** By which this client's reserved numbers can be used, for births and in `create-file`. */
  readonly inodeOwner: number;
  readonly admin: AdminClient;
  readonly #exchanger: Exchanger;
  readonly #catalog: Subject = { primary: null };
  readonly #exact: boolean;
  readonly #local: LocalReads | null;
  readonly #commands: CatalogCommands;
  readonly #lockClient: LockClient;
  readonly #primaries = new LastPrimaries();
  readonly #unsynced = new UnsyncedFiles();
  readonly #settling: SettleBatches;

  constructor(options: ClusterClientOptions) {
    const { world, access = Access.NONE, operationTimeoutMs = OPERATION_TIMEOUT_MS } = options;
    this.world = world;
    this.inodeOwner = drawSession(world);
    this.#lockClient = lockClient(drawSession(world));
    this.#exchanger = new Exchanger(world, options.servers, operationTimeoutMs, access);
    this.#exact = options.exact ?? false;
    this.#local = options.localReads === true ? new LocalReads(this.#exchanger) : null;
    this.#settling = new SettleBatches(this.#exchanger);
    this.#commands = new CatalogCommands(this.#exchanger, this.#catalog);
    this.admin = new AdminClient(this.#exchanger);
  }

  /** Base URLs of the servers, in the order in which they were given. */
  get servers(): readonly string[] {
    return this.#exchanger.endpoints.all.map((endpoint) => endpoint.url);
  }

  /** Id of the server that was the catalog's primary when last heard of. */
  get catalogPrimary(): string | null {
    return this.#catalog.primary;
  }

  /** Executes a catalog command exactly once; a majority of the catalog's members has it when it resolves. */
  async command<Kind extends Command['kind']>(
    command: CommandOf<Kind>,
    options: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    return this.#learned(await this.#commands.execute(command, options));
  }

  /** Whether commands were answered to this client that a loss of power of all servers may take back, or has, unreported so far. */
  get hasUnflushedCommands(): boolean {
    return this.#commands.hasUnflushed;
  }

  /**
   * Every command that was answered before the call, to any client, survives a loss of power of all servers.
   *
   * @throws CommandsLost once, where commands that were answered to this client are gone
   */
  flushCatalog(options?: CallOptions): Promise<void> {
    return this.#commands.flush(options);
  }

  /**
   * Reserves numbers for files that are to be born, or made, under this client's name.
   *
   * @param options.volume of the files; without it they are for volumes of three replicas
   * @returns the numbers, and until when they are to be used at the latest (monotonic, in milliseconds)
   */
  async reserveInodes(
    count: number,
    { volume, ...options }: CallOptions & { readonly volume?: string } = {},
  ): Promise<ReservedNumbers & { readonly untilMs: number }> {
    const { inodeOwner: owner, world } = this;
    const body: NumbersRequest = { owner, count, ...(volume === undefined ? {} : { volume }) };
    // No mutation: numbers that were not received are never used.
    const request = postRequest('Cannot reserve numbers for files', '/v1/births/numbers', body);
    const { answer: reserved, sentMs } = await this.#exchanger.askTimed<ReservedNumbers>(
      () => world.nowMs(),
      request,
      options,
      this.#catalog,
    );
    // Servers of earlier releases choose members anew for a file whose contents may be stored by this number at others.
    if (reserved.sets === undefined)
      throw new ServiceError('precondition-failed', 'The servers of new files are not fixed by this release');
    return { ...reserved, untilMs: sentMs + reserved.validMs };
  }

  /**
   * Makes new files with all of their contents, exactly once: of those that are born, a majority of their replicas has the contents, and
   * of the catalog's members the names. Their size and times are settled.
   *
   * @param bearer of the numbers that the births have, as `reserveInodes` told it: one request, one bearer
   * @param births at most `BIRTHS_MAX`, within the limits of `wire/births.ts`; contents stay unchanged meanwhile
   * @returns what became of each, in their order
   * @throws ServiceError where that is not known (`unknown`), or nothing happened
   */
  async bear(
    bearer: string,
    births: readonly Birth[],
    options: OwnedOptions = {},
  ): Promise<readonly BirthOutcome[]> {
    const cache = options.cache === undefined ? {} : { cache: options.cache };
    const what = `Cannot make ${births.length} files`;
    const requestOf: RequestOf = ({ session, since }, number) => {
      const body = encodeBirths({ session, number, owner: this.inodeOwner, ...cache, births });
      // Not in the body: servers of an earlier release pass over it here.
      return bytesRequest(
        what,
        'POST',
        since === undefined ? '/v1/births' : `/v1/births?since=${since}`,
        body,
      );
    };
    // Files that had their names before get contents, for which there is no command.
    const hasCommands = ({ outcomes: known }: BirthAnswer): boolean =>
      known.some(({ kind }, place) => kind === 'born' && births[place]?.isNamed !== true);
    const { outcomes } = await this.#commands.executeAt(bearer, what, requestOf, options, hasCommands);
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.kind !== 'born') continue;
      this.#learned(outcome);
      const { inode, contents } = outcome.attributes;
      if ((births[index]?.contents.length ?? 0) > 0) this.#unsynced.created(inode, contents);
    }
    return outcomes;
  }

  /** Asks the catalog; the attributes of files that are being written are their primaries' own. */
  async query<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    options?: CallOptions,
  ): Promise<QueryResults[Kind]> {
    const request = catalogQuestion({ query: query as Query, ...(this.#exact ? { exact: true } : {}) });
    return this.#learned(await this.#exchanger.ask<QueryResults[Kind]>(request, options, this.#catalog));
  }

  /** As `query`, for a client that remembers what is granted, or delegated, to its session; see `CacheSession`. */
  async queryRemembered<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    session: number,
    { delegate, ...options }: CallOptions & { readonly delegate?: boolean } = {},
  ): Promise<RememberedAnswer<QueryResults[Kind]>> {
    const wish = delegate === undefined ? {} : { delegate };
    const request = catalogQuestion({ query: query as Query, cache: session, ...wish });
    const answer = await this.#exchanger.ask<RememberedAnswer<QueryResults[Kind]>>(
      request,
      options,
      this.#catalog,
    );
    this.#learned(answer.result);
    return answer;
  }

  /**
   * Renews a session of remembering; answered when there is something to forget, or after a while.
   *
   * @returns the answer, and when the attempt that it answers was sent (monotonic, in milliseconds)
   */
  renewCache(request: CacheRequest, options?: CallOptions): Promise<TimedAnswer<CacheAnswer>> {
    const renewal = postRequest('Cannot renew what is remembered', '/v1/catalog/cache', request);
    return this.#exchanger.askTimed(() => this.world.nowMs(), renewal, options, this.#catalog);
  }

  /**
   * Opens contents for reading and writing. Nothing is asked until the first call on the handle.
   *
   * @param file number of the file (its inode)
   */
  openFile(file: number, options: FileOptions = {}): FileHandle {
    const subject = this.#primaries.subject(file, options.replicas?.[0] ?? null);
    const unsynced = this.#unsynced.of(file);
    return new FileHandle(this.#exchanger, file, unsynced, options, this.#local, subject);
  }

  /** Who has made a file, or borne it, orders it first, if it holds a replica: it is asked first. */
  noteMaker({ inode, replicas }: Pick<Attributes, 'inode' | 'replicas'>, maker: string | null): void {
    if (maker !== null && replicas.includes(maker)) this.#primaries.note(inode, maker);
  }

  /**
   * As `FileHandle.settle`, a moment later and together with other files: for those that are closed, of whose sizes their
   * primaries tell until then.
   */
  settleSoon(handle: FileHandle): Promise<void> {
    return this.#settling.settle(handle);
  }

  /**
   * Locks on a file, for all who use this client: whoever opens them twice for one file has two that know nothing of
   * each other. To be closed.
   *
   * @param file number of the file (its inode)
   */
  fileLocks(
    file: number,
    events: FileLocksEvents,
    options: { readonly replicas?: readonly string[] } = {},
  ): FileLocks {
    return new FileLocks(this.#exchanger, file, this.#lockClient, options.replicas ?? [], events);
  }

  /** The inode at a path. */
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

  /** Entries of a directory in bytewise order of their names, a page at a time. */
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

  /** Reports an operation that was acknowledged here and dropped, to a server that makes it known. */
  async reportLateError(error: LateErrorReport): Promise<void> {
    const request = postRequest('Cannot report a late error', '/v1/mounts/late-errors', error);
    await this.#exchanger.perform({ primary: null }, request, async () => undefined);
  }

  /** The state of the whole cluster, as one server sees it. */
  status(options?: CallOptions): Promise<ClusterStatus> {
    return this.#exchanger.ask(getRequest('Cannot ask for the status of the cluster', '/v1/status'), options);
  }

  /** Who holds a file, who is its primary, and how far its replicas are. Opens the file. */
  info(volume: string, path: string, options?: CallOptions): Promise<FileInfo> {
    const url = `/v1/info/${encodeURIComponent(volume)}${encodePath(path)}`;
    return this.#exchanger.ask(getRequest(`Cannot get information on ${volume}:${path}`, url), options);
  }

  #learned<Answer>(answer: Answer): Answer {
    this.#exchanger.capabilities.learn(answer);
    return answer;
  }

  /** Ends all connections; calls under way fail. */
  close(): Promise<void> {
    this.#local?.close();
    return this.#exchanger.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function catalogQuestion(body: QueryRequest): ExchangeRequest {
  return postRequest(`Cannot ${describeQuery(body.query)}`, '/v1/catalog/queries', body);
}
