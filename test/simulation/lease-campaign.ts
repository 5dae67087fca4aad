import { LEASE_SCENARIOS } from './lease-scenarios.ts';
import { leaseRun } from './lease-world.ts';
import type { Campaign } from './planted.ts';

export const campaign: Campaign = {
  scenarios: LEASE_SCENARIOS,
  runSeed: (seed) => leaseRun(seed).violation,
};
