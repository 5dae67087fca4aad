import type { Attributes, NodeKind } from '../../wire/catalog-api.ts';

/** An inode as a snapshot shows it. */
export interface Node {
  readonly inode: number;
  readonly kind: NodeKind;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Decimal nanoseconds since 1970. */
  readonly modifiedNs: string;
  readonly target: string;
  readonly device: number;
  readonly sizeBytes: number;
  /** Names and values in base64; null: not changed. */
  readonly xattrs: readonly (readonly [name: string, value: string])[] | null;
}

/** A name in a directory, by the directory's number in the source. */
export interface Name {
  readonly parent: number;
  readonly name: string;
}

/**
 * One step from an older to a newer snapshot of a volume; the older one of a first copy is an empty directory. Inodes
 * have their numbers in the source, so that no step needs a path. The steps are in an order in which they can be
 * executed, except that a directory may be added under a new name before its old name is removed.
 */
export type DifferenceRecord =
  /** A new inode. With `place`: its only name; else names follow. Contents follow if it is a file. */
  | { readonly kind: 'node'; readonly node: Node; readonly place: Name | null }
  /** Other attributes of an inode that both snapshots show. With `contents`, these follow. */
  | { readonly kind: 'change'; readonly node: Node; readonly contents: boolean }
  /** `isGone`: the newer snapshot does not show the inode under any name. */
  | ({
      readonly kind: 'remove';
      readonly inode: number;
      readonly isDirectory: boolean;
      readonly isGone: boolean;
    } & Name)
  | ({ readonly kind: 'add'; readonly inode: number; readonly isDirectory: boolean } & Name);

/** A record, and the attributes by which the snapshot's contents of the file are read, if the record has contents. */
export interface DifferenceStep {
  readonly record: DifferenceRecord;
  readonly file: Attributes | null;
}

/** Bytes of a file; ranges without bytes are holes. */
export interface ContentsPiece {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

export function hasContents(record: DifferenceRecord): boolean {
  return record.kind === 'change' ? record.contents : record.kind === 'node' && record.node.kind === 'file';
}
