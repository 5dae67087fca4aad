import './guard.ts';
import type { Operation } from '../../history/operation.ts';
import type { Mutex } from '../kernel/kernel-locks.ts';
import { countFastPaths } from './fast-paths.ts';
import type { Fault } from './fault.ts';
import { FAULTS, faultPlan, NAMED_FAULTS, type PlannedFault } from './faults.ts';
import { type Judge, judges } from './judge.ts';
import { forceMemberReads } from './member-reads.ts';
import { ClientProgram, MountProgram } from './program.ts';
import { EndedAtViolation, Run } from './run.ts';
import { type Incident, type SimulatedClient, SimulatedCluster } from './simulated-cluster.ts';
import type { Cache, SimulatedMachine } from './simulated-machine.ts';
import { starveAll } from './starve.ts';
import type { Workload } from './workload.ts';
import { MOUNT_WORKLOADS, NAMED_WORKLOADS, WORKLOADS } from './workloads/all.ts';
import { volumeMoves } from './workloads/volume-moves.ts';
import { volumeSplits } from './workloads/volume-splits.ts';

/** The threads of a client, and processes of a mount; more if there are more workloads. */
const THREADS_MIN = 3;
const PROCESSES_MIN = 3;
/** After all faults, programs may take so long to end. */
const END_MS_MAX = 120_000;
/** Between two checks by the judges. */
const LOOK_MS = 5_000;
/** The share of seeds in which all servers lose their power at once at the end. */
const POWER_OF_ALL = 0.6;

export interface RunOptions {
  readonly seed: number;
  readonly servers: number;
  readonly clients: number;
  /** 0 if absent. */
  readonly mounts?: number;
  /** `leases` if absent. */
  readonly cache?: Cache;
  /** 1 if absent. */
  readonly volumes?: number;
  /** Each volume has a catalog of its own. */
  readonly ownCatalogs?: boolean;
  /** Names; all if absent. */
  readonly workloads?: readonly string[];
  readonly forMs: number;
  /** Names of the faults that may happen: all if absent. */
  readonly faults?: readonly string[];
  /** The longest time between two faults; drawn from the seed if absent. */
  readonly gapMs?: number;
  /**
   * Each server and client repeatedly waits for a processor for up to so long, in milliseconds, and runs for a moment.
   */
  readonly starvedMs?: number;
  /** Backups of the catalog answer queries whenever they may, not only if many come. */
  readonly forcesMemberReads?: boolean;
  /** Numbers of faults of the plan that are left out. */
  readonly withoutFaults?: ReadonlySet<number>;
  /** Threads and processes that do nothing, such as `c1/2` and `m2/1`. */
  readonly withoutThreads?: ReadonlySet<string>;
  /** The run ends at its first violation, and not after all judgements. */
  readonly endsAtViolation?: boolean;
  readonly onNote?: (line: string) => void;
}

export interface RunReport {
  readonly seed: number;
  readonly servers: number;
  readonly simulatedMs: number;
  readonly operations: number;
  readonly unknown: number;
  readonly events: number;
  readonly requests: number;
  readonly traceHash: string;
  readonly violations: readonly string[];
  readonly undecided: number;
  /** Changes of the catalog's primary before all was healed, if the run is starved. */
  readonly successions: number;
  /** Counts of events, by kind. */
  readonly coverage: ReadonlyMap<string, number>;
  /** The true time at which the work began. */
  readonly beganMs: number;
  readonly plan: readonly PlannedFault[];
  readonly threads: readonly string[];
  readonly incidents: readonly Incident[];
  readonly history: readonly Operation[];
}

/** Runs one seed: a cluster with clients and mounts, and faults; then all is healed and judged. */
export function runCluster(options: RunOptions): Promise<RunReport> {
  const { seed, servers, clients, mounts = 0, cache = 'leases', volumes = 1, ownCatalogs, onNote } = options;
  const workloads = workloadsOf(options);
  const losesAllPower = workloads.every(({ toleratesPowerOfAll }) => toleratesPowerOfAll === true);
  const hasMountWork = workloads.some(
    (workload) => MOUNT_WORKLOADS.includes(workload) || !WORKLOADS.includes(workload),
  );
  const movesVolumes = workloads.includes(volumeMoves) || workloads.includes(volumeSplits);
  const machines = { servers, clients, mounts, cache, volumes };
  const shape = {
    seed,
    ...machines,
    losesAllPower,
    hasMountWork,
    ownCatalogs: ownCatalogs === true,
    movesVolumes,
  };
  return SimulatedCluster.use(shape, onNote, (cluster) => new ClusterRun(cluster, options).play());
}

