import { hash } from 'node:crypto';
import type { ServerId } from '../../base/ids.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';

/** A disk with a smaller free part gets no new replicas while there are others. */
export const NEARLY_FULL = 0.05;

export interface Candidate {
  readonly id: ServerId;
  /** Failure domain; empty if no other server is in it. */
  readonly zone: string;
  readonly freeBytes: number;
  /** 0 until the server has reported its disk. */
  readonly totalBytes: number;
  readonly reachable: boolean;
  /** The catalog knows its storage id, so it is known to hold its replicas from the beginning. */
  readonly registered: boolean;
}

/**
 * Chooses servers in this order: reachable and registered, not nearly full, fewest replicas in their zone, then at
 * random in proportion to the free space. Deterministic.
 * @param seed differs between choices, so that replicas spread
 * @param zones of the existing replicas, one for each
 * @returns `count` different servers, or all there are
 */
export function chooseServers(
  count: number,
  candidates: readonly Candidate[],
  seed: number,
  zones: readonly string[] = [],
): ServerId[] {
  const inZone = new Map<string, number>();
  for (const zone of zones) inZone.set(zone, (inZone.get(zone) ?? 0) + 1);
  const mostFreeBytes = Math.max(1, ...candidates.map(({ freeBytes }) => freeBytes));
  const remaining = candidates.map((candidate) => ({
    id: candidate.id,
    zone: zoneOf(candidate),
    tier: tierOf(candidate),
    score: scoreOf(candidate, seed, mostFreeBytes),
  }));
  const chosen: ServerId[] = [];
  while (chosen.length < count) {
    const [best] = remaining.toSorted(
      (a, b) =>
        a.tier - b.tier ||
        (inZone.get(a.zone) ?? 0) - (inZone.get(b.zone) ?? 0) ||
        b.score - a.score ||
        (a.id < b.id ? -1 : 1),
    );
    if (best === undefined) break;
    remaining.splice(remaining.indexOf(best), 1);
    inZone.set(best.zone, (inZone.get(best.zone) ?? 0) + 1);
    chosen.push(best.id);
  }
  return chosen;
}

/** Whether a member is worse than all servers that would be chosen now: unreachable, removed, or nearly full. */
export function isOutdated(members: readonly ServerId[], candidates: readonly Candidate[]): boolean {
  const tiers = new Map(candidates.map((candidate) => [candidate.id, tierOf(candidate)]));
  const worst = (servers: readonly ServerId[]): number =>
    Math.max(...servers.map((server) => tiers.get(server) ?? Infinity));
  return worst(members) > worst(chooseServers(members.length, candidates, 0));
}

function tierOf(candidate: Candidate): number {
  if (!candidate.reachable) return 3;
  if (!candidate.registered) return 2;
  return isNearlyFull(candidate) ? 1 : 0;
}

/** A server without a zone is one of its own. */
export function zoneOf({ id, zone }: Pick<Candidate, 'id' | 'zone'>): string {
  return zone === '' ? `server ${id}` : zone;
}

export function isNearlyFull({ freeBytes, totalBytes }: Candidate): boolean {
  return totalBytes > 0 && freeBytes < totalBytes * NEARLY_FULL;
}

/**
 * Weighted rendezvous hashing: the probability of the largest value is proportional to the weight. A server that has
 * not reported its disk counts as the one with most space.
 */
function scoreOf({ id, freeBytes, totalBytes }: Candidate, seed: number, mostFreeBytes: number): number {
  const weight = totalBytes === 0 ? mostFreeBytes : Math.max(1, freeBytes);
  const drawn = Number.parseInt(hash('sha256', `${seed}\n${id}`, 'hex').slice(0, 12), 16);
  return -weight / Math.log((drawn + 0.5) / 2 ** 48);
}

export interface PlacementParts {
  /** They may hold replicas before they have registered. */
  readonly configured: readonly ServerId[];
  isConnected(server: ServerId): boolean;
}

export class Placement {
  readonly #parts: PlacementParts;
  #choiceCount = 0;

  constructor(parts: PlacementParts) {
    this.#parts = parts;
  }

  choose(replicas: number, servers: readonly ServerInfo[]): ServerId[] {
    return chooseServers(replicas, this.candidates(servers), this.#choiceCount++);
  }

  isOutdated(members: readonly ServerId[], servers: readonly ServerInfo[]): boolean {
    return isOutdated(members, this.candidates(servers));
  }

  /** Servers that may hold new replicas: neither draining nor out. */
  candidates(servers: readonly ServerInfo[]): Candidate[] {
    const { configured, isConnected } = this.#parts;
    const known = new Set(servers.map(({ id }) => id));
    const unregistered = configured
      .filter((id) => !known.has(id))
      .map((id) => ({ id, zone: '', freeBytes: 0, totalBytes: 0, registered: false }));
    const registered = servers
      .filter(({ state }) => state === 'in')
      .map(({ id, zone, freeBytes, totalBytes, storageId }) => ({
        ...{ id: id as ServerId, zone, freeBytes, totalBytes },
        registered: storageId !== '',
      }));
    return [...registered, ...unregistered].map((each) => ({ ...each, reachable: isConnected(each.id) }));
  }
}
