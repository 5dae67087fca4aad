/**
 * What differs between two snapshots of a volume, for the inodes that the older one shows. It is complete for them,
 * because each change of a row that a snapshot shows keeps a copy, and each change of a directory's entries changes the
 * directory's row. Inodes that only the newer snapshot shows are found by their entries; a new directory is listed.
 *
 * Cost: one step of an index for each inode that has changed, also by its access time alone, and a scan of the entries
 * of each directory that has changed. Entries have no index by age, which each creation would have to maintain.
 */
import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type {
  Attributes,
  ChangesPosition,
  EntryChange,
  InodeChange,
  Query,
  SnapshotChanges,
} from '../wire/catalog-api.ts';
import { kindName, shownOf } from './attributes.ts';
import { KIND_DIRECTORY } from './schema.ts';
import type { ChangedEntry, SnapshotRange } from './snapshot-tables.ts';
import type { Tables } from './tables.ts';
import { inodeOf, SnapshotTree, volumeOf } from './tree.ts';

type ChangesQuery = Extract<Query, { kind: 'snapshot-changes' }>;

/** Entries of a directory that one page scans, in less than a millisecond. */
const SCANNED_MAX = 2_000;

/** A page of the differences. @throws ServiceError `not-found` if a snapshot does not exist, `bad-request` */
export function snapshotChanges(tables: Tables, query: ChangesQuery): SnapshotChanges {
  const volume = volumeOf(tables, query.volume);
  const { from, to, countMax } = query;
  for (const serial of [from, to]) {
    if (tables.snapshots.bySerial(volume.id, serial) !== undefined) continue;
    throw new ServiceError('not-found', `There is no snapshot ${serial} of volume "${volume.name}"`);
  }
  if (from >= to)
    throw new ServiceError(
      'bad-request',
      `Cannot compare: snapshot ${from} is not older than snapshot ${to}`,
    );
  const page = new ChangesPage(tables, volume.id, query);
  const { after, directory } = query;
  return directory === undefined
    ? page.read(after, countMax)
    : page.readNew(directory, after?.name ?? '', countMax);
}

class ChangesPage {
  readonly #tables: Tables;
  readonly #volume: number;
  readonly #range: SnapshotRange;
  readonly #from: SnapshotTree;
  readonly #to: SnapshotTree;
  readonly #inodes: InodeChange[] = [];
  readonly #names: EntryChange[] = [];
  #left = 0;
  #scansLeft = SCANNED_MAX;

  constructor(tables: Tables, volume: number, { from, to }: ChangesQuery) {
    this.#tables = tables;
    this.#volume = volume;
    this.#range = { from, to };
    this.#from = new SnapshotTree(tables, from);
    this.#to = new SnapshotTree(tables, to);
  }

