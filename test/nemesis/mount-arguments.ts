/** The arguments of `npm run nemesis:mount`. */
import { durationOption, integerOption, listOption, optionsParse, UsageError } from './command-line.ts';

export const MOUNT_FAULTS = ['kill', 'stop', 'cut', 'disk-full', 'power'] as const;
export type MountFault = (typeof MOUNT_FAULTS)[number];

/** The servers that get a fault: primaries of fio's files first, or servers that are the primary of none. */
export const TARGETS = ['primaries', 'others'] as const;
export type Target = (typeof TARGETS)[number];

export const MOUNT_HELP = `Runs fio on a mount while its servers are broken, and verifies every block.

  npm run nemesis:mount -- --servers 3 --rounds 10

  --servers 3        3: one server is hit at a time; 5: two at once, and files have five replicas
  --faults LIST      some of ${MOUNT_FAULTS.join(',')}; all by default, one kind a round
  --targets LIST     some of ${TARGETS.join(',')} of fio's files, who are hit in turns; both by default
  --rounds N         how many; by default each fault once at each target
  --seed N           which servers when; a random one by default
  --lease 2s         length of the servers' leases; clocks may differ by a twentieth of it
  --length 25s       how long fio writes in each round; it verifies for half of that, still under faults
  --keep             leave the servers' disks and logs where they are, as after a failure

Needs root on Linux, fio, fuse3, network namespaces and loop devices. The exit code is 0 if fio saw no error, all was
verified and the faults did hit, 1 if not, 2 if the command line is mistaken or something of that is missing.`;

export interface MountArguments {
  readonly help: boolean;
  readonly servers: 3 | 5;
  readonly faults: readonly MountFault[];
  readonly targets: readonly Target[];
  readonly rounds: number;
  readonly seed: number;
  readonly leaseMs: number;
  readonly writeMs: number;
  readonly keep: boolean;
}

/** @throws UsageError */
export function mountArgumentsParse(args: readonly string[]): MountArguments {
  const string = { type: 'string' } as const;
  const boolean = { type: 'boolean' } as const;
  const values = optionsParse(args, {
    servers: string,
    faults: string,
    targets: string,
    rounds: string,
    seed: string,
    lease: string,
    length: string,
    keep: boolean,
    help: boolean,
  });
  const faults = listOption('faults', values.faults ?? MOUNT_FAULTS.join(','), MOUNT_FAULTS);
  const targets = listOption('targets', values.targets ?? TARGETS.join(','), TARGETS);
  const servers = Number(values.servers ?? '3');
  if (servers !== 3 && servers !== 5) throw new UsageError(`--servers is 3 or 5, not "${values.servers}"`);
  return {
    help: values.help === true,
    servers,
    faults,
    targets,
    rounds: integerOption('rounds', values.rounds ?? String(targets.length * faults.length), 1),
    seed: integerOption('seed', values.seed ?? String(1 + Math.floor(Math.random() * 1e6)), 1, 2 ** 32),
    leaseMs: durationOption('lease', values.lease ?? '2s'),
    writeMs: durationOption('length', values.length ?? '25s'),
    keep: values.keep === true,
  };
}
