import type { ServerId } from '../../base/ids.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';

/**
 * The last primary of a file, as another server's replica knows it: without a primary it may resume
 * (docs/design/mount.md).
 * @returns null if a later epoch was begun, nothing was ever ordered, or it was `self`
 */
export function lastPrimaryElsewhere(
  { promised, installed, seq }: ReplicaRecord,
  self: ServerId,
): ServerId | null {
  const isLast = epochEqual(promised, installed) && seq > 0;
  return isLast && installed.server !== self ? installed.server : null;
}
