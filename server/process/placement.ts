import { hash } from 'node:crypto';
import type { ServerId } from '../../base/ids.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import { classFits, type PlacementClass } from '../../wire/placement-class.ts';

/** A disk with a smaller free part gets no new replicas while there are others. */
export const NEARLY_FULL = 0.05;

export interface Candidate {
  readonly id: ServerId;
  /** Failure domain; empty if no other server is in it. */
  readonly zone: string;
  /** Absent if it has none. */
  readonly labels?: readonly string[];
  readonly freeBytes: number;
  /** 0 until the server has reported its disk. */
  readonly totalBytes: number;
  readonly reachable: boolean;
  /** It has registered its store with the catalog: it is known to hold its replicas from the beginning. */
  readonly registered: boolean;
}

/**
 * Chooses servers in this order: reachable and registered, not nearly full, fewest replicas in their zone, smallest
 * load, then at random in proportion to the free space. Deterministic.
 * @param seed differs between choices, so that replicas spread
 * @param zones of the existing replicas, one for each
 * @param loads by server, 0 if absent
 * @returns `count` different servers, or all there are
 */
export function chooseServers(
  count: number,
  candidates: readonly Candidate[],
  seed: number,
  zones: readonly string[] = [],
  loads: ReadonlyMap<string, number> = new Map(),
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
        (loads.get(a.id) ?? 0) - (loads.get(b.id) ?? 0) ||
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

/** Whether a member is worse than all that would be chosen now: unreachable, nearly full, or no candidate. */
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

  /**
   * @param loads by server: those with less come before those with more free space
   * @returns no more servers than there are with the labels and in the zones
   */
  choose(
    replicas: number,
    servers: readonly ServerInfo[],
    required: PlacementClass,
    loads?: ReadonlyMap<string, number>,
  ): ServerId[] {
    return chooseServers(replicas, this.#allowed(servers, required), this.#choiceCount++, [], loads);
  }

  /** @see isOutdated */
  isOutdated(
    members: readonly ServerId[],
    servers: readonly ServerInfo[],
    required: PlacementClass,
  ): boolean {
    return isOutdated(members, this.#allowed(servers, required));
  }

  capacity(servers: readonly ServerInfo[], required: PlacementClass): number {
    return this.#allowed(servers, required).length;
  }

  #allowed(servers: readonly ServerInfo[], required: PlacementClass): Candidate[] {
    return this.candidates(servers).filter((candidate) => classFits(required, candidate));
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
      .map(({ id, zone, labels = [], freeBytes, totalBytes, storageId, registeredNs }) => ({
        ...{ id: id as ServerId, zone, labels, freeBytes, totalBytes },
        registered: storageId !== '' && registeredNs !== '0',
      }));
    return [...registered, ...unregistered].map((each) => ({ ...each, reachable: isConnected(each.id) }));
  }
}
