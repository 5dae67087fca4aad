import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { sameServers, type View } from '../../replica/view.ts';
import type { ClusterSettings, PlacedFile, Query, QueryResults, ServerInfo } from '../../wire/catalog-api.ts';
import type { Moving } from '../../wire/http-api.ts';
import type { Candidate } from '../process/placement.ts';
import { Rounds } from '../process/rounds.ts';
import { CatalogMover } from './catalog-mover.ts';
import { type Move, Mover, type MoverParts } from './mover.ts';
import { PassPauses } from './pass-pauses.ts';
import { ServerConditions } from './server-conditions.ts';
import {
  chooseRebalance,
  type FileMembers,
  type Rebalance,
  rebalancedMembers,
  type ServerCondition,
  wantedMembers,
} from './wanted-members.ts';

const PAGE = 500;
const PERIOD_MS = 1_000;
/** Then the next round decides what comes first; files that were moved are no longer in the lists. */
const PASS_MS_MAX = 60_000;
/** Disks whose used parts differ by no more than this are balanced. */
const REBALANCE_THRESHOLD = 0.2;
/** Between two moves for balance: servers report their free space no more often. */
const REBALANCE_PERIOD_MS = 120_000;
const REBALANCE_FILES_MAX = 100;
/** A plan that was open for this time is resumed: the file's primary has abandoned it, or the change takes long. */
export const PLAN_MS = 120_000;
/** The same for a plan with a server that leaves, which is not removed before the plan has ended. */
const LEAVING_PLAN_MS = 5_000;

export interface StewardParts extends MoverParts {
  readonly world: World;
  readonly log: Logger;
  /** A server is replaced after it was unreachable from the catalog's primary for this long, in milliseconds. */
  readonly replaceAfterMs: number;
  readonly periodMs?: number;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  candidates(servers: readonly ServerInfo[]): readonly Candidate[];
  catalogMembers(): readonly ServerId[];
  readonly catalogReplicasFirst: number;
  changeCatalogMembers(members: readonly ServerId[]): Promise<View>;
  announce(servers: readonly ServerInfo[], settings: ClusterSettings | null): void;
}

interface SeenPlan {
  readonly mark: string;
  readonly sinceMs: number;
}

/**
 * Decides which files get other members, so that replicas are where they should be; the mover changes them. It runs at
 * the catalog's primary and keeps only counters and pauses: the work follows from the catalog, so that the next primary
 * continues.
 *
 * Files on servers that are draining, out, or to be replaced come first; then files with too few or too many replicas;
 * then the catalog itself; and if nothing else is to do, the fullest disk gives files to the emptiest.
 */
export class Steward {
  readonly #parts: StewardParts;
  readonly #rounds: Rounds;
  readonly #conditions: ServerConditions;
  readonly #mover: Mover;
  readonly #catalogMover: CatalogMover;
  readonly #pauses: PassPauses;
  #plans = new Map<number, SeenPlan>();
  /** Files still to be moved, by the last count. */
  #remaining = 0;
  #rebalancedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: StewardParts) {
    this.#parts = parts;
    this.#conditions = new ServerConditions(parts);
    this.#mover = new Mover(parts);
    this.#catalogMover = new CatalogMover(parts);
    this.#pauses = new PassPauses(parts.world);
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
    const { movedCount: done, failedCount: failed, moving: current } = this.#mover;
    return { total: done + Math.max(this.#remaining, current.length), done, failed, current };
  }

  runRound(): Promise<void> {
    return this.#rounds.run();
  }

  async #round(): Promise<void> {
    const { servers, settings = null } = await this.#parts.query({ kind: 'servers', counts: true });
    this.#parts.announce(servers, settings);
    const conditions = this.conditions(servers);
    const leaving = conditions.filter(({ state, toBeReplaced }) => state !== 'in' || toBeReplaced);
    const counts = new Map<string, number>(servers.map(({ id, replicas }) => [id, replicas ?? 0]));
    this.#remaining = leaving.reduce((sum, { id }) => sum + (counts.get(id) ?? 0), 0);
    this.#pauses.begin(await this.#state(conditions));
    // The counts are for display: what is moved follows from the placements themselves.
    let moved = await this.#pass('leaving', this.#filesOnAll(leaving.map(({ id }) => id)));
    moved += await this.#moveAll(this.#planned(leaving));
    moved += await this.#pass('miscounted', this.#miscounted(conditions));
    await this.#catalogMover.move(conditions, settings?.catalogReplicas ?? null);
    if (moved === 0 && this.#remaining === 0) moved += await this.#rebalance(conditions);
    if (moved === 0 && this.#remaining === 0) this.#mover.idle();
  }

  /** @see ServerConditions.of */
  conditions(servers: readonly ServerInfo[]): ServerCondition[] {
    return this.#conditions.of(servers);
  }

  /** What decides which files can be moved. */
  async #state(conditions: readonly ServerCondition[]): Promise<string> {
    const { volumes } = await this.#parts.query({ kind: 'volumes' });
    return JSON.stringify([
      volumes.map(({ name, replicas }) => [name, replicas]),
      conditions.map(({ id, state, toBeReplaced, reachable, registered }) => {
        return [id, state, toBeReplaced, reachable, registered];
      }),
    ]);
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

  /** Files on several servers, in turn; each file once. */
  async *#filesOnAll(servers: readonly string[]): AsyncGenerator<PlacedFile> {
    const lists = servers.map((server, place) => ({
      earlier: new Set(servers.slice(0, place)),
      files: this.#filesOn(server),
    }));
    while (lists.length > 0) {
      for (const list of [...lists]) {
        const next = await list.files.next();
        if (next.done === true) lists.splice(lists.indexOf(list), 1);
        // The list of the earlier server has it, too.
        else if (!next.value.members.some((member) => list.earlier.has(member))) yield next.value;
      }
    }
  }

  async *#miscounted(conditions: readonly ServerCondition[]): AsyncGenerator<PlacedFile> {
    const servers = conditions.filter(({ state, toBeReplaced }) => state === 'in' && !toBeReplaced).length;
    for (let after: QueryResults['files-miscounted']['next'] = null; ; ) {
      const page: QueryResults['files-miscounted'] = await this.#parts.query({
        kind: 'files-miscounted',
        servers,
        after,
        countMax: PAGE,
      });
      yield* page.files;
      if (page.next === null) return;
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

