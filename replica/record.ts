import type { Epoch } from './epoch.ts';
import type { View } from './view.ts';

/**
 * How far a replica's store may be believed to hold all that the replica acknowledged. `damaged`: it does, but some
 * contents cannot be read, nor changed before they are replaced. `suspect`: power was lost since its base was
 * installed, and what was not synced may be gone. `lost`: it stands on a disk that may have replaced another. All
 * end with the next installation.
 */
export type Trust = 'intact' | 'damaged' | 'suspect' | 'lost';

/** What a replica keeps on disk besides its subject's contents. */
export interface ReplicaRecord {
  readonly view: View;
  /** The highest epoch promised (pe). */
  readonly promised: Epoch;
  /** The epoch whose base is installed (ae ≤ pe). */
  readonly installed: Epoch;
  /** The last operation applied. */
  readonly seq: number;
  /** The session table, encoded: results of recent requests, so that a retry is answered, not repeated. */
  readonly sessions: Uint8Array;
}
