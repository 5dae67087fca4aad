/** What `npm run nemesis` can be told. A mistake is an error that says what is possible. */
import { parseArgs } from 'node:util';
import { DURATION_FORM, durationParse } from '../../base/duration.ts';

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

As root on Linux each server gets a network namespace and a disk of its own. Faults that need what is not there
are skipped, and named. The exit code is 0 if the history is linearizable and the faults did hit, 1 if not, 2 if the
command line is mistaken.`;

export class UsageError extends Error {
  override readonly name = 'UsageError';
}

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
  const values = valuesParse(args);
  if (values.help !== true && values.out === undefined) throw new UsageError('--out FILE is missing');
  const faults = (values.faults ?? FAULTS.join(',')).split(',').filter((name) => name !== '');
  const strange = faults.find((name) => !FAULTS.includes(name as FaultName));
  if (strange !== undefined) throw new UsageError(`--faults: "${strange}" is none of ${FAULTS.join(', ')}`);
  return {
    help: values.help === true,
    out: values.out ?? '',
    loadMs: duration('for', values.for ?? '60s'),
    servers: natural('servers', values.servers ?? '5', 3, 9),
    faults: faults as FaultName[],
    seed: natural('seed', values.seed ?? String(Math.floor(Math.random() * 1e6)), 0, 2 ** 32),
    leaseMs: duration('lease', values.lease ?? '2s'),
    paceMs: duration('pace', values.pace ?? '10ms'),
    loopback: values.loopback === true,
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
      },
    }).values;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function duration(name: string, text: string): number {
  const ms = durationParse(text);
  if (ms === null || ms === 0) throw new UsageError(`--${name} is ${DURATION_FORM}, not "${text}"`);
  return ms;
}

function natural(name: string, text: string, min: number, max: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max)) throw new UsageError(`--${name} is an integer from ${min} to ${max}`);
  return value;
}
