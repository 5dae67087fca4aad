import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { World } from '../../base/world.ts';
import type { Position } from '../../replica/epoch.ts';
import { epochEqual, positionCompare } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Command, CommandResults, PlacedFile, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { LeaseDriver } from '../lease-driver.ts';
import type { ReplicaHost } from '../replica-host.ts';
import { Rounds } from '../rounds.ts';
import type { FileStore } from '../storage/store.ts';
import type { DepartedFiles } from './departed-files.ts';
import { isOutdatedBy, type ReplicaPlace } from './replica-place.ts';
import type { ViewConflicts } from './view-conflicts.ts';

/** Where room is short, in milliseconds. Mounts say of what they have open without a name every two minutes that it is in use. */
const SHORT_GRACE_MS = 5 * 60_000;
/**
 * A replica by members that were never committed asks for the file's lease, and cannot serve what it is asked for then: it stays for so
 * long, in milliseconds.
 */
const UNCOMMITTED_GRACE_MS = 60_000;
/** Between rounds while disk space is short, in milliseconds. */
const SHORT_PERIOD_MS = 5_000;
/** Files compared with the catalog in one query, and collected by one command. */
const PAGE = 1_000;
/** Pages of files without a name, and of what removed snapshots showed, in one round. */
const PAGES_MAX = 100;
/** Files whose members are asked at the same time. */
const PARALLEL = 8;

export interface GarbageParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly store: FileStore;
  readonly departed: Pick<DepartedFiles, 'add' | 'files' | 'forget'>;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  /** A file without a name is kept for this long, in milliseconds, for those who still read it. */
  readonly graceMs: number;
  /** Some server has no room: what was deleted is not kept for as long as otherwise. */
  isRoomShort(): boolean;
  nowNs(): bigint;
  /** Monotonic, in milliseconds. */
  nowMs(): number;
  isCatalogPrimary(): boolean;
  command(command: Command): Promise<unknown>;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  readonly conflicts: Pick<ViewConflicts, 'compare'>;
  /** Whether a server's replica of the file stands at `position` or further. */
  holds(server: ServerId, file: FileId, position: Position): Promise<boolean>;
  /** Where a server's replica of the file is; null where it has none. */
  placeAt(server: ServerId, file: FileId): Promise<ReplicaPlace | null>;
  /** Resolves once the file has a primary, which reports its members to the catalog. */
  open(file: FileId): Promise<unknown>;
}

/**
 * Removes what nobody can reach. The catalog's primary forgets files that have had no name for the
 * grace time; every server removes replicas of files that the catalog no longer knows. Ids are never
 * used twice, so a server that was away for any time cannot bring a deleted file back. What was borne and never got its name goes
 * once its number is void.
 *
 * Replicas of files that have moved to other servers go, too: after the same time, and only once a majority of
 * those who hold the file now have all that is here. A replica of a change of members that broke off, and one that is still asked for its
 * file, go once a majority of the members is in a later epoch without this server.
 *
 * A file whose members have changed without the catalog's knowledge is opened, so that it has a primary, which reports them.
 */
export class Garbage {
  readonly #parts: GarbageParts;
  readonly #rounds: Rounds;
  /** Replicas whose files were found to have moved, since when. */
  readonly #movedSinceMs = new Map<FileId, number>();

