/** All that notices planted bugs of the replica layer: directed runs, random runs, and conversations with one replica. */

import { isLong } from '../long.ts';
import type { Campaign } from './planted.ts';
import { CONVERSATIONS } from './replica-conversations.ts';
import { DISK_CASES } from './replica-disk-cases.ts';
import { ORDER_CASES } from './replica-order-cases.ts';
import { READ_CASES } from './replica-read-cases.ts';
import { replicaRun } from './replica-run.ts';

export const DIRECTED = { ...ORDER_CASES, ...READ_CASES, ...DISK_CASES };

export const campaign: Campaign = {
  scenarios: { ...DIRECTED, ...CONVERSATIONS },
  runSeed: (seed) => replicaRun(seed).violation,
  seedsPlayed: isLong ? 600 : 200,
};
