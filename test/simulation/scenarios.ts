/** All directed runs of the pure cores, by name; each returns the first violation, or null. */
import { CLAIM_CASES } from './claim-cases.ts';
import { LEASE_CASES } from './lease-cases.ts';
import { LEASE_SCENARIOS } from './lease-scenarios.ts';
import { REPLICA_CASES } from './replica-cases.ts';
import { CONVERSATIONS } from './replica-conversations.ts';

export const SCENARIOS: Readonly<Record<string, () => string | null>> = {
  ...LEASE_SCENARIOS,
  ...LEASE_CASES,
  ...CLAIM_CASES,
  ...REPLICA_CASES,
  ...CONVERSATIONS,
};
