import type { Attributes, ContentVersion } from './backend.ts';

/** Answers with their validity, and how long the kernel may cache them. */

/**
 * How old an answer is: a value that is copied with it. Sequence numbers of a mount are milliseconds of its monotonic clock
 * (`Sequencer`).
 */
export interface Validity {
  /** Sequence number of the request: the answer may be as old as that. */
  readonly requestedAt: number;
  /** Sequence number of the latest own change that the answer includes, or of the request; it names the cached record. */
  readonly asOf: number;
}

/** Attributes with their validity; absent where they are not to be cached. */
export interface Answered extends Attributes {
  readonly validity?: Validity;
}

/** How long the kernel may cache an answer, in milliseconds. */
export interface KernelCache {
  /** Attributes that are the outcome of a change, and all where a transport cannot tell one answer from the other. */
  readonly attributesMs: number;
  /** How long these attributes are valid unless `invalidateInode` is called; 0 if that is unknown, or newer ones were learned. */
  readonly validMs: (attributes: Answered) => number;
  /** How long the name is valid for this inode; null: the kernel caches no names. */
  readonly nameValidMs: ((parent: number, name: string, inode: number) => number) | null;
  /**
   * Whether no other client changes names of the directory before it is recalled; names are valid as long as that. Null: they are valid for their
   * time alone.
   */
  readonly isGranted: ((directory: number) => boolean) | null;
}

/** @returns a name for these contents of a file, see `Opened.version` */
export function contentsName(inode: number, { epoch, seq }: ContentVersion): string {
  return `${inode}:${epoch}:${seq}`;
}
