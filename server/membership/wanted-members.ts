import type { ServerId } from '../../base/ids.ts';
import type { ServerState } from '../../wire/catalog-api.ts';
import { classFits, type PlacementClass } from '../../wire/placement-class.ts';
import { type Candidate, chooseServers, isNearlyFull, zoneOf } from '../process/placement.ts';

export interface ServerCondition extends Candidate {
  readonly state: ServerState;
  /** Whether it was unreachable for so long that its replicas are to be replaced. */
  readonly toBeReplaced: boolean;
  /** Whether it has been reachable for so long that replicas may be moved to it without need. */
  readonly isSteady: boolean;
}

export interface FileMembers {
  readonly inode: number;
  readonly members: readonly ServerId[];
  /** Absent: any server may hold the file. */
  readonly class?: PlacementClass;
}

/**
 * Chooses the servers of a file's replicas. Pure: every primary of the catalog gets the same result as long as nothing
 * has changed.
 *
 * Replicas stay where they are if possible. Those on servers that are draining, unreachable for long, or not allowed
 * for the file are replaced, or stay if no other server can take them; those on servers that are out are dropped,
 * unless no other is left. No server that is not allowed gets one: the file has fewer replicas then.
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
    return server === undefined || (server.state === 'in' && !server.toBeReplaced && isAllowed(server, file));
  };
  const staying = trimmed(file.members.filter(isGood), known, factor);
  const zones = staying.map((id) => zoneOf(known.get(id) ?? { id, zone: '' }));
  const free = servers.filter(
    (server) =>
      server.state === 'in' &&
      !server.toBeReplaced &&
      server.reachable &&
      server.registered &&
      isAllowed(server, file) &&
      !file.members.includes(server.id),
  );
  const added = chooseServers(factor - staying.length, free, file.inode, zones);
  const wanted = new Set([...staying, ...added]);
  // A replica that cannot be replaced is better than none, if its server may return; best, if it stays.
  const worth = (id: ServerId): number => {
    const server = known.get(id);
    return 2 * Number(server?.reachable) + Number(server?.state === 'in');
  };
  const unreplaced = file.members
    .filter((id) => !wanted.has(id) && !isGood(id) && known.get(id)?.state !== 'out')
    .toSorted((a, b) => worth(b) - worth(a));
  for (const id of unreplaced) if (wanted.size < factor) wanted.add(id);
  if (wanted.size === 0) return file.members;
  // Old members keep their order, so that an unchanged set is recognized.
  const kept = file.members.filter((id) => wanted.has(id));
  return [...kept, ...[...wanted].filter((id) => !file.members.includes(id))];
}

export function isAllowed(server: ServerCondition, { class: required = {} }: FileMembers): boolean {
  return classFits(required, server);
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

/**
 * A file's members with one replica moved to a zone that has none, from a zone that has several: they were placed
 * together while a zone was away. Null if that is not possible, or not urgent enough.
 *
 * It never oscillates: each move adds a zone, and only a server that has been reachable for long counts. As long as
 * another member is away or leaves, the file stays as it is.
 */
export function spreadMembers(
  file: FileMembers,
  servers: readonly ServerCondition[],
): readonly ServerId[] | null {
  const known = new Map(servers.map((server) => [server.id, server]));
  const members = file.members.flatMap((id) => known.get(id) ?? []);
  const areWell = members.every(({ state, reachable, toBeReplaced }) => {
    return state === 'in' && reachable && !toBeReplaced;
  });
  if (!areWell || members.length < file.members.length) return null;
  const zones = members.map(zoneOf);
  const crowded = members.filter((_, place) => zones.filter((zone) => zone === zones[place]).length > 1);
  const free = servers.filter(
    (server) =>
      server.state === 'in' &&
      server.isSteady &&
      server.registered &&
      !isNearlyFull(server) &&
      isAllowed(server, file) &&
      !zones.includes(zoneOf(server)),
  );
  const [giver] = crowded.toSorted((a, b) => a.freeBytes - b.freeBytes || (a.id < b.id ? -1 : 1));
  const [taker] = chooseServers(1, free, file.inode, zones);
  if (giver === undefined || taker === undefined) return null;
  return file.members.map((id) => (id === giver.id ? taker : id));
}
