import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { type ErrorCode, ServiceError } from '../base/errors.ts';
import { CATALOG_CELL, type CellId, type FileId, isServerId, type ServerId } from '../base/ids.ts';
import type { RequestId, View } from '../replica/actions.ts';
import type {
  Attributes,
  Command,
  CommandResults,
  ContentVersion,
  Query,
  QueryResults,
} from '../wire/catalog-api.ts';
import {
  type FileState,
  HEADER_AGE,
  HEADER_CONTENTS,
  HEADER_EPOCH,
  HEADER_MODIFIED,
  HEADER_PRIMARY,
  HEADER_SEQ,
  HEADER_SERVED,
  HEADER_SIZE,
  type WriteResult,
} from '../wire/http-api.ts';
import { type PeerAnswer, PeerHttp, type PeerRequest } from './http/peer-http.ts';
import { type RequestName, RequestNames } from './http/request-names.ts';
import type { MetricsRegistry } from './metrics.ts';
import type { CatalogService, FileRead, FileService, FileStanding, StatusService } from './services.ts';

/** What a server can do by itself; the gateway adds its peers. */
export interface Services {
  readonly catalog: CatalogService;
  readonly files: FileService;
  readonly status: StatusService;
}

export interface GatewayOptions {
  readonly services: Services;
  /** Draws a random integer from 1 to 2^53 − 1. */
  readonly random53: () => number;
  readonly metrics?: MetricsRegistry;
}

export interface CallOptions {
  /** Came from a peer that forwarded it: is answered from here or not at all, so that no request goes in circles. */
  readonly forwarded?: boolean;
  /** Instead of the server's operation time-out. */
  readonly timeoutMs?: number;
}

export interface ReadOptions extends CallOptions {
  /** Any replica may answer, with whatever it holds. */
  readonly stale?: boolean;
}

/** Where a file is ordered, as far as this server knows, and what this server is to it. */
export interface Whereabouts {
  readonly primary: ServerId | null;
  readonly epoch: number;
  readonly role: 'primary' | 'backup' | 'none';
}

/** A request that one server of several can answer, and it is not known which. */
interface Call<Result> {
  readonly cell: CellId;
  /** For messages: "Cannot <action>: …". */
  readonly action: string;
  /** False where nothing is to be concluded from the answer. */
  readonly teaches?: boolean;
  local(): Promise<Result>;
  remote(server: ServerId, timeoutMs: number): Promise<Result>;
}

/** What happened on the way, for whoever has to judge the last answer by it. */
interface Trail {
  /** An attempt may have had its effect although no success was reported. */
  ambiguous: boolean;
}

const AGE_UNKNOWN = 'unknown';
const BACKOFF_FIRST_MS = 10;
const BACKOFF_MAX_MS = 200;
const HINTS_MAX = 50_000;
const MEMBERS_MAX = 50_000;
/** Live files of one listing whose primaries are asked at the same time. */
const LISTING_PARALLEL = 16;
/** How long all of one listing's primaries together may take to answer. */
const LISTING_MERGE_MS = 1000;
/** A service keeps its own time-out and explains itself; only one that does not is cut off, this much later. */
const LOCAL_SLACK_MS = 100;
/** While a member of the file waits for an election, it asks all other members in every so many rounds. */
const ROUNDS_BETWEEN_WALKS = 4;

/** Answers that leave hope for another server, or for the same one a little later. */
const ELSEWHERE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'not-primary',
  'unknown',
  'recovering',
  'clock-fault',
  'no-majority',
  'no-space',
]);

/**
 * What a server does for a client: it answers what it can, and takes everything else to the server
 * that can. A primary that is unknown, away or just being elected is waited for, with the same
 * request id in every attempt, until the operation time-out.
 */
