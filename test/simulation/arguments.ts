/** What `npm run simulate` can be told. A mistake is an error that says what is possible. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import type { LeaseRunOptions } from './lease-run.ts';
import { delayParse } from './lease-script.ts';
import { CAMPAIGN_MODULES, type PlantedLayer } from './planted.ts';
import { durationParse } from './script-words.ts';
import type { Faults } from './world.ts';

export const HELP = `Runs simulated servers with the real cores, and faults from a seed.

  npm run simulate                       seeds without end, until one fails
  npm run simulate -- --seed 17 --trace  one run, with a line for everything that happens
  npm run simulate:replicas              groups of replicas: leases, disks, members (--layer replica)
  npm run simulate -- --script FILE      plays a script (test/simulation/lease-script.ts has the language)
  npm run simulate -- --bench            how many lease rounds a second
  npm run simulate -- --scale [--quick]  load per server with 10, 100 and 1,000 servers
  npm run simulate -- --fairness         who wins when several servers want one lease

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

A failing seed is made into a short schedule and printed, with the command that replays it. The exit code
is 0 if all is well, 1 if a rule is broken, 2 if the command line or a script is mistaken.`;

export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Arguments {
  readonly mode: 'seeds' | 'script' | 'bench' | 'scale' | 'fairness' | 'help';
  readonly layers: readonly PlantedLayer[];
  readonly seed: number | null;
  readonly count: number;
  readonly jobs: number;
  readonly trace: boolean;
  readonly shrink: boolean;
  readonly quick: boolean;
  readonly script: string;
  readonly lease: LeaseRunOptions;
  /** The options of the lease layer as they were given, for the command that replays. */
  readonly given: readonly string[];
}

const LAYERS = Object.keys(CAMPAIGN_MODULES) as PlantedLayer[];

const LEASE_OPTIONS = [
  'algorithm',
  'servers',
  'cells',
  'for',
  'loss',
  'duplication',
  'delay',
  'delay-rare',
  'crash-every',
  'pause-every',
  'cut-every',
  'skew',
] as const;

type Texts = Readonly<Record<string, string | boolean | undefined>>;

/** @throws UsageError */
export function argumentsParse(args: readonly string[]): Arguments {
  const values = valuesParse(args);
  const text = (name: string): string | undefined => values[name] as string | undefined;
  const given = LEASE_OPTIONS.flatMap((name) => {
    const value = text(name);
    return value === undefined ? [] : [`--${name}`, value];
  });
  const seed = text('seed');
  const count = text('count');
  const modes = (['help', 'bench', 'scale', 'fairness'] as const).filter((name) => values[name] === true);
  if (text('script') !== undefined) modes.push('script' as never);
  if (modes.length > 1) throw new UsageError(`--${modes.join(' and --')} do not go together`);
  const layer = text('layer');
  if (layer !== undefined && layer !== 'lease' && given.length > 0) {
    throw new UsageError(`${given[0]} is for the lease layer only`);
  }
  return {
    mode: modes[0] ?? 'seeds',
    layers: layersParse(layer ?? (given.length > 0 ? 'lease' : undefined)),
    seed: seed === undefined ? null : naturalParse('seed', seed),
    count: count === undefined ? (seed === undefined ? Infinity : 1) : naturalParse('count', count),
    jobs: jobsParse(text('jobs') ?? '1'),
    trace: values.trace === true,
    shrink: values['no-shrink'] !== true,
    quick: values.quick === true,
    script: text('script') ?? '',
    lease: leaseParse(text),
    given,
  };
}

function valuesParse(args: readonly string[]): Texts {
  const flag = { type: 'boolean' } as const;
  const string = { type: 'string' } as const;
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        help: flag,
        bench: flag,
        scale: flag,
        fairness: flag,
        quick: flag,
        trace: flag,
        'no-shrink': flag,
        script: string,
        layer: string,
        seed: string,
        count: string,
        jobs: string,
        ...Object.fromEntries(LEASE_OPTIONS.map((name) => [name, string])),
      },
    });
    return values;
  } catch (error) {
    if (error instanceof TypeError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

function leaseParse(text: (name: string) => string | undefined): LeaseRunOptions {
  const servers = text('servers');
  const cells = text('cells');
  const storm = text('for');
  const skew = text('skew');
  if (skew !== undefined && skew !== 'within' && skew !== 'beyond') {
    throw new UsageError(`--skew takes within or beyond, not "${skew}"`);
  }
  const algorithm = text('algorithm');
  if (algorithm !== undefined && algorithm !== 'flease' && algorithm !== 'paxoslease') {
    throw new UsageError(`--algorithm takes flease or paxoslease, not "${algorithm}"`);
  }
  return {
    ...(algorithm !== undefined && { algorithm }),
    ...(servers !== undefined && { servers: naturalParse('servers', servers, 1, 26) }),
    ...(cells !== undefined && { cells: naturalParse('cells', cells, 1, 1000) }),
    ...(storm !== undefined && { stormMs: spanParse('for', storm) }),
    ...(skew !== undefined && { skew }),
    faults: faultsParse(text),
  };
}

function faultsParse(text: (name: string) => string | undefined): Partial<Faults> {
  let faults: Partial<Faults> = {};
  for (const name of ['loss', 'duplication', 'delay-rare'] as const) {
    const value = text(name);
    if (value === undefined) continue;
    const share = Number(value);
    if (value === '' || !(share >= 0 && share <= 1)) {
      throw new UsageError(`--${name} takes a probability from 0 to 1, not "${value}"`);
    }
    faults = { ...faults, [name === 'delay-rare' ? 'delayRare' : name]: share };
  }
  for (const name of ['crash', 'pause', 'cut'] as const) {
    const value = text(`${name}-every`);
    if (value === undefined) continue;
    faults = {
      ...faults,
      [`${name}EveryMs`]: value === 'never' ? Infinity : spanParse(`${name}-every`, value),
    };
  }
  const delay = text('delay');
  if (delay === undefined) return faults;
  const range = delayParse(delay);
  if (range === null) throw new UsageError(`--delay reads like 1ms..60ms, not "${delay}"`);
  return { ...faults, ...range };
}

function spanParse(name: string, text: string): number {
  const ms = durationParse(text);
  if (ms === null || ms <= 0) throw new UsageError(`--${name} reads like 500ms, 4s or 10m, not "${text}"`);
  return ms;
}

function naturalParse(name: string, text: string, min = 0, max = Number.MAX_SAFE_INTEGER): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN;
  if (value >= min && value <= max) return value;
  throw new UsageError(`--${name} takes a whole number from ${min} to ${max}, not "${text}"`);
}

function jobsParse(text: string): number {
  return text === 'all' ? availableParallelism() : naturalParse('jobs', text, 1, 1024);
}

function layersParse(text: string | undefined): readonly PlantedLayer[] {
  if (text === undefined) return LAYERS;
  const layer = LAYERS.find((known) => known === text);
  if (layer === undefined) throw new UsageError(`--layer takes ${LAYERS.join(' or ')}, not "${text}"`);
  return [layer];
}
