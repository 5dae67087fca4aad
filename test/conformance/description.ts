import type { FileId } from '../../base/ids.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { sameObject } from '../../server/storage/contents.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import type { FileAttributes, FileDifference, FileStore } from '../../server/storage/store.ts';

/** A whole state at one instant. */
export interface FileDescription {
  readonly record: ReplicaRecord;
  readonly attributes: FileAttributes;
  readonly objects: readonly ObjectEntry[];
}

type DescribedStore = Pick<FileStore, 'attributes' | 'entries' | 'record' | 'staged'>;

export function describeFile(store: Omit<DescribedStore, 'staged'>, file: FileId): FileDescription {
  const attributes = store.attributes(file);
  const record = store.record(file) as ReplicaRecord;
  const objects = store.entries(file, 0, Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  return { record, attributes, objects };
}

/** @returns the difference from the state here to `base`, whose changed objects are staged */
export function differenceTo(
  store: DescribedStore,
  file: FileId,
  { record, attributes, objects }: FileDescription,
): FileDifference {
  const own = describeFile(store, file);
  const changes = new Map<number, ObjectEntry | null>(own.objects.map(({ index }) => [index, null]));
  for (const entry of objects) {
    const mine = own.objects.find(({ index }) => index === entry.index);
    const staged = store.staged(file, entry.index);
    const isStaged = staged !== null && sameObject(staged, entry);
    if (mine !== undefined && sameObject(mine, entry) && !isStaged) changes.delete(entry.index);
    else changes.set(entry.index, entry);
  }
  const { installed, seq } = own.record;
  return { record, attributes, from: { epoch: installed, seq }, changes };
}
