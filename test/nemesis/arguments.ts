/** The arguments of `npm run nemesis`. A mistake is an error that names what is possible. */
import { durationOption, integerOption, listOption, optionsParse, UsageError } from './command-line.ts';

export const FAULTS = ['kill', 'stop', 'partition', 'skew', 'disk-full', 'power'] as const;
export type FaultName = (typeof FAULTS)[number];

export const HELP = `Runs real servers under load, breaks them, and checks what their clients saw.

  npm run nemesis -- --out FILE

  --out FILE         where the history goes, one operation a line (docs/history-format.md)
  --for 60s          length of the load (ms, s, m, h)
  --servers 5        3 to 9
  --faults LIST      some of ${FAULTS.join(',')}; all by default
  --seed N           which faults come when; a random one by default
  --lease 2s         length of the servers' leases; clocks may differ by a twentieth of it
  --pace 10ms        how long a client rests between two operations
  --loopback         no network namespaces even where there could be some
  --keep             leave the servers' disks and logs where they are, as after a failure

Snapshots of a file that is appended to, and of others that are borne, are made, read everywhere and removed meanwhile.
As root on Linux each server gets a network namespace and a disk of its own. Faults that need what is not there
are skipped, and named. The exit code is 0 if the history is linearizable and the faults did hit, 1 if not, 2 if the
command line is mistaken.`;

export interface Arguments {
  readonly help: boolean;
  readonly out: string;
  readonly loadMs: number;
  readonly servers: number;
  readonly faults: readonly FaultName[];
  readonly seed: number;
  readonly leaseMs: number;
  readonly paceMs: number;
  readonly loopback: boolean;
  readonly keep: boolean;
}

/** @throws UsageError */
export function argumentsParse(args: readonly string[]): Arguments {
  const string = { type: 'string' } as const;
  const boolean = { type: 'boolean' } as const;
  const values = optionsParse(args, {
    out: string,
    for: string,
    servers: string,
    faults: string,
    seed: string,
    lease: string,
    pace: string,
    loopback: boolean,
    keep: boolean,
    help: boolean,
  });
  if (values.help !== true && values.out === undefined) throw new UsageError('--out FILE is missing');
  const seed = values.seed ?? String(Math.floor(Math.random() * 1e6));
  return {
    help: values.help === true,
    out: values.out ?? '',
    loadMs: durationOption('for', values.for ?? '60s'),
    servers: integerOption('servers', values.servers ?? '5', 3, 9),
    // An empty list: load without faults.
    faults: values.faults === '' ? [] : listOption('faults', values.faults ?? FAULTS.join(','), FAULTS),
    seed: integerOption('seed', seed, 0, 2 ** 32),
    leaseMs: durationOption('lease', values.lease ?? '2s'),
    paceMs: durationOption('pace', values.pace ?? '10ms'),
    loopback: values.loopback === true,
    keep: values.keep === true,
  };
}