export class Gateway {
  readonly services: Services;
  readonly peers: PeerHttp;
  readonly #self: ServerId;
  readonly #random53: () => number;
  readonly #names: RequestNames;
  readonly #primaries = new LRUCache<CellId, { readonly server: ServerId; readonly epoch: number }>({
    max: HINTS_MAX,
  });
  readonly #members = new LRUCache<FileId, readonly ServerId[]>({ max: MEMBERS_MAX });
  #closing = false;
  readonly #countForward: (server: ServerId) => void;
  readonly #countRetry: () => void;

  constructor(options: GatewayOptions) {
    this.services = options.services;
    this.#self = options.services.status.id;
    this.#random53 = options.random53;
    this.#names = new RequestNames(options.random53);
    this.peers = new PeerHttp(options.services.status.urls);
    const { metrics } = options;
    const forwards = metrics?.counter('leasehold_forwards_total', 'Requests forwarded to another server');
    const retries = metrics?.counter(
      'leasehold_gateway_retries_total',
      'Waits for a primary to be elected or found',
    );
    this.#countForward = (server) => forwards?.add(1, { to: server });
    this.#countRetry = () => retries?.add();
  }

  /** A number for a session of a client that lives in this server. */
  drawSession(): number {
    return this.#random53();
  }

  /** To be called when the transport loses a peer: requests forwarded to it go another way at once. */
  peerDisconnected(server: ServerId): void {
    this.peers.disconnected(server);
  }

  async close(): Promise<void> {
    this.#closing = true;
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
    if (request !== undefined) return this.#execute(command, request, options, { ambiguous: false });
    for (let sessions = 1; ; sessions++) {
      const name = this.#names.acquire();
      const trail: Trail = { ambiguous: false };
      try {
        return await this.#execute(command, name, options, trail);
      } catch (error) {
        if (!(error instanceof ServiceError) || error.code !== 'session-expired') throw error;
        // Our session was idle for so long that the catalog forgot it. A command that was refused in
        // every attempt has certainly not happened and may begin anew under another name.
        this.#names.abandon(name.session);
        if (trail.ambiguous) {
          throw new ServiceError(
            'unknown',
            `Whether "${command.kind}" happened is forgotten`,
            {},
            { cause: error },
          );
        }
        if (sessions === 2) throw error;
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
    return (await this.#mergedResult(result, options)) as QueryResults[Q['kind']];
  }

  /** Like `query`, but as the catalog has it: the primaries of live files are not asked. */
  async queryCatalog<Q extends Query>(query: Q, options: CallOptions = {}): Promise<QueryResults[Q['kind']]> {
    return this.#catalogQuery(query, options);
  }

  /** All commands answered so far survive power loss of every server when it resolves. */
  async flushCatalog(options: CallOptions = {}): Promise<void> {
    await this.#route(
      {
        cell: CATALOG_CELL,
        action: 'flush the catalog',
        local: () => this.services.catalog.flush(),
        remote: async (server, timeoutMs) => {
          await this.#ask(server, { method: 'POST', path: '/v1/catalog/flush' }, timeoutMs);
        },
      },
      options,
    );
  }

  /** Bytes from `offset` on, fewer than `length` at the end of the file; all of one state. */
  async read(file: FileId, offset: number, length: number, options: ReadOptions = {}): Promise<FileRead> {
    const stale = options.stale === true;
    const { files } = this.services;
    return this.#route<FileRead>(
      {
        cell: file,
        action: `read file ${file}`,
        // What is outdated tells an outdated primary.
        teaches: !stale,
        local: () => (stale ? files.readStale(file, offset, length) : files.read(file, offset, length)),
        remote: async (server, timeoutMs) => {
          const consistency = stale ? '&consistency=stale' : '';
          const path = `/v1/data/${file}?offset=${offset}&length=${length}${consistency}`;
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

  async write(
    file: FileId,
    request: RequestId,
    offset: number | 'append',
    bytes: Uint8Array,
    options: CallOptions = {},
  ): Promise<WriteResult> {
    return this.#fileCall(
      file,
      `write file ${file}`,
      () => this.services.files.write(file, request, offset, bytes),
      {
        method: 'PUT',
        path: `/v1/data/${file}?offset=${offset}&${requestText(request)}`,
        contentType: 'application/octet-stream',
        body: bytes,
      },
      options,
    );
  }

  async truncate(
    file: FileId,
    request: RequestId,
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

  /** All acknowledged operations survive power loss of every server when it resolves. */
  async flush(file: FileId, options: CallOptions = {}): Promise<FileState> {
    return this.#fileCall(
      file,
      `flush file ${file}`,
      () => this.services.files.flush(file),
      { method: 'POST', path: `/v1/data/${file}/flush` },
      options,
    );
  }

  /** The file changes no more, and can be read at each of its servers that is in reach, when it resolves. */
  async seal(file: FileId, options: CallOptions = {}): Promise<FileState> {
    return this.#fileCall(
      file,
      `seal file ${file}`,
      () => this.services.files.seal(file),
      { method: 'POST', path: `/v1/data/${file}/seal` },
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

  async state(file: FileId, options: CallOptions = {}): Promise<FileState> {
    return this.#fileCall(
      file,
      `ask for the state of file ${file}`,
      () => this.services.files.state(file),
      { method: 'GET', path: `/v1/data/${file}/state` },
      options,
    );
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

  /** Moves a file's replicas. What takes longer than the call goes on; asking again waits for the same. */
  async changeMembers(file: FileId, members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    const view = await this.#fileCall(
      file,
      `move the replicas of file ${file}`,
      () => this.services.files.changeMembers(file, members),
      {
        method: 'POST',
        path: `/v1/data/${file}/members`,
        contentType: 'application/json',
        body: JSON.stringify({ members }),
      },
      options,
    );
    this.#members.set(file, view.members);
    return view;
  }

  /** Moves the catalog's replicas. */
  async changeCatalogMembers(members: readonly ServerId[], options: CallOptions = {}): Promise<View> {
    return this.#route(
      {
        cell: CATALOG_CELL,
        action: 'move the catalog',
        local: () => this.services.catalog.changeMembers(members),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/members', { members }, timeoutMs),
      },
      options,
    );
  }

  /** The catalog's primary as far as is known here; asks nobody. */
  catalogPrimary(): ServerId | null {
    return this.services.catalog.status().primary ?? this.#primaries.peek(CATALOG_CELL)?.server ?? null;
  }

  /** What is known here about the file's primary; asks nobody. */
  whereabouts(file: FileId): Whereabouts {
    const standing = this.services.files.standing(file);
    const members = standing?.view.members ?? this.#members.peek(file) ?? [];
    const role = standing?.role ?? (members.includes(this.#self) ? 'backup' : 'none');
    if (standing !== null && standing.primary !== null) {
      return { primary: standing.primary, epoch: standing.epoch, role };
    }
    const hint = this.#primaries.peek(file);
    return { primary: hint?.server ?? null, epoch: hint?.epoch ?? standing?.epoch ?? 0, role };
  }

  async #execute<C extends Command>(
    command: C,
    name: RequestName,
    options: CallOptions,
    trail: Trail,
  ): Promise<CommandResults[C['kind']]> {
    const request = { ...name, command };
    const result = await this.#route<CommandResults[Command['kind']]>(
      {
        cell: CATALOG_CELL,
        action: `execute "${command.kind}"`,
        local: () => this.services.catalog.execute(request),
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
    const result = await this.#route<QueryResults[Query['kind']]>(
      {
        cell: CATALOG_CELL,
        action: `answer "${query.kind}"`,
        local: () => this.services.catalog.query(query),
        remote: (server, timeoutMs) => this.#askJson(server, '/v1/catalog/queries', { query }, timeoutMs),
      },
      options,
    );
    if ('attributes' in result) this.#remember(result.attributes);
    if ('entries' in result) for (const { attributes } of result.entries) this.#remember(attributes);
    return result as QueryResults[Q['kind']];
  }

  async #fileCall<Result>(
    file: FileId,
    action: string,
    local: () => Promise<Result>,
    request: PeerRequest,
    options: CallOptions,
  ): Promise<Result> {
    return this.#route(
      {
        cell: file,
        action,
        local,
        remote: async (server, timeoutMs) => {
          const { bytes } = await this.#ask(server, request, timeoutMs);
          return JSON.parse(textOf(bytes)) as Result;
        },
      },
      options,
    );
  }

  async #askJson<Result>(server: ServerId, path: string, body: unknown, timeoutMs: number): Promise<Result> {
    const { bytes } = await this.#ask(
      server,
      { method: 'POST', path, contentType: 'application/json', body: JSON.stringify(body) },
      timeoutMs,
    );
    return JSON.parse(textOf(bytes)) as Result;
  }

  #ask(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer> {
    this.#countForward(server);
    return this.peers.exchange(server, request, timeoutMs);
  }

  /**
   * Rounds of attempts: this server first, then whoever is said to be the primary, then the other
   * members. Between rounds a short wait; each server is asked once a round, so that two servers that
   * name each other cost no busy loop.
   */
  async #route<Result>(
    call: Call<Result>,
    options: CallOptions,
    trail: Trail = { ambiguous: false },
  ): Promise<Result> {
    if (options.forwarded === true) return call.local();
    // Durations are taken from the monotonic clock alone: the lease clock may be set anew at any time.
    const deadlineMs = performance.now() + (options.timeoutMs ?? this.services.status.operationTimeoutMs);
    let backoffMs = BACKOFF_FIRST_MS;
    // The last answer that came with a reason; an attempt that the deadline cut short has none to tell.
    let said: ServiceError | null = null;
    const full = new Set<ServerId>();
    for (let round = 1; ; round++) {
      if (this.#closing)
        throw new ServiceError('no-majority', `Cannot ${call.action}: this server is about to end`);
      const tried = new Set<ServerId>();
      const silent = new Set<string>();
      let next: ServerId | null = this.#self;
      let last: ServiceError | null = null;
      let walks = round % ROUNDS_BETWEEN_WALKS === 0;
      while (next !== null) {
        const asked: ServerId = next;
        tried.add(asked);
        const beganMs = performance.now();
        try {
          const result = await this.#attempt(call, asked, deadlineMs);
          if (call.teaches !== false) this.#learn(call.cell, asked, result);
          return result;
        } catch (error) {
          if (!(error instanceof ServiceError) || !ELSEWHERE.has(error.code)) throw error;
          last = error;
          if (error.code === 'no-space') {
            // It has let go of the lease if others may have room; if it is asked again, they have none.
            if (full.has(asked)) throw error;
            full.add(asked);
          }
          if (error.code === 'unknown' || error.code === 'no-majority') trail.ambiguous = true;
          if (error.code !== 'unknown') said = error;
          // A server that was asked just before the deadline had no time to answer: it is not missing.
          const hadTime = performance.now() < deadlineMs || performance.now() - beganMs > BACKOFF_MAX_MS;
          if (hadTime) for (const server of error.details.unreachable ?? []) silent.add(server);
          if (this.#primaries.peek(call.cell)?.server === asked) this.#primaries.delete(call.cell);
          // A member that is fit hears of the election's outcome by itself; others have to ask around.
          if (asked === this.#self) walks ||= error.code !== 'not-primary' || !this.#isMember(call.cell);
        }
        if (performance.now() >= deadlineMs || this.#closing) break;
        next = await this.#nextOf(call, last, tried, walks, deadlineMs);
      }
      if (last !== null && this.#areAll(call.cell, full)) throw last;
      // A server that looked for a majority and found none has waited for it already.
      const leftMs = deadlineMs - performance.now();
      if (last === null || last.code === 'no-majority' || leftMs <= 0)
        throw this.#failure(call, said ?? last, silent);
      this.#countRetry();
      await delay(Math.min(leftMs, backoffMs * (0.5 + (this.#random53() % 1024) / 1024)));
      backoffMs = Math.min(BACKOFF_MAX_MS, backoffMs * 2);
    }
  }

  async #attempt<Result>(call: Call<Result>, server: ServerId, deadlineMs: number): Promise<Result> {
    const leftMs = Math.max(1, deadlineMs - performance.now());
    if (server === this.#self) return within(call.local(), leftMs + LOCAL_SLACK_MS, call.action);
    return call.remote(server, leftMs);
  }

  async #nextOf(
    call: Call<unknown>,
    answer: ServiceError,
    tried: ReadonlySet<ServerId>,
    walks: boolean,
    deadlineMs: number,
  ): Promise<ServerId | null> {
    const usable = (server: ServerId) => !tried.has(server) && this.services.status.isConnected(server);
    const named = answer.details.primary;
    if (named !== undefined && isServerId(named) && usable(named)) return named;
    const hint = this.#primaries.get(call.cell)?.server;
    if (hint !== undefined && usable(hint)) return hint;
    if (!walks) return null;
    const known = this.#knownMembers(call.cell);
    const members = known.length > 0 ? known : await this.#askMembers(call.cell, deadlineMs);
    // Where nobody is primary yet, whoever is asked first becomes it: files spread over their members.
    for (let step = 0; step < members.length; step++) {
      const member = members[(call.cell + step) % members.length] as ServerId;
      if (usable(member)) return member;
    }
    // All were asked, and none is the primary: perhaps the file has moved to others since.
    this.#members.delete(call.cell);
    return null;
  }

  /** Whether these are all servers in reach that could answer. */
  #areAll(cell: CellId, servers: ReadonlySet<ServerId>): boolean {
    if (servers.size === 0) return false;
    const isThere = (server: ServerId) => server === this.#self || this.services.status.isConnected(server);
    return this.#knownMembers(cell)
      .filter(isThere)
      .every((server) => servers.has(server));
  }

  #isMember(cell: CellId): boolean {
    return this.#knownMembers(cell).includes(this.#self);
  }

  #knownMembers(cell: CellId): readonly ServerId[] {
    if (cell === CATALOG_CELL) return this.services.catalog.status().members;
    const standing = this.services.files.standing(cell);
    if (standing !== null && standing.view.members.length > 0) return standing.view.members;
    return this.#members.get(cell) ?? [];
  }

  /** @throws ServiceError `not-found` where the catalog knows no such file: nobody will answer for it */
  async #askMembers(file: FileId, deadlineMs: number): Promise<readonly ServerId[]> {
    if (file === CATALOG_CELL) return [];
    const timeoutMs = Math.max(1, deadlineMs - performance.now());
    await this.#catalogQuery({ kind: 'attributes', inode: file }, { timeoutMs });
    return this.#knownMembers(file);
  }

  #failure(call: Call<unknown>, last: ServiceError | null, silent: ReadonlySet<string>): ServiceError {
    const away = this.#knownMembers(call.cell).filter(
      (server) => server !== this.#self && !this.services.status.isConnected(server),
    );
    const unreachable = [...new Set([...away, ...silent])].filter((server) => server !== this.#self).sort();
    if (last?.code === 'no-space') return last;
    const code = last?.code === 'recovering' || last?.code === 'clock-fault' ? last.code : 'no-majority';
    const retryAfterMs = last?.details.retryAfterMs;
    const details = { unreachable, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
    const message =
      last !== null && last.code === code
        ? last.message
        : `Cannot ${call.action}: ${last?.message ?? 'no server was asked in time'}`;
    return new ServiceError(code, message, details, { cause: last });
  }

  #learn(cell: CellId, server: ServerId, result: unknown): void {
    const epoch = typeof result === 'object' && result !== null ? epochIn(result) : null;
    this.#primaries.set(cell, {
      server: primaryIn(result) ?? server,
      epoch: epoch ?? this.#primaries.peek(cell)?.epoch ?? 0,
    });
  }

  #remember(attributes: Attributes): void {
    if (attributes.kind !== 'file') return;
    this.#members.set(attributes.inode as FileId, attributes.replicas as readonly ServerId[]);
  }

  async #mergedResult(
    result: QueryResults[Query['kind']],
    options: CallOptions,
  ): Promise<QueryResults[Query['kind']]> {
    if ('attributes' in result) return { attributes: await this.#merged(result.attributes, options) };
    if ('entries' in result) return { ...result, entries: await this.#mergedEntries(result.entries) };
    return result;
  }

  async #merged(attributes: Attributes, options: CallOptions): Promise<Attributes> {
    if (!attributes.live || attributes.kind !== 'file') return attributes;
    return attributesWithState(attributes, await this.state(attributes.inode as FileId, options));
  }

  /**
   * A listing names many files and promises less than a stat of one: what a primary does not say
   * within a short time is taken from the catalog.
   */
  async #mergedEntries<Entry extends { readonly attributes: Attributes }>(
    entries: readonly Entry[],
  ): Promise<readonly Entry[]> {
    const merged = [...entries];
    const deadlineMs = performance.now() + LISTING_MERGE_MS;
    const live = entries.flatMap(({ attributes }, index) =>
      attributes.live && attributes.kind === 'file' ? [index] : [],
    );
    const waiting = live.values();
    const worker = async () => {
      for (const index of waiting) {
        const timeoutMs = deadlineMs - performance.now();
        if (timeoutMs <= 0) return;
        const entry = entries[index] as Entry;
        try {
          merged[index] = { ...entry, attributes: await this.#merged(entry.attributes, { timeoutMs }) };
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error;
        }
      }
    };
    // The workers share one iterator: each live entry is taken by the first that is free.
    await Promise.all(Array.from({ length: Math.min(LISTING_PARALLEL, live.length) }, worker));
    return merged;
  }
}

