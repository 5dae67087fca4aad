import { ServiceError } from '../base/errors.ts';
import type { World } from '../base/world.ts';
import type { NumbersRequest, ReservedNumbers } from '../wire/birth-numbers.ts';
import { type Birth, type BirthAnswer, type BirthOutcome, encodeBirths } from '../wire/births.ts';
import type {
  AnsweredCommands,
  Attributes,
  CacheAnswer,
  CacheOwner,
  CacheRequest,
  Command,
  CommandBody,
  CommandResults,
  FlushAnswer,
  FlushRequest,
  Query,
  QueryRequest,
  QueryResults,
  RememberedAnswer,
} from '../wire/catalog-api.ts';
import type {
  CheckPage,
  ClusterStatus,
  FileInfo,
  ScrubStatuses,
  ServerStatus,
  TreeCopy,
} from '../wire/http-api.ts';
import type { LateErrorReport } from '../wire/late-errors.ts';
import type { LockList } from '../wire/lock-api.ts';
import type { RevokedList } from '../wire/tokens.ts';
import { Access } from './access.ts';
import type { ExchangeRequest } from './attempt.ts';
import { CommandSession, type OnceOptions } from './command-session.ts';
import { type CallOptions, Exchanger, type Subject } from './exchange.ts';
import { FileHandle, type FileOptions } from './file-handle.ts';
import { FileLocks, type FileLocksEvents, type LockClient } from './file-locks.ts';
import { LastPrimaries } from './last-primaries.ts';
import { LocalReads } from './local-reads/local-reads.ts';
import { encodePath, type RemotePath } from './remote-path.ts';
import { drawSession, type RequestWindow } from './request-window.ts';
import { type Response, readJson } from './response.ts';
import { SettleBatches } from './settle-batches.ts';
import { CommandsLost, type FlushOutcome, UnflushedCommands } from './unflushed-commands.ts';
import { UnsyncedFiles } from './unsynced-changes.ts';

const OPERATION_TIMEOUT_MS = 30_000;
const LIST_COUNT_MAX = 1_000;
/** A server works on a move of replicas for so long before it answers. */
const MOVE_ATTEMPT_MS = 70_000;
/** Of an idempotency key. */
const KEY_BYTES = 16;
const JSON_HEADERS = { 'content-type': 'application/json' } as const;
const OCTETS = { 'content-type': 'application/octet-stream' } as const;

type RemotePlace = Pick<RemotePath, 'volume' | 'path'>;

export interface CopyOptions extends CallOptions {
  /** Whether what is at the target may be replaced. */
  readonly overwrite: boolean;
}

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

/** Options of a request that changes what this client remembers, or has delegated to it. */
export interface OwnedOptions extends OnceOptions {
  readonly cache?: CacheOwner;
}

export interface CommandOptions extends OwnedOptions {
  /** Of live files, what their primaries know counts, in the command and in the answer. @see CommandBody */
  readonly live?: boolean;
}

