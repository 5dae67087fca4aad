import type { FileId } from '../../base/ids.ts';
import type { NewTrust } from './store.ts';

/** This many file numbers are recorded at a time, with one sync. */
const RECORDED_AHEAD = 4_096;

/** What is known of replicas of one catalog's files that are not in the data folder but may have been. */
export interface ReplicaBounds {
  /** The smallest file id of which no earlier folder of this server can have had a replica; null until it is known. */
  readonly bornAt: number | null;
  /** Replicas of files below this may have been created here, unsynced. */
  readonly heldBelow: number;
  /** The same, as of the last loss of power: a replica that is not here may have been lost with it. */
  readonly missedBelow: number;
}

export const NO_REPLICAS: ReplicaBounds = { bornAt: null, heldBelow: 0, missedBelow: 0 };

/** The trust of a replica that is created now, which may replace a lost one; null while `bornAt` is unknown. */
export function trustWithin({ bornAt, missedBelow }: ReplicaBounds, file: FileId): NewTrust | null {
  if (bornAt === null) return null;
  if (file < bornAt) return 'lost';
  return file < missedBelow ? 'suspect' : 'intact';
}

/** The bounds once a replica of the file may be here, unsynced; the same object if they cover it already. */
export function boundsCovering(bounds: ReplicaBounds, file: FileId): ReplicaBounds {
  return file < bounds.heldBelow ? bounds : { ...bounds, heldBelow: file + RECORDED_AHEAD };
}

export function boundsAfterPowerLoss(bounds: ReplicaBounds): ReplicaBounds {
  return { ...bounds, missedBelow: bounds.heldBelow };
}

/** Returns the bounds that a parsed object has; those that it lacks are as in a folder without replicas. */
export function readBounds({ bornAt, heldBelow, missedBelow }: Record<string, unknown>): ReplicaBounds {
  return {
    bornAt: isCount(bornAt) ? bornAt : null,
    // Earlier releases synced whatever they created.
    heldBelow: isCount(heldBelow) ? heldBelow : 0,
    missedBelow: isCount(missedBelow) ? missedBelow : 0,
  };
}

/** Whether a parsed value has all bounds. */
export function isReplicaBounds(value: unknown): value is ReplicaBounds {
  if (typeof value !== 'object' || value === null) return false;
  const { bornAt, heldBelow, missedBelow } = value as Record<string, unknown>;
  return (bornAt === null || isCount(bornAt)) && isCount(heldBelow) && isCount(missedBelow);
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
