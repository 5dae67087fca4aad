/** A disk, and how many servers store on it. */
export interface ReplicaDisk {
  readonly bytes: number;
  readonly servers: number;
}

/**
 * How many bytes of contents fit on disks where each byte is stored by several servers: what all its replicas have room for, or, where that is
 * less, what as many as a write waits for have. On disks that differ much that is far from their sum: of 100, 100 and 10 GB three replicas take 10, and
 * writes are refused after 100.
 *
 * @param replicas of each byte, at different servers; there may be fewer of these
 * @param needed of these have to store a write, or it is refused
 */
export function replicatedRoom(disks: readonly ReplicaDisk[], replicas: number, needed: number): number {
  const count = disks.reduce((sum, { servers }) => sum + servers, 0);
  // What each of its servers may have of a disk that they fill together.
  const ordered = disks
    .map(({ bytes, servers }) => ({ bytes, servers, eachBytes: bytes / servers }))
    .sort((one, other) => other.eachBytes - one.eachBytes);
  const wanted = Math.min(replicas, count);
  let restBytes = ordered.reduce((sum, { bytes }) => sum + bytes, 0);
  let above = 0;
  let allBytes = Number.POSITIVE_INFINITY;
  let neededBytes = 0;
  // Where the largest disks have a copy of every byte, the others have room for the other copies, whichever the largest are.
  for (const { bytes, servers, eachBytes } of ordered) {
    if (above < wanted) allBytes = Math.min(allBytes, restBytes / (wanted - above));
    if (above < Math.min(needed, wanted)) neededBytes = eachBytes;
    above += servers;
    restBytes -= bytes;
  }
  return count === 0 ? 0 : Math.floor(Math.max(allBytes, neededBytes));
}
