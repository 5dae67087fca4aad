import './guard.ts';
import type { Prng } from '../../../base/prng.ts';
import { ClusterClient } from '../../../client/cluster/cluster-client.ts';
import { Access } from '../../../client/transport/access.ts';
import { clientChannel } from './client-channel.ts';
import { derived } from './derived.ts';
import { inSimulation } from './in-simulation.ts';
import { FAIR, Network } from './network.ts';
import { SimulatedHttp } from './simulated-http.ts';
import { type Cache, SimulatedMachine } from './simulated-machine.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import { type ClusterNet, SimulatedServer } from './simulated-server.ts';
import { SimulatedPeers } from './simulated-transport.ts';
import type { VirtualTime } from './virtual-time.ts';
import { VolumesClient } from './volumes-client.ts';

const LEASE_MS = 2_000;
const SKEW_MS = 100;
const NAMED_LEASE_MS_MAX = 5_000;
/** Unlinked files are collected after this. */
export const GRACE_MS = 15_000;
const PORT = 7_401;
const OBJECT_BYTES = 4_096;
const REPLICAS_MAX = 3;
const START_MS_MAX = 60_000;
/** After all faults, a program may take so long. */
const PROGRAM_MS_MAX = 120_000;
const OPERATION_TIMEOUT_MS = 20_000;
/** All servers restart within this time. */
const RESTART_ALL_MS_MAX = 500;
/** A failed mount is retried after this time. */
const MOUNT_AGAIN_MS = 1_000;

export interface ClusterShape {
  readonly seed: number;
  readonly servers: number;
  /** Machines with a program that uses the client library. */
  readonly clients: number;
  /** Machines with a mount; each two of them mount the same volume. */
  readonly mounts: number;
  readonly cache: Cache;
  readonly volumes: number;
  /** Of each volume; the default if absent. */
  readonly replicas?: number;
  /** All servers may lose their power at once, at any time. */
  readonly losesAllPower?: boolean;
  /** Each volume has a catalog of its own. */
  readonly ownCatalogs?: boolean;
  /** Volumes move to catalogs of their own. */
  readonly movesVolumes?: boolean;
  /** Programs use mounts in all ways; some mounts have a short time limit for calls. */
  readonly hasMountWork?: boolean;
}

/** A program that uses the client library. */
export interface SimulatedClient {
  /** Includes the number of its life. */
  readonly name: string;
  /** The index of the client. */
  readonly index: number;
  readonly process: SimulatedProcess;
  readonly client: ClusterClient;
}

/** An event of the cluster, for the story of a run. */
export interface Incident {
  readonly atMs: number;
  readonly text: string;
}

/**
 * Servers as `compose` creates them, clients of the library, and mounts below the model kernel, in one process, on
 * virtual time, from one seed. It injects no faults and has no work.
 */
export class SimulatedCluster {
  readonly seed: number;
  readonly shape: ClusterShape;
  readonly time: VirtualTime;
  readonly network: Network;
  readonly http: SimulatedHttp;
  readonly peers: SimulatedPeers;
  /** The process that injects faults; it is on no machine. */
  readonly nemesis: SimulatedProcess;
  readonly servers: SimulatedServer[] = [];
  /** The present life of each. */
  readonly clients: SimulatedProcess[] = [];
  /** The present life of each. */
  readonly machines: SimulatedMachine[] = [];
  readonly volumes: readonly string[];
  /** In order of time. */
  readonly incidents: Incident[] = [];
  /** When all servers lost their power at once, in nanoseconds of true time. */
  readonly lossesNs: number[] = [];
  /** Servers and mounts that ended by themselves: each is a violation. */
  readonly failures: string[] = [];
  /** Called in the process of each client that starts. */
  onClient: (client: SimulatedClient) => void = () => undefined;
  /** Called in the kernel's process of each machine that has mounted. */
  onMounted: (machine: SimulatedMachine) => void = () => undefined;
  isHealed = false;
  /** A fault is in progress until this true time. */
  #troubledUntilMs = 0;
  readonly #net: ClusterNet;
  readonly #root: string;
  readonly #logs: boolean;
  #lives = 0;
  #atNextSync: (() => void) | null = null;

