import type { ServerId } from '../../base/ids.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import { type Candidate, chooseServers, zoneOf } from '../process/placement.ts';

export interface ServerCondition extends Candidate {
  readonly state: ServerState;
  /** Whether it was unreachable for so long that its replicas are to be replaced. */
  readonly toBeReplaced: boolean;
}

export interface FileMembers {
  readonly inode: number;
  readonly members: readonly ServerId[];
}

/**
 * Chooses the servers of a file's replicas. Pure: every primary of the catalog gets the same result as long as nothing
 * has changed.
 *
 * Replicas stay where they are if possible. Those on servers that are draining, or unreachable for long, are replaced,
 * or stay if no other server can take them; those on servers that are out are dropped, unless no other is left.
 * @param factor wanted number of replicas
 * @returns the members; the same ones, in the same order, if nothing is to do
 */
export function wantedMembers(
  file: FileMembers,
  servers: readonly ServerCondition[],
  factor: number,
): readonly ServerId[] {
  const known = new Map(servers.map((server) => [server.id, server]));
  const isGood = (id: ServerId): boolean => {
    const server = known.get(id);
    // A server without an entry is assumed to be good.
    return server === undefined || (server.state === 'in' && !server.toBeReplaced);
  };
  const staying = trimmed(file.members.filter(isGood), known, factor);
  const zones = staying.map((id) => zoneOf(known.get(id) ?? { id, zone: '' }));
  const free = servers.filter(
    ({ id, state, toBeReplaced, reachable, registered }) =>
      state === 'in' && !toBeReplaced && reachable && registered && !file.members.includes(id),
  );
  const added = chooseServers(factor - staying.length, free, file.inode, zones);
  const wanted = new Set([...staying, ...added]);
  // A replica that cannot be replaced is better than none, if its server may return.
  const unreplaced = file.members
    .filter((id) => !wanted.has(id) && !isGood(id) && known.get(id)?.state !== 'out')
    .toSorted((a, b) => Number(known.get(b)?.reachable) - Number(known.get(a)?.reachable));
  for (const id of unreplaced) if (wanted.size < factor) wanted.add(id);
  if (wanted.size === 0) return file.members;
  // Old members keep their order, so that an unchanged set is recognized.
  const kept = file.members.filter((id) => wanted.has(id));
  return [...kept, ...[...wanted].filter((id) => !file.members.includes(id))];
}

/** Drops members beyond `count`: first unreachable ones, then those that share a zone, then those on full disks. */
function trimmed(
  members: readonly ServerId[],
  known: ReadonlyMap<ServerId, ServerCondition>,
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
        const [reachA, zoneA, freeA] = a.badness;
        const [reachB, zoneB, freeB] = b.badness;
        return reachB - reachA || zoneB - zoneA || freeB - freeA;
      })
      .at(0)?.id;
    left = left.filter((id) => id !== worst);
  }
  return left;
}

export function usedPart({ freeBytes, totalBytes }: Candidate): number | null {
  return totalBytes === 0 ? null : 1 - freeBytes / totalBytes;
}

export interface Rebalance {
  readonly from: ServerId;
  readonly to: ServerId;
  readonly bytesMax: number;
}

/** The move from the fullest to the emptiest server; null if their used parts differ by no more than `threshold`. */
export function chooseRebalance(servers: readonly ServerCondition[], threshold: number): Rebalance | null {
  const usable = servers
    .filter(({ state, toBeReplaced, reachable }) => state === 'in' && !toBeReplaced && reachable)
    .flatMap((server) => {
      const used = usedPart(server);
      return used === null ? [] : [{ server, used }];
    })
    .toSorted((a, b) => b.used - a.used);
  const [fullest, emptiest] = [usable.at(0), usable.at(-1)];
  if (fullest === undefined || emptiest === undefined) return null;
  const difference = fullest.used - emptiest.used;
  if (difference <= threshold) return null;
  // A quarter of the difference: writes meanwhile, and those not yet in the reported free space, must not reverse it.
  const bytesMax = Math.floor(
    (difference / 4) * Math.min(fullest.server.totalBytes, emptiest.server.totalBytes),
  );
  return { from: fullest.server.id, to: emptiest.server.id, bytesMax };
}

/**
 * A file's members after a move between the two servers. Null if the file is not to be moved: it is not at the source,
 * it is at the target already, or its replicas would be in fewer zones.
 */
export function rebalancedMembers(
  file: FileMembers,
  servers: readonly ServerCondition[],
  { from, to }: Rebalance,
): readonly ServerId[] | null {
  if (!file.members.includes(from) || file.members.includes(to)) return null;
  const known = new Map(servers.map((server) => [server.id, server]));
  const zones = (members: readonly ServerId[]): number =>
    new Set(members.map((id) => zoneOf(known.get(id) ?? { id, zone: '' }))).size;
  const members = file.members.map((id) => (id === from ? to : id));
  return zones(members) < zones(file.members) ? null : members;
}
