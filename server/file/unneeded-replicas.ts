import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { World } from '../../base/world.ts';
import type { Position } from '../../replica/epoch.ts';
import { epochEqual, positionCompare } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import type { PlacedFile, Query, QueryResults } from '../../wire/catalog-api.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import type { FileStore } from '../storage/store.ts';
import type { DepartedFiles } from './departed-files.ts';
import type { ReplicaHost } from './replica-host.ts';
import { isOutdatedBy, type RemoteReplica } from './replica-place.ts';
import type { ViewConflicts } from './view-conflicts.ts';

/** Grace of a replica in an uncommitted view: it competes for the file's lease, with which it could not serve. */
const UNCOMMITTED_GRACE_MS = 60_000;
const PARALLEL = 8;

/**
 * `waiting`: to be compared again, because the file or its members are about to change.
 * `interrupted`: the store no longer shows the replica, but has a part of it.
 */
type Need = 'settled' | 'waiting' | 'deleted' | 'moved' | 'unreported' | 'interrupted';

export interface UnneededReplicasParts {
  readonly self: ServerId;
  readonly world: Pick<World, 'nextTick'>;
  readonly log: Logger;
  readonly store: Pick<FileStore, 'record'>;
  readonly departed: Pick<DepartedFiles, 'add'>;
  readonly host: ReplicaHost;
  readonly lease: LeaseDriver;
  graceMs(): number;
  nowMs(): number;
  query<Q extends Query>(query: Q): Promise<QueryResults[Q['kind']]>;
  readonly conflicts: Pick<ViewConflicts, 'compare'>;
  hasPosition(server: ServerId, file: FileId, position: Position): Promise<boolean>;
  replicaAt(server: ServerId, file: FileId): Promise<RemoteReplica | null>;
  open(file: FileId): Promise<unknown>;
}

/**
 * Compares replicas here with the catalog:
 *
 * - The replica of a file that the catalog does not have is removed. Ids are never used twice, so a server that was
 *   away for any time cannot bring a deleted file back. A file that was created with contents, but whose creation never
 *   committed, is removed once its number is void.
 * - The replica of a file that has moved to other servers is removed after the grace time, once a majority of the
 *   file's members has everything that is here. A replica of an aborted change of members, or one that is still in
 *   use, is removed once a majority of the members is in a later epoch without this server.
 * - A file whose members have changed without the catalog's knowledge is opened: it gets a primary, which reports them.
 */
export class UnneededReplicas {
  readonly #parts: UnneededReplicasParts;
  readonly #movedSinceMs = new Map<FileId, number>();
  /** Replicas whose removal has failed: what a full disk left of them takes space, and prevents a new replica. */
  readonly #interrupted = new Set<FileId>();

  constructor(parts: UnneededReplicasParts) {
    this.#parts = parts;
  }

