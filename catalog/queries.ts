import { assert, unreachable } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type {
  CloneInfo,
  DirectoryQuota,
  PlacedFile,
  Query,
  QueryResults,
  QuotaWalkState,
  VolumeInfo,
} from '../wire/catalog-api.ts';
import {
  fileSettingsOf,
  kindName,
  placedFileOf,
  policyName,
  shownOf,
  snapshotInfoOf,
  trashedFileOf,
  volumeInfoOf,
} from './attributes.ts';
import { isCounted } from './charges.ts';
import type { CloneRow } from './clone-tables.ts';
import { catalogState } from './commands/catalog-lifecycle.ts';
import { hasGarbage } from './commands/files.ts';
import { noAttribute } from './commands/set-attributes.ts';
import { isSweepPending } from './commands/snapshots.ts';
import { pathCheck } from './commands/trash.ts';
import type { DirectoryClassRow } from './directory-class-tables.ts';
import type { DirectoryQuotaRow } from './directory-quota-tables.ts';
import type { NameRow } from './entry-tables.ts';
import { placementClassOf } from './file-class.ts';
import { filesNeeding } from './files-needing.ts';
import { miscountedFiles } from './miscounted-files.ts';
import { misplacedFiles } from './misplaced-files.ts';
import { nameCheck } from './names.ts';
import type { PlacedRow } from './placement-tables.ts';
import { presentRows } from './present-rows.ts';
import { type CatalogDatabase, KIND_FILE } from './schema.ts';
import { refuseElsewhere } from './scopes.ts';
import { sessionLast, sessionsMissing } from './sessions.ts';
import { snapshotChanges } from './snapshot-changes.ts';
import { Tables } from './tables.ts';
import { directoryOf, inodeOf, sharedContents, treeAt, treeByName, volumeOf } from './tree.ts';
import { DELETIONS_VERSION } from './versions.ts';
import { volumeExport } from './volume-export.ts';
import type { VolumeRow } from './volume-tables.ts';
import { directoryPath, directoryPaths, pathInode, pathTo } from './walk.ts';

type FoundPath = QueryResults['paths']['paths'][number];

export type QueryOf<Kind extends Query['kind']> = Extract<Query, { kind: Kind }>;

/**
 * Answers a query from the latest commit, or from the open transaction if `db` has one.
 * @throws ServiceError, UnfilledDirectory
 */
