import type { ServerStatus } from '../../wire/http-api.ts';
import { catalogReplicasGoal } from '../process/catalog-replicas.ts';

/** Fewer voters survive no failure. */
const VOTERS_MIN = 3;

export interface CatalogRedundancy {
  /** How many servers hold the catalog. */
  readonly members: number;
  /** Servers that may hold it. */
  readonly inCount: number;
  /** Wanted number of members; null: by the number of servers. */
  readonly setting: number | null;
}

/** Why names are on fewer servers than wanted, and what that risks; none if they are on enough. */
export function tooFewCatalogReplicas({ members, inCount, setting }: CatalogRedundancy): string[] {
  const goal = catalogReplicasGoal(setting, inCount);
  // One or two servers, without a setting, have no other to use.
  const isAllThereIs = setting === null && members >= inCount;
  if (members === 0 || members >= goal || isAllThereIs) return [];
  const missing = goal - inCount;
  const servers = missing === 1 ? '1 server' : `${missing} servers`;
  const remedy = missing > 0 ? `add ${servers}` : `they are being copied to others, until ${goal} have them`;
  return [`Names are on ${members} of ${inCount} servers: ${riskOf(members)}; ${remedy}`];
}

function riskOf(members: number): string {
  if (members === 1) return 'one more failure loses them';
  if (members < VOTERS_MIN) return 'one more failure makes them unavailable';
  return `${failures(Math.floor((members - 1) / 2) + 1)} make them unavailable`;
}

/** Why named leases have fewer voters than wanted; none while no lease is known: then nothing depends on them. */
export function tooFewVoters(inCount: number, servers: readonly ServerStatus[]): string[] {
  const leases = servers.flatMap(({ namedLeases }) => namedLeases ?? []);
  const voters = Math.min(...leases.map((one) => one.voters ?? VOTERS_MIN));
  if (leases.every(({ known }) => known === 0)) return [];
  if (voters < VOTERS_MIN && inCount >= VOTERS_MIN) {
    const few = voters === 1 ? 'one voter' : `${voters} voters`;
    return [`Named leases have only ${few} until more servers vote: they are unavailable while one is down`];
  }
  const wanted = Math.max(0, ...leases.map((one) => one.votersWanted ?? 0));
  if (voters >= wanted || inCount < wanted) return [];
  const risk = `${failures(Math.floor((voters - 1) / 2) + 1)} make them unavailable`;
  return [`Named leases have ${voters} voters until ${wanted} servers vote: ${risk}`];
}

function failures(count: number): string {
  return count === 2 ? 'two failures' : `${count} failures`;
}
