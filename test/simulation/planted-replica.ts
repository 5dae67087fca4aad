/** Known bugs of the replica layer; see `planted.ts`. */
import type { Planted } from './planted.ts';
import { PLANTED_ACCESSES } from './planted-accesses.ts';
import { PLANTED_BIRTHS } from './planted-births.ts';
import { PLANTED_CLIENT_CACHES } from './planted-client-caches.ts';
import { PLANTED_CONTENTS } from './planted-contents.ts';
import { PLANTED_DETAILS } from './planted-details.ts';
import { PLANTED_DIRECT_WRITES } from './planted-direct-writes.ts';
import { PLANTED_DURABILITY } from './planted-durability.ts';
import { PLANTED_GUARDS } from './planted-guards.ts';
import { PLANTED_LOCAL_READS } from './planted-local-reads.ts';
import { PLANTED_LOCKS } from './planted-locks.ts';
import { PLANTED_MOUNTS } from './planted-mounts.ts';
import { PLANTED_NAMES } from './planted-names.ts';
import { PLANTED_NEWBORNS } from './planted-newborns.ts';
import { PLANTED_PROGRESS } from './planted-progress.ts';
import { PLANTED_QUOTA } from './planted-quota.ts';
import { PLANTED_REMOVALS } from './planted-removals.ts';
import { PLANTED_MEMBERS } from './planted-replica-members.ts';
import { PLANTED_ORDER } from './planted-replica-order.ts';
import { PLANTED_READS } from './planted-replica-reads.ts';
import { PLANTED_SEALED } from './planted-replica-sealed.ts';
import { PLANTED_SERVERS } from './planted-replica-server.ts';
import { PLANTED_RESUMED } from './planted-resumed.ts';
import { PLANTED_ROOM } from './planted-room.ts';
import { PLANTED_SECURITY } from './planted-security.ts';
import { PLANTED_SESSIONS } from './planted-sessions.ts';
import { PLANTED_SNAPSHOTS } from './planted-snapshots.ts';
import { PLANTED_TRASH } from './planted-trash.ts';
import { PLANTED_VERSIONS } from './planted-versions.ts';

export const PLANTED_REPLICA: readonly Planted[] = [
  ...PLANTED_ORDER,
  ...PLANTED_READS,
  ...PLANTED_MEMBERS,
  ...PLANTED_SEALED,
  ...PLANTED_SERVERS,
  ...PLANTED_LOCKS,
  ...PLANTED_CLIENT_CACHES,
  ...PLANTED_CONTENTS,
  ...PLANTED_DURABILITY,
  ...PLANTED_GUARDS,
  ...PLANTED_QUOTA,
  ...PLANTED_SNAPSHOTS,
  ...PLANTED_SESSIONS,
  ...PLANTED_TRASH,
  ...PLANTED_BIRTHS,
  ...PLANTED_REMOVALS,
  ...PLANTED_NAMES,
  ...PLANTED_NEWBORNS,
  ...PLANTED_MOUNTS,
  ...PLANTED_ROOM,
  ...PLANTED_DETAILS,
  ...PLANTED_RESUMED,
  ...PLANTED_VERSIONS,
  ...PLANTED_ACCESSES,
  ...PLANTED_SECURITY,
  ...PLANTED_PROGRESS,
  ...PLANTED_LOCAL_READS,
  ...PLANTED_DIRECT_WRITES,
];
