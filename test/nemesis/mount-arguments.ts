/** What `npm run nemesis:mount` can be told. */
import { parseArgs } from 'node:util';
import { DURATION_FORM, durationParse } from '../../base/duration.ts';
import { UsageError } from './arguments.ts';

export const MOUNT_FAULTS = ['kill', 'stop', 'cut', 'disk-full', 'power'] as const;
export type MountFault = (typeof MOUNT_FAULTS)[number];

/** Who is hit: first the primaries of fio's files, or servers that are the primary of none of them. */
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
  const values = valuesParse(args);
  const faults = list('faults', values.faults, MOUNT_FAULTS);
  const targets = list('targets', values.targets, TARGETS);
  const servers = natural('servers', values.servers ?? '3');
  if (servers !== 3 && servers !== 5) throw new UsageError('--servers is 3 or 5');
  return {
    help: values.help === true,
    servers,
    faults,
    targets,
    rounds: natural('rounds', values.rounds ?? String(targets.length * faults.length)),
    seed: natural('seed', values.seed ?? String(1 + Math.floor(Math.random() * 1e6))),
    leaseMs: duration('lease', values.lease ?? '2s'),
    writeMs: duration('length', values.length ?? '25s'),
    keep: values.keep === true,
  };
}

function valuesParse(args: readonly string[]) {
  const string = { type: 'string' } as const;
  const boolean = { type: 'boolean' } as const;
  try {
    return parseArgs({
      args: [...args],
      options: {
        servers: string,
        faults: string,
        targets: string,
        rounds: string,
        seed: string,
        lease: string,
        length: string,
        keep: boolean,
        help: boolean,
      },
    }).values;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function list<Name extends string>(
  option: string,
  text: string | undefined,
  known: readonly Name[],
): readonly Name[] {
  if (text === undefined) return known;
  return text.split(',').map((name) => {
    const found = known.find((one) => one === name);
    if (found === undefined) throw new UsageError(`--${option}: "${name}" is none of ${known.join(', ')}`);
    return found;
  });
}

function duration(name: string, text: string): number {
  const ms = durationParse(text);
  if (ms === null || ms === 0) throw new UsageError(`--${name} is ${DURATION_FORM}, not "${text}"`);
  return ms;
}

function natural(name: string, text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new UsageError(`--${name} is an integer from 1, not "${text}"`);
  return Number(text);
}
