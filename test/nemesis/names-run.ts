/**
 * A run: faults of a cluster and its mounts while programs use shared directories, and the judgement of what the
 * programs saw.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import { run as runProgram } from '../cluster/cluster-mount.ts';
import { until } from '../cluster/real-cluster.ts';
import { historyCheck } from '../history/checker.ts';
import { verdictText } from '../history/report.ts';
import { NemesisCluster } from './cluster.ts';
import { Actor, Directories, withKnownContents, withUnknownFiles } from './names-actor.ts';
import type { NamesArguments, NamesFault } from './names-arguments.ts';
import { LOCK_DIRECTORY, LOCK_FILES, Locker, type LockOutcome } from './names-locker.ts';
import { type MountedVolume, NemesisMounts, signal } from './nemesis-mounts.ts';
import type { NamespaceNetwork } from './network.ts';
import { countUp, Recorder } from './recorder.ts';

const VOLUME = 'names';
const SKEW_PER_LEASE = 1 / 20;
const SERVER_TIMEOUT_MS = 15_000;
const ACTORS_PER_MOUNT = 2;
/** How old answers may be with `cache=ttl:1s`; the other modes show nothing outdated. */
const STALE_NS = { ttl: 1_000_000_000, leases: 0, strict: 0 } as const;
/** A slow process is stopped for the first part of each period and runs for the second, in milliseconds. */
const SLOW_MS = { stopped: 80, running: 20 } as const;
const START_MS_MAX = 120_000;
const WHOLE_MS_MAX = 120_000;
/** A run may take so much longer than asked for, until all required operations have happened. */
const LONGER_MS_MAX = 60_000;
/** Locks last for three leases after the last request of their client. */
const LOCK_LEASES = 3;
/** Each run must make each of these at least once, with a known outcome. */
const OPERATIONS = ['lookup', 'read', 'write', 'create', 'replace', 'rename', 'unlink', 'cas'];

interface Mount extends MountedVolume {
  readonly actors: readonly (Actor | Locker)[];
  readonly running: Promise<void>;
}

export class NamesRun {
  readonly #options: NamesArguments;
  readonly #network: NamespaceNetwork;
  readonly #cluster: NemesisCluster;
  readonly #mounting: NemesisMounts;
  readonly #recorder: Recorder;
  readonly #prng: Prng;
  readonly #errors = new Map<string, number>();
  readonly #faults = new Map<string, number>();
  /** Counts of the outcomes of locks, by transport. */
  readonly #locks = { kernel: new Map<LockOutcome, number>(), native: new Map<LockOutcome, number>() };
  readonly #directories: Directories;
  readonly #mounts = new Map<number, Mount>();
  readonly #wrong: string[] = [];
  readonly #beganMs = performance.now();
  #actorCount = 0;
  #shared: string | null = null;