  /** Moves files that may be many, unless the last pass with this name has left too many where they were. */
  async #pass(name: string, files: AsyncGenerator<PlacedFile>): Promise<number> {
    if (this.#pauses.isPaused(name)) return 0;
    let seen = 0;
    const counted = async function* (): AsyncGenerator<PlacedFile> {
      for await (const file of files) {
        seen += 1;
        yield file;
      }
    };
    const moved = await this.#moveAll(counted());
    this.#pauses.ended(name, seen - moved);
    return moved;
  }

  #moveAll(files: AsyncGenerator<PlacedFile>): Promise<number> {
    return this.#mover.moveAll(this.#moves(files), (_, outcome) => {
      if (outcome === 'moved') this.#remaining = Math.max(0, this.#remaining - 1);
    });
  }

  /** The moves that these files need. */
  async *#moves(files: AsyncGenerator<PlacedFile>): AsyncGenerator<Move> {
    let conditions: readonly ServerCondition[] = [];
    let knownMs = Number.NEGATIVE_INFINITY;
    const endMs = this.#parts.world.nowMs() + PASS_MS_MAX;
    for await (const file of files) {
      // A scan takes long, and servers change meanwhile.
      if (this.#parts.world.nowMs() - knownMs >= PERIOD_MS) {
        const { servers, settings = null } = await this.#parts.query({ kind: 'servers', counts: false });
        this.#parts.announce(servers, settings);
        conditions = this.conditions(servers);
        knownMs = this.#parts.world.nowMs();
        if (knownMs > endMs) return;
      }
      const members = wantedMembers(membersOf(file), conditions, file.wanted);
      // Confirming the current members ends a planned change.
      if (sameServers(members, file.members as readonly ServerId[]) && file.planned === undefined) continue;
      yield moveOf(file, members);
    }
  }

  /** Moves files from the fullest disk to the emptiest, if the disks are unbalanced, at most every two minutes. */
  async #rebalance(conditions: readonly ServerCondition[]): Promise<number> {
    const nowMs = this.#parts.world.nowMs();
    if (nowMs - this.#rebalancedMs < REBALANCE_PERIOD_MS) return 0;
    const move = chooseRebalance(conditions, REBALANCE_THRESHOLD);
    if (move === null) return 0;
    this.#rebalancedMs = nowMs;
    return this.#mover.moveAll(this.#rebalancing(conditions, move));
  }

  async *#rebalancing(conditions: readonly ServerCondition[], move: Rebalance): AsyncGenerator<Move> {
    let bytes = 0;
    let count = 0;
    for await (const file of this.#filesOn(move.from)) {
      if (count >= REBALANCE_FILES_MAX || bytes >= move.bytesMax) return;
      if (file.sizeBytes === 0 || bytes + file.sizeBytes > move.bytesMax) continue;
      const members = rebalancedMembers(membersOf(file), conditions, move);
      if (members === null) continue;
      bytes += file.sizeBytes;
      count += 1;
      yield moveOf(file, members);
    }
  }

  /** Resets all: this server is not the catalog's primary. A primary begins with what the catalog has. */
  #reset(): void {
    this.#conditions.reset();
    this.#mover.reset();
    this.#catalogMover.reset();
    this.#plans.clear();
    this.#pauses.reset();
    this.#remaining = 0;
  }
}

function membersOf({ inode, members }: PlacedFile): FileMembers {
  return { inode, members: members as readonly ServerId[] };
}

function moveOf(file: PlacedFile, members: readonly ServerId[]): Move {
  const from = file.members as readonly ServerId[];
  return { file: file.inode as FileId, from, members, sizeBytes: file.sizeBytes };
}
