import fs from 'node:fs';
import path from 'node:path';
import { CATALOGS_END, type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import { isVotersView, type VotersView } from '../../lease/voters.ts';
import type { DatabaseState } from './database-mark.ts';
import { errorCode } from './failures.ts';
import { flushDirectory } from './file-ops.ts';
import { FolderError } from './folder-error.ts';
import { type NamedClock, readNamedClock } from './named-clock.ts';
import { isCount, isReplicaBounds, NO_REPLICAS, type ReplicaBounds, readBounds } from './replica-bounds.ts';

/** The folder's format that this program reads and writes; see FORMAT.md. */
export const FOLDER_FORMAT = 3;
/** Each folder begins with this format, which earlier releases use, too. */
export const FOLDER_FORMAT_FIRST = 1;
/** From when its server votes by a later view than the first one: earlier releases would ignore that view. */
const FOLDER_FORMAT_VOTERS = 2;
/** From when it may have replicas of a volume's catalog: earlier releases would trust these by the root's bounds. */
const FOLDER_FORMAT_CATALOGS = 3;

export const META = 'META';

/** Silence in the lease layer after a start, by cell, in milliseconds. */
export interface Silences {
  readonly filesMs: number;
  readonly namesMs: number;
}

/** Identity and state of a data folder; the bounds are those of the root catalog's files. */
export interface Meta extends ReplicaBounds {
  readonly format: number;
  readonly cluster: string;
  readonly server: string;
  readonly storageId: string;
  readonly startCounter: number;
  readonly bootId: string | null;
  /** The last process closed the folder, with everything synced. */
  readonly clean: boolean;
  /** Start counter of the first start after the last loss of power; 0 if there was none. */
  readonly powerLossStart: number;
  /** The longest recovery waits of all starts whose leases may still be valid. */
  readonly silences: Silences;
  /** The disk failed in the last start: what was not synced may be lost, as after a loss of power. */
  readonly failed: boolean;
  /** A start after such a loss has not yet checked the contents: if it is killed, the next one has to. */
  readonly recovering: boolean;
  /** Bounds of the files of volumes' catalogs, by their numbers. */
  readonly catalogs: Readonly<Record<string, ReplicaBounds>>;
  readonly databases: Readonly<Record<string, DatabaseState>>;
  /** Null if this server has not voted on a name yet. */
  readonly namedClock: NamedClock | null;
  /** The view by which this server votes on names: `first` before any change, null if it does not know. */
  readonly voters: VotersView | 'first' | null;
}

/** Whether it has had bounds of files of a volume's catalog. */
export function hasHadCatalogs({ format }: Meta): boolean {
  return format >= FOLDER_FORMAT_CATALOGS;
}

export function boundsOf(meta: Meta, catalog: CatalogNumber): ReplicaBounds {
  return catalog === ROOT_CATALOG ? meta : (meta.catalogs[catalog] ?? NO_REPLICAS);
}

export function metaWithBounds(meta: Meta, catalog: CatalogNumber, bounds: ReplicaBounds): Meta {
  const { bornAt, heldBelow, missedBelow } = bounds;
  const own = { bornAt, heldBelow, missedBelow };
  if (catalog === ROOT_CATALOG) return { ...meta, ...own };
  const format = Math.max(meta.format, FOLDER_FORMAT_CATALOGS);
  return { ...meta, format, catalogs: { ...meta.catalogs, [catalog]: own } };
}

export function metaWithVoters(meta: Meta, voters: VotersView, namedClock: NamedClock): Meta {
  return { ...meta, format: Math.max(meta.format, FOLDER_FORMAT_VOTERS), voters, namedClock };
}

/** @returns null if the folder has none. @throws FolderError if it is damaged, or of a later release */
export function readMeta(folder: string): Meta | null {
  let text: string;
  try {
    text = fs.readFileSync(path.join(folder, META), 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  }
  const damaged = (why: string): FolderError =>
    new FolderError(
      'damaged',
      `Cannot use ${folder} as data folder: its META file ${why}. Start with --rebuild, which moves its ` +
        'contents aside and re-creates all replicas from the other servers',
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw damaged(`is not JSON (${cause instanceof Error ? cause.message : String(cause)})`);
  }
  if (typeof value !== 'object' || value === null) throw damaged('contains no JSON object');
  const {
    format,
    cluster,
    server,
    storageId,
    startCounter,
    bootId,
    clean,
    powerLossStart,
    silences,
    failed,
    recovering,
    catalogs,
    databases,
    namedClock,
    voters,
  } = value as Record<string, unknown>;
  if (!isCount(format) || format === 0) throw damaged('lacks the format');
  if (format > FOLDER_FORMAT) {
    throw new FolderError(
      'unknown-format',
      `Cannot use ${folder} as data folder: its format is ${format}, and this release supports up to ` +
        `${FOLDER_FORMAT}. Run the release that wrote it, or a newer one`,
    );
  }
  if (typeof cluster !== 'string' || typeof server !== 'string' || typeof storageId !== 'string') {
    throw damaged('lacks cluster, server or storageId');
  }
  if (!isCount(startCounter) || !isCount(powerLossStart)) throw damaged('lacks a counter');
  if (bootId !== null && typeof bootId !== 'string') throw damaged('lacks the boot id');
  return {
    format,
    cluster,
    server,
    storageId,
    startCounter,
    bootId,
    clean: clean === true,
    powerLossStart,
    silences: readSilences(silences) ?? { filesMs: 0, namesMs: 0 },
    ...readBounds(value as Record<string, unknown>),
    failed: failed === true,
    recovering: recovering === true,
    catalogs: readCatalogs(catalogs, damaged),
    // An earlier release's folder records none, but has its index from its first start on.
    databases: readDatabases(databases) ?? (startCounter > 0 ? { 'index.db': 'closed' } : {}),
    namedClock: readNamedClock(namedClock),
    voters: readVoters(voters, damaged),
  };
}

/** @throws FolderError if it is invalid: a server that guessed would vote by another view */
function readVoters(value: unknown, damaged: (why: string) => FolderError): Meta['voters'] {
  if (value === undefined) return 'first';
  if (value === null || value === 'first') return value;
  if (isVotersView(value)) return value;
  throw damaged('contains invalid voters');
}

/** @throws FolderError if they are invalid: a server that guessed would trust replicas that may have lost contents */
function readCatalogs(value: unknown, damaged: (why: string) => FolderError): Meta['catalogs'] {
  if (value === undefined) return {};
  if (typeof value !== 'object' || value === null) throw damaged('contains invalid catalogs');
  for (const [catalog, bounds] of Object.entries(value)) {
    const isVolume = /^[1-9]\d*$/.test(catalog) && Number(catalog) < CATALOGS_END;
    if (!isVolume || !isReplicaBounds(bounds)) throw damaged('contains invalid catalogs');
  }
  return value as Meta['catalogs'];
}

/** Returns null for the META of an earlier release, which records none. */
function readSilences(value: unknown): Silences | null {
  if (typeof value !== 'object' || value === null) return null;
  const { filesMs, namesMs } = value as Record<string, unknown>;
  return typeof filesMs === 'number' && typeof namesMs === 'number' ? { filesMs, namesMs } : null;
}

function readDatabases(value: unknown): Record<string, DatabaseState> | null {
  if (typeof value !== 'object' || value === null) return null;
  const states = Object.entries(value).filter(([, state]) => state === 'open' || state === 'closed');
  return Object.fromEntries(states) as Record<string, DatabaseState>;
}

/** Replaces META atomically. */
export function writeMeta(folder: string, meta: Meta): void {
  const fresh = path.join(folder, 'META.new');
  const fd = fs.openSync(fresh, 'w', 0o600);
  try {
    fs.writeFileSync(fd, `${JSON.stringify(meta, null, 2)}\n`);
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
  fs.renameSync(fresh, path.join(folder, META));
  flushDirectory(folder);
}
