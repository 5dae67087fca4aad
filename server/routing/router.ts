import { LruMap } from '../../base/bounded-map.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import {
  type CatalogNumber,
  type CellId,
  catalogOfCell,
  type FileId,
  isCatalogCell,
  isServerId,
  type ServerId,
} from '../../base/ids.ts';
import { type Pace, Retry, type RetryOutcome } from '../../base/retry.ts';
import type { World } from '../../base/world.ts';
import type { CacheOwner } from '../../wire/catalog-api.ts';
import { bounded } from '../process/bounded.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { ReaderHints } from './reader-hints.ts';
import { type Round, RouteCourse, type Trail } from './route-course.ts';
import type { Services } from './service-interfaces.ts';

export interface CallOptions {
  /** A peer forwarded the request: this server answers it or fails, so that no request goes in circles. */
  readonly forwarded?: boolean;
  /** For locks: the token or certificate of the client. */
  readonly holder?: string;
  readonly timeoutMs?: number;
  readonly cacheOwner?: CacheOwner;
  /** The command and its answer use the primary's attributes of a file. @see CommandBody */
  readonly live?: boolean;
  /** Delegations of the queried directories are recalled first. */
  readonly exact?: boolean;
  /** The catalog that the client, or a peer, has named; absent: the one to which the request belongs. */
  readonly catalog?: CatalogNumber;
  /**
   * A command is executed by `catalog`, or refused, whatever this server's list says: another catalog does not know
   * whether an earlier attempt was executed there.
   */
  readonly onlyThere?: boolean;
}

/** The primary of a file, as far as this server knows, and this server's role. */
export interface KnownPrimary {
  readonly primary: ServerId | null;
  readonly epoch: number;
  readonly role: 'primary' | 'backup' | 'none';
}

/** A request that one of several servers can answer; it is not known in advance which one. */
export interface Call<Result> {
  readonly cell: CellId;
  /** For messages: "Cannot <action>: …". */
  readonly action: string;
  /** False if the answer may come from a server that is not primary, without naming the primary. */
  readonly showsPrimary?: boolean;
  /** A backup of the cell may answer, too: a server without a replica asks one that invites it. */
  readonly atAnyMember?: boolean;
  local(): Promise<Result>;
  remote(server: ServerId, timeoutMs: number): Promise<Result>;
}

export interface RouterOptions {
  readonly world: World;
  readonly services: Services;
  readonly metrics?: MetricsRegistry;
  /** Asks the catalog for the file's members; its answer goes to `rememberMembers`. */
  readonly queryMembers: (file: FileId, timeoutMs: number) => Promise<unknown>;
}

const PACE: Pace = { firstMs: 10, largestMs: 200, spread: [0.5, 1.5] };
/** Ask the next server of the round at once. Moves are not counted: a round asks each server only once. */
const ELSEWHERE_IN_ROUND: RetryOutcome = {
  kind: 'elsewhere',
  movesMax: Number.POSITIVE_INFINITY,
  otherwise: 'later',
};
const HINTS_MAX = 50_000;
const MEMBERS_MAX = 50_000;
/** Catalogs of which this server remembers which member answers its queries. */
const READERS_MAX = 1_000;
/** A service has its own time-out and a better error; this slack lets it report that first. */
const LOCAL_SLACK_MS = 100;
/** A healthy member that waits for an election asks the other members only in each round with a multiple of this. */
const ASK_ALL_EVERY_ROUNDS = 4;

/** Answers after which another server, or the same one a little later, may succeed. */
const ELSEWHERE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'not-primary',
  'unknown',
  'recovering',
  'clock-fault',
  'no-majority',
  'no-space',
]);

/**
 * Routes each call to the server that can answer it. It waits for a primary that is unknown, unreachable or being
 * elected, with the same call in every attempt, until the operation time-out.
 */