class ClusterRun {
  readonly #options: RunOptions;
  readonly #cluster: SimulatedCluster;
  readonly #run: Run;
  readonly #workloads: readonly Workload[];
  readonly #judges: readonly Judge[] = judges();
  readonly #threads = new Set<string>();
  #beganMs = 0;
  #plan: readonly PlannedFault[] = [];
  #successions = 0;

  constructor(cluster: SimulatedCluster, options: RunOptions) {
    this.#options = options;
    this.#cluster = cluster;
    this.#run = new Run(cluster, options.endsAtViolation === true);
    this.#workloads = workloadsOf(options).filter(({ fits }) => fits?.(cluster.shape) ?? true);
  }

  async play(): Promise<RunReport> {
    try {
      await this.#play();
    } catch (error) {
      if (!(error instanceof EndedAtViolation)) throw error;
    } finally {
      countFastPaths(null);
      forceMemberReads(null);
    }
    const [cluster, run, { seed, servers }] = [this.#cluster, this.#run, this.#options];
    const { time, incidents } = cluster;
    return {
      ...{ seed, servers, simulatedMs: time.nowMs, operations: run.completed, unknown: run.unknown },
      ...{ events: time.eventCount, requests: cluster.http.requestCount, traceHash: time.traceHash },
      ...{ violations: run.violations, undecided: run.undecided, successions: this.#successions },
      ...{ coverage: run.coverage, beganMs: this.#beganMs, plan: this.#plan, incidents },
      ...{ threads: [...this.#threads].sort(), history: run.history },
    };
  }

  async #play(): Promise<void> {
    const [cluster, run, options] = [this.#cluster, this.#run, this.#options];
    const { time } = cluster;
    await cluster.start();
    await this.#programs('prepare', ({ prepare }) => prepare);
    this.#beganMs = time.nowMs;
    countFastPaths(run);
    if (options.forcesMemberReads === true) forceMemberReads(run);
    cluster.onClient = (client) => this.#runClient(client);
    cluster.onMounted = (machine) => this.#runMount(machine);
    for (let index = 0; index < cluster.shape.clients; index++) cluster.startClient(index);
    for (let index = 0; index < cluster.shape.mounts; index++) cluster.startMachine(index);
    const epoch = await this.#catalogEpoch();
    const faults = options.faults === undefined ? FAULTS : named(NAMED_FAULTS, options.faults);
    this.#plan = faultPlan(cluster, options.forMs, faults, options.gapMs);
    for (const planned of this.#plan) this.#schedule(planned);
    if (options.starvedMs !== undefined) starveAll(run, options.starvedMs);
    this.#nextLook();
    await time.run(this.#beganMs + options.forMs);
    cluster.heal();
    countFastPaths(null);
    run.isEnding = true;
    this.#successions = (await this.#catalogEpoch()) - epoch;
    await this.#end();
  }

  /** Runs one of the methods of all workloads, each as a program of its own. */
  async #programs(what: string, method: (workload: Workload) => Workload['settle']): Promise<void> {
    for (const workload of this.#workloads) {
      const program = method(workload);
      if (program === undefined) continue;
      const name = `${workload.name}-${what}`;
      this.#ended(name, await this.#cluster.program(name, (client) => program(this.#run, client)));
    }
  }

  #ended(program: string, failure: string | null): void {
    if (failure !== null) this.#run.violation(`the program ${program} did not come to its end: ${failure}`);
  }

  /** @returns the threads of a client or mount: their names without its life, and their work */
  #threadsOf(
    machine: string,
    index: number,
    min: number,
    does: (workload: Workload) => unknown,
  ): readonly { readonly thread: string; readonly workload: Workload }[] {
    const possible = this.#workloads.filter((workload) => does(workload) !== undefined);
    if (possible.length === 0) return [];
    const count = Math.max(min, possible.length);
    return Array.from({ length: count }, (_, number) => {
      const thread = `${machine}/${number + 1}`;
      this.#threads.add(thread);
      return { thread, workload: possible[(index + number) % possible.length] as Workload };
    }).filter(({ thread }) => this.#options.withoutThreads?.has(thread) !== true);
  }

  #runClient({ name, index, process, client }: SimulatedClient): void {
    const { time } = this.#cluster;
    const threads = this.#threadsOf(`c${index + 1}`, index, THREADS_MIN, ({ client }) => client);
    const programs = threads.map(({ thread, workload }) => {
      const own = `${name}${thread.slice(thread.indexOf('/'))}`;
      const draw = this.#cluster.draw(`thread ${own}`);
      return workload.client?.(new ClientProgram(own, process, draw, this.#run, client));
    });
    Promise.all(programs)
      .then(() => client.close())
      .then(
        () => process.end(),
        (error: Error) => time.fail(error),
      );
  }

  #runMount(machine: SimulatedMachine): void {
    const { index, name, kernel, model } = machine;
    const threads = this.#threadsOf(`m${index + 1}`, index, PROCESSES_MIN, ({ mount }) => mount);
    const turns = new Map<string, Mutex>();
    const programs = threads.map(({ thread, workload }) => {
      const own = `${name}${thread.slice(thread.indexOf('/'))}`;
      const draw = this.#cluster.draw(`thread ${own}`);
      const program = new MountProgram(own, kernel, draw, this.#run, model.process(), machine, turns);
      return workload.mount?.(program);
    });
    Promise.all(programs).then(
      () => {
        machine.hasEnded = true;
      },
      (error: Error) => this.#cluster.time.fail(error),
    );
  }

  #schedule({ index, atMs, fault, durationMs }: PlannedFault): void {
    const cluster = this.#cluster;
    if (this.#options.withoutFaults?.has(index) === true) return;
    cluster.later(this.#beganMs + atMs - cluster.time.nowMs, () => {
      if (!fault.inject(cluster, cluster.draw(`fault ${index}`), durationMs)) return;
      this.#run.count(fault.name);
      cluster.troubled(durationMs);
    });
  }

  #nextLook(): void {
    this.#cluster.later(LOOK_MS, () => {
      for (const judge of this.#judges) judge.look?.(this.#run);
      if (this.#options.endsAtViolation === true) this.#checkServers();
      this.#nextLook();
    });
  }

  #checkServers(): void {
    const { servers, failures } = this.#cluster;
    for (const server of servers) this.#cluster.checkServer(server);
    for (const failure of failures.splice(0)) this.#run.violation(failure);
  }

  /** Each epoch has a primary of its own. @returns 0 if it is not needed */
  async #catalogEpoch(): Promise<number> {
    let epoch = 0;
    if (this.#options.starvedMs === undefined) return epoch;
    const failure = await this.#cluster.program('asking', async (client) => {
      epoch = (await client.status({ timeoutMs: END_MS_MAX })).catalog.epoch;
    });
    this.#ended('asking', failure);
    return epoch;
  }

  async #end(): Promise<void> {
    const [cluster, run] = [this.#cluster, this.#run];
    const { time, clients, machines, servers } = cluster;
    const hasEnded = ({ hasEnded }: { readonly hasEnded: boolean }): boolean => hasEnded;
    const isQuiet = (): boolean =>
      [...clients, ...machines].every(hasEnded) &&
      servers.every(({ hasStarted, isRetired }) => hasStarted || isRetired);
    await time.run(time.nowMs + END_MS_MAX, isQuiet);
    for (const client of clients) {
      if (!client.hasEnded) run.violation(`${client.name} did not come to its end after all was healed`);
      client.end();
    }
    for (const machine of machines) {
      if (!machine.hasEnded)
        run.violation(`the programs of ${machine.name} do not come to their end after all was healed`);
    }
    cluster.checkAll();
    for (const machine of machines) machine.end();
    await this.#programs('settle', ({ settle }) => settle);
    for (const judge of this.#judges) await judge.quiet?.(run);
    await this.#losePowerEverywhere();
    cluster.checkAll();
    for (const failure of cluster.failures) run.violation(failure);
    for (const judge of this.#judges) judge.judge?.(run);
    for (const workload of this.#workloads) workload.judge?.(run);
    for (const [what, count] of Object.entries(cluster.http.faults))
      if (count > 0) run.count(`http ${what}`, count);
    for (const [code, count] of cluster.http.refusals) run.count(`refused ${code}`, count);
  }

  /** Asserts that what is flushed, files and names, survives a loss of power of all servers. */
  async #losePowerEverywhere(): Promise<void> {
    const cluster = this.#cluster;
    if (!cluster.draw('power of all').chance(POWER_OF_ALL)) return;
    this.#run.count('power of all');
    type Check = Awaited<ReturnType<NonNullable<Workload['flush']>>>;
    const checks = new Map<string, Check>();
    for (const { name, flush } of this.#workloads) {
      if (flush === undefined) continue;
      const failure = await cluster.program(`${name}-flush`, async (client) => {
        checks.set(name, await flush(this.#run, client));
      });
      this.#ended(`${name}-flush`, failure);
    }
    cluster.losePowerEverywhere();
    for (const [name, check] of checks)
      this.#ended(`${name}-check`, await cluster.program(`${name}-check`, check));
  }
}

/** @returns the workloads with these names; all if none are given */
function workloadsOf({ workloads }: RunOptions): readonly Workload[] {
  return workloads === undefined ? WORKLOADS : named(NAMED_WORKLOADS, workloads);
}

function named<Row extends Workload | Fault>(
  table: readonly Row[],
  names: readonly string[] | undefined,
): readonly Row[] {
  return names === undefined ? table : table.filter(({ name }) => names.includes(name));
}