  private constructor(options: NamesArguments, network: NamespaceNetwork, cluster: NemesisCluster) {
    this.#options = options;
    this.#network = network;
    this.#cluster = cluster;
    this.#mounting = new NemesisMounts(cluster, network);
    this.#prng = new Prng(options.seed);
    this.#recorder = new Recorder(options.out ?? join(cluster.folder, 'history.jsonl'));
    this.#directories = new Directories((name) => this.#makeDirectory(name));
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
      const { code, text } = await run.#mounting.leasehold('volume', 'create', VOLUME, '--replicas', '3');
      if (code !== 0) throw new Error(`The volume cannot be created: ${text}`);
      // A mount without programs, which creates directories and reads them at the end.
      run.#shared = (await run.#mountAt(options.servers)).directory;
      await run.#makeLockFiles();
      for (let place = 0; place < options.mounts; place++) await run.#mount(options.servers + 1 + place);
      return run;
    } catch (error) {
      await run.end();
      throw error;
    }
  }

  /**
   * The number of network addresses of a run: one for each server and mount, and one for the mount without programs.
   */
  static places({ servers, mounts }: NamesArguments): number {
    return servers + mounts + 1;
  }

  get folder(): string {
    return this.#cluster.folder;
  }

  /** @returns whether no error was found */
  async judge(): Promise<boolean> {
    const { loadMs, servers, mounts, natives, cache, seed, faults } = this.#options;
    this.#say(
      `${servers} servers, ${mounts} mounts (${natives} by the library) with cache=${cache}; seed ${seed}, folder ${this.folder}`,
    );
    const endMs = performance.now() + loadMs;
    for (let count = 0; ; count++) {
      const nowMs = performance.now();
      const isDone = count >= faults.length && this.#missing().length === 0;
      if (nowMs >= endMs && (isDone || nowMs >= endMs + LONGER_MS_MAX)) break;
      await delay(this.#prng.integer(300, 1_000));
      await this.#hit(faults[count % faults.length] as readonly NamesFault[]);
    }
    await delay(1_000);
    await this.#heal();
    await this.#survey();
    this.#judgeHistory();
    await this.#judgeCluster();
    for (const wrong of this.#wrong) this.#say(`WRONG ${wrong}`);
    return this.#wrong.length === 0;
  }

  /** @returns the run in a few lines */
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
      `changes under locks: kernel ${text(this.#locks.kernel)}; native ${text(this.#locks.native)}`,
    ].join('\n');
  }

  async end(): Promise<void> {
    for (const place of [...this.#mounts.keys()]) await this.#endMount(place);
    this.#mounting.end();
    await this.#recorder.close();
    await this.#cluster.stop();
  }

  remove(): void {
    this.#cluster.remove();
  }

  /** Injects each fault at a victim of its own, all at the same time. */
  async #hit(faults: readonly NamesFault[]): Promise<void> {
    const holdMs = this.#prng.integer(500, 3_000);
    const servers = [...this.#cluster.ids];
    const places = [...this.#mounts.keys()];
    const taken = <Victim>(from: Victim[]): Victim =>
      from.splice(this.#prng.integer(0, from.length - 1), 1)[0] as Victim;
    const victims = faults.map((fault) =>
      fault.startsWith('server') ? { fault, id: taken(servers) } : { fault, place: taken(places) },
    );
    const names = victims.map(({ fault, id, place }) => `${fault} of ${id ?? `mount ${place}`}`);
    this.#say(`${names.join(' and ')} for ${holdMs} ms`);
    await Promise.all(
      victims.map(({ fault, id, place }) =>
        id === undefined ? this.#hitMount(fault, place, holdMs) : this.#hitServer(fault, id, holdMs),
      ),
    );
    for (const fault of faults) countUp(this.#faults, fault);
    if (faults.length > 1) countUp(this.#faults, 'several at a time');
  }

  async #hitServer(fault: NamesFault, id: string, holdMs: number): Promise<void> {
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
      default:
        throw new Error(`${fault} is no fault of a server`);
    }
  }

  async #hitMount(fault: NamesFault, place: number, holdMs: number): Promise<void> {
    const { pid } = this.#mounts.get(place) as Mount;
    // Longer than a cache session, and than a client's locks.
    const longMs = holdMs + LOCK_LEASES * this.#options.leaseMs;
    switch (fault) {
      case 'mount-stop':
        signal(pid, 'SIGSTOP');
        await delay(longMs);
        signal(pid, 'SIGCONT');
        return;
      case 'mount-kill':
        await this.#endMount(place);
        return this.#mount(place);
      case 'mount-cut':
        return this.#cut(place, longMs);
      case 'mount-slow':
        return slow((name) => signal(pid, name), holdMs);
      default:
        throw new Error(`${fault} is no fault of a mount`);
    }
  }

  async #cut(place: number, holdMs: number): Promise<void> {
    this.#network.unplug(place);
    await delay(holdMs);
    this.#network.plug(place);
  }

  /** Repairs all faults, and ends all programs with their pending calls. */
  async #heal(): Promise<void> {
    this.#network.heal();
    await this.#cluster.ready(this.#cluster.ids, WHOLE_MS_MAX);
    for (const place of [...this.#mounts.keys()]) await this.#unmount(place);
  }

  /** A new mount must show all acknowledged changes. */
  async #survey(): Promise<void> {
    const { directory } = await this.#mountAt(this.#options.servers);
    const actor = this.#actor(directory, 0);
    for (const name of this.#directories.all) await actor.survey(name);
    await actor.end();
    const locker = this.#locker(directory, 'kernel');
    await locker.survey();
    await locker.end();
  }

  #judgeHistory(): void {
    const verdict = historyCheck(withKnownContents(withUnknownFiles(this.#recorder.operations)));
    this.#say(verdictText(verdict));
    if (verdict.violations.length > 0) this.#wrong.push('a history is not linearizable');
    if (verdict.undecided.length > 0) this.#wrong.push(`undecided: ${verdict.undecided.join(', ')}`);
    for (const what of this.#missing()) this.#wrong.push(`${what} did not happen`);
  }

  /** @returns operations and faults that a run must have and that have not happened */
  #missing(): string[] {
    const missing = OPERATIONS.filter((op) => !this.#recorder.counts.has(`${op} ok`));
    for (const fault of this.#options.faults.flat()) if (!this.#faults.has(fault)) missing.push(fault);
    for (const transport of ['kernel', 'native'] as const) {
      const isUsed = transport === 'kernel' || this.#options.natives > 0;
      if (isUsed && !this.#locks[transport].has('stored'))
        missing.push(`a change under a lock (${transport})`);
    }
    return missing;
  }

  /**
   * No server may have ended by itself, no file may have two member sets, and replicas and catalog must agree about
   * files.
   */
  async #judgeCluster(): Promise<void> {
    for (const { id, how, log } of this.#cluster.deaths)
      this.#wrong.push(`${id} ended by itself: ${how}\n${log}`);
    const findings = await this.#mounting.findings();
    if (findings !== null) this.#wrong.push(findings);
  }

  async #makeLockFiles(): Promise<void> {
    await this.#makeDirectory(LOCK_DIRECTORY);
    const paths = LOCK_FILES.map((file) => join(this.#shared as string, LOCK_DIRECTORY, file));
    const made = await runProgram('touch', paths);
    if (made.code !== 0) throw new Error(`The files to be locked cannot be made: ${made.text}`);
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
    // Other mounts may cache the absence of the name for a second.
    await delay(STALE_NS[this.#options.cache] / 1e6);
  }

  #locker(directory: string, transport: 'kernel' | 'native'): Locker {
    return new Locker(directory, {
      name: `l${++this.#actorCount}`,
      prng: new Prng(this.#options.seed + this.#actorCount),
      recorder: this.#recorder,
      errors: this.#errors,
      outcomes: this.#locks[transport],
    });
  }

  #actor(directory: string, staleNs: number, hasInodes = true): Actor {
    return new Actor(directory, {
      name: `p${++this.#actorCount}`,
      prng: new Prng(this.#options.seed + this.#actorCount),
      recorder: this.#recorder,
      directories: this.#directories,
      staleNs,
      hasInodes,
      errors: this.#errors,
    });
  }

  async #mount(place: number): Promise<void> {
    const { servers, natives, cache } = this.#options;
    // The addresses of mounts follow those of the servers and of the mount without programs.
    const transport = place - servers - 1 < natives ? 'native' : 'kernel';
    const { directory, pid } = await this.#mountAt(place, transport);
    const actors = [
      ...Array.from({ length: ACTORS_PER_MOUNT }, () =>
        this.#actor(directory, STALE_NS[cache], transport === 'kernel'),
      ),
      this.#locker(directory, transport),
    ];
    const running = Promise.all(actors.map((actor) => actor.run())).then(() => undefined);
    this.#mounts.set(place, { directory, pid, actors, running });
  }

  /** Kills a mount while its programs run. */
  async #endMount(place: number): Promise<void> {
    const mount = this.#mounts.get(place) as Mount;
    const { actors, running } = mount;
    this.#mounts.delete(place);
    this.#mounting.kill(mount);
    await Promise.all(actors.map((actor) => actor.end()));
    await running;
  }

  /** Ends the programs of a mount, and unmounts it. */
  async #unmount(place: number): Promise<void> {
    const mount = this.#mounts.get(place) as Mount;
    const { actors, running } = mount;
    this.#mounts.delete(place);
    await Promise.all(actors.map((actor) => actor.end()));
    await running;
    const { code, text } = await this.#mounting.unmount(mount);
    if (code !== 0) this.#say(`umount of mount ${place}: exit code ${code} ${text.trim()}`);
  }

  #mountAt(place: number, transport: 'kernel' | 'native' = 'kernel'): Promise<MountedVolume> {
    const { cache, operationTimeoutMs } = this.#options;
    const mode = ['--transport', transport, '--cache', cache === 'ttl' ? 'ttl:1s' : cache];
    return this.#mounting.mount(place, VOLUME, ...mode, '--op-timeout', `${operationTimeoutMs}ms`);
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

/** @returns why this machine cannot run it, or null */
export function programObstacle(): string | null {
  const python = spawnSync('python3', ['--version'], { stdio: 'ignore' });
  return python.status === 0 ? null : 'there is no "python3"';
}
