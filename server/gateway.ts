import { ServiceError } from '../base/errors.ts';
import { CATALOG_CELL, type FileId, type ServerId } from '../base/ids.ts';
import type { World } from '../base/world.ts';
import type { View } from '../replica/view.ts';
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
  Query,
  QueryResults,
  RememberedAnswer,
} from '../wire/catalog-api.ts';
import { encodeWriteParts, FILE_BYTES_MAX, WRITE_BYTES_MAX, type WritePart } from '../wire/file-operation.ts';
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
} from '../wire/http-api.ts';
import type { LockClaim, LockGrant, LockList, LockOrder, LockRenewal } from '../wire/lock-api.ts';
import { type CatalogPosition, type PeerAnswer, PeerHttp, type PeerRequest } from './http/peer-http.ts';
import { type RequestName, RequestNames } from './http/request-names.ts';
import { ageOfHeaders, stateOfHeaders } from './http/state-headers.ts';
import { drawIncarnation } from './incarnation.ts';
import { withLiveStates } from './live-attributes.ts';
import { type Machine, systemMachine } from './machine.ts';
import type { MetricsRegistry } from './metrics.ts';
import type { Trail } from './route-course.ts';
import { type Call, type CallOptions, Router } from './router.ts';
import type { PeerTls } from './security/peer-tls.ts';
import type {
  ChangeRequest,
  CopyPiece,
  FileLocated,
  FileRead,
  FileStanding,
  Hole,
  Services,
} from './services.ts';
import { type Shown, ShownFiles } from './shown-files.ts';

/** What is found is looked for so often, each time in another epoch of the catalog. */
const LOOKS_MAX = 8;
const LOOK_RETRY_MS = 500;
/** A command that a loss of power takes before its flush is executed so often in all. */
const LOSSES_MAX = 3;

export interface GatewayOptions {
  readonly world: World;
  readonly services: Services;
  readonly metrics?: MetricsRegistry;
  /** How other servers are reached; absent where everything is in the clear. */
  readonly tls?: PeerTls | null;
  /** Absent: sockets of this machine. */
  readonly machine?: Machine;
}

export interface WriteOptions extends CallOptions {
  /** What the file must be just before the write. */
  readonly guard?: WriteGuard;
}

export interface ShownOptions extends CallOptions {
  /** The contents as this snapshot of the file's volume shows them. */
  readonly snapshot?: number | undefined;
  /** Refused with `precondition-failed` if the contents are of another version. */
  readonly asOf?: ContentVersion | undefined;
}

export interface ReadOptions extends ShownOptions {
  /** Any replica may answer, with whatever it holds. */
  readonly stale?: boolean;
}

/**
 * What a server does for a client: it answers what it can, and takes everything else to the server
 * that can. A primary that is unknown, away or just being elected is waited for, with the same
 * request id in every attempt, until the operation time-out.
 */
export class Gateway {
  readonly world: World;
  readonly services: Services;
  readonly peers: PeerHttp;
  readonly router: Router;
  readonly #names: RequestNames;
  readonly #shown: ShownFiles;
  readonly #countForward: (server: ServerId) => void;
  #catalogEpoch = 0;

