/** A cluster and mounts that are broken while programs use shared directories, and the judgement of what they saw. */
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { unreachable } from '../../base/assert.ts';
import { Prng } from '../../base/prng.ts';
import { run as runProgram } from '../cluster/cluster-mount.ts';
import { LAUNCHER, until } from '../cluster/real-cluster.ts';
import { historyCheck } from '../history/checker.ts';
import { verdictText } from '../history/report.ts';
import { NemesisCluster } from './cluster.ts';
import { Actor, Directories, withUnknownFiles } from './names-actor.ts';
import type { NamesArguments, NamesFault } from './names-arguments.ts';
import type { NamespaceNetwork } from './network.ts';
import { countUp, Recorder } from './recorder.ts';
import { canRun } from './system.ts';

const VOLUME = 'names';
const SKEW_PER_LEASE = 1 / 20;
const SERVER_TIMEOUT_MS = 15_000;
const ACTORS_PER_MOUNT = 2;
/** What `cache=ttl:1s` promises; the other modes show nothing old. */
const STALE_NS = { ttl: 1_000_000_000, leases: 0, strict: 0 } as const;
/** A slow process runs for the second part of each such period, in milliseconds. */
const SLOW_MS = { stopped: 80, running: 20 } as const;
const START_MS_MAX = 120_000;
const WHOLE_MS_MAX = 120_000;

interface Mount {
  readonly place: number;
  readonly directory: string;
  readonly pid: number;
  readonly actors: readonly Actor[];
  readonly running: Promise<void>;
}

export class NamesRun {
  readonly #options: NamesArguments;
  readonly #network: NamespaceNetwork;
  readonly #cluster: NemesisCluster;
  readonly #recorder: Recorder;
  readonly #prng: Prng;
  readonly #errors = new Map<string, number>();
  readonly #faults = new Map<NamesFault, number>();
  readonly #directories: Directories;
  readonly #mounts = new Map<number, Mount>();
  readonly #wrong: string[] = [];
  readonly #beganMs = performance.now();
  #mountCount = 0;
  #actorCount = 0;
  #shared: string | null = null;