export class Router {
  readonly #world: World;
  readonly #services: Services;
  readonly #self: ServerId;
  readonly #queryMembers: RouterOptions['queryMembers'];
  readonly #countRetry: () => void;
  readonly #primaries = new LruMap<CellId, { readonly server: ServerId; readonly epoch: number }>(HINTS_MAX);
  readonly #members = new LruMap<FileId, readonly ServerId[]>(MEMBERS_MAX);
  readonly #readers = new LruMap<CellId, ReaderHints>(READERS_MAX);
  #competesNoMore = false;
  #closing = false;
  #calls = 0;
  readonly #endWaiters: (() => void)[] = [];

  constructor({ world, services, metrics, queryMembers }: RouterOptions) {
    this.#world = world;
    this.#services = services;
    this.#self = services.status.id;
    this.#queryMembers = queryMembers;
    const retries = metrics?.counter(
      'leasehold_gateway_retries_total',
      'Waits for a primary to be elected or found',
    );
    this.#countRetry = () => retries?.add();
  }

  /** This server takes part in no lease any more, so each round asks all members. Called when it shuts down. */
  stopCompeting(): void {
    this.#competesNoMore = true;
  }

  async callsEnded(): Promise<void> {
    if (this.#calls > 0) await new Promise<void>((resolve) => this.#endWaiters.push(resolve));
  }

  /** New calls and further rounds fail; attempts in progress may still succeed. */
  close(): void {
    this.#closing = true;
  }

  assumePrimary(file: FileId, server: ServerId): void {
    this.#primaries.set(file, { server, epoch: this.#primaries.peek(file)?.epoch ?? 0 });
  }

  assumeReader(catalog: CellId, server: ServerId): void {
    this.#readersOf(catalog).note(server);
  }

  /** For a server without a replica of the catalog: the member that answers its queries; null if none is known. */
  readerOf(catalog: CellId): ServerId | null {
    return this.#readers.peek(catalog)?.named ?? null;
  }

  #readersOf(catalog: CellId): ReaderHints {
    const known = this.#readers.get(catalog);
    if (known !== undefined) return known;
    const hints = new ReaderHints(this.#self, this.#world);
    this.#readers.set(catalog, hints);
    return hints;
  }

  rememberMembers(file: FileId, members: readonly ServerId[]): void {
    this.#members.set(file, members);
  }

  /** The primary of a catalog, as far as this server knows. */
  primaryOf(catalog: CellId): ServerId | null {
    const status = this.#services.catalogs.at(catalog)?.status();
    return status?.primary ?? this.#primaries.peek(catalog)?.server ?? null;
  }

  /** The primary and this server's role, as far as this server knows; sends no request. */
  knownPrimary(file: FileId): KnownPrimary {
    const status = this.#services.files.leaseStatus(file);
    const members = status?.view.members ?? this.#members.peek(file) ?? [];
    const role = status?.role ?? (members.includes(this.#self) ? 'backup' : 'none');
    if (status !== null && status.primary !== null) {
      return { primary: status.primary, epoch: status.epoch, role };
    }
    const hint = this.#primaries.peek(file);
    return { primary: hint?.server ?? null, epoch: hint?.epoch ?? status?.epoch ?? 0, role };
  }

  /** Tries, in rounds until the time-out: this server, the primary that an answer named, perhaps the other members. */
  async route<Result>(call: Call<Result>, options: CallOptions, trail: Trail | null = null): Promise<Result> {
    this.#calls++;
    try {
      return options.forwarded === true ? await call.local() : await this.#rounds(call, options, trail);
    } finally {
      this.#calls--;
      if (this.#calls === 0) for (const resolve of this.#endWaiters.splice(0)) resolve();
    }
  }

  async #rounds<Result>(call: Call<Result>, options: CallOptions, trail: Trail | null): Promise<Result> {
    const world = this.#world;
    // The lease clock may restart at any time, so durations use the monotonic clock.
    const deadlineMs = world.nowMs() + (options.timeoutMs ?? this.#services.status.operationTimeoutMs);
    const retry = new Retry({ deadlineMs: () => deadlineMs, pace: PACE, lastWait: 'cut' }, () =>
      world.random(),
    );
    const course = new RouteCourse(trail);
    this.#assertOpen(call);
    let server = this.#self;
    let round = this.#round(1);
    for (;;) {
      round.tried.add(server);
      const beganMs = world.nowMs();
      let last: ServiceError;
      try {
        const result = await this.#attempt(call, server, deadlineMs);
        if (call.showsPrimary !== false) this.#notePrimary(call.cell, server, result);
        return result;
      } catch (error) {
        if (!(error instanceof ServiceError) || !ELSEWHERE.has(error.code)) throw error;
        last = error;
      }
      const nowMs = world.nowMs();
      if (course.failed(server, last, nowMs)) throw this.#failure(call, last, round.unreachable, trail);
      // A server that was asked just before the deadline had no time to answer: it does not count as unreachable.
      if (nowMs < deadlineMs || nowMs - beganMs > PACE.largestMs)
        for (const silent of last.details.unreachable ?? []) round.unreachable.add(silent);
      if (this.#primaries.peek(call.cell)?.server === server) this.#primaries.delete(call.cell);
      // A healthy member learns the election's outcome by itself; other servers have to ask the members.
      if (server === this.#self)
        round.asksAllMembers ||= last.code !== 'not-primary' || !this.#isMember(call.cell);
      const failedAtMs = world.nowMs();
      const isOver = failedAtMs >= deadlineMs || this.#closing;
      const next = isOver ? null : await this.#nextServer(call, last, round, deadlineMs);
      // A server that found no majority has waited for it already.
      const isFinal = last.code === 'no-majority' || this.#areAllReachableIn(call.cell, course.withoutSpace);
      const step =
        next !== null
          ? retry.next(ELSEWHERE_IN_ROUND, failedAtMs)
          : retry.next({ kind: isFinal ? 'final' : 'later' }, world.nowMs());
      if (step.kind === 'fail') throw this.#failure(call, course.reason ?? last, round.unreachable, trail);
      if (step.kind === 'wait') {
        this.#countRetry();
        await world.sleep(step.ms);
        this.#assertOpen(call);
        round = this.#round(round.number + 1);
      }
      server = next ?? this.#self;
    }
  }

  #assertOpen({ action }: Call<unknown>): void {
    if (this.#closing)
      throw new ServiceError(
        'no-majority',
        `Cannot ${action}: this server is shutting down; use another one`,
      );
  }

  #round(number: number): Round {
    const asksAllMembers = this.#competesNoMore || number % ASK_ALL_EVERY_ROUNDS === 0;
    return { number, tried: new Set(), unreachable: new Set(), asksAllMembers };
  }

  async #attempt<Result>(call: Call<Result>, server: ServerId, deadlineMs: number): Promise<Result> {
    const leftMs = Math.max(1, deadlineMs - this.#world.nowMs());
    if (server === this.#self) {
      return bounded(
        this.#world,
        call.local(),
        leftMs + LOCAL_SLACK_MS,
        () => new ServiceError('unknown', `Cannot ${call.action}: timed out, and the outcome is unknown`),
      );
    }
    return call.remote(server, leftMs);
  }

  /** @returns the next server of the round: the named or presumed primary, or a member if it asks all; null if none */
  async #nextServer(
    call: Call<unknown>,
    answer: ServiceError,
    { tried, asksAllMembers }: Round,
    deadlineMs: number,
  ): Promise<ServerId | null> {
    const usable = (server: ServerId) => !tried.has(server) && this.#services.status.isConnected(server);
    const named = answer.details.primary;
    if (named !== undefined && isServerId(named) && usable(named)) return named;
    const reader = call.atAnyMember === true ? this.#reader(call.cell, tried, usable) : null;
    if (reader !== null) return reader;
    const hint = this.#primaries.get(call.cell)?.server;
    if (hint !== undefined && usable(hint)) return hint;
    if (!asksAllMembers) return null;
    const known = this.#knownMembers(call.cell);
    const members = known.length > 0 ? known : await this.#askMembers(call.cell, deadlineMs);
    // Without a primary, the first server that is asked becomes it: files spread over their members.
    for (let step = 0; step < members.length; step++) {
      const member = members[(call.cell + step) % members.length] as ServerId;
      if (usable(member)) return member;
    }
    // None of the members is the primary: the file may have moved.
    this.#members.delete(call.cell);
    return null;
  }

  /** The first member to ask, if this server is none and has asked none: then a member has named the primary. */
  #reader(
    cell: CellId,
    tried: ReadonlySet<ServerId>,
    usable: (server: ServerId) => boolean,
  ): ServerId | null {
    if (tried.size > 1 || this.#isMember(cell)) return null;
    return this.#readersOf(cell).choose(this.#knownMembers(cell), usable);
  }

  #areAllReachableIn(cell: CellId, servers: ReadonlyMap<ServerId, number>): boolean {
    if (servers.size === 0) return false;
    const isReachable = (server: ServerId) =>
      server === this.#self || this.#services.status.isConnected(server);
    const members = this.#knownMembers(cell).filter(isReachable);
    return members.length > 0 && members.every((server) => servers.has(server));
  }

  #isMember(cell: CellId): boolean {
    return this.#knownMembers(cell).includes(this.#self);
  }

  #knownMembers(cell: CellId): readonly ServerId[] {
    if (isCatalogCell(cell)) return this.membersOfCatalog(cell);
    const status = this.#services.files.leaseStatus(cell);
    if (status !== null && status.view.members.length > 0) return status.view.members;
    return this.#members.get(cell) ?? [];
  }

  /** By this server's part of the catalog; without one, as while it shuts down, by the list. */
  membersOfCatalog(cell: CellId): readonly ServerId[] {
    const { catalogs } = this.#services;
    const members = catalogs.at(cell)?.status().members;
    if (members !== undefined) return members;
    const row = catalogs.row(catalogOfCell(cell));
    return row === null || row.state === 'removed' ? [] : (row.members as readonly ServerId[]);
  }

  /** @throws ServiceError `not-found` if the catalog has no such file */
  async #askMembers(file: FileId, deadlineMs: number): Promise<readonly ServerId[]> {
    if (isCatalogCell(file)) return [];
    const timeoutMs = Math.max(1, deadlineMs - this.#world.nowMs());
    await this.#queryMembers(file, timeoutMs);
    return this.#knownMembers(file);
  }

  /** The error of a call that no server answered, with all servers that cannot be reached. */
  #failure(
    call: Call<unknown>,
    last: ServiceError | null,
    silent: ReadonlySet<string>,
    trail: Trail | null,
  ): ServiceError {
    const disconnected = this.#knownMembers(call.cell).filter(
      (server) => server !== this.#self && !this.#services.status.isConnected(server),
    );
    const unreachable = [...new Set([...disconnected, ...silent])]
      .filter((server) => server !== this.#self)
      .sort();
    // `no-space` means that the change certainly did not happen.
    if (last?.code === 'no-space' && trail?.ambiguous !== true) return last;
    const code = last?.code === 'recovering' || last?.code === 'clock-fault' ? last.code : 'no-majority';
    const retryAfterMs = last?.details.retryAfterMs;
    const details = { unreachable, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) };
    const message =
      last !== null && last.code === code
        ? last.message
        : `Cannot ${call.action}: ${last?.message ?? 'timed out before a server could be asked'}`;
    return new ServiceError(code, message, details, { cause: last });
  }

  /** Remembers the primary that a result names; without one, the server that answered. */
  #notePrimary(cell: CellId, server: ServerId, result: unknown): void {
    const epoch = typeof result === 'object' && result !== null ? epochIn(result) : null;
    this.#primaries.set(cell, {
      server: primaryIn(result) ?? server,
      epoch: epoch ?? this.#primaries.peek(cell)?.epoch ?? 0,
    });
  }
}

/** @returns the primary that a result names, also a backup's answer to a read; null if it names none */
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