export type FileView = FileInfo['view'];

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
  readonly #exchanger: Exchanger;
  readonly #catalog: Subject = { primary: null };
  readonly #exact: boolean;
  readonly #local: LocalReads | null;
  readonly #commands: CommandSession;
  /** Of commands without a time limit: as long as one has no answer, only 63 later ones of its session can be sent. */
  readonly #unlimited: CommandSession;
  readonly #lockClient: LockClient;
  readonly #primaries = new LastPrimaries();
  readonly #unsynced = new UnsyncedFiles();
  readonly #settling: SettleBatches;
  readonly #unflushed = new UnflushedCommands();
  /** A flush found that commands are gone and then failed: the next one that succeeds throws `CommandsLost`. */
  #isLossDue = false;

  constructor(options: ClusterClientOptions) {
    const { world } = options;
    this.world = world;
    this.inodeOwner = drawSession(world);
    this.#lockClient = { id: drawSession(world), stamp: 0, pending: new Map() };
    const { access = Access.NONE, operationTimeoutMs = OPERATION_TIMEOUT_MS } = options;
    this.#exchanger = new Exchanger(world, options.servers, operationTimeoutMs, access);
    this.#exact = options.exact ?? false;
    this.#local = options.localReads === true ? new LocalReads(this.#exchanger) : null;
    this.#settling = new SettleBatches(this.#exchanger);
    const lastOf = (session: number): number => this.#unflushed.lastOf(session);
    this.#commands = new CommandSession(this.#exchanger, this.#catalog, lastOf);
    this.#unlimited = new CommandSession(this.#exchanger, this.#catalog, lastOf);
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
    command: Extract<Command, { kind: Kind }>,
    options: CommandOptions = {},
  ): Promise<CommandResults[Kind]> {
    const cache = options.cache === undefined ? {} : { cache: options.cache };
    const live = options.live === true ? { live: true } : {};
    const what = `Cannot ${describeCommand(command as Command)}`;
    const requestOf = ({ session, since }: RequestWindow, number: number) => {
      const fence = since === undefined ? {} : { since };
      const body: CommandBody = { session, number, ...fence, ...cache, ...live, command: command as Command };
      return {
        method: 'POST',
        path: '/v1/catalog/commands',
        headers: JSON_HEADERS,
        body: JSON.stringify(body),
        mutation: true,
      } as const;
    };
    const session = options.timeoutMs === Number.POSITIVE_INFINITY ? this.#unlimited : this.#commands;
    const result = await session.once<CommandResults[Kind]>(
      this.#catalog,
      what,
      requestOf,
      options,
      (_, ...name) => this.#unflushed.answered(...name),
    );
    return this.#learned(result);
  }

  /** Whether commands were answered to this client that a loss of power of all servers may take back, or has, unreported so far. */
  get hasUnflushedCommands(): boolean {
    return this.#isLossDue || !this.#unflushed.isEmpty;
  }

  /**
   * Every command that was answered before the call, to any client, survives a loss of power of all servers.
   *
   * @throws CommandsLost once, where commands that were answered to this client are gone
   */
  async flushCatalog(options?: CallOptions): Promise<void> {
    let hasLost = false;
    try {
      for (const pages = [...this.#unflushed.pages()]; pages.length > 0; ) {
        const answered = pages.shift() ?? [];
        const { areLost, again } = await this.#flushCommands(answered, options);
        hasLost ||= areLost;
        if (again.length > 0) pages.push(again);
      }
    } catch (error) {
      // A later flush does not ask for these commands again.
      this.#isLossDue ||= hasLost;
      throw error;
    }
    hasLost ||= this.#isLossDue;
    this.#isLossDue = false;
    if (hasLost) throw new CommandsLost();
  }

  async #flushCommands(
    answered: readonly AnsweredCommands[],
    options: CallOptions | undefined,
  ): Promise<FlushOutcome> {
    const body: FlushRequest = { answered: [...answered] };
    const request: ExchangeRequest = {
      what: 'Cannot flush the catalog',
      method: 'POST',
      path: '/v1/catalog/flush',
      headers: JSON_HEADERS,
      body: JSON.stringify(body),
      mutation: false,
    };
    const missing = await this.#exchanger.perform(this.#catalog, request, readMissing, options);
    const outcome = this.#unflushed.flushed(answered, missing);
    if (outcome.again.length > 0) {
      // The sessions end, so that only what is under way comes before the next flush.
      for (const commands of [this.#commands, this.#unlimited]) commands.renew();
    }
    return outcome;
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
    let sentMs = this.world.nowMs();
    const body: NumbersRequest = {
      owner: this.inodeOwner,
      count,
      ...(volume === undefined ? {} : { volume }),
    };
    const request: ExchangeRequest = {
      what: 'Cannot reserve numbers for files',
      method: 'POST',
      path: '/v1/births/numbers',
      headers: JSON_HEADERS,
      body: JSON.stringify(body),
      // Numbers that nobody hears of are never used.
      mutation: false,
      onAttempt: () => {
        sentMs = this.world.nowMs();
      },
    };
    const reserved = await this.#exchanger.perform(
      this.#catalog,
      request,
      readJson<ReservedNumbers>,
      options,
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
    const requestOf = ({ session, since }: RequestWindow, number: number) => ({
      method: 'POST' as const,
      // Not in the body: servers of an earlier release pass over it here.
      path: since === undefined ? '/v1/births' : `/v1/births?since=${since}`,
      headers: OCTETS,
      body: encodeBirths({ session, number, owner: this.inodeOwner, ...cache, births }),
      mutation: true,
    });
    const { outcomes } = await this.#commands.once<BirthAnswer>(
      { primary: bearer },
      what,
      requestOf,
      options,
      ({ outcomes: known }, ...name) => {
        // Files that had their names before get contents, for which there is no command.
        if (known.some(({ kind }, place) => kind === 'born' && births[place]?.isNamed !== true))
          this.#unflushed.answered(...name);
      },
    );
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
    return this.#learned(
      await this.#exchanger.perform(this.#catalog, request, readJson<QueryResults[Kind]>, options),
    );
  }

  /** As `query`, for a client that remembers what is granted, or delegated, to its session; see `CacheSession`. */
  async queryRemembered<Kind extends Query['kind']>(
    query: Extract<Query, { kind: Kind }>,
    session: number,
    { delegate, ...options }: CallOptions & { readonly delegate?: boolean } = {},
  ): Promise<RememberedAnswer<QueryResults[Kind]>> {
    const wish = delegate === undefined ? {} : { delegate };
    const request = catalogQuestion({ query: query as Query, cache: session, ...wish });
    const answer = await this.#exchanger.perform(
      this.#catalog,
      request,
      readJson<RememberedAnswer<QueryResults[Kind]>>,
      options,
    );
    this.#learned(answer.result);
    return answer;
  }

  /**
   * Renews a session of remembering; answered when there is something to forget, or after a while.
   *
   * @returns the answer, and when the attempt that it answers was sent (monotonic, in milliseconds)
   */
  async renewCache(
    request: CacheRequest,
    options?: CallOptions,
  ): Promise<{ readonly answer: CacheAnswer; readonly sentMs: number }> {
    let sentMs = this.world.nowMs();
    const exchange: ExchangeRequest = {
      what: 'Cannot renew what is remembered',
      method: 'POST',
      path: '/v1/catalog/cache',
      headers: JSON_HEADERS,
      body: JSON.stringify(request),
      mutation: false,
      onAttempt: () => {
        sentMs = this.world.nowMs();
      },
    };
    const answer = await this.#exchanger.perform(this.#catalog, exchange, readJson<CacheAnswer>, options);
    return { answer, sentMs };
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

  /** All locks on a file, and how many wait for one, as its primary knows them. */
  locks(file: number, options?: CallOptions): Promise<LockList> {
    const request: ExchangeRequest = {
      what: `Cannot list the locks on file ${file}`,
      method: 'GET',
      path: `/v1/data/${file}/locks`,
      files: [file],
      mutation: false,
    };
    return this.#exchanger.perform({ primary: null }, request, readJson<LockList>, options);
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
  async reportLateError(error: LateErrorReport, options?: CallOptions): Promise<void> {
    const request: ExchangeRequest = {
      ...{ what: 'Cannot report a late error', method: 'POST', path: '/v1/mounts/late-errors' },
      ...{ headers: JSON_HEADERS, body: JSON.stringify(error), mutation: false },
    };
    await this.#exchanger.perform({ primary: null }, request, async () => undefined, options);
  }

  /** What a server makes of the whole cluster. */
  status(options?: CallOptions): Promise<ClusterStatus> {
    return this.#get('Cannot ask for the status of the cluster', '/v1/status', options);
  }

  /** What the server that happens to answer does not believe any more. */
  revokedCertificates(options?: CallOptions): Promise<RevokedList> {
    return this.#get('Cannot ask for the revoked certificates', '/v1/certificates/revoked', options);
  }

  /** What the server that happens to answer says of itself. */
  selfStatus(options?: CallOptions): Promise<ServerStatus> {
    return this.#get('Cannot ask a server for its status', '/v1/status/self', options);
  }

  /**
   * How far servers are with looking for damaged objects, by server; null for one that does not answer.
   * @param server only this one; null for all
   */
  scrubs(server: string | null, options?: CallOptions): Promise<ScrubStatuses> {
    return this.#get('Cannot ask for scrubs', scrubPath(server), options);
  }

  /** Compares the replicas of all servers with the catalog: those of files with numbers after `after`, a page of them. */
  check(after: number, options?: CallOptions): Promise<CheckPage> {
    return this.#get('Cannot compare replicas with the catalog', `/v1/check?after=${after}`, options);
  }

  /** Makes servers look for damaged objects now, where they do not already. @returns as `scrubs` */
  startScrubs(server: string | null, options?: CallOptions): Promise<ScrubStatuses> {
    const path = scrubPath(server);
    const request: ExchangeRequest = { what: 'Cannot start a scrub', method: 'POST', path, mutation: false };
    return this.#exchanger.perform({ primary: null }, request, readJson<ScrubStatuses>, options);
  }

  /** Who holds a file, who is its primary, and how far its replicas are. Opens the file. */
  info(volume: string, path: string, options?: CallOptions): Promise<FileInfo> {
    return this.#get(
      `Cannot get information on ${volume}:${path}`,
      `/v1/info/${encodeURIComponent(volume)}${encodePath(path)}`,
      options,
    );
  }

  /**
   * Moves a file's replicas to these servers; resolves when they are there. Asked again while a move is under
   * way, it waits for the same.
   */
  async changeMembers(file: number, members: readonly string[], options?: CallOptions): Promise<FileView> {
    const request: ExchangeRequest = {
      what: `Cannot move the replicas of file ${file}`,
      method: 'POST',
      path: `/v1/data/${file}/members`,
      headers: JSON_HEADERS,
      body: JSON.stringify({ members }),
      mutation: false,
    };
    return this.#exchanger.perform({ primary: null }, request, readJson<FileView>, {
      attemptMs: MOVE_ATTEMPT_MS,
      ...options,
    });
  }

  /** Copies a file within the cluster; its bytes go from server to server. */
  async copyFile(from: RemotePlace, to: RemotePlace, { overwrite, ...options }: CopyOptions): Promise<void> {
    const key = { 'idempotency-key': this.world.randomBytes(KEY_BYTES).toString('hex') };
    const request = { ...copyRequest(from, to, '', { overwrite }), headers: key };
    await this.#exchanger.perform({ primary: null }, request, async () => undefined, options);
  }

  /**
   * Copies a directory with all that is in it. Each answer tells how far it has come; the work is done when the last one is there.
   *
   * @param options with `resume` files keep their times, and those that are there with size and time of their sources are left alone
   * @throws ServiceError that says where to go on, where something cannot be copied
   */
  async *copyTree(
    from: RemotePlace,
    to: RemotePlace,
    { overwrite, resume, ...options }: CopyOptions & { readonly resume: boolean },
  ): AsyncGenerator<TreeCopy, void, undefined> {
    for (let after: string | undefined = ''; after !== undefined; ) {
      const request: ExchangeRequest = copyRequest(from, to, '/', {
        ...{ overwrite, resume },
        ...(after === '' ? {} : { after }),
      });
      const copied: TreeCopy = await this.#exchanger.perform({ primary: null }, request, readJson<TreeCopy>, {
        attemptMs: MOVE_ATTEMPT_MS,
        ...options,
      });
      yield copied;
      after = copied.next;
    }
  }

  #learned<Answer>(answer: Answer): Answer {
    this.#exchanger.capabilities.learn(answer);
    return answer;
  }

  #get<Value>(what: string, path: string, options?: CallOptions): Promise<Value> {
    const request: ExchangeRequest = { what, method: 'GET', path, mutation: false };
    // Any server answers, so nobody in particular is asked first.
    return this.#exchanger.perform({ primary: null }, request, readJson<Value>, options);
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

