import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { PlacedFile, Query, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { Moving } from '../../wire/http-api.ts';
import type { Candidate } from '../process/placement.ts';
import { Rounds } from '../process/rounds.ts';
import {
  catalogReplicasWanted,
  chooseRebalance,
  type FileMembers,
  rebalancedMembers,
  type ServerCondition,
  wantedMembers,
} from './wanted-members.ts';

const PARALLEL = 4;
const PAGE = 500;
const PERIOD_MS = 1_000;
const COUNT_PERIOD_MS = 600_000;
/** Disks whose used parts differ by no more than this are balanced. */
const REBALANCE_THRESHOLD = 0.2;
/** Between two moves for balance: servers report their free space no more often. */
const REBALANCE_PERIOD_MS = 120_000;
const REBALANCE_FILES_MAX = 100;
/** Pause before a file that could not be moved is tried again; it doubles. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 60_000;
const RETRIES_MAX = 10_000;
/** A plan that was open for this time is resumed: the file's primary has abandoned it, or the change takes long. */
export const PLAN_MS = 120_000;
/** The same for a plan with a server that leaves, which is not removed before the plan has ended. */
const LEAVING_PLAN_MS = 5_000;

/** Errors after which a move is not counted as failed: it continues, or another server does it. */
const UNFINISHED: ReadonlySet<string> = new Set(['unknown', 'busy']);

export interface StewardParts {
  readonly world: World;
  readonly log: Logger;
  /** A server is replaced after it was unreachable from the catalog's primary for this long, in milliseconds. */
  readonly replaceAfterMs: number;
  readonly periodMs?: number;
  isCatalogPrimary(): boolean;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  candidates(servers: readonly ServerInfo[]): readonly Candidate[];
  isConnected(server: ServerId): boolean;
  catalogMembers(): readonly ServerId[];
  readonly catalogReplicasFirst: number;
  changeMembers(file: FileId, members: readonly ServerId[]): Promise<View>;
  changeCatalogMembers(members: readonly ServerId[]): Promise<View>;
  followView(file: FileId, view: View): Promise<unknown>;
  announce(servers: readonly ServerInfo[]): void;
}

interface Retry {
  readonly atMs: number;
  readonly pauseMs: number;
}

interface SeenPlan {
  readonly mark: string;
  readonly sinceMs: number;
}

/**
 * Moves replicas to the servers where they should be. It runs at the catalog's primary and keeps only counters and
 * pauses: the work follows from the catalog, so that the next primary continues.
 *
 * Files on servers that are draining, out, or to be replaced come first; then files with too few or too many replicas;
 * then the catalog itself; and if nothing else is to do, the fullest disk gives files to the emptiest.
 */
export class Steward {
  readonly #parts: StewardParts;
  readonly #rounds: Rounds;
  readonly #unreachableSinceMs = new Map<string, number>();
  readonly #retries = new Map<number, Retry>();
  readonly #moving = new Set<number>();
  #plans = new Map<number, SeenPlan>();
  #movedCount = 0;
  #failedCount = 0;
  /** Files still to be moved, by the last count. */
  #remaining = 0;
  #countedFor = '';
  #countedMs = Number.NEGATIVE_INFINITY;
  #rebalancedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: StewardParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: parts.periodMs ?? PERIOD_MS,
      work: async () => (parts.isCatalogPrimary() ? this.#round() : this.#reset()),
      // Mostly an election of the catalog's primary: the next round tries again.
      failed: (error) => parts.log.debug({ err: error }, "the steward's round failed; trying again"),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  moving(): Moving | null {
    if (!this.#parts.isCatalogPrimary()) return null;
    const done = this.#movedCount;
    return {
      total: done + Math.max(this.#remaining, this.#moving.size),
      done,
      failed: this.#failedCount,
      current: [...this.#moving],
    };
  }

  runRound(): Promise<void> {
    return this.#rounds.run();
  }

  async #round(): Promise<void> {
    const { servers } = await this.#parts.query({ kind: 'servers', counts: true });
    this.#parts.announce(servers);
    const conditions = this.conditions(servers);
    const leaving = conditions.filter(({ state, toBeReplaced }) => state !== 'in' || toBeReplaced);
    const counts = new Map<string, number>(servers.map(({ id, replicas }) => [id, replicas ?? 0]));
    this.#remaining = leaving.reduce((sum, { id }) => sum + (counts.get(id) ?? 0), 0);
    let moved = 0;
    for (const { id } of leaving) {
      if ((counts.get(id) ?? 0) > 0) moved += await this.#moveAll(this.#filesOn(id));
    }
    moved += await this.#moveAll(this.#planned(leaving));
    moved += await this.#moveMiscounted(conditions);
    await this.#moveCatalog(conditions);
    if (moved === 0 && this.#remaining === 0) moved += await this.#rebalance(conditions);
    if (moved === 0 && this.#remaining === 0 && this.#moving.size === 0) this.#dropOldRetries();
  }

  /** The servers' current conditions. How long a server is unreachable counts from when this primary noticed it. */
  conditions(servers: readonly ServerInfo[]): ServerCondition[] {
    const { replaceAfterMs, isConnected } = this.#parts;
    const nowMs = this.#parts.world.nowMs();
    const candidates = this.#parts.candidates(servers);
    const taking = new Set(candidates.map(({ id }) => id));
    const leaving = servers
      .filter(({ id }) => !taking.has(id as ServerId))
      .map(({ id, zone, freeBytes, totalBytes }) => ({
        ...{ id: id as ServerId, zone, freeBytes, totalBytes },
        registered: true,
        reachable: isConnected(id as ServerId),
      }));
    const states = new Map<string, ServerInfo['state']>(servers.map(({ id, state }) => [id, state]));
    return [...candidates, ...leaving].map((server) => {
      const { id, reachable } = server;
      if (reachable) this.#unreachableSinceMs.delete(id);
      else if (!this.#unreachableSinceMs.has(id)) this.#unreachableSinceMs.set(id, nowMs);
      const sinceMs = this.#unreachableSinceMs.get(id);
      const toBeReplaced = sinceMs !== undefined && nowMs - sinceMs >= replaceAfterMs;
      return { ...server, state: states.get(id) ?? 'in', toBeReplaced };
    });
  }

  async *#filesOn(server: string): AsyncGenerator<PlacedFile> {
    for (let after = 0; ; ) {
      const page: QueryResults['files-on'] = await this.#parts.query({
        kind: 'files-on',
        server,
        after,
        countMax: PAGE,
      });
      yield* page.files;
      const last = page.files.at(-1);
      if (!page.more || last === undefined) return;
      after = last.inode;
    }
  }

  /** Scans all files, if volumes or servers have changed since the last scan, or it was long ago. */
  async #moveMiscounted(conditions: readonly ServerCondition[]): Promise<number> {
    const { volumes } = await this.#parts.query({ kind: 'volumes' });
    const states = conditions.map(({ id, state, reachable }) => [id, state, reachable]);
    const now = JSON.stringify([volumes.map(({ name, replicas }) => [name, replicas]), states]);
    const nowMs = this.#parts.world.nowMs();
    if (now === this.#countedFor && nowMs - this.#countedMs < COUNT_PERIOD_MS) return 0;
    const before = this.#failedCount;
    let unfinished = false;
    const moved = await this.#moveAll(this.#miscounted(), () => {
      unfinished = true;
    });
    // Failed or postponed moves are scanned for again, because nothing else would find them.
    if (this.#failedCount === before && !unfinished) {
      this.#countedFor = now;
      this.#countedMs = nowMs;
    }
    return moved;
  }

  async *#miscounted(): AsyncGenerator<PlacedFile> {
    for (let after: number | null = 0; after !== null; ) {
      const page: QueryResults['files-miscounted'] = await this.#parts.query({
        kind: 'files-miscounted',
        after,
        countMax: PAGE,
      });
      yield* page.files;
      after = page.next;
    }
  }

  /** Files with a plan for new members that has been open for long. */
  async *#planned(leaving: readonly ServerCondition[]): AsyncGenerator<PlacedFile> {
    const leave = new Set<string>(leaving.map(({ id }) => id));
    const found = new Map<number, SeenPlan>();
    const due: PlacedFile[] = [];
    for (let after: number | null = 0; after !== null; ) {
      const page: QueryResults['plans'] = await this.#parts.query({ kind: 'plans', after, countMax: PAGE });
      for (const file of page.files) {
        const nowMs = this.#parts.world.nowMs();
        const mark = JSON.stringify(file.planned?.mark);
        const before = this.#plans.get(file.inode);
        const sinceMs = before?.mark === mark ? before.sinceMs : nowMs;
        const waitMs = file.planned?.servers.some((id) => leave.has(id)) ? LEAVING_PLAN_MS : PLAN_MS;
        const isDue = nowMs - sinceMs >= waitMs;
        found.set(file.inode, { mark, sinceMs: isDue ? nowMs : sinceMs });
        if (isDue) due.push(file);
      }
      after = page.next;
    }
    this.#plans = found;
    yield* due;
  }

  async #moveAll(
    files: AsyncGenerator<PlacedFile>,
    postponed: () => void = () => undefined,
  ): Promise<number> {
    let moved = 0;
    const worker = async (): Promise<void> => {
      // The workers share one generator: each file is taken by the first free worker.
      for (let next = await files.next(); next.done !== true; next = await files.next()) {
        if (!this.#parts.isCatalogPrimary()) return;
        const file = next.value;
        // Queried again for each file: a scan takes long, and servers change meanwhile.
        const { servers } = await this.#parts.query({ kind: 'servers', counts: false });
        const members = wantedMembers(membersOf(file), this.conditions(servers), file.wanted);
        // Confirming the current members ends a planned change.
        if (isSame(members, file.members) && file.planned === undefined) continue;
        const outcome = await this.#move(file.inode as FileId, members);
        if (outcome === 'moved') moved += 1;
        if (outcome === 'put-off') postponed();
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, worker));
    return moved;
  }

  /** Moves one file. @returns `put-off` if that failed, or is paused after a failure; `gone` if the file was deleted */
  async #move(file: FileId, members: readonly ServerId[]): Promise<'moved' | 'put-off' | 'gone'> {
    const nowMs = this.#parts.world.nowMs();
    const retry = this.#retries.get(file);
    if (this.#moving.has(file) || (retry !== undefined && retry.atMs > nowMs)) return 'put-off';
    this.#moving.add(file);
    try {
      const view = await this.#parts.changeMembers(file, members);
      await this.#parts.followView(file, view);
      this.#retries.delete(file);
      this.#movedCount += 1;
      this.#remaining = Math.max(0, this.#remaining - 1);
      this.#parts.log.info({ file, view: view.number, members: view.members }, 'moved a file');
      return 'moved';
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') return 'gone';
      if (!UNFINISHED.has(error.code)) this.#failedCount += 1;
      const pauseMs = Math.min(RETRY_MAX_MS, 2 * (retry?.pauseMs ?? RETRY_FIRST_MS / 2));
      if (this.#retries.size >= RETRIES_MAX) this.#retries.clear();
      this.#retries.set(file, { atMs: this.#parts.world.nowMs() + pauseMs, pauseMs });
      this.#parts.log.info({ file, members, reason: error.message }, 'a file is not moved yet');
      return 'put-off';
    } finally {
      this.#moving.delete(file);
    }
  }

  /** Moves the catalog away from servers that leave, and to the wanted number of servers if possible. */
  async #moveCatalog(conditions: readonly ServerCondition[]): Promise<void> {
    const members = this.#parts.catalogMembers();
    const inCount = conditions.filter(({ state, toBeReplaced }) => state === 'in' && !toBeReplaced).length;
    const leaving = new Set(conditions.flatMap(({ id, state }) => (state === 'in' ? [] : [id])));
    // A member may not have registered yet.
    const known = new Set([...members, ...conditions.map(({ id }) => id)]);
    const stayingCount = [...known].filter((id) => !leaving.has(id)).length;
    const first = this.#parts.catalogReplicasFirst;
    const count = catalogReplicasWanted({ first, now: members.length, inCount, stayingCount });
    const wanted = wantedMembers({ inode: 0, members }, conditions, count);
    if (isSame(wanted, members)) return;
    const retry = this.#retries.get(0);
    const nowMs = this.#parts.world.nowMs();
    if (retry !== undefined && retry.atMs > nowMs) return;
    try {
      const view = await this.#parts.changeCatalogMembers(wanted);
      this.#retries.delete(0);
      this.#parts.log.info({ view: view.number, members: view.members }, 'moved the catalog');
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      const pauseMs = Math.min(RETRY_MAX_MS, 2 * (retry?.pauseMs ?? RETRY_FIRST_MS / 2));
      this.#retries.set(0, { atMs: nowMs + pauseMs, pauseMs });
      this.#parts.log.info({ members: wanted, reason: error.message }, 'the catalog is not moved yet');
    }
  }

  /** Moves files from the fullest disk to the emptiest, if the disks are unbalanced, at most every two minutes. */
  async #rebalance(conditions: readonly ServerCondition[]): Promise<number> {
    const nowMs = this.#parts.world.nowMs();
    if (nowMs - this.#rebalancedMs < REBALANCE_PERIOD_MS) return 0;
    const move = chooseRebalance(conditions, REBALANCE_THRESHOLD);
    if (move === null) return 0;
    this.#rebalancedMs = nowMs;
    let bytes = 0;
    let moved = 0;
    for await (const file of this.#filesOn(move.from)) {
      if (moved >= REBALANCE_FILES_MAX || bytes >= move.bytesMax || !this.#parts.isCatalogPrimary()) break;
      if (file.sizeBytes === 0 || bytes + file.sizeBytes > move.bytesMax) continue;
      const members = rebalancedMembers(membersOf(file), conditions, move);
      if (members === null || (await this.#move(file.inode as FileId, members)) !== 'moved') continue;
      bytes += file.sizeBytes;
      moved += 1;
    }
    return moved;
  }

  #dropOldRetries(): void {
    if (this.#retries.size === 0) return;
    const nowMs = this.#parts.world.nowMs();
    for (const [file, { atMs, pauseMs }] of this.#retries) {
      if (atMs + pauseMs < nowMs) this.#retries.delete(file);
    }
  }

  /** Resets all: this server is not the catalog's primary. A primary begins with what the catalog has. */
  #reset(): void {
    this.#unreachableSinceMs.clear();
    this.#retries.clear();
    this.#plans.clear();
    this.#countedFor = '';
    this.#countedMs = Number.NEGATIVE_INFINITY;
    this.#movedCount = 0;
    this.#failedCount = 0;
    this.#remaining = 0;
  }
}

function membersOf({ inode, members }: PlacedFile): FileMembers {
  return { inode, members: members as readonly ServerId[] };
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((one) => b.includes(one));
}