  constructor(parts: GarbageParts) {
    this.#parts = parts;
    const periodMs = Math.min(60_000, Math.max(1_000, parts.graceMs / 2));
    const lookMs = Math.min(SHORT_PERIOD_MS, periodMs);
    let sinceMs = 0;
    this.#rounds = new Rounds({
      world: parts.world,
      periodMs: lookMs,
      isDue: () => {
        sinceMs += lookMs;
        if (sinceMs < periodMs && !parts.isRoomShort()) return false;
        sinceMs = 0;
        return true;
      },
      work: () => this.#round(),
      failed: (error) => parts.log.debug({ err: error }, 'garbage is left for the next round'),
    });
  }

  close(): void {
    this.#rounds.close();
  }

  /** Looks once, and removes what there is to remove. */
  run(): Promise<void> {
    return this.#rounds.run();
  }

  async #round(): Promise<void> {
    if (this.#parts.isCatalogPrimary()) await this.#collect();
    await this.#removeUnknown();
  }

  get #graceMs(): number {
    const { graceMs, isRoomShort } = this.#parts;
    return isRoomShort() ? Math.min(graceMs, SHORT_GRACE_MS) : graceMs;
  }

  async #collect(): Promise<void> {
    const beforeNs = this.#parts.nowNs() - BigInt(Math.round(this.#graceMs)) * 1_000_000n;
    for (let page = 0; page < PAGES_MAX; page++) {
      const { inodes } = (await this.#parts.command({
        kind: 'collect',
        beforeNs: beforeNs.toString(),
        countMax: PAGE,
      })) as CommandResults['collect'];
      if (inodes.length === 0) break;
    }
    if (!(await this.#parts.query({ kind: 'sweeps' })).pending) return;
    for (let page = 0; page < PAGES_MAX; page++) {
      const { more } = (await this.#parts.command({
        kind: 'sweep',
        countMax: PAGE,
      })) as CommandResults['sweep'];
      if (!more) break;
    }
  }

  async #removeUnknown(): Promise<void> {
    const { store, query } = this.#parts;
    const moved = new Map<FileId, PlacedFile>();
    const unreported: FileId[] = [];
    let after = 0 as FileId;
    for (;;) {
      const page = store.list(after, PAGE);
      const last = page.at(-1);
      if (last === undefined) break;
      after = last;
      const { files, reserved } = await query({ kind: 'placed', inodes: page });
      const placed = new Map(files.map((file) => [file.inode as FileId, file]));
      // Contents come before their name: what is reserved may be a file yet. What is not can never be one again.
      const awaited = new Set(reserved);
      for (const file of page) {
        const place = placed.get(file) ?? null;
        if (awaited.has(file)) continue;
        if (place !== null && this.#isConflicting(file, place)) {
          // Which of two histories is the file's is not decided by who asks first.
        } else if (place !== null && this.#hasMoved(file, place)) {
          moved.set(file, place);
          if (!this.#movedSinceMs.has(file)) this.#movedSinceMs.set(file, this.#parts.nowMs());
        } else if (place !== null && this.#isUnreported(file, place)) {
          unreported.push(file);
        } else if (place === null) {
          await this.#attempt(file, () => this.#remove(file, 'removed the replica of a deleted file'));
        }
      }
    }
    await this.#attemptAll(moved, ([file, place]) => [file, () => this.#removeMoved(file, place)]);
    await this.#attemptAll(unreported, (file) => [file, () => this.#parts.open(file)]);
    for (const file of this.#movedSinceMs.keys()) if (!moved.has(file)) this.#movedSinceMs.delete(file);
    await this.#forgetDeparted();
  }

  /** Each file on its own: one whose other members do not answer delays none of the others. */
  async #attemptAll<Item>(
    items: Iterable<Item>,
    task: (item: Item) => readonly [file: FileId, work: () => Promise<unknown>],
  ): Promise<void> {
    // The workers share one iterator: each item is taken by the first that is free.
    const waiting = items[Symbol.iterator]();
    const worker = async (): Promise<void> => {
      for (let next = waiting.next(); next.done !== true; next = waiting.next())
        await this.#attempt(...task(next.value));
    };
    await Promise.all(Array.from({ length: PARALLEL }, worker));
  }

  async #attempt(file: FileId, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#parts.log.debug({ file, err: error }, 'the replica of a file is left for the next round');
    }
  }

  async #forgetDeparted(): Promise<void> {
    const { departed, query } = this.#parts;
    const files = departed.files();
    for (let at = 0; at < files.length; at += PAGE) {
      const page = files.slice(at, at + PAGE);
      const placed = new Set((await query({ kind: 'placed', inodes: page })).files.map(({ inode }) => inode));
      await departed.forget(page.filter((file) => !placed.has(file)));
    }
  }

  /** Whether the catalog has other members for the number of the view that the replica here goes by. */
  #isConflicting(file: FileId, { view: number, members }: PlacedFile): boolean {
    const record = this.#parts.store.record(file);
    // Of a change of members the catalog learns the end.
    if (record === null || record.view.joint !== undefined) return false;
    const there = { number, members: members as readonly ServerId[] };
    return this.#parts.conflicts.compare(file, record.view, there, 'the catalog');
  }

  /**
   * Whether the replica is left over, as far as is known without the members. The catalog follows the file's own record: a record that is
   * newer than what the catalog has decides, unless it is of a change of members that may never have been committed.
   */
  #hasMoved(file: FileId, place: PlacedFile): boolean {
    const { self, store } = this.#parts;
    const record = store.record(file);
    // A server that becomes a member may be cut off from the primary for long, which counts on what it has.
    if (place.planned?.servers.includes(self) === true) return false;
    // Without members it preserves another file's contents in a moment.
    const isPlaced = place.members.length > 0 && !place.members.includes(self);
    if (record === null || !isPlaced) return false;
    return !this.#isAhead(record, place) || record.view.joint !== undefined;
  }

  /**
   * Whether the members have changed, as is certain by the replica here, and the catalog does not know it. The primary that changed them may
   * have ended before it reported that, or may be none of them now; an unused file has no other primary that does.
   */
  #isUnreported(file: FileId, place: PlacedFile): boolean {
    // Without members it preserves another file's contents: the primary of that file reports them with its next change.
    if (place.members.length === 0) return false;
    const record = this.#parts.store.record(file);
    if (record === null || record.view.joint !== undefined || !this.#isAhead(record, place)) return false;
    return this.#parts.host.loaded(file)?.leads !== true;
  }

  #isAhead({ view }: ReplicaRecord, place: PlacedFile): boolean {
    return view.number > place.view && viewVoters(view).includes(this.#parts.self);
  }

  async #removeMoved(file: FileId, place: PlacedFile): Promise<void> {
    const { store, host, nowMs } = this.#parts;
    const record = store.record(file);
    if (record === null) return;
    const isAhead = this.#isAhead(record, place);
    const graceMs = isAhead ? Math.min(this.#graceMs, UNCOMMITTED_GRACE_MS) : this.#graceMs;
    if (nowMs() - (this.#movedSinceMs.get(file) ?? nowMs()) < graceMs || !this.#isAtRest(file)) return;
    // A replica that is in use may have learned something since, or others still learn from it.
    const isStale =
      isAhead || host.loaded(file) !== null
        ? await this.#isOutdated(file, place, record)
        : await this.#isHeld(file, place, record);
    if (!isStale) return;
    const { view: number, members: names } = place;
    await this.#parts.departed.add(file, { number, members: names as readonly ServerId[] });
    // Somebody may have made this server a member again meanwhile.
    if (!this.#isAtRest(file) || !isUnchanged(store.record(file), record)) return;
    await this.#remove(file, 'removed the replica of a file that others hold now');
    this.#movedSinceMs.delete(file);
  }

  /** Nothing is ordered by the replica, and nothing of it is under way to the disk. */
  #isAtRest(file: FileId): boolean {
    const driver = this.#parts.host.loaded(file);
    return driver === null || (driver.idle && !driver.leads && !driver.orders);
  }

  /** Whether a majority of the members is in a later epoch, in which this server does not vote. */
  async #isOutdated(file: FileId, { members }: PlacedFile, record: ReplicaRecord): Promise<boolean> {
    const { self, placeAt } = this.#parts;
    const places = await Promise.allSettled(
      (members as readonly ServerId[]).map((one) => placeAt(one, file)),
    );
    const later = places.filter(
      (place) =>
        place.status === 'fulfilled' && place.value !== null && isOutdatedBy(self, record, place.value),
    ).length;
    return later >= majority(members.length);
  }

  async #isHeld(file: FileId, place: PlacedFile, record: ReplicaRecord): Promise<boolean> {
    // What never installed an epoch has nothing that others could lack.
    return record.installed.counter === 0 || this.#isHeldByMajority(file, place, positionOf(record));
  }

  async #isHeldByMajority(file: FileId, { members }: PlacedFile, position: Position): Promise<boolean> {
    const { self, holds } = this.#parts;
    const others = (members as readonly ServerId[]).filter((member) => member !== self);
    const answers = await Promise.allSettled(others.map((member) => holds(member, file, position)));
    const whole = answers.filter((answer) => answer.status === 'fulfilled' && answer.value).length;
    return whole >= majority(members.length);
  }

  async #remove(file: FileId, why: string): Promise<void> {
    const { host, lease, log } = this.#parts;
    lease.close(file);
    await host.remove(file);
    log.debug({ file }, why);
  }
}

function isUnchanged(now: ReplicaRecord | null, before: ReplicaRecord): boolean {
  if (now === null || now.view.number !== before.view.number) return false;
  if (!epochEqual(now.promised, before.promised)) return false;
  return positionCompare(positionOf(now), positionOf(before)) === 0;
}

function positionOf({ installed, seq }: ReplicaRecord): Position {
  return { epoch: installed, seq };
}
