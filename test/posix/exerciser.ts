/** `npm run exercise`: see HELP. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { ClusterMount } from '../cluster/cluster-mount.ts';
import { RealCluster, until } from '../cluster/real-cluster.ts';
import { type Coherence, Exercise, type ExerciseFailure } from './exercise.ts';
import { mountOver, noMounts } from './mounts.ts';

const HELP = `npm run exercise -- [options]

Plays random calls on a file of a mounted cluster and compares every answer with a model of the file in memory.

  --ops N             calls to play (100000)
  --seed N            the calls are drawn from it (1); the same seed draws the same calls
  --mounts 1|2        how many mounts take turns (1)
  --kill              the file's primary is killed and started again, over and over
  --transport NAME    native, or what else this machine has (native)
  --cache MODE        as leasehold mount takes it; with "strict" all mounts have the file open at once
  --directory DIR     play in this directory instead, without a cluster
`;

/** Between the start of a killed server and the next kill. */
const CALM_MS = 4_000;
const PROGRESS_STEPS = 5_000;
const LOG_LINES = 5;
/** Longer than any fail-over, also on a busy machine: a killed server is a pause and no error. */
export const PATIENCE = ['--op-timeout', '60s'] as const;

export interface Killed {
  readonly count: number;
  /** @throws an error if a killed server did not become ready again */
  stop(): Promise<void>;
}

/** Kills the primary of a file and restarts it, again and again until `stop`. */
export function killPrimaries(cluster: RealCluster, path: string): Killed {
  const end = Promise.withResolvers<void>();
  let isEnding = false;
  const state = { count: 0 };
  const round = async (): Promise<void> => {
    while (!isEnding) {
      let primary: string | null = null;
      // At its end, the file is removed.
      await until(`${path} has a primary`, async () => {
        primary ??= isEnding ? null : await cluster.runningPrimaryOf(path);
        return isEnding || primary !== null;
      });
      if (primary === null || isEnding) return;
      await cluster.kill(primary);
      state.count += 1;
      await cluster.restart(primary);
      const calm = Promise.withResolvers<void>();
      const timer = setTimeout(calm.resolve, CALM_MS);
      await Promise.race([calm.promise, end.promise]);
      clearTimeout(timer);
    }
  };
  // An error is reported by `stop`: it should not end this process while its mounts are in use.
  const rounds = Promise.allSettled([round()]);
  return {
    get count() {
      return state.count;
    },
    async stop() {
      isEnding = true;
      end.resolve();
      const [ended] = await rounds;
      if (ended.status === 'rejected') throw ended.reason;
    },
  };
}

/** @returns a description of the failure: the calls up to it, the failed one last */
export function describeFailure(failure: ExerciseFailure, seed: number): string {
  const { index, reason, history } = failure;
  return `call ${index} of seed ${seed}: ${reason}\n${history.join('\n')}\n`;
}

async function main(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      ops: { type: 'string', default: '100000' },
      seed: { type: 'string', default: '1' },
      mounts: { type: 'string', default: '1' },
      kill: { type: 'boolean', default: false },
      transport: { type: 'string', default: 'native' },
      cache: { type: 'string' },
      directory: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const obstacle = await noMounts();
  if (obstacle !== false) {
    process.stderr.write(`exercise: ${obstacle}\n`);
    return 2;
  }
  const seed = Number(values.seed);
  const steps = Number(values.ops);
  const coherence: Coherence = values.cache === 'strict' ? 'strict' : 'open';
  const before = async (index: number): Promise<void> => {
    if (index % PROGRESS_STEPS === 0) process.stderr.write(`${index} of ${steps} calls\n`);
  };
  if (values.directory !== undefined) {
    const exercise = new Exercise([join(values.directory, 'exercised')], { seed, steps, coherence, before });
    return told(await exercise.run(), exercise, seed, 0);
  }

  const cluster = await RealCluster.start();
  const mounts: ClusterMount[] = [];
  let killed: Killed | undefined;
  try {
    await cluster.createVolume('main');
    const flags = [...PATIENCE, ...(values.cache === undefined ? [] : ['--cache', values.cache])];
    while (mounts.length < Number(values.mounts))
      mounts.push(await mountOver(cluster, values.transport, ...flags));
    const exercise = new Exercise(
      mounts.map((mount) => mount.path('exercised')),
      {
        seed,
        steps,
        coherence,
        before: async (index) => {
          await before(index);
          if (values.kill && index === 1) killed = killPrimaries(cluster, 'main/exercised');
        },
      },
    );
    const failure = await exercise.run();
    const { count = 0 } = killed ?? {};
    for (const { log } of failure === null ? [] : mounts) {
      const lines = readFileSync(log, 'utf8').trimEnd().split('\n').slice(-LOG_LINES);
      process.stdout.write(`${count} kills; the end of a mount's log:\n${lines.join('\n')}\n`);
    }
    return told(failure, exercise, seed, count);
  } finally {
    try {
      await killed?.stop();
    } finally {
      for (const mount of mounts) await mount.stop();
      await cluster.stop();
    }
  }
}

function told(failure: ExerciseFailure | null, exercise: Exercise, seed: number, killed: number): number {
  if (failure !== null) {
    process.stdout.write(describeFailure(failure, seed));
    return 1;
  }
  const counts = [...exercise.counts].map(([kind, count]) => `${count} ${kind}`).join(', ');
  process.stdout.write(`seed ${seed}: all as in the model (${counts}; ${killed} kills)\n`);
  return 0;
}

if (import.meta.main) process.exit(await main(process.argv.slice(2)));
