import { existsSync } from 'node:fs';
import type { Logger } from 'pino';
import { AssertionFailure } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, catalogCell, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { WokenWork } from '../process/woken-work.ts';
import type { CatalogStore } from '../storage/catalog-store.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import { FolderError } from '../storage/folder-error.ts';
import type { NewTrust } from '../storage/store.ts';
import { CATALOGS, type CatalogDisk, catalogsIn, folderOfCatalog, openCatalog } from './catalog-disk.ts';
import type { CatalogHolder } from './catalog-holder.ts';
import type { CatalogMember } from './catalog-member.ts';
import type { CatalogRow, CatalogRows } from './catalog-rows.ts';
import type { ReturnableCatalog } from './primary-return.ts';

/** Pause before a replica that could not be opened, closed or deleted is tried again. */
const RETRY_MS = 30_000;
const FIRST_VIEW = 1;

/** Work that a server does for a catalog while it has a replica of it. */
export interface Attendance {
  close(): void;
}

export interface VolumeCatalogsParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly folder: DataFolder;
  readonly rows: CatalogRows;
  /** @param store opened at the start; null if there is none, or not yet */
  member(number: CatalogNumber, store: CatalogStore | null): CatalogMember;
  /** Called when the replica here is open. */
  attend(number: CatalogNumber, member: CatalogMember): Attendance;
  fatal(error: unknown): void;
}

/** A replica that cannot be used here; the other members may serve the catalog. */
export interface FailedReplica {
  readonly number: CatalogNumber;
  readonly volume: string;
  readonly reason: string;
}

interface Unit {
  readonly number: CatalogNumber;
  readonly member: CatalogMember;
  readonly work: WokenWork;
  isOpen: boolean;
  attendance: Attendance | null;
  /** The view in which the replica was opened because the catalog is to move here; 0 if it was not. */
  guestView: number;
  failure: string | null;
  /** What it was last settled by: the row, the number of the newest view, and `bornVersion`. */
  basis: readonly [CatalogRow | null, number, number | null] | null;
}

/** What the disk of a volume's catalog is besides that of the root catalog. */
export function diskOfVolume(
  shared: Omit<CatalogDisk, 'cell' | 'knownView' | 'viewOfNew' | 'trustOfNew'>,
  rows: CatalogRows,
  number: CatalogNumber,
): CatalogDisk {
  const view = () => rows.viewOf(number) ?? { number: FIRST_VIEW, members: [] };
  return {
    ...shared,
    cell: catalogCell(number),
    knownView: view,
    viewOfNew: view,
    trustOfNew: () => {
      const wasDamaged = shared.folder.wasSetAside(...folderOfCatalog(catalogCell(number)));
      return wasDamaged ? 'lost' : trustOfNew(rows, number, shared.self);
    },
  };
}

/**
 * A replica that is created here counts at once only if this server never had one: it is one of the first members, the
 * view is still theirs, and the catalog is newer than this disk (rule `new-disk-is-lost` of model/volumes).
 */
function trustOfNew(rows: CatalogRows, number: CatalogNumber, self: ServerId): NewTrust {
  const { bornVersion } = rows;
  const view = rows.viewOf(number);
  const isFirst = view?.number === FIRST_VIEW && view.members.includes(self);
  const made = rows.byNumber(number)?.made ?? 0;
  return isFirst && bornVersion !== null && made > bornVersion ? 'intact' : 'lost';
}

/**
 * Opens the replicas on the disk of volumes' catalogs, before the end of the check after a loss of power, and finishes
 * what an earlier start began to delete. A replica that cannot be opened is left for later.
 * @param parts.rebuild create a damaged replica anew: it counts once it is caught up
 */
export async function openVolumeCatalogsAtStart(
  { folder, rows, log, rebuild }: OpeningParts,
  diskOf: (number: CatalogNumber) => CatalogDisk,
): Promise<ReadonlyMap<CatalogNumber, CatalogStore>> {
  await folder.finishRemovals(CATALOGS);
  const stores = new Map<CatalogNumber, CatalogStore>();
  for (const number of catalogsIn(folder)) {
    const row = rows.byNumber(number);
    // Without a row, the list is lost or older: the replica stays until a newer one says what to do.
    if (row === null || row.state === 'removed') continue;
    const open = async () => stores.set(number, await openCatalog(diskOf(number)));
    try {
      await open().catch((error: unknown) => {
        if (!rebuild || !(error instanceof FolderError) || error.code !== 'damaged') throw error;
        folder.setFolderAside(...folderOfCatalog(catalogCell(number)));
        log.warn({ err: error, volume: row.name }, 'set the damaged replica of a catalog aside (--rebuild)');
        return open();
      });
    } catch (error) {
      if (error instanceof AssertionFailure) throw error;
      log.error({ err: error, volume: row.name, catalog: number }, 'cannot open the replica of a catalog');
    }
  }
  return stores;
}