  private constructor(
    time: VirtualTime,
    root: string,
    shape: ClusterShape,
    onNote: ((line: string) => void) | undefined,
  ) {
    this.#root = root;
    this.#logs = onNote !== undefined;
    this.shape = shape;
    this.seed = shape.seed;
    this.time = time;
    if (onNote !== undefined) this.time.onNote = onNote;
    const wire = this.time.process('wire');
    this.nemesis = this.time.process('nemesis');
    this.network = new Network(this.time, this.draw('network'));
    this.http = new SimulatedHttp(this.network, wire);
    this.peers = new SimulatedPeers(this.network, wire);
    this.#net = {
      ...{ time: this.time, peers: this.peers },
      ...{ http: this.http, supervisor: wire },
    };
    this.volumes = Array.from({ length: shape.volumes }, (_, index) => `vol${index + 1}`);
    const founders = Array.from({ length: shape.servers }, (_, index) => index);
    const peers = founders.flatMap((index) => ['--peer', `s${index + 1}=127.0.0.1:${PORT + index}`]);
    for (const index of founders) this.servers.push(this.#server(index, peers));
  }

  /** Calls `use` with a cluster that has not started, and removes the cluster's files. */
  static use<Value>(
    shape: ClusterShape,
    onNote: ((line: string) => void) | undefined,
    use: (cluster: SimulatedCluster) => Promise<Value>,
  ): Promise<Value> {
    return inSimulation(shape.seed, (time, root) => use(new SimulatedCluster(time, root, shape, onNote)));
  }

  /** @returns a generator for one purpose, the same in each run of the seed */
  draw(purpose: string): Prng {
    return derived(this.seed, purpose);
  }

  /** The command that creates a volume. */
  get volumeCreate(): 'volume-create' | 'catalog-create' {
    return this.shape.ownCatalogs === true ? 'catalog-create' : 'volume-create';
  }

  get origins(): string[] {
    return this.servers.map((_, index) => originOf(index));
  }

  get serverIds(): string[] {
    return this.servers.map(({ id }) => id);
  }

  /**
   * The only server that loses its power alone: so a majority of each file's replicas never does, and what that
   * majority acknowledged and did not sync survives; see docs/replication.md.
   */
  get weak(): SimulatedServer {
    return this.servers[this.seed % this.shape.servers] as SimulatedServer;
  }

  /** @returns names of all machines in the network */
  get everyone(): string[] {
    const daemons = this.machines.map(({ daemon }) => daemon.name);
    return [...this.serverIds, ...this.clients.map(({ name }) => name), ...daemons];
  }

