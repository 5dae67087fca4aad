/** All directed runs of the pure cores, by name; each returns the first violation, or null. */
import { CLAIM_CASES } from './claim-cases.ts';
import { LEASE_CASES } from './lease-cases.ts';
import { LEASE_SCENARIOS } from './lease-scenarios.ts';
import { CONVERSATIONS } from './replica-conversations.ts';
import { DISK_CASES } from './replica-disk-cases.ts';
import { ORDER_CASES } from './replica-order-cases.ts';
import { READ_CASES } from './replica-read-cases.ts';

export const SCENARIOS: Readonly<Record<string, () => string | null>> = {
  ...LEASE_SCENARIOS,
  ...LEASE_CASES,
  ...CLAIM_CASES,
  ...ORDER_CASES,
  ...READ_CASES,
  ...DISK_CASES,
  ...CONVERSATIONS,
};
