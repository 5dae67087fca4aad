import type { ServerId } from '../../base/ids.ts';
import { classFits, type PlacementClass } from '../../wire/placement-class.ts';
import { isNearlyFull, zoneOf } from '../process/placement.ts';
import { type FileMembers, isAllowed, type ServerCondition, usedPart } from './wanted-members.ts';

/** Disks whose used parts differ by no more than this are balanced. */
const USED_DIFFERENCE = 0.2;
/** Servers report their free space at different times. */
const USED_TOLERANCE = 0.02;
/** A number of files is balanced within this part of a server's share, */
const SHARE_DIFFERENCE = 0.2;
/** … or within this number of files. */
const FILES_DIFFERENCE = 100;

export interface CountedServer extends ServerCondition {
  /** Replicas on the server. */
  readonly files: number;
}

/** Replicas that move from one server to another for balance, until either bound is reached. */
export interface Rebalance {
  readonly from: ServerId;
  readonly to: ServerId;
  readonly filesMax: number;
  readonly bytesMax: number;
}

/** What a catalog says of one of its volumes' bytes. */
export interface VolumeBytes {
  readonly usedBytes: number;
  readonly replicas: number;
}

interface Share {
  readonly server: CountedServer;
  readonly share: number;
  /** Files beyond the share; negative if there are fewer. */
  excess: number;
}

/**
 * Moves for balance. Pure. By bytes: from the fullest disk to the emptiest, if their used parts differ by more than a
 * fifth. By files: if some server has a fifth less than its share, which is in proportion to the free space, as new
 * files are placed; servers with more give to it. No file moves to a fuller disk, so that the two never oscillate.
 *
 * Only between servers that are allowed for the same volumes: of other pairs, one would be searched in vain for files
 * that may move.
 * @param classes of the volumes
 */
export function chooseRebalances(
  servers: readonly CountedServer[],
  classes: readonly PlacementClass[],
): readonly Rebalance[] {
  const usable = servers.filter(
    ({ state, toBeReplaced, reachable, registered }) =>
      state === 'in' && !toBeReplaced && reachable && registered,
  );
  const alike = Map.groupBy(usable, (server) =>
    classes.map((one) => Number(classFits(one, server))).join(''),
  );
  return [...alike.values()].flatMap((group) => {
    const byBytes = rebalanceByBytes(group);
    return byBytes === null ? rebalancesByFiles(group) : [byBytes];
  });
}

/** The part of a disk's used bytes that is of one catalog's files: its replicas count as equally large. */
export function ownPart(
  server: CountedServer,
  servers: readonly CountedServer[],
  volumes: readonly VolumeBytes[],
): number {
  const usedBytes = server.totalBytes - server.freeBytes;
  const files = servers.reduce((sum, one) => sum + one.files, 0);
  if (usedBytes <= 0 || files === 0) return 0;
  const ofAll = volumes.reduce((sum, volume) => sum + volume.usedBytes * volume.replicas, 0);
  return Math.min(1, (ofAll * server.files) / files / usedBytes);
}

function rebalanceByBytes(servers: readonly CountedServer[]): Rebalance | null {
  const measured = servers
    .flatMap((server) => {
      const used = usedPart(server);
      return used === null ? [] : [{ server, used }];
    })
    .toSorted((a, b) => b.used - a.used);
  const [fullest, emptiest] = [measured.at(0), measured.at(-1)];
  if (fullest === undefined || emptiest === undefined) return null;
  const difference = fullest.used - emptiest.used;
  if (difference <= USED_DIFFERENCE) return null;
  // A quarter of the difference: writes meanwhile, and those not yet in the reported free space, must not reverse it.
  const bytesMax = Math.floor(
    (difference / 4) * Math.min(fullest.server.totalBytes, emptiest.server.totalBytes),
  );
  return { from: fullest.server.id, to: emptiest.server.id, filesMax: Infinity, bytesMax };
}

function rebalancesByFiles(servers: readonly CountedServer[]): Rebalance[] {
  const shares = sharesOf(servers);
  const getting = shares.filter(
    ({ server, share, excess }) => isFarFrom(share, -excess) && !isNearlyFull(server),
  );
  const moves: Rebalance[] = [];
  for (const target of getting.toSorted((a, b) => a.excess - b.excess)) {
    const givers = shares
      .filter(({ server, excess }) => excess > 0 && !isEmptier(server, target.server))
      .toSorted((a, b) => b.excess - a.excess);
    const excess = givers.reduce((sum, giver) => sum + giver.excess, 0);
    for (const giver of givers) {
      // Each gives in proportion to what it has too much.
      const filesMax = Math.floor(Math.min(giver.excess, (-target.excess * giver.excess) / excess));
      if (filesMax === 0) continue;
      moves.push({
        from: giver.server.id,
        to: target.server.id,
        filesMax,
        bytesMax: bytesFree(target.server),
      });
      giver.excess -= filesMax;
    }
  }
  return moves;
}

function sharesOf(servers: readonly CountedServer[]): Share[] {
  const mostFreeBytes = Math.max(1, ...servers.map(({ freeBytes }) => freeBytes));
  // As in `chooseServers`: a disk that is not reported yet counts as the one with most space.
  const weightOf = ({ freeBytes, totalBytes }: CountedServer) =>
    totalBytes === 0 ? mostFreeBytes : freeBytes;
  const weights = servers.reduce((sum, server) => sum + weightOf(server), 0);
  const files = servers.reduce((sum, server) => sum + server.files, 0);
  return servers.map((server) => {
    const share = weights === 0 ? 0 : (files * weightOf(server)) / weights;
    return { server, share, excess: server.files - share };
  });
}

function isFarFrom(share: number, missing: number): boolean {
  return missing > Math.max(FILES_DIFFERENCE, share * SHARE_DIFFERENCE);
}

function isEmptier(a: CountedServer, b: CountedServer): boolean {
  return (usedPart(a) ?? 0) + USED_TOLERANCE < (usedPart(b) ?? 0);
}

/** Half of the free space: what earlier moves have used is reported later. */
function bytesFree({ freeBytes, totalBytes }: CountedServer): number {
  return totalBytes === 0 ? Infinity : freeBytes / 2;
}

/**
 * A file's members after a move between the two servers. Null if the file is not to be moved: it is not at the source,
 * it is at the target already, which may also have left or not be allowed, or its replicas would be in fewer zones.
 */
export function rebalancedMembers(
  file: FileMembers,
  servers: readonly ServerCondition[],
  { from, to }: Pick<Rebalance, 'from' | 'to'>,
): readonly ServerId[] | null {
  if (!file.members.includes(from) || file.members.includes(to)) return null;
  const known = new Map(servers.map((server) => [server.id, server]));
  const zones = (members: readonly ServerId[]): number =>
    new Set(members.map((id) => zoneOf(known.get(id) ?? { id, zone: '' }))).size;
  const target = known.get(to);
  if (target?.state !== 'in' || target.toBeReplaced || !target.reachable || !isAllowed(target, file))
    return null;
  const members = file.members.map((id) => (id === from ? to : id));
  return zones(members) < zones(file.members) ? null : members;
}
