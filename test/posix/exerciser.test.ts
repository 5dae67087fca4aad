/**
 * Goal: after any calls in any order, a file has the contents of its model.
 * Method: a short form of `npm run exercise`: random calls from a seed on a local directory (which checks the check),
 * on one mount of a real cluster, on two that take turns, and while primaries are killed.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { RealCluster } from '../cluster/real-cluster.ts';
import { isLong, onlyLong } from '../long.ts';
import { drawSteps, Exercise, type ExerciseOptions } from './exercise.ts';
import { describeFailure, type Killed, killPrimaries, PATIENCE } from './exerciser.ts';
import { localDirectory, mountPairsOver, noMounts, transportsOfForm } from './mounts.ts';

const STEPS = isLong ? 600 : 200;
/** Enough that a primary is killed several times meanwhile. */
const STEPS_WITH_KILLS = isLong ? 500 : 120;
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 1_000_000));

const skip = await noMounts();

async function exercised(
  paths: readonly string[],
  steps: number,
  before?: ExerciseOptions['before'],
): Promise<Exercise> {
  const options = { seed: SEED, steps, coherence: 'open' as const };
  const exercise = new Exercise(paths, before === undefined ? options : { ...options, before });
  const failure = await exercise.run();
  assert.equal(failure, null, failure === null ? '' : describeFailure(failure, SEED));
  return exercise;
}

test('a seed draws the same steps each time', () => {
  assert.deepEqual(drawSteps(7, 100), drawSteps(7, 100));
  assert.notDeepEqual(drawSteps(7, 100), drawSteps(8, 100));
});

if (skip === false) await define();
else test('the exerciser on mounts', { skip }, () => undefined);

async function define(): Promise<void> {
  const cluster = await RealCluster.start();
  after(() => cluster.stop());
  await cluster.createVolume('main');
  const mounted = await mountPairsOver(await transportsOfForm(), cluster, ...PATIENCE);
  test(`on a local directory (SEED=${SEED})`, async () => {
    const local = await localDirectory();
    try {
      const { counts } = await exercised([join(local.path, 'f')], STEPS);
      assert.ok(counts.size >= 11, `${[...counts.keys()].join(', ')} were drawn`);
    } finally {
      await local.remove();
    }
  });

  for (const { transport, mounts } of mounted) {
    const skipAlone = onlyLong('the test on two mounts');
    test(`${transport}: on one mount (SEED=${SEED})`, { skip: skipAlone }, async () => {
      await exercised([mounts[0].path('alone')], STEPS);
    });

    test(`${transport}: on two mounts that take turns (SEED=${SEED})`, async () => {
      const paths = mounts.map((mount) => mount.path('turns'));
      await exercised(paths, STEPS);
    });

    // The steps do not depend on the way to the kernel; `npm run exercise` has an option for it.
    if (transport !== 'kernel') continue;
    test(`${transport}: while primaries are killed (SEED=${SEED})`, { timeout: 300_000 }, async (t) => {
      let killed: Killed | undefined;
      const paths = mounts.map((mount) => mount.path('killed'));
      try {
        await exercised(paths, STEPS_WITH_KILLS, async (index) => {
          if (index === 1) killed = killPrimaries(cluster, 'main/killed');
        });
      } finally {
        await killed?.stop();
      }
      t.diagnostic(`${killed?.count} primaries were killed`);
      assert.ok((killed?.count ?? 0) > 0);
    });
  }
}
