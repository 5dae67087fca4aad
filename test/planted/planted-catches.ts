/** The ways to detect planted bugs: each kind runs some of the code with the bug, in this process. */
import { readFileSync } from 'node:fs';
import type { Load } from './plant.ts';

/** Folder of the directed schedules of composed servers, clients and mounts, as `NAME.txt`. */
export const SCHEDULES = 'test/testdata/simulation/cluster';

/** Options of a run unless its row says otherwise; a later option counts. */
export const RUN_WORDS = '--servers 3 --clients 0 --mounts 0 --volumes 1 --end-early'.split(' ');

/** A line of a row that names what must detect the bug. */
export interface Catch {
  readonly kind: string;
  readonly text: string;
}

interface Kind {
  /** The parts of a line, the arguments of `play`. */
  readonly form: RegExp;
  /** How errors print a line. */
  readonly example: string;
  /** Only `npm run planted` plays it, the tests of each commit do not. */
  readonly isLong?: true;
  /** @returns its error message, or null if it detects nothing */
  play(load: Load, ...parts: string[]): Promise<string | null>;
}

export const KINDS: Readonly<Record<string, Kind>> = {
  /** A directed run of the pure cores, or a conversation with one replica; its error must contain `part`, if given. */
  scenario: {
    form: /^(.+?)(?:, says (.+))?$/,
    example: 'scenario halves, says L1',
    async play(load, name = '', part = '') {
      const { SCENARIOS } = (await load(
        'test/simulation/scenarios.ts',
      )) as typeof import('../simulation/scenarios.ts');
      const scenario = SCENARIOS[name];
      if (scenario === undefined) throw new Error(`There is no scenario "${name}"`);
      const said = scenario();
      return said?.includes(part) ? said : null;
    },
  },
  /** One of the random seeds 1 to N of the pure cores. */
  seeds: {
    form: /^(lease|claim|replica) (\d+)$/,
    example: 'seeds lease 40',
    isLong: true,
    async play(load, layer, count) {
      const { LAYER_RUNS } = (await load(
        'test/simulation/layer-runs.ts',
      )) as typeof import('../simulation/layer-runs.ts');
      for (let seed = 1; seed <= Number(count); seed++) {
        const { violation } = LAYER_RUNS[layer as 'lease'](seed, {});
        if (violation !== null) return `seed ${seed}: ${violation}`;
      }
      return null;
    },
  },
  /** A test of the product, named by its file and a part of its title. */
  test: {
    form: /^(\S+): (.+)$/,
    example: 'test test/base/quorum.test.ts: a majority is more than half',
    async play(load, file = '', name = '') {
      await load(file);
      const { play } = (await load('test/planted/planted-tests.ts')) as typeof import('./planted-tests.ts');
      return play(name);
    },
  },
  /** A directed schedule of composed servers, clients and mounts. */
  schedule: {
    form: /^(\S+)$/,
    example: 'schedule late-unlink',
    async play(load, name = '') {
      const { scheduleParse, schedulePlay } = (await load(
        'test/simulation/cluster/directed/language.ts',
      )) as typeof import('../simulation/cluster/directed/language.ts');
      try {
        await schedulePlay(scheduleParse(readFileSync(`${SCHEDULES}/${name}.txt`, 'utf8'), name));
        return null;
      } catch (error) {
        if (error instanceof Error && error.name === 'ScriptError') return error.message;
        throw error;
      }
    },
  },
  /** One of the seeds 1 to N of composed servers, clients and mounts; options of `npm run simulate:cluster` follow. */
  run: {
    form: /^(\d+) seeds?: (.+)$/,
    example: 'run 4 seeds: --workload quotas --for 10s',
    isLong: true,
    async play(load, count, words = '') {
      const cluster = 'test/simulation/cluster';
      const { wantedOf } = (await load(
        `${cluster}/arguments.ts`,
      )) as typeof import('../simulation/cluster/arguments.ts');
      const { runCluster } = (await load(
        `${cluster}/cluster-run.ts`,
      )) as typeof import('../simulation/cluster/cluster-run.ts');
      const read = wantedOf([...RUN_WORDS, ...words.split(' ')]);
      if (!('options' in read)) throw new Error(`Cannot read "${words}"`);
      for (let seed = 1; seed <= Number(count); seed++) {
        const [violation] = (await runCluster(read.options(seed))).violations;
        if (violation !== undefined) return `seed ${seed}: ${violation}`;
      }
      return null;
    },
  },
};

/** @returns the error message of a line's play with the code that `load` loads, or null if it detects nothing */
export function catchPlay(load: Load, { kind, text }: Catch): Promise<string | null> {
  const { form, play } = KINDS[kind] as Kind;
  return play(load, ...(form.exec(text) as RegExpExecArray).slice(1));
}

/** Unhandled errors of a planted bug do not end the process, or fail the test, before what detects it. */
export function ignoreUnhandledErrors(): void {
  for (const event of ['unhandledRejection', 'uncaughtException'])
    process.removeAllListeners(event).on(event, () => undefined);
}