  #server(index: number, others: readonly string[]): SimulatedServer {
    const id = `s${index + 1}`;
    const draw = this.draw(`clock of ${id}`);
    const timing = ['--lease', `${LEASE_MS}ms`, '--clock-skew', `${SKEW_MS}ms`];
    const extra = [
      ...['--direct-writes', 'off', '--compare-every', '10s'],
      ...['--named-lease-max', `${NAMED_LEASE_MS_MAX}ms`, '--gc-grace', `${GRACE_MS}ms`],
    ];
    return new SimulatedServer(this.#net, {
      ...{ id, origin: originOf(index), folder: `${this.#root}/${id}`, random: this.draw(`disk of ${id}`) },
      // Two clocks differ by less than the bound during the whole run.
      offsetMs: (draw.next() - 0.5) * 0.8 * SKEW_MS,
      driftPpm: (draw.next() - 0.5) * 60,
      logLevel: this.#logs ? 'info' : 'silent',
      others,
      flags: ['--id', id, '--listen', `127.0.0.1:${PORT + index}`, ...timing, ...extra],
    });
  }

  /** The options of a server that joins. */
  get joining(): readonly string[] {
    return ['--join', this.origins.join()];
  }

  /** Starts a further server, which joins. */
  add(): SimulatedServer {
    const server = this.#server(this.servers.length, this.joining);
    this.servers.push(server);
    server.start();
    return server;
  }

  /** Starts all servers, and creates the volumes. */
  async start(): Promise<void> {
    for (const server of this.servers) server.start();
    const { replicas = Math.min(REPLICAS_MAX, this.servers.length) } = this.shape;
    const failure = await this.program(
      'maker',
      async (client) => {
        for (const name of this.volumes) {
          const command = { kind: this.volumeCreate, name, replicas, objectBytes: OBJECT_BYTES } as const;
          await client.command(command, { timeoutMs: START_MS_MAX });
        }
      },
      START_MS_MAX,
    );
    if (failure !== null) throw new Error(`Seed ${this.seed}: the cluster did not start: ${failure}`);
  }

  access(process: SimulatedProcess): Access {
    return new Access({}, (url) => clientChannel(this.http.channel(process, process.name, url)));
  }

  /** @returns a client of the library in `process`; call it while code of that process runs */
  client(process: SimulatedProcess, operationTimeoutMs = OPERATION_TIMEOUT_MS): ClusterClient {
    const access = this.access(process);
    const options = { world: process, servers: this.origins, access, operationTimeoutMs };
    const { ownCatalogs = false, movesVolumes = false } = this.shape;
    return ownCatalogs || movesVolumes ? new VolumesClient(options) : new ClusterClient(options);
  }

  /** Runs a program on a machine of its own to its end. @returns null, or why it did not end */
  async program(
    name: string,
    run: (client: ClusterClient) => Promise<void>,
    timeoutMs = PROGRAM_MS_MAX,
  ): Promise<string | null> {
    const process = this.time.process(name);
    let outcome: 'under way' | Error | null = 'under way';
    this.time.after(0, process, () => {
      const client = this.client(process);
      const ended = (error: Error | null): void => {
        outcome = error;
      };
      run(client)
        .then(() => client.close())
        .then(() => ended(null), ended);
    });
    await this.time.run(this.time.nowMs + timeoutMs, () => outcome !== 'under way');
    process.end();
    return outcome === null ? null : String(outcome);
  }

  /** Starts client `index` in a new life. */
  startClient(index: number): void {
    const name = `c${index + 1}.${++this.#lives}`;
    const draw = this.draw(`clock of ${name}`);
    // A client's clock may show anything.
    const clocks = { offsetMs: (draw.next() - 0.5) * 10_000, driftPpm: (draw.next() - 0.5) * 100 };
    const process = this.time.process(name, clocks);
    this.#checkProcess(this.clients[index]);
    this.clients[index] = process;
    this.time.after(0, process, () => this.onClient({ name, index, process, client: this.client(process) }));
  }

  /** Starts machine `index` in a new life, and mounts there. */
  startMachine(index: number): void {
    const volume = this.volumes[(index >> 1) % this.volumes.length] as string;
    const machine = new SimulatedMachine(this, index, ++this.#lives, volume, this.shape.cache);
    this.machines[index] = machine;
    machine.mount(this, (error) => {
      if (error === null) return this.onMounted(machine);
      this.time.note(`cannot mount: ${error.message}`);
      machine.hasEnded = true;
      this.later(MOUNT_AGAIN_MS, () => {
        if (this.machines[index] === machine) this.replaceMachine(machine);
      });
    });
  }

  /** Kills a machine as `kill -9` of its mount's process does, and mounts again for new programs. */
  replaceMachine(machine: SimulatedMachine): void {
    this.#checkMachine(machine);
    machine.end();
    this.startMachine(machine.index);
  }

  /** Unmounts a machine in good order, and mounts again for new programs. */
  remountMachine(machine: SimulatedMachine): void {
    machine.unmount(this, () => {
      if (this.machines[machine.index] === machine && !this.isHealed) this.replaceMachine(machine);
    });
  }

  /** Runs something in the fault process after a delay, unless all faults have ended by then. */
  later(delayMs: number, run: () => void): void {
    this.time.after(delayMs, this.nemesis, () => {
      if (!this.isHealed) run();
    });
  }

  /** Runs something in the fault process as soon as a sync of a program returns. */
  atNextSync(run: () => void): void {
    this.#atNextSync = run;
  }

  /** A sync of a program has returned. */
  synced(): void {
    const run = this.#atNextSync;
    this.#atNextSync = null;
    if (run !== null) this.later(0, run);
  }

  /** Whether a fault is in progress. */
  get isTroubled(): boolean {
    return !this.isHealed && this.time.nowMs < this.#troubledUntilMs;
  }

  /** A fault is in progress for so long. */
  troubled(forMs: number): void {
    this.#troubledUntilMs = Math.max(this.#troubledUntilMs, this.time.nowMs + forMs);
  }

  /** Adds a sentence to the story of the run. */
  tell(text: string): void {
    this.incidents.push({ atMs: this.time.nowMs, text });
    this.time.note(text);
  }

  /** Most of the time a majority of the servers must run. @returns whether `server` may be killed now */
  maySpare(server: SimulatedServer, draw: Prng): boolean {
    const running = this.servers.filter((other) => other !== server && other.runs).length;
    return server.runs && (running * 2 > this.servers.length || draw.chance(0.2));
  }

  /** Kills all servers at once, which restart soon: none loses what it has written. */
  killEverywhere(draw: Prng): void {
    this.tell('all servers are killed');
    for (const server of this.servers) {
      if (!server.runs) continue;
      server.kill();
      this.restartLater(server, draw.next() * RESTART_ALL_MS_MAX);
    }
  }

  restartLater(server: SimulatedServer, delayMs: number): void {
    this.later(delayMs, () => this.#restart(server));
  }

  #restart(server: SimulatedServer): void {
    if (server.process !== null || server.isRetired) return;
    this.tell(`${server.id} starts`);
    server.start();
  }

  /** Ends all faults: each server runs, and all machines are connected. */
  heal(): void {
    this.isHealed = true;
    this.http.atNextChange = null;
    this.network.weather = FAIR;
    this.network.heal();
    for (const server of this.servers) {
      this.checkServer(server);
      server.disk.repair();
      if (server.hasDamagedPage) server.rebuilds = true;
      // Its store may have failed; an operator would restart it.
      if (server.disk.hasFailed || server.rebuilds) server.kill();
      this.#restart(server);
    }
    this.tell('all faults have ended');
  }

  /** A server that ended by itself has a broken invariant, or an uncaught error. */
  checkServer(server: SimulatedServer): void {
    if (server.failure === null) return;
    this.failures.push(`${server.id} ended by itself: ${textOf(server.failure)}`);
    server.failure = null;
    server.kill();
  }

  /** All servers lose their power at once, and restart. */
  losePowerEverywhere(): void {
    const servers = this.servers.filter(({ isRetired }) => !isRetired);
    for (const server of servers) {
      this.checkServer(server);
      server.losePower();
    }
    this.lossesNs.push(Math.round(this.time.nowMs * 1e6));
    this.tell('all servers lose their power');
    for (const server of servers) server.start();
  }

  /** Checks all processes for ends by themselves. */
  checkAll(): void {
    for (const server of this.servers) this.checkServer(server);
    for (const client of this.clients) this.#checkProcess(client);
    for (const machine of this.machines) this.#checkMachine(machine);
  }

  #checkMachine({ daemon, kernel }: SimulatedMachine): void {
    for (const process of [daemon, kernel]) this.#checkProcess(process);
  }

  #checkProcess(process: SimulatedProcess | undefined): void {
    if (process === undefined || process.failure === null) return;
    this.failures.push(`${process.name} ended by itself: ${textOf(process.failure)}`);
    process.failure = null;
  }
}

function originOf(index: number): string {
  return `http://127.0.0.1:${PORT + index}`;
}

function textOf(failure: unknown): string {
  return failure instanceof Error ? (failure.stack ?? failure.message) : String(failure);
}
