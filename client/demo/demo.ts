import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '../../base/errors.ts';
import { ClusterClient } from '../cluster-client.ts';
import { DevCluster, findFreePorts } from '../dev/dev-cluster.ts';
import type { ServerProcess } from '../dev/server-process.ts';
import { CommandFailure, EXIT_TEMPORARY } from '../failure.ts';
import { mountObstacle } from '../mount.ts';
import { formatBytes, formatDuration } from '../quantities.ts';
import { writeGapBound } from './bound.ts';
import { compareAll } from './final-comparison.ts';
import type { GapMeter } from './gap-meter.ts';
import { JournalLoad } from './journal-load.ts';
import { type Damage, damageSum, NO_DAMAGE } from './ledger.ts';
import type { Load } from './load.ts';
import { MountLoad } from './mount-load.ts';
import { SlotsLoad } from './slots-load.ts';
import { UploadLoad } from './upload-load.ts';

const SERVERS = 3;
/** Acknowledged writes of the probed file that show that it can be written again. */
const MARKS_AFTER_KILL = 5;
const STEP_TIMEOUT_MS = 60_000;
const POLL_MS = 100;
/** A wait that takes longer is explained to people. */
const PATIENCE_MS = 5_000;

export interface DemoOptions {
  readonly kills: number;
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  /** Where data and mount are; null for a temporary folder that is removed at the end. */
  readonly directory: string | null;
  /** Tells people what goes on. */
  readonly say: (text: string) => void;
  /** Called before each kill; resolves when it may happen. */
  readonly beforeKill: (round: number) => Promise<void>;
  readonly signal: AbortSignal;
}

export interface DemoRound {
  readonly round: number;
  /** The file whose primary was killed, and that server. */
  readonly file: string;
  readonly killed: string;
  readonly pid: number;
  readonly newPrimary: string;
  /** The longest time between two acknowledged writes of any file that was being written in place. */
  readonly writeGapMs: number;
  readonly boundMs: number;
  readonly withinBound: boolean;
  readonly gapsMs: Readonly<Record<string, number>>;
  /** From the start of the killed server's new process until all its replicas were current. */
  readonly caughtUpMs: number;
}

export interface DemoResult extends Damage {
  readonly ok: boolean;
  readonly rounds: readonly DemoRound[];
  readonly boundMs: number;
  /** What the bound is the sum of. */
  readonly bound: Readonly<Record<string, number>>;
  readonly maxWriteGapMs: number;
  readonly acknowledgedWrites: number;
  readonly reads: number;
  readonly comparedBytes: number;
  /** Whether the mount took part. */
  readonly mount: boolean;
}

/** A load whose gaps are measured and bounded, because each of its writes is one write to one open file. */
type ProbedLoad = Load & { readonly meter: GapMeter };

/** Real servers, real kills, real files; what is reported was measured from outside the servers. */
export async function runDemo(options: DemoOptions): Promise<DemoResult> {
  const folder =
    options.directory === null
      ? await mkdtemp(join(tmpdir(), 'leasehold-demo-'))
      : resolve(options.directory);
  const { say } = options;
  await mkdir(folder, { recursive: true });
  let ok = false;
  try {
    const demo = await Demo.start(folder, options);
    let result: DemoResult;
    try {
      result = await demo.run();
    } finally {
      await demo.stop();
    }
    // Only now: a mount that could not be removed still shows the files of the volume in that folder.
    ok = result.ok;
    return result;
  } finally {
    // What a failure left is kept, since it may show why.
    if (options.directory === null && ok) await rm(folder, { recursive: true, force: true });
    else say(`Data and logs are in ${folder}`);
  }
}

class Demo {
  readonly #options: DemoOptions;
  readonly #cluster: DevCluster;
  readonly #reader: ClusterClient;
  readonly #mount: string | null;
  readonly #probed: readonly ProbedLoad[];
  readonly #loads: readonly Load[];
  readonly #boundMs: number;

  private constructor(
    options: DemoOptions,
    cluster: DevCluster,
    reader: ClusterClient,
    mount: string | null,
    probed: readonly ProbedLoad[],
  ) {
    this.#options = options;
    this.#cluster = cluster;
    this.#reader = reader;
    this.#mount = mount;
    this.#probed = probed;
    this.#loads = [...probed, new UploadLoad(DevCluster.VOLUME, cluster.urls, options.say)];
    this.#boundMs = writeGapBound(options.leaseMs, options.clockSkewMs).totalMs;
  }

