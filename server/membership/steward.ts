import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { sameServers } from '../../replica/view.ts';
import type {
  ClusterSettings,
  DirectoryClass,
  PlacedFile,
  Query,
  QueryResults,
  ServerInfo,
  VolumeInfo,
} from '../../wire/catalog-api.ts';
import type { Moving } from '../../wire/http-api.ts';
import { isRestricted, type PlacementClass } from '../../wire/placement-class.ts';
import { type Candidate, zoneOf } from '../process/placement.ts';
import { Rounds } from '../process/rounds.ts';
import {
  type CountedServer,
  chooseRebalances,
  ownPart,
  type Rebalance,
  rebalancedMembers,
} from './balance.ts';
import { CatalogMover, type CatalogMoverParts } from './catalog-mover.ts';
import { FileLists, ListPosition } from './file-lists.ts';
import { type Move, type MoveEnded, Mover, type MoverParts } from './mover.ts';
import { OpenPlans } from './open-plans.ts';
import { PassPauses } from './pass-pauses.ts';
import { placementShortages } from './placement-shortages.ts';
import { ServerConditions } from './server-conditions.ts';
import { type FileMembers, type ServerCondition, spreadMembers, wantedMembers } from './wanted-members.ts';

const PERIOD_MS = 1_000;
/** Then the next round decides what comes first; the next pass continues at the same place of its list. */
const PASS_MS_MAX = 60_000;
/** After this time all is listed again, though nothing has changed. */
const QUIET_MS_MAX = 60_000;
/** What follows from connections of servers is decided at once; what follows from the time, this often. */
const QUIET_CHECK_MS = 5_000;

export interface StewardParts extends MoverParts, Omit<CatalogMoverParts, 'world'> {
  readonly world: World;
  readonly log: Logger;
  /** A server is replaced after it was unreachable from the catalog's primary for this long, in milliseconds. */
  readonly replaceAfterMs: number;
  readonly periodMs?: number;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  /** Equal at two moments if the catalog's primary, this server, has ordered and committed nothing between them. */
  catalogPosition(): string;
  candidates(servers: readonly ServerInfo[]): readonly Candidate[];
  /** Between two moves by bytes: servers report their free space to the catalog no more often. */
  readonly rebalancePeriodMs: number;
  /**
   * How much of a difference between disks the catalog is to even out: several catalogs see the same one.
   * @param own the part of the fuller disk's used bytes that is of the catalog's files
   */
  partToBalance(own: number): number;
  announce(servers: readonly ServerInfo[], settings: ClusterSettings | null): void;
}

/** What a round that found nothing to do was decided by. */
interface QuietRound {
  readonly position: string;
  readonly conditions: string;
  readonly connected: string;
  readonly endMs: number;
  /** From then on, conditions are compared again; at once while the catalog is to be moved. */
  readonly checkMs: number;
  readonly servers: readonly ServerInfo[];
  readonly settings: ClusterSettings | null;
}

/**
 * Decides which files of a catalog get other members, so that replicas are where they should be; the mover changes
 * them. It runs at the catalog's primary and keeps only counters and pauses: the work follows from the catalog, so that
 * the next primary continues.
 *
 * Files on servers that are draining, out, or to be replaced come first; then files with too few or too many replicas,
 * or on servers that are not allowed for them; then the catalog itself; and if nothing else is to do, replicas in one
 * zone go to zones that have returned, and servers with more bytes or files than others give to them.
 *
 * After a round that found no file to examine, the next ones query nothing, until the catalog has executed a command or
 * the servers' conditions change: many catalogs on a server are idle.
 */
