import { join } from 'node:path';
import { ClusterClient } from '../../../../client/cluster/cluster-client.ts';
import { decodeReplicaMessage } from '../../../../replica/codec.ts';
import { decodeStateTransferCall, STATE_CALL } from '../../../../server/drivers/state-call.ts';
import { CHANNEL_REPLICA, CHANNEL_REPLICA_VIEW } from '../../../../server/transport/transport.ts';
import { USERS } from '../../../posix/program.ts';
import { flipByte } from '../../../storage/damage.ts';
import { ModelProgram } from '../../kernel/model-program.ts';
import { MemberSets } from '../judges/members.ts';
import { type ClusterShape, SimulatedCluster } from '../simulated-cluster.ts';
import { SimulatedMachine } from '../simulated-machine.ts';
import type { SimulatedProcess } from '../simulated-process.ts';
import type { SimulatedServer } from '../simulated-server.ts';
import { ClientCalls } from './client-calls.ts';
import { HeldTraffic } from './held-traffic.ts';

/** A call that takes longer hangs. */
const CALL_MS_MAX = 120_000;
const MOUNT_MS_MAX = 60_000;
const REPLICAS = 3;
/** The bytes of the object size, before a message that names the view. */
const OBJECT_SIZE_BYTES = 4;
/** The object size of volumes in simulated clusters. */
const OBJECT_BYTES = 4_096;

export interface StageSettings extends Pick<ClusterShape, 'seed' | 'servers' | 'replicas' | 'ownCatalogs'> {}

export const STAGE_USUAL: StageSettings = { servers: 3, seed: 1 };

/** The outcome of a call: its value, or the name of its error. */
export interface CallOutcome {
  readonly value?: string;
  readonly errno?: string;
}

/** Makes calls: a program on a mount, or one with a client library. */
export interface Caller {
  call(call: string, ...values: string[]): Promise<CallOutcome>;
}

/** A call, and its outcome once it has ended. */
export interface Pending {
  outcome: CallOutcome | null;
}

interface Actor {
  /** The process in which the program runs. */
  readonly process: SimulatedProcess;
  /** The process that faults hit: that of the mount, or the client itself. */
  readonly victim: SimulatedProcess;
  /** @returns a further program of the same machine */
  readonly program: () => Caller;
  /** Only for mounts. */
  readonly machine?: SimulatedMachine;
}

/** An expectation of a schedule does not hold. */
export class StageError extends Error {
  override readonly name = 'StageError';
}

/**
 * A cluster of composed servers, clients and mounts that injects no faults itself: a directed schedule says what
 * happens.
 */
export class Stage {
  readonly cluster: SimulatedCluster;
  readonly held: HeldTraffic;
  readonly #memberSets = new MemberSets();
  readonly #actors = new Map<string, Actor>();
  readonly #programs = new Map<string, Caller>();
  readonly #underWay = new Map<string, Pending>();
  readonly #aliases = new Map<string, string>();
  readonly #inodes = new Map<string, number>();
  readonly #uploads = new Map<string, string>();

  constructor(cluster: SimulatedCluster) {
    this.cluster = cluster;
    const { http, peers, network } = cluster;
    this.held = new HeldTraffic(network);
    http.gate = this.held.gate;
    peers.sending = (from, to, channel, payload, tail) => {
      if (channel === CHANNEL_REPLICA) this.held.message(from, to, decodeReplicaMessage(payload, tail));
      if (channel === CHANNEL_REPLICA_VIEW)
        this.held.message(from, to, decodeReplicaMessage(payload.subarray(OBJECT_SIZE_BYTES)));
    };
    peers.calling = (from, to, call, payload) => {
      if (call !== STATE_CALL) return;
      const { file, method } = decodeStateTransferCall(payload);
      this.held.message(from, to, { file, message: { kind: method } });
    };
  }

  /** Lets virtual time pass. @returns whether `done` holds */
  async wait(forMs: number, done: () => boolean = () => false): Promise<boolean> {
    const { time } = this.cluster;
    await time.run(time.nowMs + forMs, done);
    return done();
  }