interface OpeningParts extends Pick<VolumeCatalogsParts, 'folder' | 'rows' | 'log'> {
  readonly rebuild: boolean;
}

/**
 * The replicas here of volumes' catalogs, as the list says: a member's replica is opened, also while the volume is
 * being removed; it is closed and deleted once the volume is removed, or another view excludes this server. Each step
 * may be interrupted: the next start finds the folder, and does the same by the same or a later list.
 */
export class VolumeCatalogs {
  readonly #parts: VolumeCatalogsParts;
  readonly #found: Map<CatalogNumber, CatalogStore>;
  readonly #units = new Map<CatalogNumber, Unit>();
  #unsubscribe = (): void => undefined;
  #closing = false;

  /** @param found replicas that are open already */
  constructor(parts: VolumeCatalogsParts, found: ReadonlyMap<CatalogNumber, CatalogStore>) {
    this.#parts = parts;
    this.#found = new Map(found);
  }

  start(): void {
    const { rows, folder } = this.#parts;
    this.#unsubscribe = rows.onChange(() => this.#listChanged());
    for (const number of catalogsIn(folder)) this.#unitOf(number)?.work.wake();
    this.#listChanged();
  }

  /** The service of a catalog, on members and on other servers; null if it is unknown here, or removed. */
  at(number: CatalogNumber): CatalogHolder | null {
    return this.#memberOf(number)?.service ?? null;
  }

  /** The volumes of which this server is the catalog's primary. */
  volumesAtPrimary(): readonly VolumeInfo[] {
    return [...this.#units.values()].flatMap(({ member }) => member.volumesAtPrimary());
  }

  /** Whether this server is a member of a catalog, but has no replica, or one that has lost its contents. */
  get lacksReplica(): boolean {
    return [...this.#units.values()].some(
      ({ number, member }) => this.at(number) !== null && member.service.lacksReplica,
    );
  }

  /** The catalogs of volumes with replicas in service here. */
  returnable(): ReturnableCatalog[] {
    return [...this.#units.values()].flatMap(({ number, member }) => {
      const volume = this.#parts.rows.byNumber(number)?.name;
      const { driver } = member;
      return driver === null || volume === undefined
        ? []
        : [{ volume, driver, handOver: () => member.handOver() }];
    });
  }

  /** The replica here; null if there is none. */
  storeOf(number: CatalogNumber): CatalogStore | null {
    return this.#units.get(number)?.member.store ?? null;
  }

