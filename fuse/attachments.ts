import { type CatalogNumber, catalogOfInode } from '../base/ids.ts';
import type { Junction } from './backend.ts';

/** A volume that is attached at a junction. */
export interface Attachment {
  readonly catalog: CatalogNumber;
  readonly volume: string;
  /** The inode of its root directory. */
  readonly root: number;
}

/** What a mount knows of the volumes that may be attached below the mounted one. */
export interface Attachments {
  /** How long an answer of `find` is used, in milliseconds. */
  readonly ageMaxMs: number;
  /** The volume of a junction; null unless the cluster's list says that it is attached at this very inode. */
  find(junction: Junction, inode: number): Promise<Attachment | null>;
  /**
   * The attached volume that has an inode of which the kernel has a file handle, and the junctions from there up to the
   * mounted volume; null if the volume is not attached below it.
   * @param root of the mounted volume
   */
  findByNumber(
    inode: number,
    root: number,
  ): Promise<{ readonly attachment: Attachment; readonly junctions: readonly number[] } | null>;
  /** The catalog that has an inode, if it is one of the mounted volume or of a volume that `find` returned. */
  catalogOf(inode: number): CatalogNumber;
  /** Learns which inodes have moved to another catalog. */
  refresh(): Promise<void>;
  /** After the unmount. */
  stop(): Promise<void>;
}

/** Of a mount that crosses no junction. */
export const NO_ATTACHMENTS: Attachments = {
  ageMaxMs: Number.POSITIVE_INFINITY,
  find: () => Promise.resolve(null),
  findByNumber: () => Promise.resolve(null),
  catalogOf: catalogOfInode,
  refresh: () => Promise.resolve(),
  stop: () => Promise.resolve(),
};
