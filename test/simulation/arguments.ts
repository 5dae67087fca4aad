/** The command line of `npm run simulate`. */
import { availableParallelism } from 'node:os';
import { durationParse } from '../../base/duration.ts';
import { type CommandLine, commandLineOf, countOption, UsageError } from '../../bench/command-line.ts';
import { LAYER_RUNS, type Layer } from './layer-runs.ts';
import type { LeaseRunOptions } from './lease-run.ts';
import { delayParse } from './lease-script.ts';

export const USAGE = `Runs simulated servers with the real cores, and faults from a seed.

  npm run simulate                       seeds without end, until one fails
  npm run simulate -- --seed 17 --trace  one run, with a line for everything that happens
  npm run simulate:replicas              groups of replicas: leases, disks, members (--layer replica)
  npm run simulate -- --script FILE      plays a script (test/simulation/lease-script.ts has the language)

Which runs:
  --layer lease|claim|replica   one layer only; claim is leases that clients hold, replica is groups of replicas. The
                           default is all, or lease where an option below is given. 500 and more runs of the
                           replica layer fail if too little has happened in them, and say what
  --seed N                 the first seed; the default is a random one
  --count N                how many seeds; the default is 1 where --seed is given, else no end
  --jobs N|all             threads; the default is 1
  --trace                  print everything that happens
  --no-shrink              leave a failing run as it is

The lease layer; what is not given comes from the seed:
  --algorithm flease|paxoslease
  --servers N              1 to 26
  --cells N                1 to 1000
  --for 10m                length of the storm (ms, s, m, h); peace follows
  --loss 0.1               probability that a message is lost
  --duplication 0.1        probability that it arrives twice
  --delay 1ms..60ms        how long it takes
  --delay-rare 0.05        probability that it takes up to three leases instead
  --crash-every 4s         mean time between crashes of any server; also --pause-every, --cut-every; or never
  --skew within|beyond     clocks keep to their bound, or do not; then exclusion is not owed

Of a failing seed of the lease layer the simplest run is looked for that fails alike. The exit code is 0 if all is well,
1 if a rule is broken, 2 if the command line or a script is mistaken.
`;

/** What to run: seeds and their options, or a script. */
export interface Arguments {
  readonly layers: readonly Layer[];
  readonly seed: number | null;
  readonly count: number;
  readonly jobs: number;
  readonly trace: boolean;
  readonly shrink: boolean;
  /** The file of the script; null for seeds. */
  readonly script: string | null;
  readonly lease: LeaseRunOptions;
  /** The options of the lease layer as given. */
  readonly given: Readonly<Record<string, string>>;
}

const COUNT_MAX = Number.MAX_SAFE_INTEGER;
const JOBS_MAX = 1024;
const LAYERS = Object.keys(LAYER_RUNS) as Layer[];

type Reader = (text: string, option: string) => LeaseRunOptions;

const probability =
  (fault: 'loss' | 'duplication' | 'delayRare'): Reader =>
  (text, option) => {
    const share = Number(text);
    if (text !== '' && share >= 0 && share <= 1) return { faults: { [fault]: share } };
    throw new UsageError(`--${option} takes a probability from 0 to 1, not "${text}"`);
  };

const meanGap =
  (fault: 'crashEveryMs' | 'pauseEveryMs' | 'cutEveryMs'): Reader =>
  (text, option) => ({ faults: { [fault]: text === 'never' ? Infinity : spanOf(text, option) } });

/** The meaning of each option of the lease layer. */
const LEASE_OPTIONS: Readonly<Record<string, Reader>> = {
  algorithm: (text, option) => ({ algorithm: oneOf(['flease', 'paxoslease'], text, option) }),
  servers: (text, option) => ({ servers: countOption(option, text, 26) }),
  cells: (text, option) => ({ cells: countOption(option, text, 1000) }),
  for: (text, option) => ({ stormMs: spanOf(text, option) }),
  loss: probability('loss'),
  duplication: probability('duplication'),
  delay: (text) => {
    const range = delayParse(text);
    if (range === null) throw new UsageError(`--delay reads like 1ms..60ms, not "${text}"`);
    return { faults: range };
  },
  'delay-rare': probability('delayRare'),
  'crash-every': meanGap('crashEveryMs'),
  'pause-every': meanGap('pauseEveryMs'),
  'cut-every': meanGap('cutEveryMs'),
  skew: (text, option) => ({ skew: oneOf(['within', 'beyond'], text, option) }),
};

const TEXTS = ['script', 'layer', 'seed', 'count', 'jobs', ...Object.keys(LEASE_OPTIONS)];
const FLAGS = ['trace', 'no-shrink'];

export function argumentsOf(words: readonly string[]): CommandLine<Arguments> {
  return commandLineOf(words, { texts: TEXTS, flags: FLAGS }, ({ texts, flags }) => {
    const { script, layer, seed, jobs = '1' } = texts;
    const given = Object.fromEntries(Object.entries(texts).filter(([name]) => name in LEASE_OPTIONS));
    const [option] = Object.keys(given);
    if (layer !== undefined && layer !== 'lease' && option !== undefined)
      throw new UsageError(`--${option} is for the lease layer only`);
    const chosen = layer ?? (option === undefined ? undefined : 'lease');
    return {
      layers: chosen === undefined ? LAYERS : [oneOf(LAYERS, chosen, 'layer')],
      seed: seed === undefined ? null : countOption('seed', seed, COUNT_MAX),
      count: countOf(texts),
      jobs: jobs === 'all' ? availableParallelism() : countOption('jobs', jobs, JOBS_MAX),
      trace: flags.has('trace'),
      shrink: !flags.has('no-shrink'),
      script: script ?? null,
      lease: leaseOptionsOf(given),
      given,
    };
  });
}

/** @param texts the values of options of the lease layer, by name */
export function leaseOptionsOf(texts: Readonly<Record<string, string>>): LeaseRunOptions {
  const asked = Object.entries(texts).map(([name, text]) => LEASE_OPTIONS[name]?.(text, name) ?? {});
  return Object.assign({}, ...asked, { faults: Object.assign({}, ...asked.map(({ faults }) => faults)) });
}

function countOf({ seed, count }: Readonly<Record<string, string>>): number {
  if (count !== undefined) return countOption('count', count, COUNT_MAX);
  return seed === undefined ? Infinity : 1;
}

function spanOf(text: string, option: string): number {
  const ms = durationParse(text);
  if (ms !== null && ms > 0) return ms;
  throw new UsageError(`--${option} reads like 500ms, 4s or 10m, not "${text}"`);
}

function oneOf<Name extends string>(names: readonly Name[], text: string, option: string): Name {
  const name = names.find((known) => known === text);
  if (name !== undefined) return name;
  throw new UsageError(`--${option} takes ${names.join(' or ')}, not "${text}"`);
}