/** Servers of an earlier release flush, and look for nothing. */
async function readMissing(response: Response): Promise<FlushAnswer['missing']> {
  if (response.statusCode === 204) {
    await response.body.bytes();
    return [];
  }
  return (await readJson<FlushAnswer>(response)).missing;
}

function copyRequest(
  from: RemotePlace,
  to: RemotePlace,
  slash: '' | '/',
  search: Readonly<Record<string, string | boolean>>,
): ExchangeRequest {
  const query = new URLSearchParams({ 'copy-to': `${to.volume}:${to.path}${slash}` });
  for (const [name, value] of Object.entries(search)) query.set(name, String(value));
  const path = from.path === '/' ? '' : encodePath(from.path);
  return {
    what: `Cannot copy ${from.volume}:${from.path}`,
    method: 'POST',
    path: `/v1/files/${encodeURIComponent(from.volume)}${path}${slash}?${query}`,
    mutation: true,
  };
}

function scrubPath(server: string | null): string {
  return server === null ? '/v1/scrub' : `/v1/scrub?server=${encodeURIComponent(server)}`;
}

function describePlace(place: { parent: number; name: string } | { volume: string; path: string }): string {
  return 'volume' in place ? `${place.volume}:${place.path}` : `"${place.name}" in directory ${place.parent}`;
}

