/** All known bugs; see `planted.ts`. */
import type { Planted } from './planted.ts';
import { PLANTED_CLAIM } from './planted-claim.ts';
import { PLANTED_FLEASE } from './planted-flease.ts';
import { PLANTED_LIMITS } from './planted-limits.ts';
import { PLANTED_PAXOS } from './planted-paxos.ts';
import { PLANTED_REPLICA } from './planted-replica.ts';

/** Those of the lease layer: of servers, and of clients. */
export const PLANTED_LEASE: readonly Planted[] = [
  ...PLANTED_FLEASE,
  ...PLANTED_PAXOS,
  ...PLANTED_LIMITS,
  ...PLANTED_CLAIM,
];

export const PLANTED: readonly Planted[] = [...PLANTED_LEASE, ...PLANTED_REPLICA];
