import { isLong } from '../long.ts';
import { LEASE_CASES } from './lease-cases.ts';
import { leaseRun } from './lease-run.ts';
import { LEASE_SCENARIOS } from './lease-scenarios.ts';
import type { Campaign } from './planted.ts';

export const campaign: Campaign = {
  scenarios: { ...LEASE_SCENARIOS, ...LEASE_CASES },
  runSeed: (seed) => leaseRun(seed).violation,
  seedsPlayed: isLong ? 2_500 : 400,
};