export function runQuery<Kind extends Query['kind']>(
  db: CatalogDatabase,
  query: QueryOf<Kind> & { kind: Kind },
): QueryResults[Kind];
export function runQuery(db: CatalogDatabase, query: Query): QueryResults[Query['kind']] {
  const tables = Tables.of(db);
  refuseElsewhere(tables, query);
  switch (query.kind) {
    case 'resolve':
      return resolved(tables, query);
    case 'lookup': {
      nameCheck(query.name);
      const tree = treeAt(tables, query.parent, query.snapshot);
      const inode = tree.child(directoryOf(tree, query.parent).id, query.name);
      if (inode === undefined) throw new ServiceError('not-found', `There is no "${query.name}"`);
      return { attributes: shownOf(tree, inode) };
    }
    case 'attributes': {
      const tree = treeAt(tables, query.inode, query.snapshot);
      return { attributes: shownOf(tree, inodeOf(tree, query.inode)) };
    }
    case 'list': {
      const tree = treeAt(tables, query.inode, query.snapshot);
      const directory = directoryOf(tree, query.inode);
      // One more than requested shows whether there are more.
      const rows = tree.children(directory.id, query.after, query.countMax + 1);
      const entries = rows.slice(0, query.countMax).map((row) => {
        const value = query.xattr === undefined ? undefined : tree.xattr(row.id, query.xattr);
        const xattr = value === undefined ? {} : { xattr: Buffer.from(value).toString('base64') };
        return { name: row.entryName, attributes: shownOf(tree, row), ...xattr };
      });
      return { entries, more: rows.length > query.countMax };
    }
    case 'xattr': {
      const tree = treeAt(tables, query.inode, query.snapshot);
      const inode = inodeOf(tree, query.inode);
      const value = tree.xattr(inode.id, query.name);
      if (value === undefined) throw noAttribute(inode.id, query.name);
      return { value: Buffer.from(value).toString('base64') };
    }
    case 'xattrs': {
      const tree = treeAt(tables, query.inode, query.snapshot);
      return { names: tree.xattrNames(inodeOf(tree, query.inode).id) };
    }
    case 'volume-of': {
      const volume = tables.inode(query.inode)?.volume ?? tables.snapshots.volumeOfPast(query.inode);
      if (volume === undefined) throw new ServiceError('not-found', `There is no inode ${query.inode}`);
      return { volume: tables.volumes.row(volume).name };
    }
    case 'snapshots': {
      const volume = volumeOf(tables, query.volume);
      return { snapshots: tables.snapshots.all(volume.id).map((row) => snapshotInfoOf(volume, row)) };
    }
    case 'snapshot-changes':
      return snapshotChanges(tables, query);
    case 'sweeps':
      return {
        pending: isSweepPending(tables),
        garbage: hasGarbage(tables),
        ...(tables.retentions.hasDates() ? { retains: true } : {}),
      };
    case 'unfilled': {
      const { after, countMax } = query;
      const rows = tables.clones.toFill(after, countMax);
      const inodes = rows.map(({ inode }) => ({
        inode,
        kind: kindName(tables.inodes.existing(inode).kind),
      }));
      return { inodes, next: rows.length < countMax ? null : (rows.at(-1)?.inode ?? null) };
    }
    case 'shared-contents': {
      const own = inodeOf(tables, query.inode);
      if (own.kind !== KIND_FILE) throw new ServiceError('bad-request', `Inode ${own.id} is no file`);
      const row = tables.clones.unfilled(own.id);
      const at = row === undefined ? { ...own, source: own.id } : sharedContents(tables, row);
      const { source, sizeBytes, modifiedNs, contentsEpoch: epoch, contentsSeq: seq } = at;
      const members = row === undefined || row.members === '' ? [] : row.members.split(',');
      return {
        ...{ source, contents: { epoch, seq }, sizeBytes, modifiedNs },
        ...{ objectBytes: own.objectBytes, policy: policyName(own.policy), members },
      };
    }
    case 'live-files':
      return { inodes: tables.inodeLists.live(volumeOf(tables, query.volume).id, query.countMax) };
    case 'reservations': {
      const { after, countMax } = query;
      const { inodeLists } = tables;
      const rows = presentRows(tables, after, countMax, (from, most) =>
        query.live ? inodeLists.allLive(from, most) : inodeLists.reserving(from, most),
      );
      const files = rows.filter(isCounted).map(({ id, markEpoch, markTurn }) => ({
        inode: id,
        mark: { epoch: markEpoch, turn: markTurn },
      }));
      return { files, next: rows.length < countMax ? null : (rows.at(-1)?.id ?? null) };
    }
    case 'volume':
      return { volume: shownVolume(tables, volumeOf(tables, query.name)) };
    case 'volumes':
      return { volumes: tables.volumes.all().map((volume) => listedVolume(tables, volume)) };
    case 'outcome':
      return sessionLast(tables, query.session);
    case 'missing-commands':
      return { missing: sessionsMissing(tables, query.answered) };
    case 'existing':
      return { inodes: query.inodes.filter((inode) => tables.inodes.exists(inode)) };
    case 'paths':
      return { paths: tables.entries.firstNames(query.inodes).flatMap((name) => pathOf(tables, name) ?? []) };
    case 'servers': {
      const servers = tables.servers.all();
      const settings = tables.servers.settings();
      if (!query.counts) return { servers, settings };
      return {
        servers: servers.map((server) => ({ ...server, replicas: tables.placements.count(server.id) })),
        settings,
      };
    }
    case 'files-needing':
      return filesNeeding(tables, query.server, query.without);
    case 'directory-quotas': {
      const rows = tables.quotas.ofVolume(volumeOf(tables, query.volume).id, query.after, query.countMax);
      return {
        quotas: directoryQuotasOf(tables, rows),
        next: rows.length < query.countMax ? null : (rows.at(-1)?.directory ?? null),
      };
    }
    case 'quotas-of': {
      const rows = tables.quotas.chain(inodeOf(tables, query.inode).quota);
      return { quotas: directoryQuotasOf(tables, rows) };
    }
    case 'quota-walks':
      return { pending: tables.walks.next() !== undefined };
    case 'quota-walk':
      return quotaWalkState(tables, inodeOf(tables, query.inode).id);
    case 'placement-classes':
      return { classes: tables.classes.all().map((row) => directoryClassOf(tables, row, query.paths)) };
    case 'voters':
      return { view: tables.servers.voters() };
    case 'catalog-state':
      return catalogState(tables);
    case 'catalogs': {
      const { version } = tables.catalogs;
      if (query.known === version) return { version, catalogs: [], servers: [] };
      const moved = tables.moves.list();
      return { ...tables.catalogs.list(), ...(moved.length === 0 ? {} : { moved }) };
    }
    case 'moves':
      return { moves: tables.moves.all().map(({ catalog, phase }) => ({ catalog, phase })) };
    case 'volume-export':
      return volumeExport(tables, query.number, query.after);
    case 'files-on': {
      const rows = presentRows(tables, query.after, query.countMax + 1, (after, most) =>
        tables.placements.filesOn(query.server, after, most),
      );
      return {
        files: placedFiles(tables, rows.slice(0, query.countMax)),
        more: rows.length > query.countMax,
      };
    }
    case 'files-miscounted': {
      const { rows, next } = miscountedFiles(tables, query);
      return { files: placedFiles(tables, rows), next };
    }
    case 'files-misplaced': {
      const { rows, next } = misplacedFiles(tables, query);
      return { files: placedFiles(tables, rows), next };
    }
    case 'plans': {
      const rows = presentRows(tables, query.after, query.countMax, (after, most) =>
        tables.placements.plannedFiles(after, most),
      );
      const next = rows.length < query.countMax ? null : (rows.at(-1)?.id ?? null);
      return { files: placedFiles(tables, rows), next, begun: tables.placements.hasPlanned };
    }
    case 'placed': {
      const rows = query.inodes.flatMap((inode) => tables.placements.placed(inode) ?? []);
      const placed = new Set(rows.map(({ id }) => id));
      return {
        files: placedFiles(tables, rows, query.settings),
        reserved: query.inodes.filter((inode) => !placed.has(inode) && tables.numbers.isReserved(inode)),
      };
    }
    case 'deletions': {
      const { rows, trimmed, last } = tables.deletions.rows(query.server, query.after, query.countMax);
      return {
        rows: rows.map(({ seq, inode }) => [seq, inode] as const),
        ...{ trimmed, last, written: tables.version.current >= DELETIONS_VERSION },
      };
    }
    case 'trash': {
      const volume = volumeOf(tables, query.volume);
      const rows = tables.trash.below(volume.id, pathCheck(query.path), query.after, query.countMax + 1);
      const files = rows
        .slice(0, query.countMax)
        .map((row) => trashedFileOf(tables.inodes.existing(row.inode), row));
      return { files, more: rows.length > query.countMax };
    }
    default:
      return unreachable(query);
  }
}

