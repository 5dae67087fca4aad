import { readFileSync } from 'node:fs';
import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, isCatalogNumber, isServerId, ROOT_CATALOG } from '../../base/ids.ts';
import {
  areMovedNumbers,
  areSameRanges,
  InodeCatalogs,
  type MovedNumbers,
} from '../../base/inode-catalogs.ts';
import type { World } from '../../base/world.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import type { CatalogState, ListedServer } from '../../wire/volume-catalogs.ts';
import type { CatalogRow, MembersView } from '../catalog/catalog-rows.ts';
import { errorCode } from '../storage/failures.ts';
import { replaceFile } from '../storage/whole-file.ts';

export const CATALOGS_FILE = 'catalogs.json';

/** The root catalog's list of all volumes' catalogs and servers; removed ones stay listed. */
export interface KnownList {
  /** Larger in a later list; 0 before the first one. */
  readonly version: number;
  readonly catalogs: readonly CatalogRow[];
  readonly servers: readonly ListedServer[];
  /** Numbers of volumes that moved from the root catalog to their own; ascending. Absent: none. */
  readonly moved?: readonly MovedNumbers[];
}

export interface KnownCatalogsParts {
  readonly file: string;
  /** Of the data folder: a file from another disk does not count. */
  readonly storageId: string;
  readonly world: Pick<World, 'randomBytes'>;
  readonly log: Logger;
}

const NO_CATALOGS: KnownList = { version: 0, catalogs: [], servers: [] };

/**
 * The list of volumes' catalogs that this server acts on: the newest flushed list of the root catalog that it has
 * received. It is on the disk before it is used, so that a restart never returns to an earlier list (the rules
 * `lists-ascend` and `new-disk-is-lost` of model/volumes).
 *
 * Without the file, or with a damaged one, the list has version 0, and `bornVersion` is null: no replica is created
 * before the root catalog has reported its list anew, and none counts as intact that an earlier start may have had.
 */
export class KnownCatalogs {
  readonly #parts: KnownCatalogsParts;
  readonly #listeners = new Set<() => void>();
  /** Views that members have stated; a later one than the list's may not have reached the root catalog yet. */
  readonly #statedViews = new Map<CatalogNumber, MembersView>();
  #list: KnownList = NO_CATALOGS;
  #bornVersion: number | null = null;
  #inodeCatalogs = InodeCatalogs.NONE_MOVED;
  #byNumber: ReadonlyMap<CatalogNumber, CatalogRow> = new Map();
  #byName: ReadonlyMap<string, CatalogRow> = new Map();

  /** There was a list, which cannot be used. */
  readonly isRecordLost: boolean;

  /** Reads the list of an earlier start, if there is one. */
  constructor(parts: KnownCatalogsParts) {
    this.#parts = parts;
    const recorded = readRecorded(parts);
    this.isRecordLost = recorded === 'lost';
    if (recorded === 'lost' || recorded === null) return;
    this.#bornVersion = recorded.bornVersion;
    this.#use(recorded.list);
  }

  /** 0 before the first list. */
  get version(): number {
    return this.#list.version;
  }

  get list(): KnownList {
    return this.#list;
  }

  /**
   * Version of the root catalog's list when it registered this disk: earlier disks of this server may have had replicas
   * of catalogs up to that version. Null until it is known; no replica is created before.
   */
  get bornVersion(): number | null {
    return this.#bornVersion;
  }

  /** Which catalog has an inode, by this list. */
  get inodeCatalogs(): InodeCatalogs {
    return this.#inodeCatalogs;
  }

  byNumber(number: CatalogNumber): CatalogRow | null {
    return this.#byNumber.get(number) ?? null;
  }

  /** The catalog of the volume, also if it is being created or removed; null if the volume still moves to it. */
  byName(name: string): CatalogRow | null {
    return this.#byName.get(name) ?? null;
  }

  /** The newest view that this server knows, from the list or from a member; null for an unknown catalog. */
  viewOf(number: CatalogNumber): MembersView | null {
    const row = this.byNumber(number);
    if (row === null) return null;
    const stated = this.#statedViews.get(number);
    return stated !== undefined && stated.number > row.view
      ? stated
      : { number: row.view, members: row.members };
  }

  /** @returns what to call to unsubscribe */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Adopts a list that the root catalog has flushed, unless this one is as new.
   * @throws ServiceError `storage` if it cannot be recorded; then it is not adopted
   */
  adopt(list: KnownList): void {
    if (list.version > this.version) this.#replace(list, this.#bornVersion);
  }

  /**
   * Adopts a list that the root catalog has flushed, and that was read after this disk was registered. A catalog that
   * was made in between is newer than the disk.
   * @param registeredAt the list's version at the registration: the first one becomes `bornVersion`
   * @throws ServiceError as `adopt`
   */
  adoptAfterRegistration(list: KnownList, registeredAt: number): void {
    const newest = list.version > this.version ? list : this.#list;
    if (this.#bornVersion === null) this.#replace(newest, registeredAt);
    else this.adopt(list);
  }

  /** The catalog has moved. Kept in memory only: its primary reports the view to the root catalog. */
  noteView(number: CatalogNumber, view: MembersView): void {
    const known = this.viewOf(number);
    if (known === null || view.number <= known.number) return;
    this.#statedViews.set(number, view);
    this.#notify();
  }

  #replace(list: KnownList, bornVersion: number | null): void {
    this.#record(list, bornVersion);
    this.#bornVersion = bornVersion;
    this.#use(list);
    this.#notify();
  }