  failed(): FailedReplica[] {
    return [...this.#units.values()].flatMap(({ number, failure: reason }) => {
      const volume = this.#parts.rows.byNumber(number)?.name ?? String(number);
      return reason === null ? [] : [{ number, volume, reason }];
    });
  }

  /**
   * Opens a replica because the catalog is to move here.
   * @throws ServiceError if the catalog is removed or unknown here, or the replica cannot be opened
   */
  async openForMove(number: CatalogNumber): Promise<void> {
    const { rows } = this.#parts;
    const unit = this.#unitOf(number);
    const view = rows.viewOf(number);
    if (unit === null || view === null || rows.byNumber(number)?.state === 'removed')
      throw new ServiceError('not-found', `Catalog ${number} is removed, or not known to this server yet`);
    unit.guestView = view.number;
    unit.work.wake();
    await unit.work.ended();
    if (unit.isOpen) return;
    const why = unit.failure ?? 'this disk is not registered yet';
    throw new ServiceError('storage', `Cannot open a replica of catalog ${number}: ${why}`);
  }

  /** Resolves when nothing is being opened or closed. */
  async settled(): Promise<void> {
    await Promise.all([...this.#units.values()].map(({ work }) => work.ended()));
  }

  /** This server shuts down: opens and closes no more replicas, and ends the work for those that are open. */
  async stop(): Promise<void> {
    this.#closing = true;
    this.#unsubscribe();
    for (const { work } of this.#units.values()) work.close();
    await this.settled();
    for (const unit of this.#units.values()) this.#endAttendance(unit);
  }

  /** Ends the epochs of which this server is primary, and waits a while for the next primaries. */
  async resign(): Promise<void> {
    await Promise.all([...this.#units.values()].map(({ member }) => member.resign()));
  }

  /** Closes the databases. To be called after `stop` and after the end of the replicas' drivers. */
  async closeStores(): Promise<void> {
    const stores = [...this.#units.values()].map(({ member }) => member.store);
    for (const store of [...stores, ...this.#found.values()]) await store?.close();
  }

  #listChanged(): void {
    const { rows, self } = this.#parts;
    for (const { number, members } of rows.list.catalogs)
      if (members.includes(self) || rows.viewOf(number)?.members.includes(self)) this.#unitOf(number);
    for (const unit of this.#units.values()) this.#wakeIfChanged(unit);
  }

  /** There may be many catalogs, and each change of the list is of one of them. */
  #wakeIfChanged(unit: Unit): void {
    const { rows } = this.#parts;
    const row = rows.byNumber(unit.number);
    const basis = [row, rows.viewOf(unit.number)?.number ?? 0, rows.bornVersion] as const;
    if (unit.basis?.every((known, place) => known === basis[place])) return;
    unit.basis = basis;
    unit.member.service.knownViewChanged();
    unit.work.wake();
  }

  #memberOf(number: CatalogNumber): CatalogMember | null {
    const row = this.#parts.rows.byNumber(number);
    return row === null || row.state === 'removed' ? null : (this.#unitOf(number)?.member ?? null);
  }

  /** @returns null if the catalog is unknown here */
  #unitOf(number: CatalogNumber): Unit | null {
    const known = this.#units.get(number);
    if (known !== undefined || this.#closing) return known ?? null;
    if (this.#parts.rows.byNumber(number) === null) return null;
    const store = this.#found.get(number) ?? null;
    this.#found.delete(number);
    const { world } = this.#parts;
    const unit: Unit = {
      number,
      member: this.#parts.member(number, store),
      work: new WokenWork({
        ...{ world, retryMs: RETRY_MS },
        work: () => this.#settle(unit),
        failed: (error) => this.#failed(unit, error),
      }),
      ...{ isOpen: false, attendance: null, guestView: 0, failure: null, basis: null },
    };
    this.#units.set(number, unit);
    return unit;
  }

  #failed(unit: Unit, error: unknown): void {
    const { log, fatal, rows } = this.#parts;
    if (error instanceof AssertionFailure) {
      fatal(error);
      return;
    }
    const reason = error instanceof Error ? error.message : String(error);
    if (reason === unit.failure) return;
    unit.failure = reason;
    const volume = rows.byNumber(unit.number)?.name;
    log.error({ err: error, volume, catalog: unit.number }, "cannot use this server's replica of a catalog");
  }

  /** Makes the replica here what the list says. */
  async #settle(unit: Unit): Promise<void> {
    const row = this.#parts.rows.byNumber(unit.number);
    if (row === null) return;
    if (!unit.isOpen && this.#isToBeOpened(unit, row)) await this.#open(unit);
    if (this.#isToBeDeleted(unit, row)) await this.#delete(unit);
    unit.failure = null;
  }

  #isToBeOpened(unit: Unit, row: CatalogRow): boolean {
    if (row.state === 'removed') return false;
    // Its own view may be newer than the list's.
    if (unit.member.store !== null || this.#hasFolder(unit.number)) return true;
    const { rows, self } = this.#parts;
    if (rows.bornVersion === null) return false;
    return rows.viewOf(unit.number)?.members.includes(self) === true || this.#isGuest(unit, row);
  }

  #isGuest({ guestView }: Unit, { view }: CatalogRow): boolean {
    return guestView > 0 && guestView >= view;
  }

  #isToBeDeleted(unit: Unit, row: CatalogRow): boolean {
    if (row.state === 'removed') return unit.member.store !== null || this.#hasFolder(unit.number);
    const own = unit.member.store?.record().view;
    if (own === undefined || row.members.includes(this.#parts.self)) return false;
    // A member of a view that the root catalog has not learned yet stays one.
    return row.view >= own.number && !this.#isGuest(unit, row);
  }

  async #open(unit: Unit): Promise<void> {
    const { number, member } = unit;
    await member.service.openReplica();
    unit.isOpen = true;
    member.compete();
    unit.attendance = this.#parts.attend(number, member);
  }

  async #delete(unit: Unit): Promise<void> {
    const { folder, log } = this.#parts;
    this.#endAttendance(unit);
    unit.isOpen = false;
    unit.guestView = 0;
    await unit.member.close();
    await folder.removeFolder(...folderOfCatalog(catalogCell(unit.number)));
    log.info({ catalog: unit.number }, 'deleted the replica of a catalog that is removed, or has moved away');
  }

  #endAttendance(unit: Unit): void {
    unit.attendance?.close();
    unit.attendance = null;
  }

  #hasFolder(number: CatalogNumber): boolean {
    return existsSync(this.#parts.folder.file(folderOfCatalog(catalogCell(number)).join('/')));
  }
}