function resolved(tables: Tables, { volume, path, ...how }: QueryOf<'resolve'>): QueryResults['resolve'] {
  return { attributes: shownOf(treeByName(tables, volume).tree, pathInode(tables, volume, path, how)) };
}

function cloneInfoOf(
  { volumes, snapshots }: Tables,
  { source, serial, unfilled, flattens }: CloneRow,
): CloneInfo {
  const snapshot = snapshots.bySerial(source, serial);
  assert(snapshot !== undefined, 'A snapshot is not removed while clones need it');
  return {
    source: volumes.row(source).name,
    snapshot: snapshot.name,
    unfilled,
    flattens: flattens === 1,
  };
}

/** @returns an entry's path in its volume; null if its directory is unlinked */
function pathOf(tables: Tables, { inode, parent, name }: NameRow): FoundPath | null {
  const directory = tables.inodes.existing(parent);
  const path = pathTo(tables, directory, name);
  return path === null ? null : { inode, volume: directory.volumeName, path };
}

function directoryClassOf(
  tables: Tables,
  row: DirectoryClassRow,
  withPath = false,
): QueryResults['placement-classes']['classes'][number] {
  const { directory, volume, replicas } = row;
  const { name } = tables.volumes.row(volume);
  // A directory with a class is linked: its removal ends the class.
  const path = withPath ? { path: directoryPath(tables, directory) ?? '/' } : {};
  const count = replicas === 0 ? {} : { replicas };
  return { directory, volume: name, ...path, ...placementClassOf(row), ...count };
}