  alias(name: string, server: string): void {
    this.#aliases.set(name, server);
  }

  server(name: string): SimulatedServer {
    const id = this.#aliases.get(name) ?? name;
    const server = this.cluster.servers.find((one) => one.id === id);
    if (server === undefined) throw new StageError(`there is no server "${name}"`);
    return server;
  }

  isServer(name: string): boolean {
    return !this.#actors.has(name);
  }

  /** @returns the process of a server, a mount or a client */
  victim(name: string): SimulatedProcess {
    const actor = this.#actors.get(name);
    if (actor !== undefined) return actor.victim;
    const { process, id } = this.server(name);
    if (process === null) throw new StageError(`${id} does not run`);
    return process;
  }

  /** @returns the name of a machine in the network */
  machine(name: string): string {
    return this.#actors.get(name)?.victim.name ?? this.server(name).id;
  }

  get machines(): string[] {
    const victims = [...this.#actors.values()].map(({ victim }) => victim.name);
    return [...this.cluster.serverIds, ...victims];
  }

  origin(name: string): string {
    return this.cluster.origins[this.cluster.servers.indexOf(this.server(name))] as string;
  }

  /** Mounts the volume on a machine of its own. */
  async mount(name: string, options: string): Promise<void> {
    const { cluster } = this;
    const machine = new SimulatedMachine(cluster, this.#actors.size, 1, cluster.volumes[0] as string, 'ttl');
    let outcome: Error | null | undefined;
    const done = (error: Error | null): void => {
      outcome = error;
    };
    machine.mount(cluster, done, options);
    await this.wait(MOUNT_MS_MAX, () => outcome !== undefined);
    if (outcome !== null) throw new StageError(`cannot mount: ${outcome?.message ?? 'it takes too long'}`);
    const program = (): Caller => new ModelProgram(machine.model, USERS.root);
    this.#actors.set(name, { process: machine.kernel, victim: machine.daemon, program, machine });
  }

  /** From now on each caller on the mount continues so long after its reply. */
  wakeAfter(name: string, delayMs: number): void {
    this.#mounted(name).wakesAfterMs = delayMs;
  }

  /** Has the kernel of a mount forget names and inodes that are not in use. */
  shrink(name: string): void {
    const { kernel, model } = this.#mounted(name);
    this.cluster.time.after(0, kernel, () => model.shrink());
  }

  #mounted(name: string): SimulatedMachine {
    const machine = this.#actors.get(name)?.machine;
    if (machine === undefined) throw new StageError(`there is no mount "${name}"`);
    return machine;
  }

  /** Starts a machine with a client library. */
  client(name: string, operationTimeoutMs: number): void {
    const { cluster } = this;
    const process = cluster.time.process(name);
    const ask = (server: string) => cluster.http.channel(process, name, this.origin(server));
    const volume = cluster.volumes[0] as string;
    const program = (): Caller =>
      new ClientCalls(
        cluster.client(process, operationTimeoutMs),
        volume,
        this.#uploads,
        ask,
        (server) => this.server(server).id,
        cluster.volumeCreate,
      );
    this.#actors.set(name, { process, victim: process, program });
  }

  /** Makes a call of a program: `a` or `a/2`, which is a further program on the machine `a`. */
  start(who: string, call: string, values: readonly string[]): Pending {
    const actor = this.#actors.get(who.replace(/\/.*/, ''));
    if (actor === undefined) throw new StageError(`there is no mount or client "${who}"`);
    const pending: Pending = { outcome: null };
    const { time } = this.cluster;
    time.after(0, actor.process, () => {
      const program = this.#programs.get(who) ?? actor.program();
      this.#programs.set(who, program);
      time.note(`${who}: ${call} ${values.join(' ').slice(0, 60)}`);
      program.call(call, ...values).then(
        (outcome) => {
          time.note(`${who}: ${call} ${JSON.stringify(outcome).slice(0, 80)}`);
          pending.outcome = outcome;
        },
        (error: Error) => time.fail(error),
      );
    });
    this.#underWay.set(who, pending);
    return pending;
  }

  /** @returns the last call of the program */
  underWay(who: string): Pending {
    const pending = this.#underWay.get(who);
    if (pending === undefined) throw new StageError(`${who} has made no call`);
    return pending;
  }

  async ended(pending: Pending): Promise<CallOutcome> {
    await this.wait(CALL_MS_MAX, () => pending.outcome !== null);
    if (pending.outcome === null)
      throw new StageError(`the call has not ended after ${CALL_MS_MAX / 1_000} s`);
    return pending.outcome;
  }

  /** @returns the catalog's primary, as the cluster reports it */
  async catalogPrimary(): Promise<string> {
    let primary: string | null = null;
    await this.#ask(async (client) => {
      ({ primary } = (await client.status()).catalog);
    });
    return primary ?? fail('the catalog has no primary');
  }

  /** @returns the primary of the catalog that has the volume, which gets one. @param name absent: the usual volume */
  async volumePrimary(name = this.cluster.volumes[0] as string): Promise<string> {
    const { cluster } = this;
    let primary: string | null = null;
    await this.#ask(async ({ world }) => {
      const options = { world, servers: cluster.origins, access: cluster.access(world as SimulatedProcess) };
      const client = new ClusterClient(options);
      await client.useVolume(name);
      await client.command({ kind: 'volume-set', name, replicas: cluster.shape.replicas ?? REPLICAS });
      primary = client.catalogPrimary;
      await client.close();
    });
    return primary ?? fail('the catalog of the volume has no primary');
  }

  /** @returns a server without a replica of the file */
  async stranger(path: string): Promise<string> {
    let replicas: readonly string[] = [];
    await this.#ask(async (client) => {
      ({ replicas } = await client.resolve(this.cluster.volumes[0] as string, path));
    });
    const other = this.cluster.serverIds.find((id) => !replicas.includes(id));
    return other ?? fail(`each server has a replica of ${path}`);
  }

  /** Flips a bit of an object of a file that was never changed, on the disk of a server. */
  async damage(server: string, path: string, object: number): Promise<void> {
    const inode = await this.inodeOf(path);
    const container = join('objects', (inode % 256).toString(16).padStart(2, '0'), `${inode}.dat`);
    flipByte(join(this.server(server).disk.folder, container), object * OBJECT_BYTES);
  }

  async inodeOf(path: string): Promise<number> {
    await this.#ask(async (client) => {
      const { inode } = await client.resolve(this.cluster.volumes[0] as string, path);
      this.#inodes.set(path, inode);
    });
    return this.#inodes.get(path) ?? fail(`${path} has no inode`);
  }

  /** Checks on the disks that each file has one member set per view. @throws StageError */
  lookAtViews(): void {
    const [violation] = this.cluster.servers.flatMap(({ id, disk, hasStarted }) =>
      hasStarted ? this.#memberSets.sample(id, disk.folder) : [],
    );
    if (violation !== undefined) throw new StageError(violation);
  }

  /** @throws StageError if a process has ended by itself */
  lookAtProcesses(): void {
    for (const { id, failure } of this.cluster.servers)
      if (failure !== null) throw new StageError(`${id} has ended by itself: ${String(failure)}`);
    for (const [name, { victim }] of this.#actors)
      if (victim.failure !== null)
        throw new StageError(`${name} has ended by itself: ${String(victim.failure)}`);
  }

  /** Queries the cluster from a machine of its own. */
  async #ask(ask: Parameters<SimulatedCluster['program']>[1]): Promise<void> {
    const failure = await this.cluster.program('asking', ask);
    if (failure !== null) throw new StageError(failure);
  }
}

function fail(why: string): never {
  throw new StageError(why);
}

/** Calls `play` with a cluster, which is removed afterwards. */
export function onStage(
  settings: StageSettings,
  onNote: ((line: string) => void) | undefined,
  play: (stage: Stage) => Promise<void>,
): Promise<void> {
  const shape: ClusterShape = { ...settings, clients: 0, mounts: 0, cache: 'ttl', volumes: 1 };
  return SimulatedCluster.use(shape, onNote, async (cluster) => {
    await cluster.start();
    await play(new Stage(cluster));
  });
}
