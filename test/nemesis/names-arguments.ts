/** The arguments of `npm run nemesis:names`. */
import { durationOption, integerOption, listOption, optionsParse, UsageError } from './command-line.ts';

export const NAMES_FAULTS = [
  'server-stop',
  'server-kill',
  'server-cut',
  'server-slow',
  'mount-stop',
  'mount-kill',
  'mount-cut',
  'mount-slow',
] as const;
export type NamesFault = (typeof NAMES_FAULTS)[number];

/** Faults of several victims at the same time. */
const TOGETHER =
  'server-stop+mount-stop,server-cut+mount-cut,server-kill+mount-kill,mount-stop+mount-kill,mount-stop+mount-cut,server-stop+server-kill';

export const CACHES = ['ttl', 'leases', 'strict'] as const;
export type CacheMode = (typeof CACHES)[number];

export const NAMES_HELP = `Three mounts create, link, overwrite, rename, unlink and read files in shared directories while servers and mounts are
paused, killed, cut off and slowed, one or several at a time; others change values under fcntl locks. What programs saw is checked for
linearizability, and that no file has two member sets.

  npm run nemesis:names -- --servers 5 --for 10m

  --servers 3        3 to 7; files have three replicas
  --mounts 3         2 to 6
  --native 0         so many of them are mounted by the library instead of /dev/fuse
  --cache ttl        ${CACHES.join(', ')}: of all mounts; with ttl, what a mount shows may be one second old
  --faults LIST      some of ${NAMES_FAULTS.join(',')},
                     with + between those that happen at the same time to different victims; by default all, and
                     ${TOGETHER}
  --for 60s          how long faults happen, at least: each of the list happens once
  --seed N           which faults when; a random one by default
  --lease 2s         length of the servers' leases
  --op-timeout 10s   how long a call on a mount may take
  --out FILE         the history, as docs/history-format.md describes it
  --keep             leave the servers' disks and logs where they are, as after a failure

Needs root on Linux, python3, fuse3 and network namespaces. The exit code is 0 if all was right and the faults did happen,
1 if not, 2 if the command line is mistaken or something of that is missing.`;

export interface NamesArguments {
  readonly help: boolean;
  readonly servers: number;
  readonly mounts: number;
  readonly natives: number;
  readonly cache: CacheMode;
  /** The elements come one after the other; the faults of one element come at the same time. */
  readonly faults: readonly (readonly NamesFault[])[];
  readonly loadMs: number;
  readonly seed: number;
  readonly leaseMs: number;
  readonly operationTimeoutMs: number;
  readonly out: string | null;
  readonly keep: boolean;
}

/** @throws UsageError */
export function namesArgumentsParse(args: readonly string[]): NamesArguments {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  const values = optionsParse(args, {
    servers: text,
    mounts: text,
    native: text,
    cache: text,
    faults: text,
    for: text,
    seed: text,
    lease: text,
    'op-timeout': text,
    out: text,
    keep: flag,
    help: flag,
  });
  const [cache, ...others] = listOption('cache', values.cache ?? 'ttl', CACHES);
  if (cache === undefined || others.length > 0) throw new UsageError('--cache is one mode, not several');
  const mounts = integerOption('mounts', values.mounts ?? '3', 2, 6);
  const faults = values.faults ?? `${NAMES_FAULTS.join(',')},${TOGETHER}`;
  return {
    help: values.help === true,
    servers: integerOption('servers', values.servers ?? '3', 3, 7),
    mounts,
    natives: integerOption('native', values.native ?? '0', 0, mounts - 1),
    cache,
    faults: faults
      .split(',')
      .map((together) => listOption('faults', together.replaceAll('+', ','), NAMES_FAULTS)),
    loadMs: durationOption('for', values.for ?? '60s'),
    seed: integerOption('seed', values.seed ?? String(1 + Math.floor(Math.random() * 1e6)), 1, 2 ** 32),
    leaseMs: durationOption('lease', values.lease ?? '2s'),
    operationTimeoutMs: durationOption('op-timeout', values['op-timeout'] ?? '10s'),
    out: values.out ?? null,
    keep: values.keep === true,
  };
}
