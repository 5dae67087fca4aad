import { isLong } from '../long.ts';
import { CLAIM_CASES } from './claim-cases.ts';
import { claimRun } from './claim-run.ts';
import type { Campaign } from './planted.ts';

export const campaign: Campaign = {
  scenarios: CLAIM_CASES,
  runSeed: (seed) => claimRun(seed).violation,
  seedsPlayed: isLong ? 1_000 : 200,
};