function describeCommand(command: Command): string {
  switch (command.kind) {
    case 'volume-create':
      return `create the volume "${command.name}"`;
    case 'volume-set':
      return `change the volume "${command.name}"`;
    case 'volume-remove':
      return `remove the volume "${command.name}"`;
    case 'create-file':
    case 'make-directory':
    case 'make-node':
    case 'symlink':
    case 'link':
      return `create ${describePlace(command.place)}`;
    case 'replace':
    case 'replace-with-contents':
      return `store ${describePlace(command.place)}`;
    case 'remove-directory':
    case 'unlink':
      return `remove ${describePlace(command.place)}`;
    case 'rename':
    case 'rename-whiteout':
      return `rename ${describePlace(command.from)} to ${describePlace(command.to)}`;
    case 'reserve-inodes':
      return `reserve ${command.count} numbers for files`;
    case 'unlink-files':
    case 'unlink-fenced':
      return `remove ${command.files.length} files`;
    case 'note-accesses':
      return `tell of ${command.accesses.length} reads`;
    case 'bear':
      return `make ${command.files.length} files`;
    case 'forgo':
      return 'forgo a request';
    case 'pin-write':
      return `pin a write of file ${command.inode}`;
    case 'create-orphan':
      return `create a file in the volume "${command.volume}"`;
    case 'settle':
    case 'collect':
      return `${command.kind} files`;
    case 'snapshot-create':
      return `make the snapshot ${command.volume}@${command.name}`;
    case 'snapshot-remove':
      return `remove the snapshot ${command.volume}@${command.name}`;
    case 'sweep':
      return 'sweep what only snapshots showed that are gone';
    case 'keep-orphan':
    case 'set-attributes':
    case 'open-for-write':
    case 'set-xattr':
    case 'remove-xattr':
    case 'follow-view':
    case 'set-replicas':
      return `change inode ${command.inode} (${command.kind})`;
    case 'server-register':
    case 'server-add':
      return `add server ${command.id}`;
    case 'server-state':
    case 'server-zone':
      return `change server ${command.id}`;
    case 'server-remove':
      return `remove server ${command.id}`;
    case 'set-voters':
      return 'change who votes on named leases';
    case 'trash-restore':
      return `restore file ${command.inode} of the volume "${command.volume}"`;
    case 'trash-empty':
      return `empty the trash of the volume "${command.volume}"`;
  }
}

