import type { ServerId } from '../../base/ids.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import { type Candidate, chooseServers, zoneOf } from '../placement.ts';

/** A server as whoever moves replicas sees it. */
export interface ServerStanding extends Candidate {
  readonly state: ServerState;
  /** Out of reach for so long that its replicas are to be replaced. */
  readonly gone: boolean;
}

/** Where a file's replicas are. */
export interface Holding {
  readonly inode: number;
  readonly members: readonly ServerId[];
}

/**
 * Which servers are to hold a file. Pure, so that it can be asked again at any time, by any primary of the
 * catalog, with the same answer as long as nothing has changed.
 *
 * Replicas stay where they are if they can. Those on servers that are draining, or gone, are replaced, and
 * stay where there is no other server to take them; those on servers that are out are given up, unless
 * nothing else is left.
 *
 * @param factor how many replicas there should be
 * @returns the members; the same ones, in the same order, where nothing is to do
 */
export function wantedMembers(
  file: Holding,
  servers: readonly ServerStanding[],
  factor: number,
): readonly ServerId[] {
  const known = new Map(servers.map((server) => [server.id, server]));
  const isGood = (id: ServerId): boolean => {
    const server = known.get(id);
    // Of a server that nobody has told us of, nothing bad is known.
    return server === undefined || (server.state === 'in' && !server.gone);
  };
  const staying = trimmed(file.members.filter(isGood), known, factor);
  const zones = staying.map((id) => zoneOf(known.get(id) ?? { id, zone: '' }));
  const free = servers.filter(
    ({ id, state, gone, reachable, registered }) =>
      state === 'in' && !gone && reachable && registered && !file.members.includes(id),
  );
  const added = chooseServers(factor - staying.length, free, file.inode, zones);
  const wanted = new Set([...staying, ...added]);
  // What cannot be replaced is better than nothing, if there is hope that it answers.
  const hopeful = file.members
    .filter((id) => !wanted.has(id) && !isGood(id) && known.get(id)?.state !== 'out')
    .toSorted((a, b) => Number(known.get(b)?.reachable) - Number(known.get(a)?.reachable));
  for (const id of hopeful) if (wanted.size < factor) wanted.add(id);
  if (wanted.size === 0) return file.members;
  // Those of before keep their order, so that an unchanged set is recognized.
  const kept = file.members.filter((id) => wanted.has(id));
  return [...kept, ...[...wanted].filter((id) => !file.members.includes(id))];
}

/** Numbers of the catalog's replicas to which a cluster grows that began with fewer than the first of them. */
const CATALOG_REPLICAS = [3, 5];

interface CatalogServers {
  /** How many held the catalog in the beginning. */
  readonly first: number;
  /** How many hold it now. */
  readonly now: number;
  /** Servers that are neither draining nor out, nor away for long. */
  readonly inCount: number;
  /** Servers that are neither draining nor out. */
  readonly stayingCount: number;
}

/**
 * How many servers are to hold the catalog: as many as in the beginning, and where those were too few to survive a failure, as
 * many more as there are servers for. What has grown does not shrink: a server that is away for a time takes no replica with it. A server
 * that is drained does where no other can take it, as long as there are enough to survive a failure.
 */
export function catalogReplicasWanted({ first, now, inCount, stayingCount }: CatalogServers): number {
  const [least = first] = CATALOG_REPLICAS;
  const grown = CATALOG_REPLICAS.filter((count) => count <= inCount);
  const wanted = first >= least ? first : Math.max(first, now, ...grown);
  return stayingCount >= least ? Math.min(wanted, stayingCount) : wanted;
}

/** @returns at most `count` of the servers: those out of reach go first, then who shares a zone, then the fullest */
function trimmed(
  members: readonly ServerId[],
  known: ReadonlyMap<ServerId, ServerStanding>,
  count: number,
): readonly ServerId[] {
  let left = members;
  while (left.length > count) {
    const badness = (id: ServerId): readonly [number, number, number] => {
      const server = known.get(id);
      if (server === undefined) return [1, 0, 0];
      const zone = zoneOf(server);
      const shared = left.filter((other) => zoneOf(known.get(other) ?? { id: other, zone: '' }) === zone);
      return [server.reachable ? 0 : 1, shared.length, -server.freeBytes];
    };
    const worst = left
      .map((id) => ({ id, badness: badness(id) }))
      .toSorted((a, b) => {
        const [reachA, zoneA, roomA] = a.badness;
        const [reachB, zoneB, roomB] = b.badness;
        return reachB - reachA || zoneB - zoneA || roomB - roomA;
      })
      .at(0)?.id;
    left = left.filter((id) => id !== worst);
  }
  return left;
}

/** The part of a disk that is in use; null where the server has not said. */
export function usedPart({ freeBytes, totalBytes }: Candidate): number | null {
  return totalBytes === 0 ? null : 1 - freeBytes / totalBytes;
}

/** A move that makes disks more even. */
export interface Rebalance {
  readonly from: ServerId;
  readonly to: ServerId;
  /** How much is to be moved at the most before room is looked at again. */
  readonly bytesMax: number;
}

/**
 * From the fullest to the emptiest server, if they are further apart than `threshold` (a part of a disk).
 *
 * @returns null where the disks are even enough
 */
export function rebalanceOf(servers: readonly ServerStanding[], threshold: number): Rebalance | null {
  const usable = servers
    .filter(({ state, gone, reachable }) => state === 'in' && !gone && reachable)
    .flatMap((server) => {
      const used = usedPart(server);
      return used === null ? [] : [{ server, used }];
    })
    .toSorted((a, b) => b.used - a.used);
  const [fullest, emptiest] = [usable.at(0), usable.at(-1)];
  if (fullest === undefined || emptiest === undefined) return null;
  const apart = fullest.used - emptiest.used;
  if (apart <= threshold) return null;
  // A quarter of the way: what others write meanwhile, and what was not registered yet, must not turn it around.
  const bytesMax = Math.floor((apart / 4) * Math.min(fullest.server.totalBytes, emptiest.server.totalBytes));
  return { from: fullest.server.id, to: emptiest.server.id, bytesMax };
}

/**
 * A file's members after a move from the fullest to the emptiest server.
 *
 * @returns null where the file is not to be moved: it is not there, it is at the target already, or its
 *   replicas would come to be in fewer zones
 */
export function rebalancedMembers(
  file: Holding,
  servers: readonly ServerStanding[],
  { from, to }: Rebalance,
): readonly ServerId[] | null {
  if (!file.members.includes(from) || file.members.includes(to)) return null;
  const known = new Map(servers.map((server) => [server.id, server]));
  const zones = (members: readonly ServerId[]): number =>
    new Set(members.map((id) => zoneOf(known.get(id) ?? { id, zone: '' }))).size;
  const members = file.members.map((id) => (id === from ? to : id));
  return zones(members) < zones(file.members) ? null : members;
}