  constructor({ world, services, metrics, tls = null, machine = systemMachine }: GatewayOptions) {
    this.services = services;
    this.world = world;
    this.#names = new RequestNames(() => drawIncarnation(world));
    this.#shown = new ShownFiles(async (file, snapshot, options) => {
      const query = { kind: 'attributes', inode: file, snapshot } as const;
      return (await this.#catalogQuery(query, options)).attributes;
    });
    this.peers = new PeerHttp(world, services.status.urls, tls, machine);
    this.router = new Router({
      world,
      services,
      askWhere: (file, timeoutMs) => this.#catalogQuery({ kind: 'attributes', inode: file }, { timeoutMs }),
      ...(metrics === undefined ? {} : { metrics }),
    });
    const forwards = metrics?.counter('leasehold_forwards_total', 'Requests forwarded to another server', [
      'to',
    ]);
    this.#countForward = (server) => forwards?.add(1, { to: server });
  }

  /** An operation of the catalog that has happened, the latest that is known without asking; null where none is. */
  get catalogSeq(): number | null {
    return this.catalogPosition.seq;
  }

  /** As `catalogSeq`, and the newest epoch of the catalog that is known without asking; 0 where none is. */
  get catalogPosition(): CatalogPosition {
    const { catalog, status } = this.services;
    const { primary, seq, epoch } = catalog.status();
    return primary === status.id ? { seq, epoch } : this.peers.catalogPosition;
  }

  /** As the epoch of `catalogPosition`, never less than before. */
  get catalogEpoch(): number {
    return this.#noteCatalogEpoch();
  }

  #noteCatalogEpoch(): number {
    this.#catalogEpoch = Math.max(this.#catalogEpoch, this.catalogPosition.epoch);
    return this.#catalogEpoch;
  }

  /** A number for a session of a client that lives in this server. */
  drawSession(): number {
    return drawIncarnation(this.world);
  }

  /** To be called when the transport loses a peer: requests forwarded to it go another way at once. */
  peerDisconnected(server: ServerId): void {
    this.peers.disconnected(server);
  }

  async close(): Promise<void> {
    this.router.close();
    await this.peers.close();
  }

  /**
   * Executes a command of the catalog. Without a `request` from a client it gets one of this
   * server's own, so that every retry on the way carries the same.
   */
  async command<C extends Command>(
    command: C,
    request?: RequestName,
    options: CallOptions = {},
  ): Promise<CommandResults[C['kind']]> {
    if (request === undefined) return this.#ownCommand(command, options, async (result) => result);
    const trail: Trail = { ambiguous: false };
    const meant = options.live === true ? await this.#againstNewest(command, options) : command;
    const result = await this.#execute(meant, request, options, trail).catch((error: unknown) => {
      throw forgotten(error, trail, `"${command.kind}" happened`);
    });
    return options.live === true ? this.#withLive(result, options) : result;
  }

  /**
   * As `command`. What it changes survives a loss of power of all servers when it resolves: where such a loss takes the command before
   * its flush, the command is executed once more.
   */
  async durably<C extends Command>(command: C, request?: RequestName): Promise<CommandResults[C['kind']]> {
    const covered = async (result: CommandResults[C['kind']], { session, number }: RequestName) => {
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
      `"${command.kind}" is gone: all servers of the catalog lose their power`,
    );
  }

  /**
   * Executes a command under a name of this server.
   *
   * @param done what is made of the result. The name is in use until then, so that the catalog remembers the command for as long
   */
  async #ownCommand<C extends Command, Value>(
    command: C,
    options: CallOptions,
    done: (result: CommandResults[C['kind']], name: RequestName) => Promise<Value>,
  ): Promise<Value> {
    for (let sessions = 1; ; sessions++) {
      if (this.#names.mustBegin && (sessions > 1 || this.catalogSeq === null))
        await this.#askCatalogSeq(options);
      const name = this.#names.acquire(this.catalogSeq);
      const trail: Trail = { ambiguous: false };
      try {
        return await done(await this.#execute(command, name, options, trail), name);
      } catch (error) {
        if (!(error instanceof ServiceError) || error.code !== 'session-expired') throw error;
        // Our session was idle for so long that the catalog forgot it. A command that was refused in
        // every attempt has certainly not happened and may begin anew under another name.
        this.#names.abandon(name.session);
        if (trail.ambiguous || sessions === 2) throw forgotten(error, trail, `"${command.kind}" happened`);
      } finally {
        this.#names.release(name);
      }
    }
  }

  /** Answers a query of the catalog. Live files' attributes are what their primaries know. */
  async query<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    const result = await this.#catalogQuery(query, options);
    // The server that a client asked merges; a forwarded query is about what the catalog has.
    if (options.forwarded === true) return result;
    return (await this.#withLive(result, options)) as QueryResults[Q['kind']];
  }

  /** As `query`, for a client that remembers what is granted to its session. */
  async queryRemembered<Q extends Query>(
    query: Q,
    session: number,
    options: CallOptions = {},
    delegate = false,
  ): Promise<RememberedAnswer<QueryResults[Q['kind']]>> {
    const body = { query, cache: session, ...(delegate ? { delegate } : {}) };
    const answer = await this.router.route<RememberedAnswer<QueryResults[Query['kind']]>>(
      {
        cell: CATALOG_CELL,
        action: `answer "${query.kind}"`,
        local: () => this.services.catalog.queryRemembered(query, session, delegate),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/queries', body, timeoutMs),
      },
      options,
    );
    const { result } = answer;
    if (result !== null) this.#rememberAll(result);
    const merged =
      result === null || options.forwarded === true ? result : await this.#withLive(result, options);
    return { ...answer, result: merged as QueryResults[Q['kind']] | null };
  }

  /** Renews a client's session of remembering, and brings what it has to forget. */
  async cache(request: CacheRequest, options: CallOptions = {}): Promise<CacheAnswer> {
    return this.router.route(
      {
        cell: CATALOG_CELL,
        action: 'renew what a client remembers',
        local: () => this.services.catalog.cache(request),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/cache', request, timeoutMs),
      },
      options,
    );
  }

  /** What was changed in a directory, or below it; waits for it, as long as the request says. */
  async changes(request: ChangesRequest, options: CallOptions = {}): Promise<ChangesAnswer> {
    return this.router.route(
      {
        cell: CATALOG_CELL,
        action: `watch directory ${request.inode}`,
        local: () => this.services.catalog.changes(request),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/changes', request, timeoutMs),
      },
      options,
    );
  }

  /** Like `query`, but as the catalog has it: the primaries of live files are not asked. */
  async queryCatalog<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    return this.#catalogQuery(query, options);
  }

  /** All commands answered so far survive power loss of every server when it resolves. */
  async flushCatalog(options: CallOptions = {}): Promise<void> {
    await this.flushCommands([], options);
  }

  /**
   * Looks at the catalog; what is found survives a loss of power of all servers when it resolves. A loss before the flush may take
   * it, and begins another epoch of the catalog: then it is looked for anew.
   *
   * @param isFound whether there is something to flush
   */
  async findDurably<Found>(
    look: () => Promise<Found>,
    isFound: (found: Found) => boolean = (found) => found !== null,
  ): Promise<Found> {
    for (let looks = 0; looks < LOOKS_MAX; looks++) {
      const epoch = this.catalogEpoch;
      const found = await look();
      if (!isFound(found)) return found;
      await this.flushCatalog();
      if (this.catalogEpoch === epoch) return found;
    }
    throw new ServiceError('no-majority', 'The catalog changes its primary with each flush', {
      retryAfterMs: LOOK_RETRY_MS,
    });
  }

  /**
   * As `flushCatalog`.
   *
   * @param answered commands that are to be covered
   * @returns those that are not, for the catalog does not have them; a primary of an earlier release does not look for them
   */
  async flushCommands(
    answered: readonly AnsweredCommands[],
    options: CallOptions = {},
  ): Promise<FlushAnswer> {
    return this.router.route<FlushAnswer>(
      {
        cell: CATALOG_CELL,
        action: 'flush the catalog',
        local: async () => {
          const answer = await this.services.catalog.flush(answered);
          // Where this server is not its primary any more, other servers may have answered with earlier epochs alone.
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

  /** Bytes from `offset` on, fewer than `length` at the end of the file; all of one state. */
  async read(file: FileId, offset: number, length: number, options: ReadOptions = {}): Promise<FileRead> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      const { stale: _, ...current } = rest;
      return this.#shown.use(file, snapshot, current, (shown) =>
        this.read(shown.source, offset, length, { ...current, asOf: shown.asOf }),
      );
    }
    const stale = options.stale === true;
    const { files } = this.services;
    return this.router.route<FileRead>(
      {
        cell: file,
        action: `read file ${file}`,
        // What is outdated tells an outdated primary.
        teaches: !stale,
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

  /** As `read`, where bytes are on this server's disk; no other server is asked. @see FileService.locate */
  async locate(
    file: FileId,
    offset: number,
    length: number,
    options: ShownOptions = {},
  ): Promise<FileLocated> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      return this.#shown.use(file, snapshot, rest, (shown) =>
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

  /** Bytes at several places, as one operation: all of them are there, or none. */
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

  /** Where data or a hole begins, not before `offset`. */
  async extent(
    file: FileId,
    offset: number,
    whence: Whence,
    options: ShownOptions = {},
  ): Promise<FileExtent> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      return this.#shown.use(file, snapshot, rest, (shown) =>
        this.extent(shown.source, offset, whence, { ...rest, asOf: shown.asOf }),
      );
    }
    return this.#fileCall(
      file,
      `look for ${whence === 'data' ? 'data' : 'a hole'} in file ${file}`,
      () => this.services.files.extent(file, offset, whence, asOf),
      { method: 'GET', path: `/v1/data/${file}/extents?offset=${offset}&whence=${whence}${asOfText(asOf)}` },
      options,
    );
  }

  /**
   * Copies a piece of a file, which may be the same, to the beginning of what is asked for: as much as one operation takes. The
   * primary of the destination reads it as any client would. A request is one operation, so that it may be repeated;
   * `offset` of the result is how far the copy came, and whoever wants more asks again, under another number.
   *
   * @throws ServiceError `bad-request` where the two ranges overlap
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

  /** A hole as a whole, however long; of data, what lies before the next hole, as far as one operation takes it. */
  async #copyPiece(from: FileId, offset: number, length: number, snapshot?: number): Promise<CopyPiece> {
    // Half of the time is for what is done with it.
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

  /** All acknowledged operations survive power loss of every server when it resolves. */
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

  /** The file changes no more, and can be read at each of its servers that is in reach, when it resolves. */
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

  /** The catalog has size, modification time and version when it resolves. */
  async settle(file: FileId, options: CallOptions = {}): Promise<FileState> {
    return this.#fileCall(
      file,
      `settle file ${file}`,
      () => this.services.files.settle(file),
      { method: 'POST', path: `/v1/data/${file}/settle` },
      options,
    );
  }

  async state(file: FileId, options: ShownOptions = {}): Promise<FileState> {
    const { snapshot, asOf: _, ...rest } = options;
    if (snapshot !== undefined)
      return this.#shown.use(file, snapshot, rest, (shown) => this.#stateShown(file, shown));
    return this.#fileCall(
      file,
      `ask for the state of file ${file}`,
      () => this.services.files.state(file),
      { method: 'GET', path: `/v1/data/${file}/state` },
      options,
    );
  }

  /** What a snapshot shows of a file is known to the catalog. */
  async #stateShown(file: FileId, { attributes }: Shown): Promise<FileState> {
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

  /** The file's lease and replicas as its primary sees them; the file is opened if nobody has. */
  async standing(file: FileId, options: CallOptions = {}): Promise<FileStanding> {
    return this.#fileCall(
      file,
      `ask for the replicas of file ${file}`,
      async () => {
        const { primary } = await this.services.files.lead(file);
        const standing = this.services.files.standing(file);
        if (standing?.role === 'primary') return standing;
        throw new ServiceError('not-primary', `The primary of file ${file} has just changed`, { primary });
      },
      { method: 'GET', path: `/v1/data/${file}/standing` },
      options,
    );
  }

  /** Sets a lock at the file's primary, or gives it back. */
  async lock(file: FileId, order: LockOrder, options: CallOptions = {}): Promise<LockGrant> {
    const { since, heard, ...body } = order;
    return this.#fileCall(
      file,
      `lock file ${file}`,
      () => this.services.files.lock(file, order, options.holder ?? null),
      // Servers believe each other for whom a request is.
      jsonRequest(`/v1/data/${file}/locks${queryText({ holder: options.holder, since, ...heard })}`, body),
      options,
    );
  }

  /** Tells the file's primary that a client lives, and which locks it has. */
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

  /** Moves a file's replicas. What takes longer than the call goes on; asking again waits for the same. */
  async changeMembers(file: FileId, members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    const view = await this.#fileCall(
      file,
      `move the replicas of file ${file}`,
      () => this.services.files.changeMembers(file, members),
      jsonRequest(`/v1/data/${file}/members`, { members }),
      options,
    );
    this.router.remember(file, view.members);
    return view;
  }

  /** Moves the catalog's replicas. */
  async changeCatalogMembers(members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    return this.router.route(
      {
        cell: CATALOG_CELL,
        action: 'move the catalog',
        local: () => this.services.catalog.changeMembers(members),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/members', { members }, timeoutMs),
      },
      options,
    );
  }

  /** An answer of the catalog's primary names its latest operation. */
  async #askCatalogSeq(options: CallOptions): Promise<void> {
    await this.#catalogQuery({ kind: 'sweeps' }, options);
  }

  async #execute<C extends Command>(
    command: C,
    name: RequestName,
    options: CallOptions,
    trail: Trail,
  ): Promise<CommandResults[C['kind']]> {
    const { cacheOwner } = options;
    const { session, number, since } = name;
    const fence = since === undefined ? {} : { since };
    const owner = cacheOwner === undefined ? {} : { cache: cacheOwner };
    const request = { session, number, ...fence, ...owner, command };
    const result = await this.router.route<CommandResults[Command['kind']]>(
      {
        cell: CATALOG_CELL,
        action: `execute "${command.kind}"`,
        // Whoever asks another server asks that one to write, too: it becomes the primary then.
        local: () =>
          options.forwarded === true
            ? this.services.catalog.execute(request)
            : this.services.catalog.execute(request, this.services.files),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/commands', request, timeoutMs),
      },
      options,
      trail,
    );
    if ('attributes' in result) this.#remember(result.attributes);
    // The service answers a command with the result of the command's kind.
    return result as CommandResults[C['kind']];
  }

  async #catalogQuery<Q extends Query>(query: Q, options: CallOptions): Promise<QueryResults[Q['kind']]> {
    const { exact = false } = options;
    const body = { query, ...(exact ? { exact } : {}) };
    const result = await this.router.route<QueryResults[Query['kind']]>(
      {
        cell: CATALOG_CELL,
        action: `answer "${query.kind}"`,
        local: () => this.services.catalog.query(query, exact),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/queries', body, timeoutMs),
      },
      options,
    );
    this.#rememberAll(result);
    return result as QueryResults[Q['kind']];
  }

  /** Named with its contents, a modification time holds although the primary knows another one for them. */
  async #againstNewest<C extends Command>(command: C, options: CallOptions): Promise<C> {
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

  #rememberAll(result: QueryResults[Query['kind']]): void {
    if ('attributes' in result) this.#remember(result.attributes);
    if ('entries' in result) for (const { attributes } of result.entries) this.#remember(attributes);
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
      throw forgotten(error, trail, `it was possible to ${action}`);
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

  #remember(attributes: Attributes): void {
    if (attributes.kind !== 'file') return;
    this.router.remember(attributes.inode as FileId, attributes.replicas as readonly ServerId[]);
  }
}

/**
 * Who is told that a session is forgotten begins anew. Where an attempt on the way may have had its effect, that would
 * do the same twice.
 */
function forgotten(error: unknown, { ambiguous }: Trail, what: string): unknown {
  if (!ambiguous || !(error instanceof ServiceError) || error.code !== 'session-expired') return error;
  return new ServiceError('unknown', `Whether ${what} is forgotten`, {}, { cause: error });
}

function jsonRequest(path: string, body: unknown): PeerRequest {
  return { method: 'POST', path, contentType: 'application/json', body: JSON.stringify(body) };
}

function requestText(request: ChangeRequest): string {
  const { session, number, since, answered = 0, under } = request;
  const locks = under === undefined ? '' : `&under=${under.client}-${under.stamp}`;
  return `session=${session}&number=${number}&since=${since}&answered=${answered}${locks}`;
}

/** Read by `guardOf` of the data routes. */
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

/** @returns a URL's query of what is given, or nothing */
function queryText(given: Readonly<Record<string, string | number | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) if (value !== undefined) query.set(name, `${value}`);
  return query.size === 0 ? '' : `?${query}`;
}
