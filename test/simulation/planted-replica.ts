/** Known bugs of the replica layer; see `planted.ts`. */
import type { Planted } from './planted.ts';
import { PLANTED_MEMBERS } from './planted-replica-members.ts';
import { PLANTED_ORDER } from './planted-replica-order.ts';
import { PLANTED_READS } from './planted-replica-reads.ts';
import { PLANTED_SERVERS } from './planted-replica-server.ts';

export const PLANTED_REPLICA: readonly Planted[] = [
  ...PLANTED_ORDER,
  ...PLANTED_READS,
  ...PLANTED_MEMBERS,
  ...PLANTED_SERVERS,
];