  private constructor(options: NamesArguments, network: NamespaceNetwork, cluster: NemesisCluster) {
    this.#options = options;
    this.#network = network;
    this.#cluster = cluster;
    this.#prng = new Prng(options.seed);
    this.#recorder = new Recorder(options.out ?? join(cluster.folder, 'history.jsonl'));
    this.#directories = new Directories((name) => this.#makeDirectory(name));
    process.prependListener('exit', this.#onExit);
  }

  static async start(options: NamesArguments, network: NamespaceNetwork): Promise<NamesRun> {
    const cluster = await NemesisCluster.start({
      servers: options.servers,
      leaseMs: options.leaseMs,
      clockSkewMs: Math.floor(options.leaseMs * SKEW_PER_LEASE),
      operationTimeoutMs: SERVER_TIMEOUT_MS,
      network,
      ownDisks: false,
    });
    const run = new NamesRun(options, network, cluster);
    try {
      await run.#leasehold('volume', 'create', VOLUME, '--replicas', '3');
      // A mount without programs: it makes directories, and surveys them in the end.
      run.#shared = (await run.#mountAt(options.servers)).directory;
      for (let place = 0; place < options.mounts; place++) await run.#mount(options.servers + 1 + place);
      return run;
    } catch (error) {
      await run.end();
      throw error;
    }
  }

  /** Places of the network that a run needs: one for each server and mount, and one for the mount without programs. */
  static places({ servers, mounts }: NamesArguments): number {
    return servers + mounts + 1;
  }

  get folder(): string {
    return this.#cluster.folder;
  }

  /** @returns whether nothing was wrong */
  async judge(): Promise<boolean> {
    const { loadMs, servers, mounts, cache, seed } = this.#options;
    this.#say(
      `${servers} servers, ${mounts} mounts with cache=${cache}; seed ${seed}, folder ${this.folder}`,
    );
    const endMs = performance.now() + loadMs;
    for (let count = 0; performance.now() < endMs; count++) {
      await delay(this.#prng.integer(500, 1_500));
      const { faults } = this.#options;
      const fault = faults[count % faults.length] as NamesFault;
      await this.#hit(fault);
      countUp(this.#faults, fault);
    }
    await delay(1_000);
    await this.#heal();
    await this.#survey();
    this.#judgeHistory();
    await this.#judgeCluster();
    for (const wrong of this.#wrong) this.#say(`WRONG ${wrong}`);
    return this.#wrong.length === 0;
  }

  /** What happened, in a few lines. */
  summary(): string {
    const text = (counts: ReadonlyMap<string, number>) =>
      [...counts]
        .sort()
        .map(([what, count]) => `${what} ${count}`)
        .join(', ') || 'none';
    return [
      `operations: ${text(this.#recorder.counts)}`,
      `calls that failed: ${text(this.#errors)}`,
      `faults: ${text(this.#faults)}`,
    ].join('\n');
  }

  async end(): Promise<void> {
    for (const place of [...this.#mounts.keys()]) await this.#endMount(place);
    process.off('exit', this.#onExit);
    this.#onExit();
    await this.#recorder.close();
    await this.#cluster.stop();
  }

  remove(): void {
    this.#cluster.remove();
  }

  readonly #detached: { readonly directory: string; readonly pid: number }[] = [];
  readonly #onExit = (): void => {
    for (const { directory, pid } of this.#detached.splice(0)) {
      signal(pid, 'SIGKILL');
      canRun('fusermount3', ['-u', '-z', directory]);
    }
  };

  async #hit(fault: NamesFault): Promise<void> {
    const holdMs = this.#prng.integer(1_000, 4_000);
    const id = this.#prng.pick(this.#cluster.ids);
    const place = this.#prng.pick([...this.#mounts.keys()]);
    const { pid } = this.#mounts.get(place) as Mount;
    const victim = fault.startsWith('server') ? id : `mount ${place}`;
    this.#say(`${fault} of ${victim} for ${holdMs} ms`);
    switch (fault) {
      case 'server-stop':
        this.#cluster.signal(id, 'SIGSTOP');
        await delay(holdMs);
        this.#cluster.signal(id, 'SIGCONT');
        return;
      case 'server-kill':
        await this.#cluster.kill(id);
        await delay(holdMs);
        this.#cluster.spawn(id);
        return this.#cluster.ready([id], START_MS_MAX);
      case 'server-cut':
        return this.#cut(this.#cluster.place(id), holdMs);
      case 'server-slow':
        return slow((name) => this.#cluster.signal(id, name), holdMs);
      case 'mount-stop':
        signal(pid, 'SIGSTOP');
        // Longer than a session of a client lives.
        await delay(holdMs + 2 * this.#options.leaseMs);
        signal(pid, 'SIGCONT');
        return;
      case 'mount-kill':
        await this.#endMount(place);
        return this.#mount(place);
      case 'mount-cut':
        return this.#cut(place, holdMs + 2 * this.#options.leaseMs);
      case 'mount-slow':
        return slow((name) => signal(pid, name), holdMs);
      default:
        unreachable(fault);
    }
  }

  async #cut(place: number, holdMs: number): Promise<void> {
    this.#network.unplug(place);
    await delay(holdMs);
    this.#network.heal();
  }

  /** All faults are over; all programs have ended, the calls that are under way included. */
  async #heal(): Promise<void> {
    this.#network.heal();
    await this.#cluster.ready(this.#cluster.ids, WHOLE_MS_MAX);
    for (const place of [...this.#mounts.keys()]) await this.#unmount(place);
  }

  /** By a mount that has seen nothing yet: what was acknowledged is there. */
  async #survey(): Promise<void> {
    const { directory } = await this.#mountAt(this.#options.servers);
    const actor = this.#actor(directory, 0);
    for (const name of this.#directories.all) await actor.survey(name);
    await actor.end();
  }

  #judgeHistory(): void {
    const verdict = historyCheck(withUnknownFiles(this.#recorder.operations));
    this.#say(verdictText(verdict));
    if (verdict.violations.length > 0) this.#wrong.push('a history is not linearizable');
    if (verdict.undecided.length > 0) this.#wrong.push(`undecided: ${verdict.undecided.join(', ')}`);
    const done = this.#recorder.counts.get('create ok') ?? 0;
    if (done === 0) this.#wrong.push('nothing was created');
    for (const fault of this.#options.faults)
      if (!this.#faults.has(fault)) this.#say(`${fault} did not happen in this time`);
  }

  /** No server ended by itself, and what replicas and catalog say of files fits together. */
  async #judgeCluster(): Promise<void> {
    for (const { id, how, log } of this.#cluster.deaths)
      this.#wrong.push(`${id} ended by itself: ${how}\n${log}`);
    const checked = await this.#run('check');
    if (checked.code !== 0) this.#wrong.push(`leasehold check: exit code ${checked.code}\n${checked.text}`);
  }

  async #makeDirectory(name: string): Promise<void> {
    if (this.#shared === null) throw new Error('There is no mount yet');
    const path = join(this.#shared, name);
    await until(
      `directory ${name} exists`,
      async () => {
        const made = await runProgram('mkdir', ['-p', path]);
        return made.code === 0;
      },
      WHOLE_MS_MAX,
    );
    // Other mounts may believe for a second that the name does not exist.
    await delay(STALE_NS[this.#options.cache] / 1e6);
  }

  #actor(directory: string, staleNs: number): Actor {
    return new Actor(directory, {
      name: `p${++this.#actorCount}`,
      prng: new Prng(this.#options.seed + this.#actorCount),
      recorder: this.#recorder,
      directories: this.#directories,
      staleNs,
      errors: this.#errors,
    });
  }

  async #mount(place: number): Promise<void> {
    const { directory, pid } = await this.#mountAt(place);
    const staleNs = STALE_NS[this.#options.cache];
    const actors = Array.from({ length: ACTORS_PER_MOUNT }, () => this.#actor(directory, staleNs));
    const running = Promise.all(actors.map((actor) => actor.run())).then(() => undefined);
    this.#mounts.set(place, { place, directory, pid, actors, running });
  }

  /** Kills a mount under its programs. */
  async #endMount(place: number): Promise<void> {
    const { actors, running, pid, directory } = this.#mounts.get(place) as Mount;
    this.#mounts.delete(place);
    signal(pid, 'SIGKILL');
    canRun('fusermount3', ['-u', '-z', directory]);
    await Promise.all(actors.map((actor) => actor.end()));
    await running;
  }

  /** Ends the programs of a mount, and unmounts it in order. */
  async #unmount(place: number): Promise<void> {
    const { actors, running, directory } = this.#mounts.get(place) as Mount;
    this.#mounts.delete(place);
    await Promise.all(actors.map((actor) => actor.end()));
    await running;
    const { code, text } = await this.#run('umount', directory);
    if (code !== 0) this.#say(`umount of mount ${place}: exit code ${code} ${text.trim()}`);
  }

  async #mountAt(place: number): Promise<{ readonly directory: string; readonly pid: number }> {
    const directory = join(this.folder, `mount-${++this.#mountCount}`);
    mkdirSync(directory);
    const { cache, operationTimeoutMs } = this.#options;
    const argv = ['mount', VOLUME, directory, '--json', '--log', `${directory}.log`];
    const flags = ['--cache', cache === 'ttl' ? 'ttl:1s' : cache, '--op-timeout', `${operationTimeoutMs}ms`];
    const text = await this.#leaseholdAt(place, [...argv, ...flags, ...this.#servers()]);
    const { pid } = JSON.parse(text) as { readonly pid: number };
    this.#detached.push({ directory, pid });
    return { directory, pid };
  }

  #servers(): readonly string[] {
    return ['--servers', this.#cluster.ids.map((id) => this.#cluster.url(id)).join(',')];
  }

  async #leaseholdAt(place: number, argv: readonly string[]): Promise<string> {
    const [program = '', ...rest] = this.#network.inside(place, [process.execPath, LAUNCHER, ...argv]);
    const { code, text } = await runProgram(program, rest, { timeoutMs: START_MS_MAX });
    if (code !== 0) throw new Error(`leasehold ${argv.join(' ')}: exit code ${code}\n${text}`);
    return text;
  }

  #leasehold(...argv: readonly string[]): Promise<string> {
    return this.#leaseholdAt(this.#options.servers, [...argv, ...this.#servers()]);
  }

  #run(...argv: readonly string[]) {
    const servers = argv[0] === 'umount' ? [] : this.#servers();
    return runProgram(process.execPath, [LAUNCHER, ...argv, ...servers], { timeoutMs: START_MS_MAX });
  }

  #say(text: string): void {
    const seconds = ((performance.now() - this.#beganMs) / 1000).toFixed(1);
    process.stdout.write(`${seconds.padStart(7)} s  ${text}\n`);
  }
}

/** Stops and continues a process in turns. */
async function slow(send: (name: 'SIGSTOP' | 'SIGCONT') => void, holdMs: number): Promise<void> {
  const endMs = performance.now() + holdMs;
  while (performance.now() < endMs) {
    send('SIGSTOP');
    await delay(SLOW_MS.stopped);
    send('SIGCONT');
    await delay(SLOW_MS.running);
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // A process that has ended needs no signal.
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

/** @returns why a run is not possible here, or null */
export function programObstacle(): string | null {
  const python = spawnSync('python3', ['--version'], { stdio: 'ignore' });
  return python.status === 0 ? null : 'there is no "python3"';
}
