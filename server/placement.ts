import { hash } from 'node:crypto';
import type { ServerId } from '../base/ids.ts';
import type { ServerInfo } from '../wire/catalog-api.ts';

/** A disk with less than this part free takes no new replicas while there are others. */
export const NEARLY_FULL = 0.05;

/** A server that may hold a replica. */
export interface Candidate {
  readonly id: ServerId;
  /** What fails together; empty: nothing else fails with this server. */
  readonly zone: string;
  readonly freeBytes: number;
  /** 0 where the server has not said yet how much room it has. */
  readonly totalBytes: number;
  readonly reachable: boolean;
  /** It has told the catalog which store it has: what it holds is known to be there from the beginning. */
  readonly registered: boolean;
}

/**
 * Chooses servers: those in reach and registered first, of these the ones with room, of these the ones whose zone has fewest
 * replicas, of these by chance in proportion to the free space. The same arguments give the same servers.
 *
 * @param seed what tells this choice from others, so that replicas spread
 * @param zones those of the replicas that are there already, one for each
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
  const typicalBytes = Math.max(1, ...candidates.map(({ freeBytes }) => freeBytes));
  const left = candidates.map((candidate) => ({
    id: candidate.id,
    zone: zoneOf(candidate),
    tier: tierOf(candidate),
    luck: luckOf(candidate, seed, typicalBytes),
  }));
  const chosen: ServerId[] = [];
  while (chosen.length < count) {
    const [best] = left.toSorted(
      (a, b) =>
        a.tier - b.tier ||
        (inZone.get(a.zone) ?? 0) - (inZone.get(b.zone) ?? 0) ||
        b.luck - a.luck ||
        (a.id < b.id ? -1 : 1),
    );
    if (best === undefined) break;
    left.splice(left.indexOf(best), 1);
    inZone.set(best.zone, (inZone.get(best.zone) ?? 0) + 1);
    chosen.push(best.id);
  }
  return chosen;
}

/** Whether servers that were chosen before are by now worse than those that would be chosen: away, gone, or nearly full. */
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

/** A server without a label fails alone. */
export function zoneOf({ id, zone }: Pick<Candidate, 'id' | 'zone'>): string {
  return zone === '' ? `server ${id}` : zone;
}

export function isNearlyFull({ freeBytes, totalBytes }: Candidate): boolean {
  return totalBytes > 0 && freeBytes < totalBytes * NEARLY_FULL;
}

/**
 * Weighted rendezvous hashing: the one with most luck wins with a chance in proportion to its weight.
 * A server that has not said how much room it has counts as the roomiest.
 */
function luckOf({ id, freeBytes, totalBytes }: Candidate, seed: number, typicalBytes: number): number {
  const weight = totalBytes === 0 ? typicalBytes : Math.max(1, freeBytes);
  const drawn = Number.parseInt(hash('sha256', `${seed}\n${id}`, 'hex').slice(0, 12), 16);
  return -weight / Math.log((drawn + 0.5) / 2 ** 48);
}

export interface PlacementParts {
  /** Servers that the configuration names: they may hold replicas before they have registered. */
  readonly configured: readonly ServerId[];
  isConnected(server: ServerId): boolean;
}

/** Which servers hold a new file, as the catalog's primary sees it. */
export class Placement {
  readonly #parts: PlacementParts;
  #turn = 0;

  constructor(parts: PlacementParts) {
    this.#parts = parts;
  }

  /** @returns `replicas` different servers, or all that may hold any */
  choose(replicas: number, servers: readonly ServerInfo[]): ServerId[] {
    return chooseServers(replicas, this.candidates(servers), this.#turn++);
  }

  /** @see isOutdated */
  isOutdated(members: readonly ServerId[], servers: readonly ServerInfo[]): boolean {
    return isOutdated(members, this.candidates(servers));
  }

  /** Servers that may hold new replicas: neither draining nor out. */
  candidates(servers: readonly ServerInfo[]): Candidate[] {
    const { configured, isConnected } = this.#parts;
    const known = new Set(servers.map(({ id }) => id));
    const silent = configured
      .filter((id) => !known.has(id))
      .map((id) => ({ id, zone: '', freeBytes: 0, totalBytes: 0, registered: false }));
    const registered = servers
      .filter(({ state }) => state === 'in')
      .map(({ id, zone, freeBytes, totalBytes, storageId }) => ({
        ...{ id: id as ServerId, zone, freeBytes, totalBytes },
        registered: storageId !== '',
      }));
    return [...registered, ...silent].map((each) => ({ ...each, reachable: isConnected(each.id) }));
  }
}