  #use(received: KnownList): void {
    const list = this.#withKnownParts(received);
    this.#list = list;
    const { moved = [] } = list;
    if (!areSameRanges(moved, this.#inodeCatalogs.moved)) this.#inodeCatalogs = new InodeCatalogs(moved);
    this.#byNumber = new Map(list.catalogs.map((row) => [row.number, row]));
    // The root catalog has a volume until it has moved.
    const present = list.catalogs.filter(({ state, moving }) => state !== 'removed' && moving === undefined);
    this.#byName = new Map(present.map((row) => [row.name, row]));
    for (const [number, { number: view }] of this.#statedViews) {
      const row = this.byNumber(number);
      if (row === null || row.state === 'removed' || row.view >= view) this.#statedViews.delete(number);
    }
  }

  /** The list with the present objects for what is equal: listeners find out what has changed by comparing objects. */
  #withKnownParts(list: KnownList): KnownList {
    const { servers } = this.#list;
    const catalogs = list.catalogs.map((row) => {
      const known = this.byNumber(row.number);
      return known !== null && JSON.stringify(known) === JSON.stringify(row) ? known : row;
    });
    const areServersKnown = JSON.stringify(servers) === JSON.stringify(list.servers);
    return { ...list, catalogs, servers: areServersKnown ? servers : list.servers };
  }

  #record(list: KnownList, bornVersion: number | null): void {
    const { file, storageId, world } = this.#parts;
    try {
      const text = JSON.stringify({ storageId, bornVersion, list });
      replaceFile(file, `${text}\n`, world.randomBytes(8).toString('hex'));
    } catch (cause) {
      throw new ServiceError('storage', "Cannot record the list of volumes' catalogs", {}, { cause });
    }
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

interface Recorded {
  readonly bornVersion: number | null;
  readonly list: KnownList;
}

/** @returns null if there is no file; `lost` if it is damaged or from another disk */
function readRecorded({ file, storageId, log }: KnownCatalogsParts): Recorded | 'lost' | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    log.error({ err: error, file }, UNREADABLE);
    return 'lost';
  }
  const recorded = parseJsonObject(text);
  const { bornVersion, list } = recorded ?? {};
  const isSound =
    recorded?.storageId === storageId &&
    (bornVersion === null || isCount(bornVersion)) &&
    isCatalogList(list) &&
    (bornVersion ?? 0) <= list.version;
  if (isSound) return { bornVersion, list };
  log.error({ file }, UNREADABLE);
  return 'lost';
}

const UNREADABLE =
  "the list of volumes' catalogs cannot be used: replicas are opened once the root catalog has reported its list";

export function isCatalogList(value: unknown): value is KnownList {
  if (typeof value !== 'object' || value === null) return false;
  const { version, catalogs, servers, moved = [] } = value as Record<string, unknown>;
  return (
    isCount(version) &&
    Array.isArray(catalogs) &&
    catalogs.every(isCatalogRow) &&
    Array.isArray(servers) &&
    servers.every(isListedServer) &&
    Array.isArray(moved) &&
    moved.every(isMovedNumbers) &&
    areMovedNumbers(moved)
  );
}

function isCatalogRow(value: unknown): value is CatalogRow {
  if (typeof value !== 'object' || value === null) return false;
  const { number, name, state, members, view, made, since, settings, attached, moving } = value as Record<
    string,
    unknown
  >;
  return (
    isCatalogNumber(number) &&
    number !== ROOT_CATALOG &&
    typeof name === 'string' &&
    (['creating', 'ready', 'removing', 'removed'] satisfies CatalogState[] as unknown[]).includes(state) &&
    Array.isArray(members) &&
    members.every((id) => typeof id === 'string' && isServerId(id)) &&
    [view, made, since, attached ?? 0].every(isCount) &&
    (
      ['begun', 'splitting', 'frozen', 'numbered', undefined] satisfies CatalogRow['moving'][] as unknown[]
    ).includes(moving) &&
    typeof settings === 'object' &&
    settings !== null
  );
}

function isMovedNumbers(value: unknown): value is MovedNumbers {
  if (typeof value !== 'object' || value === null) return false;
  const { first, end, catalog } = value as Record<string, unknown>;
  return isCount(first) && isCount(end) && isCatalogNumber(catalog) && catalog !== ROOT_CATALOG;
}

function isListedServer(value: unknown): value is ListedServer {
  if (typeof value !== 'object' || value === null) return false;
  const { id, url, zone, state, since } = value as Record<string, unknown>;
  return (
    typeof id === 'string' &&
    isServerId(id) &&
    [url, zone].every((text) => typeof text === 'string') &&
    (['in', 'draining', 'out'] satisfies ServerState[] as unknown[]).includes(state) &&
    isCount(since)
  );
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
