import type { Epoch } from './epoch.ts';
import type { View } from './view.ts';

/**
 * Whether a store has all that its replica acknowledged. `damaged`: yes, but some contents are unreadable, and must
 * be replaced before they change. `suspect`: power was lost since the base was installed, and unsynced data may be
 * gone. `lost`: the disk may have replaced another. All end with the next installation.
 */
export type Trust = 'intact' | 'damaged' | 'suspect' | 'lost';

/** What a replica keeps on disk besides the contents. */
export interface ReplicaRecord {
  readonly view: View;
  /** The highest epoch promised (pe). */
  readonly promised: Epoch;
  /** The epoch whose base is installed (ae ≤ pe). */
  readonly installed: Epoch;
  /** The last operation applied. */
  readonly seq: number;
  /** The encoded session table: recent results, so that a retry is answered, not repeated. */
  readonly sessions: Uint8Array;
}
