import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { PlacedFile, Query, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { Moving } from '../../wire/http-api.ts';
import type { Candidate } from '../placement.ts';
import { Rounds } from '../rounds.ts';
import {
  catalogReplicasWanted,
  type Holding,
  rebalancedMembers,
  rebalanceOf,
  type ServerStanding,
  wantedMembers,
} from './wanted-members.ts';

/** Files that are moved at the same time. */
const PARALLEL = 4;
/** Files looked at in one query, and inodes scanned by one. */
const PAGE = 500;
/** How often the steward looks whether there is something to do. */
const PERIOD_MS = 1_000;
/** All files are counted anew this often, whatever happened. */
const COUNT_PERIOD_MS = 600_000;
/** Disks that differ by no more than this part are even. */
const REBALANCE_THRESHOLD = 0.2;
/** Between two moves for the sake of evenness: servers tell their free space no more often. */
const REBALANCE_PERIOD_MS = 120_000;
const REBALANCE_FILES_MAX = 100;
/** A file that could not be moved is left alone for so long, then for longer. */
const RETRY_FIRST_MS = 1_000;
const RETRY_MAX_MS = 60_000;
const RETRIES_REMEMBERED_MAX = 10_000;
/** The steward takes up a plan for new members after so long: its primary has given it up, or the change takes long. */
export const PLAN_MS = 120_000;
/** So is one that names a server which leaves: the server is not removed before. */
const LEAVING_PLAN_MS = 5_000;

/** Failures by which nothing is known against the move: it goes on, or somebody else is at it. */
const UNFINISHED: ReadonlySet<string> = new Set(['unknown', 'busy']);

export interface StewardParts {
  readonly world: World;
  readonly log: Logger;
  /** A server that is out of the catalog's primary's reach for so long is replaced, in milliseconds. */
  readonly replaceAfterMs: number;
  readonly periodMs?: number;
  isCatalogPrimary(): boolean;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  /** Servers that may hold new replicas. */
  candidates(servers: readonly ServerInfo[]): readonly Candidate[];
  isConnected(server: ServerId): boolean;
  catalogMembers(): readonly ServerId[];
  /** How many servers held the catalog in the beginning. */
  readonly catalogReplicasFirst: number;
  changeMembers(file: FileId, members: readonly ServerId[]): Promise<View>;
  changeCatalogMembers(members: readonly ServerId[]): Promise<View>;
  /** The catalog follows the file's view, if it has not yet. */
  followView(file: FileId, view: View): Promise<unknown>;
  /** The list of servers as it is now, for all who are to know it. */
  announce(servers: readonly ServerInfo[]): void;
}

interface Retry {
  readonly atMs: number;
  readonly pauseMs: number;
}

interface SeenPlan {
  /** As text. */
  readonly mark: string;
  /** When it was found, or taken up last. */
  readonly sinceMs: number;
}

/**
 * Sees to it that every file is where it should be. It runs at the catalog's primary and keeps nothing but
 * counters and pauses: what is to be done follows from the catalog, so that the next primary goes on.
 *
 * Files on servers that are draining, out, or gone for long come first; then files with too few or too many
 * replicas; then the catalog itself; and if nothing else is to do, the fullest disk gives to the emptiest.
 */
export class Steward {
  readonly #parts: StewardParts;
  readonly #rounds: Rounds;
  /** Since when a server is out of reach. */
  readonly #awaySinceMs = new Map<string, number>();
  readonly #retries = new Map<number, Retry>();
  readonly #current = new Set<number>();
  /** By file. */
  #plans = new Map<number, SeenPlan>();
  #done = 0;
  #failed = 0;
  /** Files that are still to be moved, as counted last. */
  #left = 0;
  /** What was the case when all files were counted last: volumes' factors and servers' states. */
  #counted = '';
  #countedMs = Number.NEGATIVE_INFINITY;
  #rebalancedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: StewardParts) {
    this.#parts = parts;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: parts.periodMs ?? PERIOD_MS,
      work: async () => (parts.isCatalogPrimary() ? this.#look() : this.#forget()),
      // A catalog that is being elected, most of the time: the next turn finds out.
      failed: (error) => parts.log.debug({ err: error }, 'replicas are looked after in the next turn'),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  /** Null where this server is not the catalog's primary. */
  moving(): Moving | null {
    if (!this.#parts.isCatalogPrimary()) return null;
    const done = this.#done;
    return {
      total: done + Math.max(this.#left, this.#current.size),
      done,
      failed: this.#failed,
      current: [...this.#current],
    };
  }

  /** Looks once, and moves what there is to move. Returns at once where an earlier turn is under way. */
  turn(): Promise<void> {
    return this.#rounds.run();
  }

  async #look(): Promise<void> {
    const { servers } = await this.#parts.query({ kind: 'servers', counts: true });
    this.#parts.announce(servers);
    const standings = this.standings(servers);
    const leaving = standings.filter(({ state, gone }) => state !== 'in' || gone);
    const counts = new Map<string, number>(servers.map(({ id, replicas }) => [id, replicas ?? 0]));
    this.#left = leaving.reduce((sum, { id }) => sum + (counts.get(id) ?? 0), 0);
    let moved = 0;
    for (const { id } of leaving) {
      if ((counts.get(id) ?? 0) > 0) moved += await this.#moveAll(this.#filesOn(id));
    }
    moved += await this.#moveAll(this.#planned(leaving));
    moved += await this.#count(standings);
    await this.#moveCatalog(standings);
    if (moved === 0 && this.#left === 0) moved += await this.#rebalance(standings);
    if (moved === 0 && this.#left === 0 && this.#current.size === 0) this.#rest();
  }

  /** The servers as they stand now; who is out of reach is so since this primary has seen it. */
  standings(servers: readonly ServerInfo[]): ServerStanding[] {
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
      if (reachable) this.#awaySinceMs.delete(id);
      else if (!this.#awaySinceMs.has(id)) this.#awaySinceMs.set(id, nowMs);
      const sinceMs = this.#awaySinceMs.get(id);
      const gone = sinceMs !== undefined && nowMs - sinceMs >= replaceAfterMs;
      return { ...server, state: states.get(id) ?? 'in', gone };
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

  /** Looks through all files, if volumes or servers have changed since, or a long time ago. */
  async #count(standings: readonly ServerStanding[]): Promise<number> {
    const { volumes } = await this.#parts.query({ kind: 'volumes' });
    const states = standings.map(({ id, state, reachable }) => [id, state, reachable]);
    const now = JSON.stringify([volumes.map(({ name, replicas }) => [name, replicas]), states]);
    const nowMs = this.#parts.world.nowMs();
    if (now === this.#counted && nowMs - this.#countedMs < COUNT_PERIOD_MS) return 0;
    const before = this.#failed;
    let unfinished = false;
    const moved = await this.#moveAll(this.#miscounted(), () => {
      unfinished = true;
    });
    // What failed or was put off is looked for again, since nothing else would bring it back.
    if (this.#failed === before && !unfinished) {
      this.#counted = now;
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

  /** Files with a plan for new members that has not ended for long. */
  async *#planned(leaving: readonly ServerStanding[]): AsyncGenerator<PlacedFile> {
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

  /** @returns how many files were moved */
  async #moveAll(files: AsyncGenerator<PlacedFile>, putOff: () => void = () => undefined): Promise<number> {
    let moved = 0;
    const worker = async (): Promise<void> => {
      // The workers share one generator: each file is taken by the first that is free.
      for (let next = await files.next(); next.done !== true; next = await files.next()) {
        if (!this.#parts.isCatalogPrimary()) return;
        const file = next.value;
        // Asked anew for each file: a campaign lasts, and servers come and go meanwhile.
        const { servers } = await this.#parts.query({ kind: 'servers', counts: false });
        const members = wantedMembers(holdingOf(file), this.standings(servers), file.wanted);
        // That the members are to stay as they are ends a change that was planned.
        if (isSame(members, file.members) && file.planned === undefined) continue;
        const outcome = await this.#move(file.inode as FileId, members);
        if (outcome === 'moved') moved += 1;
        if (outcome === 'put-off') putOff();
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, worker));
    return moved;
  }

  async #move(file: FileId, members: readonly ServerId[]): Promise<'moved' | 'put-off' | 'gone'> {
    const nowMs = this.#parts.world.nowMs();
    const retry = this.#retries.get(file);
    if (this.#current.has(file) || (retry !== undefined && retry.atMs > nowMs)) return 'put-off';
    this.#current.add(file);
    try {
      const view = await this.#parts.changeMembers(file, members);
      await this.#parts.followView(file, view);
      this.#retries.delete(file);
      this.#done += 1;
      this.#left = Math.max(0, this.#left - 1);
      this.#parts.log.info({ file, view: view.number, members: view.members }, 'moved a file');
      return 'moved';
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') return 'gone';
      if (!UNFINISHED.has(error.code)) this.#failed += 1;
      const pauseMs = Math.min(RETRY_MAX_MS, 2 * (retry?.pauseMs ?? RETRY_FIRST_MS / 2));
      if (this.#retries.size >= RETRIES_REMEMBERED_MAX) this.#retries.clear();
      this.#retries.set(file, { atMs: this.#parts.world.nowMs() + pauseMs, pauseMs });
      this.#parts.log.info({ file, members, reason: error.message }, 'a file is not moved yet');
      return 'put-off';
    } finally {
      this.#current.delete(file);
    }
  }

  /** The catalog leaves servers that leave, and is on as many as it is to be where it can. */
  async #moveCatalog(standings: readonly ServerStanding[]): Promise<void> {
    const members = this.#parts.catalogMembers();
    const inCount = standings.filter(({ state, gone }) => state === 'in' && !gone).length;
    const leaving = new Set(standings.flatMap(({ id, state }) => (state === 'in' ? [] : [id])));
    // A member may not have registered yet.
    const known = new Set([...members, ...standings.map(({ id }) => id)]);
    const stayingCount = [...known].filter((id) => !leaving.has(id)).length;
    const first = this.#parts.catalogReplicasFirst;
    const count = catalogReplicasWanted({ first, now: members.length, inCount, stayingCount });
    const wanted = wantedMembers({ inode: 0, members }, standings, count);
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

  async #rebalance(standings: readonly ServerStanding[]): Promise<number> {
    const nowMs = this.#parts.world.nowMs();
    if (nowMs - this.#rebalancedMs < REBALANCE_PERIOD_MS) return 0;
    const move = rebalanceOf(standings, REBALANCE_THRESHOLD);
    if (move === null) return 0;
    this.#rebalancedMs = nowMs;
    let bytes = 0;
    let moved = 0;
    for await (const file of this.#filesOn(move.from)) {
      if (moved >= REBALANCE_FILES_MAX || bytes >= move.bytesMax || !this.#parts.isCatalogPrimary()) break;
      if (file.sizeBytes === 0 || bytes + file.sizeBytes > move.bytesMax) continue;
      const members = rebalancedMembers(holdingOf(file), standings, move);
      if (members === null || (await this.#move(file.inode as FileId, members)) !== 'moved') continue;
      bytes += file.sizeBytes;
      moved += 1;
    }
    return moved;
  }

  /** Nothing is left to do: the next campaign is counted from zero, and who looks sees how the last one ended. */
  #rest(): void {
    if (this.#retries.size === 0) return;
    const nowMs = this.#parts.world.nowMs();
    for (const [file, { atMs, pauseMs }] of this.#retries) {
      if (atMs + pauseMs < nowMs) this.#retries.delete(file);
    }
  }

  /** Another server is the catalog's primary: it begins from what the catalog says. */
  #forget(): void {
    this.#awaySinceMs.clear();
    this.#retries.clear();
    this.#plans.clear();
    this.#counted = '';
    this.#countedMs = Number.NEGATIVE_INFINITY;
    this.#done = 0;
    this.#failed = 0;
    this.#left = 0;
  }
}

function holdingOf({ inode, members }: PlacedFile): Holding {
  return { inode, members: members as readonly ServerId[] };
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((one) => b.includes(one));
}