  /**
   * Adds those files to `again` that must be compared again later: the catalog does not place the replica here in its
   * present view. A page is in `again`, as far as it must be, when the next one is requested; it has a tick of its own.
   */
  async compare(pages: Iterable<readonly FileId[]>, again: Set<FileId>): Promise<void> {
    const moved = new Map<FileId, PlacedFile>();
    const unreported: FileId[] = [];
    const deleted: FileId[] = [];
    const interrupted: FileId[] = [];
    let isFirst = true;
    for (const page of pages) {
      // The catalog's primary answers its own query in the same tick.
      if (!isFirst) await this.#parts.world.nextTick();
      isFirst = false;
      if (page.length === 0) continue;
      const { files, reserved } = await this.#parts.query({ kind: 'placed', inodes: [...page] });
      const placed = new Map(files.map((file) => [file.inode as FileId, file]));
      // Contents are stored before the creation: a reserved number may still become a file, a void one never.
      const awaited = new Set(reserved);
      for (const file of page) {
        const place = placed.get(file) ?? null;
        const need = this.#needOf(file, place, awaited.has(file));
        if (need !== 'moved') this.#movedSinceMs.delete(file);
        if (need !== 'interrupted') this.#interrupted.delete(file);
        if (need !== 'settled') again.add(file);
        if (need === 'unreported') unreported.push(file);
        if (need === 'deleted') deleted.push(file);
        if (need === 'interrupted') interrupted.push(file);
        if (need !== 'moved' || place === null) continue;
        moved.set(file, place);
        if (!this.#movedSinceMs.has(file)) this.#movedSinceMs.set(file, this.#parts.nowMs());
      }
    }
    const remove = (file: FileId) => this.#remove(file, 'removed the replica of a deleted file');
    await this.#attemptAll(deleted, (file) => [file, () => remove(file)]);
    await this.#attemptAll(moved, ([file, place]) => [file, () => this.#removeMoved(file, place)]);
    await this.#attemptAll(interrupted, (file) => [file, () => this.#continueRemoval(file)]);
    for (const file of [...deleted, ...moved.keys(), ...interrupted])
      if (this.#parts.store.record(file) === null && !this.#interrupted.has(file)) again.delete(file);
    await this.#attemptAll(unreported, (file) => [file, () => this.#parts.open(file)]);
  }

  /** Another catalog has the file now. */
  forget(file: FileId): void {
    this.#movedSinceMs.delete(file);
    this.#interrupted.delete(file);
  }

  async #attemptAll<Item>(
    items: Iterable<Item>,
    task: (item: Item) => readonly [file: FileId, work: () => Promise<unknown>],
  ): Promise<void> {
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
      this.#parts.log.debug(
        { file, err: error },
        'cannot remove a replica yet; trying again in the next round',
      );
    }
  }

  /** What the catalog's answer means for the replica here. */
  #needOf(file: FileId, place: PlacedFile | null, isReserved: boolean): Need {
    const { self, store } = this.#parts;
    const record = store.record(file);
    if (record === null) return this.#interrupted.has(file) ? 'interrupted' : 'settled';
    if (place === null) return isReserved ? 'waiting' : 'deleted';
    // An operator has to decide which of two histories is the file's, not the server that asks first.
    if (this.#isConflicting(record, file, place)) return 'waiting';
    if (this.#hasMoved(record, place)) return 'moved';
    if (this.#isUnreported(record, file, place)) return 'unreported';
    const isInView = record.view.joint === undefined && record.view.number <= place.view;
    return isInView && place.members.includes(self) ? 'settled' : 'waiting';
  }

  /** Whether the catalog has other members for the view number of the replica here. */
  #isConflicting(record: ReplicaRecord, file: FileId, { view: number, members }: PlacedFile): boolean {
    // The catalog learns only the end of a change of members.
    if (record.view.joint !== undefined) return false;
    const there = { number, members: members as readonly ServerId[] };
    return this.#parts.conflicts.compare(file, record.view, there, 'the catalog');
  }

  /**
   * Whether the file seems to have moved away from this server: the catalog has other members. A newer view in the
   * record here decides, unless it is joint, and so may never have been committed.
   */
  #hasMoved(record: ReplicaRecord, place: PlacedFile): boolean {
    const { self } = this.#parts;
    // A server that is becoming a member may be cut off for long from the primary, which counts on what it has.
    if (place.planned?.servers.includes(self) === true) return false;
    // A file without members is about to preserve another file's contents.
    const isPlaced = place.members.length > 0 && !place.members.includes(self);
    if (!isPlaced) return false;
    return !this.#isAhead(record, place) || record.view.joint !== undefined;
  }

  /**
   * Whether the record here has a newer view than the catalog, which no primary reports: the one that made the change
   * may have ended before, or be no member any more, and an unused file has no other.
   */
  #isUnreported(record: ReplicaRecord, file: FileId, place: PlacedFile): boolean {
    // A file without members preserves another file's contents: that file's primary reports them with its next change.
    if (place.members.length === 0) return false;
    if (record.view.joint !== undefined || !this.#isAhead(record, place)) return false;
    return this.#parts.host.loaded(file)?.isPrimary !== true;
  }

  #isAhead({ view }: ReplicaRecord, place: PlacedFile): boolean {
    return view.number > place.view && viewVoters(view).includes(this.#parts.self);
  }

  /** Removes the replica of a file that has moved, after the grace, once a majority of its members does not need it. */
  async #removeMoved(file: FileId, place: PlacedFile): Promise<void> {
    const { store, host, nowMs } = this.#parts;
    const record = store.record(file);
    if (record === null) return;
    const isAhead = this.#isAhead(record, place);
    const graceMs = this.#parts.graceMs();
    const dueMs = isAhead ? Math.min(graceMs, UNCOMMITTED_GRACE_MS) : graceMs;
    if (nowMs() - (this.#movedSinceMs.get(file) ?? nowMs()) < dueMs || !this.#isUnused(file)) return;
    // A replica in use may have received operations since, or others may still fetch from it.
    const isStale =
      isAhead || host.loaded(file) !== null
        ? await this.#isOutdated(file, place, record)
        : await this.#isAtOthers(file, place, record);
    if (!isStale) return;
    const { view: number, members: names } = place;
    await this.#parts.departed.add(file, { number, members: names as readonly ServerId[] });
    // This server may have become a member again meanwhile.
    if (!this.#isUnused(file) || !isUnchanged(store.record(file), record)) return;
    await this.#remove(file, 'removed a replica of a file that has moved to other servers');
    this.#movedSinceMs.delete(file);
  }

  #isUnused(file: FileId): boolean {
    const driver = this.#parts.host.loaded(file);
    return driver === null || (driver.idle && !driver.isPrimary && !driver.orders);
  }

  /** Whether a majority of the members is in a later epoch, in which this server does not vote. */
  async #isOutdated(file: FileId, { members }: PlacedFile, record: ReplicaRecord): Promise<boolean> {
    const { self, replicaAt } = this.#parts;
    const places = await Promise.allSettled(
      (members as readonly ServerId[]).map((one) => replicaAt(one, file)),
    );
    const later = places.filter(
      (place) =>
        place.status === 'fulfilled' && place.value !== null && isOutdatedBy(self, record, place.value),
    ).length;
    return later >= majority(members.length);
  }

  async #isAtOthers(file: FileId, place: PlacedFile, record: ReplicaRecord): Promise<boolean> {
    // A replica that never installed an epoch has nothing that others could lack.
    return record.installed.counter === 0 || this.#isAtMajority(file, place, positionOf(record));
  }

  /** Whether other servers that are a majority of the members have everything up to `position`. */
  async #isAtMajority(file: FileId, { members }: PlacedFile, position: Position): Promise<boolean> {
    const { self, hasPosition } = this.#parts;
    const others = (members as readonly ServerId[]).filter((member) => member !== self);
    const answers = await Promise.allSettled(others.map((member) => hasPosition(member, file, position)));
    const complete = answers.filter((answer) => answer.status === 'fulfilled' && answer.value).length;
    return complete >= majority(members.length);
  }

  async #remove(file: FileId, why: string): Promise<void> {
    this.#parts.lease.close(file);
    await this.#removeReplica(file, why);
  }

  /** Removes what is left of a replica, whatever the catalog says of its file: without it, a new one can be created. */
  async #continueRemoval(file: FileId): Promise<void> {
    if (this.#parts.store.record(file) === null)
      await this.#removeReplica(file, 'removed the rest of a replica');
  }

  async #removeReplica(file: FileId, why: string): Promise<void> {
    this.#interrupted.add(file);
    await this.#parts.host.remove(file);
    this.#interrupted.delete(file);
    this.#parts.log.debug({ file }, why);
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