  read(after: ChangesPosition | null, countMax: number): SnapshotChanges {
    this.#left = countMax;
    return { next: this.#readOn(after), inodes: this.#inodes, names: this.#names };
  }

  /** The names in a directory that only the newer snapshot shows: all are new, but their inodes may be old. */
  readNew(directory: number, after: string, countMax: number): SnapshotChanges {
    const row = this.#to.inode(directory);
    const { from, to } = this.#range;
    if (row?.volume !== this.#volume || this.#tables.snapshots.kindAt(directory, from) !== undefined)
      throw new ServiceError(
        'bad-request',
        `Inode ${directory} is no directory that only snapshot ${to} shows`,
      );
    const rows = this.#tables.snapshots.childrenAt(directory, after, countMax + 1, to);
    const names = rows.slice(0, countMax).map(({ name, inode }) => ({
      ...{ parent: directory, name, before: null },
      after: this.#endAfter(inode),
    }));
    const last = rows.length > countMax ? names.at(-1)?.name : undefined;
    const next = last === undefined ? null : { until: 0, since: 0, inode: directory, name: last };
    return { inodes: [], names, next };
  }

  /** @returns the position at which the page is full; null at the end */
  #readOn(after: ChangesPosition | null): ChangesPosition | null {
    let position: ChangesPosition = after ?? { until: this.#range.from, since: 0, inode: 0 };
    if (position.name !== undefined) {
      if (this.#from.inode(position.inode)?.volume !== this.#volume)
        throw new ServiceError(
          'bad-request',
          `Inode ${position.inode} is not in snapshot ${this.#range.from}`,
        );
      const name = this.#readEntries(position.inode, position.name);
      if (name !== null) return { ...position, name };
    }
    for (;;) {
      const { until, since, inode } = position;
      const row = this.#tables.snapshots.nextChanged(this.#volume, this.#range, { until, since, inode });
      if (row === undefined) return null;
      if (this.#left <= 0) return { until, since, inode };
      this.#left -= 1;
      position = row;
      if (!this.#readInode(row.inode)) continue;
      const name = this.#readEntries(row.inode, '');
      if (name !== null) return { ...row, name };
    }
  }

  /** @returns whether it is a directory, whose entries follow */
  #readInode(id: number): boolean {
    const before = this.#from.inode(id);
    if (before === undefined) return false;
    const after = this.#to.inode(id);
    if (after !== undefined) {
      const [old, present] = [shownOf(this.#from, before), shownOf(this.#to, after)];
      const contents = hasOtherContents(old, present);
      const xattrs = this.#tables.snapshots.hasChangedXattrs(id, this.#range);
      if (contents || xattrs || hasOtherAttributes(old, present))
        this.#inodes.push({ before: old, after: present, contents, xattrs });
    }
    return before.kind === KIND_DIRECTORY;
  }

  /** @returns the name after which the directory's entries continue; null at their end */
  #readEntries(parent: number, after: string): string | null {
    let name = after;
    for (;;) {
      if (this.#left <= 0 || this.#scansLeft <= 0) return name;
      const last = this.#tables.snapshots.nameAfter(parent, name, this.#scansLeft);
      this.#scansLeft = last === null ? this.#scansLeft - 1 : 0;
      const names = { parent, after: name, last };
      const rows = this.#tables.snapshots.changedEntries(names, this.#range, this.#left);
      for (const row of rows) {
        this.#left -= 1;
        const entry = this.#entryOf(parent, row);
        if (entry !== null) this.#names.push(entry);
      }
      const end = rows.at(-1);
      if (end !== undefined && this.#left <= 0) return end.name;
      if (last === null) return null;
      name = last;
    }
  }

  #entryOf(parent: number, { name, old, present }: ChangedEntry): EntryChange | null {
    if (old === present) return null;
    return {
      parent,
      name,
      before: old === null ? null : this.#endBefore(old),
      after: present === null ? null : this.#endAfter(present),
    };
  }

  #endBefore(inode: number): EntryChange['before'] {
    const { from, to } = this.#range;
    const kind = this.#tables.snapshots.kindAt(inode, from);
    assert(kind !== undefined, 'A snapshot shows the inode of an entry that it shows');
    return {
      inode,
      kind: kindName(kind),
      isRemoved: this.#tables.snapshots.kindAt(inode, to) === undefined,
    };
  }

  #endAfter(inode: number): EntryChange['after'] {
    const isNew = this.#tables.snapshots.kindAt(inode, this.#range.from) === undefined;
    return { attributes: shownOf(this.#to, inodeOf(this.#to, inode)), isNew };
  }
}

function hasOtherContents(a: Attributes, b: Attributes): boolean {
  return (
    a.kind === 'file' &&
    (a.contents.epoch !== b.contents.epoch ||
      a.contents.seq !== b.contents.seq ||
      a.sizeBytes !== b.sizeBytes)
  );
}

/** Access times and times of changes are no differences: reading advances the former, and nothing sets the latter. */
function hasOtherAttributes(a: Attributes, b: Attributes): boolean {
  return (
    // Names that changed make a difference, also if the time of the directory's change was set back.
    (a.kind === 'directory' && a.changedNs !== b.changedNs) ||
    a.mode !== b.mode ||
    a.uid !== b.uid ||
    a.gid !== b.gid ||
    a.links !== b.links ||
    a.modifiedNs !== b.modifiedNs ||
    a.target !== b.target ||
    a.device !== b.device ||
    (a.flags ?? []).join() !== (b.flags ?? []).join()
  );
}