export class Steward {
  readonly #parts: StewardParts;
  readonly #rounds: Rounds;
  readonly #conditions: ServerConditions;
  readonly #mover: Mover;
  readonly #catalogMover: CatalogMover;
  readonly #pauses: PassPauses;
  readonly #lists: FileLists;
  readonly #plans: OpenPlans;
  /** Files still to be moved, by the last count. */
  #remaining = 0;
  /** Volumes with fewer allowed servers than replicas, as clauses. */
  #shortages: readonly string[] = [];
  #rebalancedMs = Number.NEGATIVE_INFINITY;
  /** Null unless the last round was quiet. */
  #quiet: QuietRound | null = null;
  /** Whether the present round has found a file, or a reason to move some. */
  #foundWork = false;
  /** Whether a round has run since this server became the catalog's primary. */
  #isBegun = false;
  /** Where passes that ended by time, or by their number of files, continue; by their names. */
  readonly #positions = new Map<string, ListPosition>();
  /** The zones, and what classes allow, by which all files were last found to be spread. */
  #spreadOver = '';
  /** The zones of the pass for spreading, and the files that it has left where they were. */
  #spreading = { state: '', left: 0 };

  constructor(parts: StewardParts) {
    this.#parts = parts;
    this.#conditions = new ServerConditions(parts);
    this.#mover = new Mover(parts);
    this.#catalogMover = new CatalogMover(parts);
    this.#pauses = new PassPauses(parts.world);
    this.#lists = new FileLists(parts);
    this.#plans = new OpenPlans(parts.world);
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: parts.periodMs ?? PERIOD_MS,
      isDue: () => this.#isBegun || parts.isCatalogPrimary(),
      work: async () => {
        this.#isBegun = parts.isCatalogPrimary();
        if (this.#isBegun) await this.#round();
        else this.#reset();
      },
      // Mostly an election of the catalog's primary: the next round tries again.
      failed: (error) => parts.log.debug({ err: error }, "the steward's round failed; trying again"),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  moving(): Moving | null {
    if (!this.#parts.isCatalogPrimary()) return null;
    return this.#mover.progress.show(this.#remaining, this.#mover.moving);
  }

  /** Volumes that lack servers with their labels or in their zones; empty unless this is the catalog's primary. */
  get shortages(): readonly string[] {
    return this.#parts.isCatalogPrimary() ? this.#shortages : [];
  }

  runRound(): Promise<void> {
    return this.#rounds.run();
  }

  async #round(): Promise<void> {
    if (await this.#isQuietStill()) return;
    this.#quiet = null;
    this.#foundWork = false;
    // Before the queries: they may already show what is committed meanwhile.
    const position = this.#parts.catalogPosition();
    const { servers, settings = null } = await this.#parts.query({ kind: 'servers', counts: true });
    this.#parts.announce(servers, settings);
    const connected = this.#connected(servers);
    const conditions = this.conditions(servers);
    await this.#moveWhatIsMisplaced(servers, conditions, settings);
    if (this.#foundWork || this.#remaining > 0 || !this.#areListsComplete) return;
    const nowMs = this.#parts.world.nowMs();
    this.#quiet = {
      ...{ position, conditions: JSON.stringify(conditions), connected, servers, settings },
      ...{ endMs: nowMs + QUIET_MS_MAX, checkMs: nowMs },
    };
  }

  /** Whether the round before was quiet, and nothing has changed since. */
  async #isQuietStill(): Promise<boolean> {
    const quiet = this.#quiet;
    const { catalogPosition, announce, world } = this.#parts;
    const nowMs = world.nowMs();
    if (quiet === null || quiet.position !== catalogPosition() || nowMs >= quiet.endMs) return false;
    const { servers, settings } = quiet;
    if (nowMs >= quiet.checkMs || this.#connected(servers) !== quiet.connected) {
      const conditions = this.conditions(servers);
      if (JSON.stringify(conditions) !== quiet.conditions) return false;
      const isPlaced = await this.#catalogMover.move(conditions, settings?.catalogReplicas ?? null);
      const connected = this.#connected(servers);
      this.#quiet = { ...quiet, connected, checkMs: isPlaced ? nowMs + QUIET_CHECK_MS : nowMs };
    }
    announce(servers, settings);
    return true;
  }

  /** Of each server, whether this one is connected to it, as text. */
  #connected(servers: readonly ServerInfo[]): string {
    return servers.map(({ id }) => (this.#parts.isConnected(id as ServerId) ? '1' : '0')).join('');
  }

  get #areListsComplete(): boolean {
    return [...this.#positions.values()].every((position) => position.hasNoPageLeft);
  }

  async #moveWhatIsMisplaced(
    servers: QueryResults['servers']['servers'],
    conditions: readonly ServerCondition[],
    settings: ClusterSettings | null,
  ): Promise<void> {
    const leaving = conditions.filter(({ state, toBeReplaced }) => state !== 'in' || toBeReplaced);
    const counts = new Map<string, number>(servers.map(({ id, replicas }) => [id, replicas ?? 0]));
    this.#remaining = leaving.reduce((sum, { id }) => sum + (counts.get(id) ?? 0), 0);
    const { volumes } = await this.#parts.query({ kind: 'volumes' });
    const { classes } = await this.#parts.query({ kind: 'placement-classes' });
    this.#shortages = placementShortages(volumes, classes, conditions);
    this.#pauses.begin(stateOf(volumes, classes, conditions));
    // The counts are for display: what is moved follows from the placements themselves.
    const leavingIds = leaving.map(({ id }) => id);
    let moved = await this.#pass('leaving', (position) => this.#lists.onAny(leavingIds, position));
    moved += await this.#moveAll(this.#plans.due(this.#found(this.#lists.planned()), leavingIds), wantedOf);
    moved += await this.#pass('miscounted', (position) => this.#lists.miscounted(conditions, position));
    moved += await this.#pass('misplaced', (position) => this.#lists.misplaced(conditions, position));
    await this.#catalogMover.move(conditions, settings?.catalogReplicas ?? null);
    if (moved > 0 || this.#remaining > 0) return;
    moved += await this.#spread(conditions, [...volumes, ...classes]);
    if (moved === 0) moved += await this.#rebalance(conditions, counts, volumes, classes);
    if (moved === 0) this.#mover.idle();
  }

  /** @see ServerConditions.of */
  conditions(servers: readonly ServerInfo[]): ServerCondition[] {
    return this.#conditions.of(servers);
  }

  /**
   * Moves files that may be many, from where the last pass with this name has ended, unless that one has left too many
   * where they were.
   */
  async #pass(
    name: string,
    list: (position: ListPosition) => AsyncGenerator<PlacedFile>,
    membersFor: MembersFor = wantedOf,
    moved: Set<number> = new Set(),
    ended: MoveEnded = () => undefined,
  ): Promise<number> {
    if (this.#pauses.isPaused(name)) {
      this.#foundWork = true;
      return 0;
    }
    const files = this.#found(list(this.#positionOf(name)));
    let seen = 0;
    const counted = async function* (): AsyncGenerator<PlacedFile> {
      for await (const file of files) {
        seen += 1;
        yield file;
      }
    };
    const count = await this.#moveAll(counted(), membersFor, moved, ended);
    this.#pauses.ended(name, seen - count);
    return count;
  }

  async *#found(files: AsyncGenerator<PlacedFile>): AsyncGenerator<PlacedFile> {
    for await (const file of files) {
      this.#foundWork = true;
      yield file;
    }
  }

  #positionOf(pass: string): ListPosition {
    const position = this.#positions.get(pass) ?? new ListPosition();
    this.#positions.set(pass, position);
    return position;
  }

