/** Rounds of fio on a mount: each with one kind of fault, and three judgements of what fio wrote. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Prng } from '../../base/prng.ts';
import { type Mounted, mountVolume } from '../../client/mounts/mount-process.ts';
import { unmountDirectory } from '../../client/mounts/unmount.ts';
import type { FileInfo } from '../../wire/http-api.ts';
import { until } from '../cluster/real-cluster.ts';
import { isOfFullDisk, NemesisCluster } from './cluster.ts';
import { blockDifference, type FioJob, type FioResult, fioVerify, fioWrite, longestPause } from './fio.ts';
import type { MountArguments, MountFault, Target } from './mount-arguments.ts';
import { type HitWorld, hit } from './mount-hits.ts';
import type { NamespaceNetwork } from './network.ts';
import { canRun } from './system.ts';

const VOLUME = 'fio';
const OBJECT_BYTES = 131_072;
const SKEW_PER_LEASE = 1 / 20;
/** The servers' default. */
const SERVER_TIMEOUT_MS = 15_000;
/** How long a cluster without faults may take until all its replicas are current. */
const WHOLE_MS = 120_000;
/** Before the first fault of a round. */
const AHEAD_MS = 2_000;
const MIB = 1024 * 1024;
/** Twice the size of all jobs' files, and what servers reserve: only faults fill a disk. */
const DISK_BYTES = 768 * MIB;

/** Two jobs run at a time; each kind of writing is used with syncs and without. */
const JOBS: readonly (readonly [Omit<FioJob, 'writeMs'>, Omit<FioJob, 'writeMs'>])[] = [
  [
    { name: 'random-4k', order: 'randwrite', blockBytes: 4096, sizeBytes: 16 * MIB, syncEvery: 0 },
    { name: 'stream-64k-sync', order: 'write', blockBytes: 65_536, sizeBytes: 24 * MIB, syncEvery: 8 },
  ],
  [
    { name: 'random-16k-sync', order: 'randwrite', blockBytes: 16_384, sizeBytes: 16 * MIB, syncEvery: 4 },
    { name: 'stream-128k', order: 'write', blockBytes: 131_072, sizeBytes: 48 * MIB, syncEvery: 0 },
  ],
];

interface Round {
  readonly fault: MountFault;
  readonly target: Target;
  readonly jobs: string;
  readonly hits: readonly (readonly string[])[];
  /** The longest call of fio on the mount during faults. */
  readonly stallMs: number;
  readonly errors: readonly string[];
}

