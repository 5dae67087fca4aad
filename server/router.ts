import { LruMap } from '../base/bounded-map.ts';
import { type ErrorCode, ServiceError } from '../base/errors.ts';
import { CATALOG_CELL, type CellId, type FileId, isServerId, type ServerId } from '../base/ids.ts';
import { type Pace, Retry, type RetryOutcome } from '../base/retry.ts';
import type { World } from '../base/world.ts';
import type { CacheOwner } from '../wire/catalog-api.ts';
import { bounded } from './bounded.ts';
import type { MetricsRegistry } from './metrics.ts';
import { type Round, RouteCourse, type Trail } from './route-course.ts';
import type { Services } from './services.ts';

export interface CallOptions {
  /** Came from a peer that forwarded it: is answered from here or not at all, so that no request goes in circles. */
  readonly forwarded?: boolean;
  /** Token or certificate whose request it is; absent where nobody is asked who he is. */
  readonly holder?: string;
  /** Instead of the server's operation time-out. */
  readonly timeoutMs?: number;
  /** The client whose command it is, if it remembers what it is told. */
  readonly cacheOwner?: CacheOwner;
  /** A command is about a file as its primary knows it, and so is the answer. @see CommandBody */
  readonly live?: boolean;
  /** A query is answered after directories that it is about were recalled from whom they are delegated to. */
  readonly exact?: boolean;
}

/** Where a file is ordered, as far as this server knows, and what this server is to it. */
export interface Whereabouts {
  readonly primary: ServerId | null;
  readonly epoch: number;
  readonly role: 'primary' | 'backup' | 'none';
}

/** A request that one server of several can answer, and it is not known which. */
export interface Call<Result> {
  readonly cell: CellId;
  /** For messages: "Cannot <action>: …". */
  readonly action: string;
  /** False where nothing is to be concluded from the answer. */
  readonly teaches?: boolean;
  local(): Promise<Result>;
  remote(server: ServerId, timeoutMs: number): Promise<Result>;
}

export interface RouterOptions {
  readonly world: World;
  readonly services: Services;
  readonly metrics?: MetricsRegistry;
  /** Asks the catalog who holds a file; what it says is for `remember`. */
  readonly askWhere: (file: FileId, timeoutMs: number) => Promise<unknown>;
}

const PACE: Pace = { firstMs: 10, largestMs: 200, spread: [0.5, 1.5] };
/** No more members are in a round than it has servers, each of which is asked once. */
const ELSEWHERE_IN_ROUND: RetryOutcome = {
  kind: 'elsewhere',
  movesMax: Number.POSITIVE_INFINITY,
  otherwise: 'later',
};
const HINTS_MAX = 50_000;
const MEMBERS_MAX = 50_000;
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
 * Takes each call to the server that can answer it. A primary that is unknown, away or just being elected is waited for,
 * with the same call in every attempt, until the operation time-out.
 */
export class Router {
  readonly #world: World;
  readonly #services: Services;
  readonly #self: ServerId;
  readonly #askWhere: RouterOptions['askWhere'];
  readonly #countRetry: () => void;
  readonly #primaries = new LruMap<CellId, { readonly server: ServerId; readonly epoch: number }>(HINTS_MAX);
  readonly #members = new LruMap<FileId, readonly ServerId[]>(MEMBERS_MAX);
  /** This server leads nothing any more: all that it is asked for goes to others. */
  #retired = false;
  #closing = false;
  #calls = 0;
  readonly #drained: (() => void)[] = [];

  constructor({ world, services, metrics, askWhere }: RouterOptions) {
    this.#world = world;
    this.#services = services;
    this.#self = services.status.id;
    this.#askWhere = askWhere;
    const retries = metrics?.counter(
      'leasehold_gateway_retries_total',
      'Waits for a primary to be elected or found',
    );
    this.#countRetry = () => retries?.add();
  }

  /** From now on every call is taken to other servers. */
  retire(): void {
    this.#retired = true;
  }

