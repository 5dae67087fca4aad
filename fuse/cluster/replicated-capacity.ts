export interface ReplicaDisk {
  readonly bytes: number;
  readonly servers: number;
}

/**
 * How many bytes of contents fit if several servers store each: as much as all replicas can hold or, if more, as the
 * `needed` ones can. Far less than the sum on unequal disks: on 100, 100 and 10 GB, three replicas hold 10 GB, and
 * writes are refused after 100 GB.
 * @param needed replicas that have to store a write, or it is refused
 */
export function replicatedCapacity(disks: readonly ReplicaDisk[], replicas: number, needed: number): number {
  const count = disks.reduce((sum, { servers }) => sum + servers, 0);
  const ordered = disks
    .map(({ bytes, servers }) => ({ bytes, servers, eachBytes: bytes / servers }))
    .sort((one, other) => other.eachBytes - one.eachBytes);
  const wanted = Math.min(replicas, count);
  let restBytes = ordered.reduce((sum, { bytes }) => sum + bytes, 0);
  let above = 0;
  let allBytes = Number.POSITIVE_INFINITY;
  let neededBytes = 0;
  // If the largest disks have a copy of every byte, the others hold the other copies, for any number of largest ones.
  for (const { bytes, servers, eachBytes } of ordered) {
    if (above < wanted) allBytes = Math.min(allBytes, restBytes / (wanted - above));
    if (above < Math.min(needed, wanted)) neededBytes = eachBytes;
    above += servers;
    restBytes -= bytes;
  }
  return count === 0 ? 0 : Math.floor(Math.max(allBytes, neededBytes));
}