/** Order of versions of contents: by epoch, then by number in the sequence. */
export function contentVersionCompare(a: ContentVersion, b: ContentVersion): number {
  return a.epoch - b.epoch || a.seq - b.seq;
}

/**
 * What is known of a live file. A modification time that was set by hand stays in force against the
 * contents it was set on; the size is always the primary's.
 */
export function attributesWithState(attributes: Attributes, state: FileState): Attributes {
  const newer = contentVersionCompare(state.contents, attributes.contents) > 0;
  return {
    ...attributes,
    sizeBytes: state.sizeBytes,
    modifiedNs: newer ? state.modifiedNs : attributes.modifiedNs,
    contents: newer ? state.contents : attributes.contents,
  };
}

/** The headers by which a read tells the file's state; `stateOfHeaders` is the way back. */
export function headersOfState(state: FileState): Record<string, string> {
  return {
    [HEADER_SIZE]: String(state.sizeBytes),
    [HEADER_CONTENTS]: `${state.contents.epoch}-${state.contents.seq}`,
    [HEADER_MODIFIED]: state.modifiedNs,
    [HEADER_SEQ]: String(state.seq),
  };
}

function stateOfHeaders(file: FileId, headers: PeerAnswer['headers']): FileState {
  const text = (name: string) => {
    const value = headers[name];
    if (typeof value !== 'string')
      throw new ServiceError('internal', `A peer's answer lacks the header ${name}`);
    return value;
  };
  const [epoch, seq] = text(HEADER_CONTENTS).split('-').map(Number);
  return {
    file,
    sizeBytes: Number(text(HEADER_SIZE)),
    modifiedNs: text(HEADER_MODIFIED),
    contents: { epoch: epoch ?? 0, seq: seq ?? 0 },
    seq: Number(text(HEADER_SEQ)),
    primary: text(HEADER_PRIMARY),
    epoch: Number(text(HEADER_EPOCH)),
  };
}

