import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';
import { formatBytes, formatDuration } from '../terminal/quantities.ts';
import { writeGapBound } from './bound.ts';
import { type ActReport, type BeforeAct, DemoReporter } from './demo-reporter.ts';
import { type Fencing, resumeOldPrimary } from './fencing.ts';
import { compareAll } from './final-comparison.ts';
import { readAnywhere, showLease, writeOnce } from './first-acts.ts';
import { compareFinishedCopy, type DemoRound, killPrimary, restartKilled } from './kills.ts';
import { type Damage, damageSum, NO_DAMAGE } from './ledger.ts';
import type { MountCopy } from './mount-copy.ts';
import { loseMajority, type NoMajority } from './no-majority.ts';
import { Stage } from './stage.ts';
import { rejectOnAbort, STEP_TIMEOUT_MS, withTimeout } from './waiting.ts';

export interface DemoOptions {
  readonly kills: number;
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  readonly directory: string | null;
  readonly say: (text: string) => void;
  readonly opened?: (stage: Stage) => void;
  readonly beforeAct: BeforeAct | null;
  readonly signal: AbortSignal;
}

export interface DemoResult extends Damage {
  readonly ok: boolean;
  readonly rounds: readonly DemoRound[];
  readonly boundMs: number;
  readonly bound: Readonly<Record<string, number>>;
  readonly maxWriteGapMs: number;
  readonly copy: MountCopy | null;
  readonly noMajority: NoMajority;
  readonly fencing: Fencing;
  readonly acknowledgedWrites: number;
  readonly reads: number;
  readonly comparedBytes: number;
  readonly mount: boolean;
  readonly acts: readonly ActReport[];
}

const ACTS = {
  write: 'Write',
  read: 'Read anywhere',
  lease: 'Show the lease',
  load: 'Load',
  kill: 'Kill the primary',
  copy: 'Concurrent copy through the mount',
  back: 'Restart of the killed server',
  again: 'Once more',
  majority: 'No majority',
  fencing: 'A suspended primary',
  verdict: 'Verdict',
} as const;

/** Runs the demo with real servers, kills and files; its results are measured from outside the servers. */
export async function runDemo(options: DemoOptions): Promise<DemoResult> {
  const folder =
    options.directory === null
      ? await mkdtemp(join(tmpdir(), 'leasehold-demo-'))
      : resolve(options.directory);
  const { say, leaseMs } = options;
  await mkdir(folder, { recursive: true });
  let ok = false;
  try {
    say(`Starting three servers with leases of ${formatDuration(leaseMs)}`);
    const stage = await Stage.open(folder, options);
    let result: DemoResult;
    try {
      say(`Watch it in a browser: ${stage.cluster.urls[0]}/#main:/journal`);
      options.opened?.(stage);
      result = await play(stage, options);
    } finally {
      say('Stopping the servers');
      await stage.close();
    }
    // Only now: a mount that could not be removed still shows the volume's files in that folder.
    ok = result.ok;
    return result;
  } finally {
    // A failure's data is kept, since it may show the cause.
    if (options.directory === null && ok) await rm(folder, { recursive: true, force: true });
    else say(`Data and logs are in ${folder}`);
  }
}

