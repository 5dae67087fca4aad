/** All planted bugs; see `planted.ts`. */
import type { Planted } from './planted.ts';
import { PLANTED_LEASE } from './planted-lease.ts';
import { PLANTED_MOUNTS } from './planted-mounts.ts';
import { PLANTED_REPLICA } from './planted-replica.ts';
import { PLANTED_SCHEDULES } from './planted-schedules.ts';
import { PLANTED_SERVERS } from './planted-servers.ts';

export const PLANTED: readonly Planted[] = [
  ...PLANTED_LEASE,
  ...PLANTED_REPLICA,
  ...PLANTED_SERVERS,
  ...PLANTED_MOUNTS,
  ...PLANTED_SCHEDULES,
];