  static async start(folder: string, options: DemoOptions): Promise<Demo> {
    const { say, leaseMs, clockSkewMs } = options;
    say(`Starting ${SERVERS} servers with leases of ${formatDuration(leaseMs)}`);
    const cluster = await DevCluster.start({
      ports: await findFreePorts(SERVERS),
      data: join(folder, 'data'),
      leaseMs,
      clockSkewMs,
      onUnexpectedEnd: (server, how) => say(`Server ${server.plan.id} ${how}, which nobody asked for`),
    });
    try {
      const mount = await mountIfPossible(cluster, join(folder, 'mount'), say);
      const reader = new ClusterClient({ servers: cluster.urls });
      const journal = await createFile(cluster.client, '/journal');
      const slots = await createFile(cluster.client, '/slots');
      const probed: ProbedLoad[] = [
        new JournalLoad(
          cluster.client.openFile(journal),
          DevCluster.VOLUME,
          cluster.urls,
          mount === null ? null : `${mount}/journal`,
          say,
        ),
        ...(mount === null ? [] : [new MountLoad(`${mount}/mounted`)]),
        new SlotsLoad(cluster.client.openFile(slots), reader.openFile(slots), say),
      ];
      return new Demo(options, cluster, reader, mount, probed);
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  async run(): Promise<DemoResult> {
    const { say, kills, signal, leaseMs, clockSkewMs } = this.#options;
    for (const { title, path } of this.#loads) say(`Load: ${title} (${DevCluster.VOLUME}:${path})`);
    const enough = new AbortController();
    const running = Promise.all(this.#loads.map((load) => load.run(enough.signal)));
    // A load that fails by itself ends the demo; it is looked at wherever the demo waits.
    const failed = running.then(() => new Promise<never>(() => {}));
    failed.catch(() => {});
    const rounds: DemoRound[] = [];
    try {
      for (let round = 1; round <= kills; round++) {
        signal.throwIfAborted();
        rounds.push(await Promise.race([this.#round(round), failed, aborted(signal)]));
      }
    } finally {
      enough.abort();
      await Promise.race([running.catch(() => {}), delay(STEP_TIMEOUT_MS, undefined, { ref: false })]);
    }
    await running;
    say(`Comparing every byte from every server${this.#mount === null ? '' : ' and through the mount'}`);
    const { damage: stored, bytes } = await compareAll(
      this.#loads,
      DevCluster.VOLUME,
      this.#cluster.urls,
      this.#mount,
      say,
    );
    const damage = this.#loads.reduce((sum, load) => damageSum(sum, load.seen), damageSum(NO_DAMAGE, stored));
    const { totalMs, ...bound } = writeGapBound(leaseMs, clockSkewMs);
    const undamaged = damage.lost + damage.duplicated + damage.corrupt === 0;
    say(
      `Compared ${formatBytes(bytes)}: ${damage.lost} lost, ${damage.duplicated} duplicated, ${damage.corrupt} corrupt`,
    );
    return {
      ok: undamaged && rounds.every(({ withinBound }) => withinBound),
      rounds,
      ...damage,
      boundMs: totalMs,
      bound,
      maxWriteGapMs: Math.max(0, ...rounds.map(({ writeGapMs }) => writeGapMs)),
      acknowledgedWrites: this.#loads.reduce((sum, load) => sum + load.acknowledged, 0),
      reads: this.#loads.reduce((sum, load) => sum + load.reads, 0),
      comparedBytes: bytes,
      mount: this.#mount !== null,
    };
  }

  /** Kills the primary of one of the probed files, in turn. */
  async #round(round: number): Promise<DemoRound> {
    const { say } = this.#options;
    const target = this.#probed[(round - 1) % this.#probed.length] as ProbedLoad;
    await within(target.meter.marks(1), `the first acknowledged write of ${target.path}`);
    await this.#options.beforeKill(round);
    const killed = await this.#primaryOf(target.path);
    const pid = killed.pid as number;
    for (const { meter } of this.#probed) meter.reset();
    say(`Round ${round}: kill -9 of ${killed.plan.id} (pid ${pid}), the primary of ${target.path}`);
    await killed.kill();
    await within(target.meter.marks(MARKS_AFTER_KILL), `writes of ${target.path} after the kill`);
    const newPrimary = await this.#primaryOf(target.path);
    say(`  writes go on with ${newPrimary.plan.id} after ${formatDuration(target.meter.largestMs())}`);
    const startedMs = performance.now();
    await killed.start();
    await killed.ready(STEP_TIMEOUT_MS);
    await this.#caughtUp();
    const caughtUpMs = Math.round(performance.now() - startedMs);
    const gapsMs = Object.fromEntries(
      this.#probed.map(({ path, meter }) => [path, Math.round(meter.largestMs())]),
    );
    const writeGapMs = Math.max(...Object.values(gapsMs));
    const withinBound = writeGapMs <= this.#boundMs;
    say(
      `  longest wait for a write ${writeGapMs} ms, promised ${this.#boundMs} ms${withinBound ? '' : ': TOO LONG'}; ` +
        `${killed.plan.id} is back and current after ${formatDuration(caughtUpMs)}`,
    );
    return {
      round,
      file: target.path,
      killed: killed.plan.id,
      pid,
      newPrimary: newPrimary.plan.id,
      writeGapMs,
      boundMs: this.#boundMs,
      withinBound,
      gapsMs,
      caughtUpMs,
    };
  }

  async #primaryOf(path: string): Promise<ServerProcess> {
    return eventually(`a primary of ${path}`, async () => {
      const { primary } = await this.#cluster.client.info(DevCluster.VOLUME, path);
      return this.#cluster.servers.find(({ plan, pid }) => plan.id === primary && pid !== null) ?? null;
    });
  }

  /** All replicas of all files under load are current, and the cluster says of itself that it is healthy. */
  async #caughtUp(): Promise<void> {
    let sayAtMs = performance.now() + PATIENCE_MS;
    await eventually('all replicas to be current', async () => {
      const missing = await this.#missing();
      if (missing !== null && performance.now() >= sayAtMs) {
        sayAtMs = performance.now() + PATIENCE_MS;
        this.#options.say(`  not yet current: ${missing}`);
      }
      return missing === null ? true : null;
    });
  }

  /** @returns what is not as it was before the kill, or null */
  async #missing(): Promise<string | null> {
    for (const { path } of this.#probed) {
      const { replicas } = await this.#cluster.client.info(DevCluster.VOLUME, path);
      const current = replicas.filter(({ state, reachable }) => state === 'current' && reachable);
      if (current.length < SERVERS) return `${current.length} of ${SERVERS} replicas of ${path}`;
    }
    const { verdict, reasons } = await this.#cluster.client.status();
    return verdict === 'healthy' ? null : reasons.join('; ');
  }

  async stop(): Promise<void> {
    this.#options.say('Stopping the servers');
    await this.#reader.close();
    await this.#cluster.stop();
  }
}

async function mountIfPossible(
  cluster: DevCluster,
  directory: string,
  say: (text: string) => void,
): Promise<string | null> {
  const obstacle = await mountObstacle();
  if (obstacle !== null) {
    say(`The mount takes no part in this: ${obstacle}`);
    return null;
  }
  return (await cluster.mount(directory)).directory;
}

async function createFile(client: ClusterClient, path: string): Promise<number> {
  const { attributes } = await client.command({
    kind: 'create-file',
    place: { volume: DevCluster.VOLUME, path },
    mode: 0o644,
    uid: process.getuid?.() ?? 0,
    gid: process.getgid?.() ?? 0,
    // A file of an earlier run would bring records that this run knows nothing of.
    exclusive: true,
  });
  return attributes.inode;
}

async function within<Value>(promise: Promise<Value>, what: string): Promise<Value> {
  const abort = new AbortController();
  const late = delay(STEP_TIMEOUT_MS, undefined, { signal: abort.signal }).then(() => {
    throw new CommandFailure(EXIT_TEMPORARY, `Waited ${formatDuration(STEP_TIMEOUT_MS)} in vain for ${what}`);
  });
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    abort.abort();
  }
}

/** Asks until there is an answer other than null; the state of other processes sends no events. */
async function eventually<Value>(what: string, ask: () => Promise<Value | null>): Promise<Value> {
  const deadlineMs = performance.now() + STEP_TIMEOUT_MS;
  for (;;) {
    try {
      const answer = await ask();
      if (answer !== null) return answer;
    } catch (error) {
      if (!(error instanceof ServiceError) || error.remedy === 'give-up') throw error;
    }
    if (performance.now() > deadlineMs) {
      throw new CommandFailure(
        EXIT_TEMPORARY,
        `Waited ${formatDuration(STEP_TIMEOUT_MS)} in vain for ${what}`,
      );
    }
    await delay(POLL_MS);
  }
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(new CommandFailure(EXIT_TEMPORARY, `Stopped by ${String(signal.reason)}`));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