async function play(stage: Stage, options: DemoOptions): Promise<DemoResult> {
  const { kills, beforeAct, signal } = options;
  const titles = Object.values(ACTS).filter((title) => title !== ACTS.again || kills > 1);
  const story = new DemoReporter(titles, {
    control: stage.cluster.control,
    say: options.say,
    beforeAct: beforeAct ?? (() => Promise.resolve()),
    waits: beforeAct !== null,
  });
  const { say } = story;
  stage.say = say;
  const running = new Loads(stage);
  // A load that fails by itself ends the demo, at its next wait.
  const act = <Value>(title: string, work: () => Promise<Value>, mayDisturb = true): Promise<Value> =>
    Promise.race([story.act(title, work, mayDisturb), running.failed, rejectOnAbort(signal)]);
  const boundMs = writeGapBound(options.leaseMs, options.clockSkewMs).totalMs;
  const rounds: DemoRound[] = [];
  try {
    await act(ACTS.write, () => writeOnce(stage, say));
    await act(ACTS.read, () => readAnywhere(stage, say));
    await act(ACTS.lease, () => showLease(stage, say));
    await act(ACTS.load, () => running.start(say));
    const killed = await act(ACTS.kill, () => killPrimary(stage, 1, say, true));
    const copy = await act(ACTS.copy, () => compareFinishedCopy(stage, killed, say), false);
    rounds.push(await act(ACTS.back, () => restartKilled(stage, killed, boundMs, say), false));
    if (kills > 1) {
      await act(ACTS.again, async () => {
        for (let round = 2; round <= kills; round++) {
          signal.throwIfAborted();
          const next = await killPrimary(stage, round, say);
          rounds.push(await restartKilled(stage, next, boundMs, say));
        }
      });
    }
    const noMajority = await act(ACTS.majority, () => loseMajority(stage, say));
    const fencing = await act(ACTS.fencing, () => resumeOldPrimary(stage, say));
    await running.stop();
    const verdict = await act(ACTS.verdict, () => compareEverything(stage, say));
    const isRight = noMajority.ok && fencing.ok && copy?.equal !== false;
    const isInTime = rounds.every(({ withinBound }) => withinBound);
    const { totalMs, ...bound } = writeGapBound(options.leaseMs, options.clockSkewMs);
    return {
      ok: verdict.undamaged && isRight && isInTime,
      rounds,
      ...verdict.damage,
      boundMs: totalMs,
      bound,
      maxWriteGapMs: Math.max(0, ...rounds.map(({ writeGapMs }) => writeGapMs)),
      copy,
      noMajority,
      fencing,
      acknowledgedWrites: stage.loads.reduce((sum, load) => sum + load.acknowledged, 0),
      reads: stage.loads.reduce((sum, load) => sum + load.reads, 0),
      comparedBytes: verdict.bytes,
      mount: stage.mount !== null,
      acts: story.reports,
    };
  } finally {
    await Promise.race([running.stop().catch(() => {}), systemWorld.sleep(STEP_TIMEOUT_MS, { unref: true })]);
  }
}

class Loads {
  readonly #stage: Stage;
  readonly #enough = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  #fail: (error: unknown) => void = () => undefined;
  readonly failed: Promise<never>;

  constructor(stage: Stage) {
    this.#stage = stage;
    this.failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.failed.catch(() => undefined);
  }

  async start(say: (text: string) => void): Promise<void> {
    const { loads, probed } = this.#stage;
    for (const { title, path } of loads) say(`  ${title} (${Stage.VOLUME}:${path})`);
    this.#running = Promise.all(loads.map((load) => load.run(this.#enough.signal)));
    this.#running.catch((error: unknown) => this.#fail(error));
    const began = probed.map(({ meter, path }) =>
      withTimeout(meter.afterMarks(1), `the first write of ${path}`),
    );
    await Promise.all(began);
  }

  async stop(): Promise<void> {
    this.#enough.abort();
    await this.#running;
  }
}

interface Verdict {
  readonly damage: Damage;
  readonly undamaged: boolean;
  readonly bytes: number;
}

async function compareEverything(stage: Stage, say: (text: string) => void): Promise<Verdict> {
  const { loads, cluster, mount } = stage;
  say(`  comparing every byte from every server${mount === null ? '' : ' and through the mount'}`);
  const stored = await compareAll(loads, Stage.VOLUME, cluster.urls, mount, say);
  const damage = loads.reduce((sum, load) => damageSum(sum, load.seen), damageSum(NO_DAMAGE, stored.damage));
  const { lost, duplicated, corrupt } = damage;
  say(`  compared ${formatBytes(stored.bytes)}: ${lost} lost, ${duplicated} duplicated, ${corrupt} corrupt`);
  return { damage, undamaged: lost + duplicated + corrupt === 0, bytes: stored.bytes };
}
