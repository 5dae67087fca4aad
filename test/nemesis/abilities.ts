import type { FaultName } from './arguments.ts';
import { ImageDisk } from './disk.ts';
import type { Network } from './network.ts';

/** @returns the faults that are possible on this machine, and why the others are not */
export function usableFaults(
  wanted: readonly FaultName[],
  network: Network,
): { readonly faults: readonly FaultName[]; readonly skipped: readonly string[] } {
  const skipped: string[] = [];
  const faults = wanted.filter((fault) => {
    const obstacle = obstacleOf(fault, network);
    if (obstacle !== null) skipped.push(`${fault}: ${obstacle}`);
    return obstacle === null;
  });
  return { faults, skipped };
}

function obstacleOf(fault: FaultName, network: Network): string | null {
  switch (fault) {
    case 'kill':
    case 'stop':
    case 'skew':
      return null;
    case 'partition':
      return network.skipped;
    case 'disk-full':
      return ImageDisk.obstacle();
    case 'power':
      return ImageDisk.obstacle() ?? ImageDisk.powerObstacle();
  }
}
