import { systemWorld } from '../../world/system-world.ts';
import type { ServerProcess } from '../dev/server-process.ts';
import { formatDuration } from '../terminal/quantities.ts';
import { compareCopy, copyIn, type MountCopy } from './mount-copy.ts';
import { type ProbedLoad, Stage } from './stage.ts';
import { readMeanwhile, type StaleReads } from './stale-reader.ts';
import { STEP_TIMEOUT_MS, withTimeout } from './waiting.ts';

const MARKS_AFTER_KILL = 5;

export interface DemoRound {
  readonly round: number;
  readonly file: string;
  readonly killed: string;
  readonly pid: number;
  readonly newPrimary: string;
  /** The longest time between two acknowledged writes of any file that is written in place. */
  readonly writeGapMs: number;
  readonly boundMs: number;
  readonly withinBound: boolean;
  readonly gapsMs: Readonly<Record<string, number>>;
  readonly staleReads: StaleReads;
  readonly caughtUpMs: number;
}

export interface Killed {
  readonly round: number;
  readonly target: ProbedLoad;
  readonly server: ServerProcess;
  readonly pid: number;
  readonly newPrimary: string;
  readonly staleReads: StaleReads;
  readonly copy: Promise<{ readonly tookMs: number; readonly digest: string }> | null;
}

const COPY = 'copied-meanwhile';

/** Kills the primary of one of the probed files, in turn, and waits until the file has another one. */
export async function killPrimary(
  stage: Stage,
  round: number,
  say: (text: string) => void,
  copies = false,
): Promise<Killed> {
  const target = stage.probed[(round - 1) % stage.probed.length] as ProbedLoad;
  await withTimeout(target.meter.afterMarks(1), `an acknowledged write of ${target.path}`);
  const server = await stage.primaryOf(target.path);
  const { file } = await stage.client.info(Stage.VOLUME, target.path);
  const pid = server.pid as number;
  for (const { meter } of stage.probed) meter.reset();
  say(`  round ${round}: kill -9 of ${server.plan.id} (pid ${pid}), the primary of ${target.path}`);
  await server.kill();
  const copy = copies && stage.mount !== null ? copyIn(stage.mount, COPY) : null;
  // Another act awaits the copy; until then a failure must not count as unhandled.
  copy?.catch(() => undefined);
  const others = stage.servers.filter((one) => one !== server).map(({ plan }) => plan.url);
  const resumed = withTimeout(
    target.meter.afterMarks(MARKS_AFTER_KILL),
    `writes of ${target.path} after the kill`,
  );
  const [staleReads] = await Promise.all([readMeanwhile(file, others, resumed), resumed]);
  const newPrimary = (await stage.primaryOf(target.path)).plan.id;
  say(
    `  writes waited until the old lease had ended, and continue at ${newPrimary} after ${formatDuration(target.meter.largestMs())}`,
  );
  say(
    `  stale reads did not wait: ${staleReads.count} meanwhile, the slowest ${staleReads.slowestMs} ms, ` +
      `none older than ${staleReads.oldestMs} ms`,
  );
  return { round, target, server, pid, newPrimary, staleReads, copy };
}

/** Restarts the killed server and waits until it has everything that it missed. */
export async function restartKilled(
  stage: Stage,
  { round, target, server, pid, newPrimary, staleReads }: Killed,
  boundMs: number,
  say: (text: string) => void,
): Promise<DemoRound> {
  const startedMs = systemWorld.nowMs();
  await server.start();
  await server.waitUntilReady(STEP_TIMEOUT_MS);
  await stage.waitUntilCurrent();
  const caughtUpMs = Math.round(systemWorld.nowMs() - startedMs);
  const gapsMs = Object.fromEntries(
    stage.probed.map(({ path, meter }) => [path, Math.round(meter.largestMs())]),
  );
  const writeGapMs = Math.max(...Object.values(gapsMs));
  const withinBound = writeGapMs <= boundMs;
  say(
    `  longest wait for a write ${writeGapMs} ms, promised ${boundMs} ms${withinBound ? '' : ': TOO LONG'}; ` +
      `${server.plan.id} runs again, and is current after ${formatDuration(caughtUpMs)}`,
  );
  const killed = server.plan.id;
  const file = target.path;
  return {
    round,
    file,
    killed,
    pid,
    newPrimary,
    writeGapMs,
    boundMs,
    withinBound,
    gapsMs,
    staleReads,
    caughtUpMs,
  };
}

/** Waits for the copy into the mount that began when the primary died, and compares it. */
export async function compareFinishedCopy(
  stage: Stage,
  { copy }: Killed,
  say: (text: string) => void,
): Promise<MountCopy | null> {
  if (copy === null) {
    say('  there is no mount here, so nothing is copied through it');
    return null;
  }
  const result = await compareCopy(stage, COPY, await withTimeout(copy, 'the copy through the mount'));
  say(
    `  ${result.bytes / 2 ** 20} MiB were copied and synced in ${formatDuration(result.tookMs)}, begun when the primary died; ` +
      `${result.equal ? 'every running server has the same bytes' : 'WRONG: the servers have something else'}`,
  );
  return result;
}