  #moveAll(
    files: AsyncGenerator<PlacedFile>,
    membersFor: MembersFor,
    moved: Set<number> = new Set(),
    ended: MoveEnded = () => undefined,
  ): Promise<number> {
    const endMs = this.#parts.world.nowMs() + PASS_MS_MAX;
    const finish: MoveEnded = (move, outcome) => {
      if (outcome === 'moved') this.#remaining = Math.max(0, this.#remaining - 1);
      ended(move, outcome);
    };
    return this.#mover.moveAll(this.#moves(files, membersFor, moved, endMs), finish, endMs);
  }

  /** The moves that these files need. @param moved files that have moved: what a page says of them is outdated */
  async *#moves(
    files: AsyncGenerator<PlacedFile>,
    membersFor: MembersFor,
    moved: Set<number>,
    endMs: number,
  ): AsyncGenerator<Move> {
    let conditions: readonly ServerCondition[] = [];
    let knownMs = Number.NEGATIVE_INFINITY;
    for await (const file of files) {
      // A scan takes long, and servers change meanwhile.
      if (this.#parts.world.nowMs() - knownMs >= PERIOD_MS) {
        const { servers, settings = null } = await this.#parts.query({ kind: 'servers', counts: false });
        this.#parts.announce(servers, settings);
        conditions = this.conditions(servers);
        knownMs = this.#parts.world.nowMs();
        if (knownMs >= endMs) return;
      }
      const members = moved.has(file.inode) ? null : membersFor(file, conditions);
      if (members === null) continue;
      moved.add(file.inode);
      const from = file.members as readonly ServerId[];
      yield { file: file.inode as FileId, from, members, decidedBy: file.view, sizeBytes: file.sizeBytes };
    }
  }

  /** Spreads replicas over zones, once after servers have returned, were added or allowed, for long enough. */
  async #spread(conditions: readonly ServerCondition[], classes: readonly PlacementClass[]): Promise<number> {
    const zones = new Map<string, string[]>();
    for (const server of conditions) {
      if (server.state !== 'in' || !server.isSteady) continue;
      zones.set(zoneOf(server), [...(zones.get(zoneOf(server)) ?? []), server.id].toSorted());
    }
    const crowded = [...zones.values()].filter((servers) => servers.length > 1).flat();
    const state = JSON.stringify([[...zones].toSorted(), ...allowedOf(classes, conditions)]);
    if (state === this.#spreadOver || zones.size < 2 || crowded.length === 0) return 0;
    const spreading = this.#spreading.state === state ? this.#spreading : { state, left: 0 };
    if (spreading !== this.#spreading) {
      this.#spreading = spreading;
      this.#positionOf('spread').reset();
      this.#pauses.clear('spread');
    }
    const all = async function* (files: AsyncGenerator<PlacedFile>): AsyncGenerator<PlacedFile> {
      yield* files;
      isComplete = true;
    };
    let isComplete = false;
    const moved = await this.#pass(
      'spread',
      (position) => all(this.#lists.onAny(crowded, position)),
      (file, now) => spreadMembers(membersOf(file), now),
      new Set(),
      (_, outcome) => {
        if (outcome === 'put-off') spreading.left += 1;
      },
    );
    if (!isComplete) return moved;
    if (spreading.left === 0) this.#spreadOver = state;
    // Those are found in another pass over all files.
    spreading.left = 0;
    return moved;
  }

  /** Moves files from servers with more bytes or files to those with less. */
  async #rebalance(
    conditions: readonly ServerCondition[],
    replicas: ReadonlyMap<string, number>,
    volumes: readonly VolumeInfo[],
    classes: readonly DirectoryClass[],
  ): Promise<number> {
    const nowMs = this.#parts.world.nowMs();
    const servers = conditions.map((server) => ({ ...server, files: replicas.get(server.id) ?? 0 }));
    const chosen = chooseRebalances(servers, [...volumes, ...classes]);
    if (chosen.length > 0) this.#foundWork = true;
    const byBytes = chosen.filter(isByBytes).map((move) => this.#partOf(move, servers, volumes));
    const byFiles = chosen.filter((move) => !isByBytes(move));
    const isTooEarly = nowMs - this.#rebalancedMs < this.#parts.rebalancePeriodMs;
    const moves = isTooEarly ? byFiles : [...byBytes, ...byFiles];
    if (byBytes.length > 0 && !isTooEarly) this.#rebalancedMs = nowMs;
    if (byBytes.length === 0) this.#remaining = byFiles.reduce((sum, { filesMax }) => sum + filesMax, 0);
    const moved = new Set<number>();
    const counts = await Promise.all(moves.map((move) => this.#rebalanceBetween(move, moved)));
    this.#remaining = 0;
    return counts.reduce((sum, count) => sum + count, 0);
  }

  #partOf(move: Rebalance, servers: readonly CountedServer[], volumes: readonly VolumeInfo[]): Rebalance {
    const from = servers.find(({ id }) => id === move.from);
    const own = from === undefined ? 0 : ownPart(from, servers, volumes);
    return { ...move, bytesMax: Math.floor(move.bytesMax * this.#parts.partToBalance(own)) };
  }

  #rebalanceBetween(move: Rebalance, moved: Set<number>): Promise<number> {
    const { from, to, filesMax, bytesMax } = move;
    let bytes = 0;
    let count = 0;
    const fitting = async function* (files: AsyncGenerator<PlacedFile>): AsyncGenerator<PlacedFile> {
      for await (const file of files) {
        if (count >= filesMax || bytes >= bytesMax) return;
        yield file;
      }
    };
    const membersFor: MembersFor = (file, now) => {
      const isUseless = isByBytes(move) && file.sizeBytes === 0;
      const members = isUseless ? null : rebalancedMembers(membersOf(file), now, move);
      if (members === null || bytes + file.sizeBytes > bytesMax) return null;
      bytes += file.sizeBytes;
      count += 1;
      return members;
    };
    const list = (position: ListPosition) => fitting(this.#lists.onAny([from], position));
    return this.#pass(`from ${from} to ${to}`, list, membersFor, moved);
  }

  /** Resets all: this server is not the catalog's primary. A primary begins with what the catalog has. */
  #reset(): void {
    this.#quiet = null;
    this.#conditions.reset();
    this.#mover.reset();
    this.#catalogMover.reset();
    this.#plans.reset();
    this.#pauses.reset();
    this.#remaining = 0;
    this.#shortages = [];
    this.#positions.clear();
    this.#spreadOver = '';
    this.#spreading = { state: '', left: 0 };
  }
}

/** What decides which files can be moved. */
function stateOf(
  volumes: readonly VolumeInfo[],
  classes: readonly DirectoryClass[],
  conditions: readonly ServerCondition[],
): string {
  return JSON.stringify([
    classes,
    volumes.map(({ name, replicas, labels, zones }) => [name, replicas, labels, zones]),
    conditions.map(({ id, state, toBeReplaced, reachable, registered, zone, labels }) => {
      return [id, state, toBeReplaced, reachable, registered, zone, labels];
    }),
  ]);
}

/** What decides which servers may hold a file; nothing if any may. */
function allowedOf(
  classes: readonly PlacementClass[],
  conditions: readonly ServerCondition[],
): readonly unknown[] {
  const restricted = classes.filter(isRestricted).map(({ labels, zones }) => [labels, zones]);
  return restricted.length === 0 ? [] : [restricted, conditions.map(({ id, labels }) => [id, labels])];
}

/** Decides the members of a file; null if it stays where it is. */
type MembersFor = (file: PlacedFile, conditions: readonly ServerCondition[]) => readonly ServerId[] | null;

function wantedOf(file: PlacedFile, conditions: readonly ServerCondition[]): readonly ServerId[] | null {
  const members = wantedMembers(membersOf(file), conditions, file.wanted);
  // Confirming the current members ends a planned change.
  const stays = sameServers(members, file.members as readonly ServerId[]) && file.planned === undefined;
  return stays ? null : members;
}

function membersOf({ inode, members, class: required }: PlacedFile): FileMembers {
  const allowed = required === undefined ? {} : { class: required };
  return { inode, members: members as readonly ServerId[], ...allowed };
}

function isByBytes({ filesMax }: Rebalance): boolean {
  return filesMax === Infinity;
}