function directoryQuotasOf(tables: Tables, rows: readonly DirectoryQuotaRow[]): DirectoryQuota[] {
  tables.walks.begin();
  const paths = directoryPaths(
    tables,
    rows.map(({ directory }) => directory),
  );
  return rows.map(({ directory, volume, enclosing: _, ...quota }) => {
    const path = paths.get(directory);
    const name = tables.volumes.row(volume).name;
    return {
      ...{ directory, volume: name, ...(path === undefined ? {} : { path }), ...quota },
      ...walkOf(tables, directory),
    };
  });
}

function walkOf(tables: Tables, directory: number): Pick<DirectoryQuota, 'counting' | 'ending'> {
  const walk = tables.walks.row(directory);
  switch (walk?.phase) {
    case 'counting':
    case 'checking':
      return { counting: { quotaBytes: walk.quotaBytes, quotaInodes: walk.quotaInodes } };
    case 'ending':
      return { ending: true };
    default:
      return {};
  }
}

function quotaWalkState(tables: Tables, directory: number): QuotaWalkState {
  tables.walks.begin();
  const walk = tables.walks.row(directory);
  if (walk?.phase === 'refused') return { state: 'refused', why: walk.why };
  const { counting, ending } = walkOf(tables, directory);
  return { state: counting !== undefined ? 'counting' : ending ? 'ending' : 'none' };
}

function placedFiles(tables: Tables, rows: readonly PlacedRow[], settings = false): PlacedFile[] {
  const volumes = new Map<number, VolumeRow>();
  const arePlanned = tables.placements.hasPlanned;
  return rows.map((row) => {
    const volume = volumes.get(row.volume) ?? tables.volumes.row(row.volume);
    volumes.set(row.volume, volume);
    const plan = arePlanned ? tables.placements.planOf(row.id) : null;
    const placed = {
      ...placedFileOf(row, tables.classes.of(volume, row.placement)),
      ...(plan === null ? {} : { planned: plan }),
    };
    return settings ? { ...placed, settings: fileSettingsOf(row, volume) } : placed;
  });
}

function listedVolume(tables: Tables, row: VolumeRow): VolumeInfo {
  const fullDirectories = tables.quotas.nearlyUsed(row.id);
  return { ...shownVolume(tables, row), ...(fullDirectories === 0 ? {} : { fullDirectories }) };
}

function shownVolume(tables: Tables, row: VolumeRow): VolumeInfo {
  const { own, clones } = tables;
  const clone = clones.ofVolume(row.id);
  return {
    ...volumeInfoOf(row),
    ...(own.isRoot ? {} : { catalog: own.number }),
    ...(clone === undefined ? {} : { clone: cloneInfoOf(tables, clone) }),
  };
}
