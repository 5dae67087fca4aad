import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { CatalogNumber } from '../base/ids.ts';
import type { UnfilledRow } from './clone-tables.ts';
import type { EntryRow, InodeRow } from './inode-rows.ts';
import { KIND_DIRECTORY, KIND_FILE } from './schema.ts';
import type { Tables } from './tables.ts';
import type { VolumeRow } from './volume-tables.ts';

/** A namespace to read: the present tables, or a snapshot. */
export interface Tree {
  /** The snapshot's number in its volume; absent for the present. */
  readonly serial?: number;
  inode(id: number): ShownRow | undefined;
  child(parent: number, name: string): ShownRow | undefined;
  children(parent: number, after: string, countMax: number): (EntryRow & ShownRow)[];
  xattr(inode: number, name: string): Uint8Array | undefined;
  xattrNames(inode: number): string[];
}

/** A row as a snapshot shows it; `source`: the file with its contents, if another one. */
export interface ShownRow extends InodeRow {
  readonly source?: number;
}

/** The file that has the contents, and their version there. */
type ContentsLocation = Required<Pick<ShownRow, 'source' | 'contentsEpoch' | 'contentsSeq'>>;

/** The contents of a shared file, as the snapshot has them. */
type SharedLocation = ContentsLocation & Pick<ShownRow, 'sizeBytes' | 'modifiedNs'>;

/** Where the contents of a file of a clone are, while it has none of its own. */
export function sharedContents(tables: Tables, { volume, origin }: UnfilledRow): SharedLocation {
  const clone = tables.clones.ofVolume(volume);
  assert(clone !== undefined, 'An unfilled inode is of a clone');
  const row = new SnapshotTree(tables, clone.serial).inode(origin);
  assert(row !== undefined, 'A snapshot shows the origins of its clones');
  const { source = 0, contentsEpoch, contentsSeq, sizeBytes, modifiedNs } = row;
  return { source: source > 0 ? source : origin, contentsEpoch, contentsSeq, sizeBytes, modifiedNs };
}

export class SnapshotTree implements Tree {
  readonly serial: number;
  readonly #tables: Tables;

  constructor(tables: Tables, serial: number) {
    this.#tables = tables;
    this.serial = serial;
  }

  /** The inode as the snapshot shows it; for a file, with the servers that have those contents now. */
  inode(id: number): ShownRow | undefined {
    const row = this.#tables.snapshots.pastInode(id, this.serial) ?? this.#unchanged(id);
    if (row === undefined) return undefined;
    const xattrs = this.#tables.snapshots.xattrCountAt(id, this.serial);
    // A snapshot shows what its volume had: a junction was an empty directory.
    if (row.kind !== KIND_FILE) return { ...row, xattrs, junction: null };
    const shown = { ...row, live: 0, xattrs, shared: 0, ...this.#contents(id, row) };
    const { replicas = '', view = 0 } = this.#tables.inode(shown.source > 0 ? shown.source : id) ?? {};
    return { ...shown, replicas, view };
  }

  child(parent: number, name: string): ShownRow | undefined {
    const id = this.#tables.snapshots.childAt(parent, name, this.serial);
    return id === undefined ? undefined : this.inode(id);
  }

  children(parent: number, after: string, countMax: number): (EntryRow & ShownRow)[] {
    const names = this.#tables.snapshots.childrenAt(parent, after, countMax, this.serial);
    return names.map(({ name, inode }) => ({ ...inodeOf(this, inode), entryName: name }));
  }

  xattr(inode: number, name: string): Uint8Array | undefined {
    return this.#tables.snapshots.xattrsAt(inode, this.serial).find((xattr) => xattr.name === name)?.value;
  }

  xattrNames(inode: number): string[] {
    return this.#tables.snapshots.xattrsAt(inode, this.serial).map(({ name }) => name);
  }

  /** Where the contents are: preserved, the file's own, or those of the snapshot that it is a copy of. */
  #contents(id: number, { source = 0, contentsEpoch, contentsSeq }: ShownRow): ContentsLocation {
    const unfilled = source === 0 ? this.#tables.clones.unfilled(id) : undefined;
    if (unfilled === undefined) return { source, contentsEpoch, contentsSeq };
    // Its size and times are its own.
    const { sizeBytes: _size, modifiedNs: _time, ...location } = sharedContents(this.#tables, unfilled);
    return location;
  }

  #unchanged(id: number): ShownRow | undefined {
    const row = this.#tables.inode(id);
    return row !== undefined && row.since <= this.serial && row.orphanedNs === null ? row : undefined;
  }
}

/** @returns the tree to read; `snapshot` is a number in the volume of `inode` */
export function treeAt(tables: Tables, inode: number, snapshot: number | undefined): Tree {
  if (snapshot === undefined) return tables;
  const tree = new SnapshotTree(tables, snapshot);
  const volume = tree.inode(inode)?.volume;
  if (volume !== undefined && tables.snapshots.bySerial(volume, snapshot) !== undefined) return tree;
  throw new ServiceError(
    'not-found',
    `There is no inode ${inode} in snapshot ${snapshot}, or the snapshot was removed`,
  );
}

/** @param name of a volume, or of a snapshot: `volume@snapshot` */
export function treeByName(tables: Tables, name: string): { readonly tree: Tree; readonly root: number } {
  const [volumeName, snapshotName] = name.split('@') as [string, string?];
  const volume = volumeOf(tables, volumeName);
  if (snapshotName === undefined) return { tree: tables, root: volume.root };
  const snapshot = tables.snapshots.byName(volume.id, snapshotName);
  if (snapshot === undefined) {
    throw new ServiceError('not-found', `There is no snapshot "${snapshotName}" of volume "${volumeName}"`);
  }
  return { tree: new SnapshotTree(tables, snapshot.serial), root: volume.root };
}

export function volumeOf(tables: Tables, name: string): VolumeRow {
  const volume = tables.volumes.byName(name);
  if (volume !== undefined) return volume;
  const catalog = tables.catalogs.byName(name)?.number as CatalogNumber | undefined;
  const hasMoved = catalog !== undefined && tables.moves.row(catalog) !== undefined;
  throw new ServiceError('not-found', `There is no volume "${name}"`, {
    ...(catalog === undefined ? {} : { elsewhere: true }),
    ...(hasMoved ? { movedTo: catalog } : {}),
  });
}

export function inodeOf(tree: Tables, id: number): InodeRow;
export function inodeOf(tree: Tree, id: number): ShownRow;
export function inodeOf(tree: Tree, id: number): ShownRow {
  const inode = tree.inode(id);
  if (inode === undefined) throw new ServiceError('not-found', `There is no inode ${id}`);
  return inode;
}

/** @throws ServiceError `not-found`, `not-directory` */
export function directoryOf(tree: Tree, id: number): InodeRow {
  const inode = inodeOf(tree, id);
  if (inode.kind !== KIND_DIRECTORY) throw new ServiceError('not-directory', `Inode ${id} is no directory`);
  return inode;
}
