import type { Attributes, ContentVersion } from './backend.ts';

/** How old an answer is. Sequence numbers are milliseconds of the mount's monotonic clock (`Sequencer`). */
export interface Validity {
  /** Sequence number of the request: the answer may be as old as that. */
  readonly requestedAt: number;
  /** Sequence number of the latest own change in the answer, or of the request. Identifies the cached record. */
  readonly asOf: number;
}

/** Attributes with their validity, which is absent if they must not be cached. */
export interface Answered extends Attributes {
  readonly validity?: Validity;
}

export interface KernelCache {
  /** For attributes after a change, and for all attributes over a transport with one validity for all answers. */
  readonly attributesMs: number;
  /** How long these attributes are valid without `invalidateInode`; 0 if unknown, or if newer ones are known. */
  readonly validMs: (attributes: Answered) => number;
  /** How long the name refers to this inode; null: the kernel caches no names. */
  readonly nameValidMs: ((parent: number, name: string, inode: number) => number) | null;
  /** Whether a recall precedes each change of the directory's names by others. Null: names end with their time. */
  readonly isGranted: ((directory: number) => boolean) | null;
}

export function contentsName(inode: number, { epoch, seq }: ContentVersion): string {
  return `${inode}:${epoch}:${seq}`;
}
