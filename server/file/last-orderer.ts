import type { ServerId } from '../../base/ids.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { ReplicaRecord } from '../../replica/record.ts';

/**
 * Who has ordered a file last, as far as a replica of another server can tell: if nobody leads it, and that process lives, it may go on at once
 * (docs/design/mount.md, "A small change of a file at rest").
 *
 * @returns null where a later epoch was begun, or nothing was ordered ever, or it was `self`
 */
export function lastOrderer({ promised, installed, seq }: ReplicaRecord, self: ServerId): ServerId | null {
  const isLast = epochEqual(promised, installed) && seq > 0;
  return isLast && installed.server !== self ? installed.server : null;
}