function catalogQuestion(body: QueryRequest): ExchangeRequest {
  return {
    what: `Cannot ${describeQuery(body.query)}`,
    method: 'POST',
    path: '/v1/catalog/queries',
    headers: JSON_HEADERS,
    body: JSON.stringify(body),
    mutation: false,
  };
}

function describeQuery(query: Query): string {
  switch (query.kind) {
    case 'resolve':
      return `find ${query.volume}:${query.path}`;
    case 'lookup':
      return `find "${query.name}" in directory ${query.parent}`;
    case 'volume':
      return `find the volume "${query.name}"`;
    case 'volumes':
      return 'list the volumes';
    case 'outcome':
      return `ask what became of session ${query.session}`;
    case 'volume-of':
      return `find the volume of inode ${query.inode}`;
    case 'snapshots':
      return `list the snapshots of volume "${query.volume}"`;
    case 'sweeps':
      return 'ask what is left of removed snapshots';
    case 'live-files':
      return `ask which files of volume "${query.volume}" are being written`;
    case 'reservations':
      return 'ask which files count for more than their size';
    case 'missing-commands':
      return 'ask which commands are missing';
    case 'existing':
      return 'ask which files exist';
    case 'paths':
      return 'ask where files are to be found';
    case 'placed':
      return 'ask where files are';
    case 'servers':
      return 'list the servers';
    case 'voters':
      return 'ask who votes on named leases';
    case 'files-on':
      return `list the files on server ${query.server}`;
    case 'files-miscounted':
      return 'look for files with too few or too many replicas';
    case 'trash':
      return `list the trash of the volume "${query.volume}"`;
    case 'list':
      return `list directory ${query.inode}`;
    case 'attributes':
    case 'xattr':
    case 'xattrs':
      return `read the attributes of inode ${query.inode}`;
  }
}