/** A cluster, a mount that has all its servers in its list, and the results of the rounds. */
export class MountRun {
  readonly #options: MountArguments;
  readonly #network: NamespaceNetwork;
  readonly #cluster: NemesisCluster;
  readonly #prng: Prng;
  readonly #done: Round[] = [];
  readonly #beganMs = performance.now();
  readonly #mounts = new Map<string, Mounted>();
  readonly #onExit = (): void => {
    for (const { pid, directory } of this.#mounts.values()) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch (error) {
        // The process has ended by itself.
        if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
      }
      // libfuse's helper process may have unmounted it already.
      canRun('fusermount3', ['-u', '-z', directory]);
    }
  };
  #mountCount = 0;
  #deathsSeen = 0;

  private constructor(options: MountArguments, network: NamespaceNetwork, cluster: NemesisCluster) {
    this.#options = options;
    this.#network = network;
    this.#cluster = cluster;
    this.#prng = new Prng(options.seed);
    // Before the cluster's own listener, which removes the folders.
    process.prependListener('exit', this.#onExit);
  }

  static async start(options: MountArguments, network: NamespaceNetwork): Promise<MountRun> {
    const cluster = await NemesisCluster.start({
      servers: options.servers,
      leaseMs: options.leaseMs,
      clockSkewMs: Math.floor(options.leaseMs * SKEW_PER_LEASE),
      operationTimeoutMs: Math.max(SERVER_TIMEOUT_MS, 2 * options.leaseMs),
      network,
      ownDisks: true,
      diskBytes: DISK_BYTES,
    });
    const whole = new MountRun(options, network, cluster);
    try {
      await whole.#createVolume();
      return whole;
    } catch (error) {
      await whole.end();
      throw error;
    }
  }

  get folder(): string {
    return this.#cluster.folder;
  }

  /** @returns whether no round found an error */
  async rounds(): Promise<boolean> {
    const { faults, targets, rounds, seed, servers } = this.#options;
    const catalog = (await this.#cluster.status())?.catalog.members.join() ?? 'unknown';
    this.#say(`${servers} servers, catalog on ${catalog}; seed ${seed}, folder ${this.folder}`);
    const mount = await this.#mount(this.#cluster.ids);
    for (let number = 0; number < rounds; number++) {
      const fault = faults[number % faults.length] as MountFault;
      // Each fault hits both targets, and after four rounds both with either pair of jobs.
      const turn = Math.floor(number / faults.length);
      const target = targets[turn % targets.length] as Target;
      const round = await this.#round(number, fault, target, mount.directory);
      this.#done.push(round);
      this.#say(`round ${number + 1}: ${roundText(round)}`);
      for (const error of round.errors) this.#say(`  WRONG ${error}`);
    }
    await this.#unmount(mount);
    return this.#done.every(({ errors }) => errors.length === 0);
  }

  async #round(number: number, fault: MountFault, target: Target, directory: string): Promise<Round> {
    const { faults, writeMs } = this.#options;
    const turn = Math.floor(number / faults.length);
    const pair = (number % faults.length) + turn + Math.floor(turn / 2);
    const jobs = (JOBS[pair % JOBS.length] ?? []).map((job): FioJob => ({ ...job, writeMs }));
    const seed = this.#options.seed + number;
    this.#say(`round ${number + 1}: ${fault} at ${target}, ${jobs.map(({ name }) => name).join(' and ')}`);
    const errors: string[] = [];
    let isOver = false;
    const log = ({ name }: FioJob): string => join(this.folder, `round-${number + 1}-${name}`);
    const startMs = this.#elapsedMs();
    const running = Promise.all(jobs.map((job) => fioWrite(job, directory, seed, log(job)))).finally(() => {
      isOver = true;
    });
    const hits: (readonly string[])[] = [];
    await delay(AHEAD_MS);
    while (!isOver) {
      try {
        const victims = await this.#victims(jobs, target);
        hits.push(victims);
        await hit(this.#hitWorld(), fault, victims);
      } catch (error) {
        errors.push(`at ${seconds(this.#elapsedMs())}: ${messageOf(error)}`);
      }
      await this.#whole(fault === 'power', jobs, errors);
      await delay(this.#prng.integer(0, this.#options.leaseMs));
    }
    const results = await running;
    errors.push(...complaints('on the mount of the faults', jobs, results));
    this.#say(`fio is done, its longest stall ${stallOf(results).toFixed(0)} ms`);
    for (const job of jobs) {
      const { atMs, ms } = longestPause(log(job));
      this.#say(`longest pause of ${job.name} ${ms} ms, from about ${seconds(startMs + atMs)} on`);
    }
    await this.#verifyElsewhere(jobs, seed, hits.at(-1) ?? [], errors);
    errors.push(...this.#deaths(fault));
    return {
      fault,
      target,
      jobs: jobs.map(({ name }) => name).join(', '),
      hits,
      stallMs: stallOf(results),
      errors,
    };
  }

  /** Verifies by new mounts: with all servers, and with a majority that includes the last victims. */
  async #verifyElsewhere(
    jobs: readonly FioJob[],
    seed: number,
    victims: readonly string[],
    errors: string[],
  ): Promise<void> {
    const { ids } = this.#cluster;
    const via = this.#prng.pick(ids);
    this.#say(`verifying by a new mount at ${via}`);
    await this.#verify(jobs, seed, [via], 'with all servers', errors);
    const away = this.#shuffled(ids.filter((id) => !victims.includes(id))).slice(0, (ids.length - 1) / 2);
    const left = ids.filter((id) => !away.includes(id));
    this.#say(`verifying by a new mount with ${left.join(' and ')} alone`);
    // Otherwise the latest writes would be on fewer servers than a majority.
    await this.#whole(true, jobs, errors);
    for (const id of away) await this.#cluster.kill(id);
    await this.#verify(jobs, seed, left, `with ${left.join(' and ')} alone`, errors);
    for (const id of away) this.#cluster.spawn(id);
    await this.#whole(true, jobs, errors);
  }

  async #verify(
    jobs: readonly FioJob[],
    seed: number,
    at: readonly string[],
    where: string,
    errors: string[],
  ): Promise<void> {
    let mount: Mounted;
    try {
      mount = await this.#mount(at);
    } catch (error) {
      errors.push(`no mount ${where}: ${messageOf(error)}`);
      return;
    }
    for (const job of jobs) {
      const result = await fioVerify(job, mount.directory, seed);
      errors.push(...complaints(where, [job], [result]));
      if (result.error === null) errors.push(...(await this.#compare(job, mount.directory, seed, where)));
    }
    await this.#unmount(mount);
  }

  /** Compares with what the same job writes to a disk of this machine. */
  async #compare(job: FioJob, directory: string, seed: number, where: string): Promise<string[]> {
    const reference = join(this.folder, 'reference');
    mkdirSync(reference, { recursive: true });
    const wrote = await fioWrite({ ...job, writeMs: 0 }, reference, seed);
    if (wrote.error !== null) throw new Error(`No reference: ${wrote.error}`);
    const offset = blockDifference(job, join(directory, job.name), join(reference, job.name));
    rmSync(reference, { recursive: true });
    return offset === null ? [] : [`${job.name} ${where}: other bytes than written, from ${offset} on`];
  }

  /**
   * The primaries of fio's files first, or servers that are the primary of none; as many as may have a fault at once.
   */
  async #victims(jobs: readonly FioJob[], target: Target): Promise<string[]> {
    const primaries = new Set<string>();
    for (const job of this.#shuffled(jobs)) primaries.add(await this.#primaryOf(job.name));
    const others = this.#shuffled(this.#cluster.ids.filter((id) => !primaries.has(id)));
    const count = (this.#options.servers - 1) / 2;
    return (target === 'primaries' ? [...primaries, ...others] : others).slice(0, count);
  }

  async #primaryOf(name: string): Promise<string> {
    let primary: string | null = null;
    await until(`${name} has a primary`, async () => {
      primary = (await this.#info(name)).primary;
      return primary !== null;
    });
    if (primary === null) throw new Error('unreachable');
    return primary;
  }

  async #info(name: string): Promise<FileInfo> {
    const url = `${this.#cluster.url(this.#prng.pick(this.#cluster.ids))}/v1/info/${VOLUME}/${name}`;
    const response = await fetch(url, { signal: AbortSignal.timeout(SERVER_TIMEOUT_MS) });
    if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
    return (await response.json()) as FileInfo;
  }

  /** Waits until all servers are ready, and with `isCurrent` until all replicas have all acknowledged writes. */
  async #whole(isCurrent: boolean, jobs: readonly FioJob[], errors: string[]): Promise<void> {
    const { ids } = this.#cluster;
    const beganMs = performance.now();
    try {
      await this.#cluster.ready(ids, WHOLE_MS);
      if (!isCurrent) return;
      for (const { name } of jobs) {
        await until(
          `all replicas of ${name} are current`,
          async () => {
            const { replicas } = await this.#info(name);
            return replicas.length === ids.length && replicas.every(({ state }) => state === 'current');
          },
          WHOLE_MS,
        );
      }
      this.#say(`all current after ${(performance.now() - beganMs).toFixed(0)} ms`);
    } catch (error) {
      errors.push(messageOf(error));
    }
  }

  /** Servers that ended by themselves; one with a full disk may. */
  #deaths(fault: MountFault): string[] {
    const deaths = this.#cluster.deaths.slice(this.#deathsSeen);
    this.#deathsSeen = this.#cluster.deaths.length;
    return deaths
      .filter((death) => !(fault === 'disk-full' && isOfFullDisk(death)))
      .map(({ id, how, log }) => `${id} ended by itself: ${how}\n${log}`);
  }

  async #mount(at: readonly string[]): Promise<Mounted> {
    const directory = join(this.folder, `mount-${++this.#mountCount}`);
    mkdirSync(directory);
    const servers = at.map((id) => this.#cluster.url(id));
    const mount = await mountVolume({ servers, volume: VOLUME, directory, log: `${directory}.log` });
    this.#mounts.set(directory, mount);
    return mount;
  }

  async #unmount({ directory }: Mounted): Promise<void> {
    await unmountDirectory(directory);
    this.#mounts.delete(directory);
  }

  async #createVolume(): Promise<void> {
    const replicas = this.#options.servers;
    const command = { kind: 'volume-create', name: VOLUME, replicas, objectBytes: OBJECT_BYTES };
    const response = await fetch(`${this.#cluster.url('s1')}/v1/catalog/commands`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ session: this.#options.seed, number: 1, command }),
    });
    if (!response.ok) throw new Error(`There is no volume: ${await response.text()}`);
  }

  #hitWorld(): HitWorld {
    const { leaseMs } = this.#options;
    return {
      cluster: this.#cluster,
      network: this.#network,
      prng: this.#prng,
      leaseMs,
      clockSkewMs: Math.floor(leaseMs * SKEW_PER_LEASE),
      say: (text) => this.#say(text),
    };
  }

  #shuffled<Value>(values: readonly Value[]): Value[] {
    return values
      .map((value) => ({ value, place: this.#prng.next() }))
      .sort((a, b) => a.place - b.place)
      .map(({ value }) => value);
  }

  #say(text: string): void {
    process.stdout.write(`${seconds(this.#elapsedMs()).padStart(8)}  ${text}\n`);
  }

  #elapsedMs(): number {
    return performance.now() - this.#beganMs;
  }

  table(): string {
    return ['fault      hit        times  longest stall  wrong', ...this.#done.map(roundText)].join('\n');
  }

  /** Ends mounts and servers; their files stay. */
  async end(): Promise<void> {
    process.off('exit', this.#onExit);
    this.#onExit();
    this.#mounts.clear();
    await this.#cluster.stop();
  }

  remove(): void {
    this.#cluster.remove();
  }
}

function roundText({ fault, target, hits, stallMs, errors, jobs }: Round): string {
  const stall = seconds(stallMs).padStart(13);
  const wrong = errors.length === 0 ? 'nothing' : errors.length;
  return `${fault.padEnd(10)} ${target.padEnd(10)} ${String(hits.length).padStart(5)}  ${stall}  ${wrong}  (${jobs})`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function complaints(where: string, jobs: readonly FioJob[], results: readonly FioResult[]): string[] {
  return results.flatMap(({ error }, place) =>
    error === null ? [] : [`${jobs[place]?.name} ${where}: ${error}`],
  );
}

function stallOf(results: readonly FioResult[]): number {
  return Math.max(...results.map(({ stallMs }) => stallMs));
}

function messageOf(error: unknown): string {
  return error instanceof Error
    ? `${error.message}${error.cause === undefined ? '' : `: ${messageOf(error.cause)}`}`
    : String(error);
}