function ageOfHeaders(headers: PeerAnswer['headers']): number {
  const text = headers[HEADER_AGE];
  if (text === undefined) return 0;
  return text === AGE_UNKNOWN ? Infinity : Number(text);
}

/** The headers by which a read tells who answered, and how old the answer may be. */
export function headersOfRead({ served, ageMs }: FileRead, stale: boolean): Record<string, string> {
  if (!stale) return { [HEADER_SERVED]: served };
  return {
    [HEADER_SERVED]: served,
    [HEADER_AGE]: ageMs === Infinity ? AGE_UNKNOWN : String(Math.ceil(ageMs)),
  };
}

/** The server that the answer names as the primary; a backup answers reads, too. */
function primaryIn(result: unknown): ServerId | null {
  if (typeof result !== 'object' || result === null) return null;
  if ('primary' in result && typeof result.primary === 'string') {
    return isServerId(result.primary) ? result.primary : null;
  }
  return 'state' in result ? primaryIn(result.state) : null;
}

function epochIn(result: object): number | null {
  if ('epoch' in result && typeof result.epoch === 'number') return result.epoch;
  return 'state' in result && typeof result.state === 'object' && result.state !== null
    ? epochIn(result.state)
    : null;
}

function requestText(request: RequestId): string {
  return `session=${request.session}&number=${request.number}&since=${request.since}`;
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
}

async function within<Result>(work: Promise<Result>, timeoutMs: number, action: string): Promise<Result> {
  const { promise: timeout, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => reject(new ServiceError('unknown', `Cannot ${action}: it did not end in time`)),
    timeoutMs,
  );
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