  /** Resolves when no call is under way. */
  async drained(): Promise<void> {
    if (this.#calls > 0) await new Promise<void>((resolve) => this.#drained.push(resolve));
  }

  /** Nobody is waited for any more. */
  close(): void {
    this.#closing = true;
  }

  /** The file is about to be led by that server. */
  expect(file: FileId, server: ServerId): void {
    this.#primaries.set(file, { server, epoch: this.#primaries.peek(file)?.epoch ?? 0 });
  }

  /** These servers hold the file. */
  remember(file: FileId, members: readonly ServerId[]): void {
    this.#members.set(file, members);
  }

  /** The catalog's primary as far as is known here; asks nobody. */
  catalogPrimary(): ServerId | null {
    return this.#services.catalog.status().primary ?? this.#primaries.peek(CATALOG_CELL)?.server ?? null;
  }

  /** What is known here about the file's primary; asks nobody. */
  whereabouts(file: FileId): Whereabouts {
    const standing = this.#services.files.standing(file);
    const members = standing?.view.members ?? this.#members.peek(file) ?? [];
    const role = standing?.role ?? (members.includes(this.#self) ? 'backup' : 'none');
    if (standing !== null && standing.primary !== null) {
      return { primary: standing.primary, epoch: standing.epoch, role };
    }
    const hint = this.#primaries.peek(file);
    return { primary: hint?.server ?? null, epoch: hint?.epoch ?? standing?.epoch ?? 0, role };
  }

  /**
   * Rounds of attempts: this server first, then whoever is said to be the primary, then the other
   * members. Between rounds a short wait; each server is asked once a round, so that two servers that
   * name each other cost no busy loop.
   */
  async route<Result>(call: Call<Result>, options: CallOptions, trail: Trail | null = null): Promise<Result> {
    this.#calls++;
    try {
      return options.forwarded === true ? await call.local() : await this.#rounds(call, options, trail);
    } finally {
      this.#calls--;
      if (this.#calls === 0) for (const resolve of this.#drained.splice(0)) resolve();
    }
  }

  async #rounds<Result>(call: Call<Result>, options: CallOptions, trail: Trail | null): Promise<Result> {
    const world = this.#world;
    // Durations are taken from the monotonic clock alone: the lease clock may be set anew at any time.
    const deadlineMs = world.nowMs() + (options.timeoutMs ?? this.#services.status.operationTimeoutMs);
    const retry = new Retry({ deadlineMs, pace: PACE, lastWait: 'cut' }, () => world.random());
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
        if (call.teaches !== false) this.#learn(call.cell, server, result);
        return result;
      } catch (error) {
        if (!(error instanceof ServiceError) || !ELSEWHERE.has(error.code)) throw error;
        last = error;
      }
      const nowMs = world.nowMs();
      if (course.failed(server, last, nowMs)) throw this.#failure(call, last, round.silent, trail);
      // A server that was asked just before the deadline had no time to answer: it is not missing.
      if (nowMs < deadlineMs || nowMs - beganMs > PACE.largestMs)
        for (const silent of last.details.unreachable ?? []) round.silent.add(silent);
      if (this.#primaries.peek(call.cell)?.server === server) this.#primaries.delete(call.cell);
      // A member that is fit hears of the election's outcome by itself; others have to ask around.
      if (server === this.#self) round.walks ||= last.code !== 'not-primary' || !this.#isMember(call.cell);
      const failedAtMs = world.nowMs();
      const isOver = failedAtMs >= deadlineMs || this.#closing;
      const other = isOver ? null : await this.#nextOf(call, last, round, deadlineMs);
      // A server that looked for a majority and found none has waited for it already.
      const isFinal = last.code === 'no-majority' || this.#areAll(call.cell, course.full);
      const step =
        other !== null
          ? retry.next(ELSEWHERE_IN_ROUND, failedAtMs)
          : retry.next({ kind: isFinal ? 'final' : 'later' }, world.nowMs());
      if (step.kind === 'fail') throw this.#failure(call, course.reason ?? last, round.silent, trail);
      if (step.kind === 'wait') {
        this.#countRetry();
        await world.sleep(step.ms);
        this.#assertOpen(call);
        round = this.#round(round.number + 1);
      }
      server = other ?? this.#self;
    }
  }

  #assertOpen({ action }: Call<unknown>): void {
    if (this.#closing) throw new ServiceError('no-majority', `Cannot ${action}: this server is about to end`);
  }

  #round(number: number): Round {
    const walks = this.#retired || number % ROUNDS_BETWEEN_WALKS === 0;
    return { number, tried: new Set(), silent: new Set(), walks };
  }

  async #attempt<Result>(call: Call<Result>, server: ServerId, deadlineMs: number): Promise<Result> {
    const leftMs = Math.max(1, deadlineMs - this.#world.nowMs());
    if (server === this.#self) {
      return bounded(
        this.#world,
        call.local(),
        leftMs + LOCAL_SLACK_MS,
        () => new ServiceError('unknown', `Cannot ${call.action}: it did not end in time`),
      );
    }
    return call.remote(server, leftMs);
  }

  async #nextOf(
    call: Call<unknown>,
    answer: ServiceError,
    { tried, walks }: Round,
    deadlineMs: number,
  ): Promise<ServerId | null> {
    const usable = (server: ServerId) => !tried.has(server) && this.#services.status.isConnected(server);
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
  #areAll(cell: CellId, servers: ReadonlyMap<ServerId, number>): boolean {
    if (servers.size === 0) return false;
    const isThere = (server: ServerId) => server === this.#self || this.#services.status.isConnected(server);
    const members = this.#knownMembers(cell).filter(isThere);
    return members.length > 0 && members.every((server) => servers.has(server));
  }

  #isMember(cell: CellId): boolean {
    return this.#knownMembers(cell).includes(this.#self);
  }

  #knownMembers(cell: CellId): readonly ServerId[] {
    if (cell === CATALOG_CELL) return this.#services.catalog.status().members;
    const standing = this.#services.files.standing(cell);
    if (standing !== null && standing.view.members.length > 0) return standing.view.members;
    return this.#members.get(cell) ?? [];
  }

  /** @throws ServiceError `not-found` where the catalog knows no such file: nobody will answer for it */
  async #askMembers(file: FileId, deadlineMs: number): Promise<readonly ServerId[]> {
    if (file === CATALOG_CELL) return [];
    const timeoutMs = Math.max(1, deadlineMs - this.#world.nowMs());
    await this.#askWhere(file, timeoutMs);
    return this.#knownMembers(file);
  }

  #failure(
    call: Call<unknown>,
    last: ServiceError | null,
    silent: ReadonlySet<string>,
    trail: Trail | null,
  ): ServiceError {
    const away = this.#knownMembers(call.cell).filter(
      (server) => server !== this.#self && !this.#services.status.isConnected(server),
    );
    const unreachable = [...new Set([...away, ...silent])].filter((server) => server !== this.#self).sort();
    // Only what certainly did not happen may be told as that.
    if (last?.code === 'no-space' && trail?.ambiguous !== true) return last;
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
