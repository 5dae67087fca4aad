import { cpus, totalmem } from 'node:os';

/** The machine of a measurement. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly platform: string;
  readonly node: string;
}

export function machineHere(): Machine {
  const cores = cpus();
  return {
    cpu: cores[0]?.model.trim() ?? 'an unknown processor',
    cores: cores.length,
    memoryGib: Math.round(totalmem() / 2 ** 30),
    platform: `${process.platform} ${process.arch}`,
    node: process.versions.node,
  };
}

/** @returns the machine in one line */
export function machineText({ cpu, cores, memoryGib, platform, node }: Machine): string {
  return `${cpu}, ${cores} cores, ${memoryGib} GiB, ${platform}, Node ${node}`;
}
