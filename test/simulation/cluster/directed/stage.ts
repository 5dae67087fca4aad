import '../guard.ts';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Prng } from '../../../../base/prng.ts';
import { Access } from '../../../../client/access.ts';
import { ClusterClient } from '../../../../client/cluster-client.ts';
import { parseMountOptions } from '../../../../client/mount-options.ts';
import { mountCluster } from '../../../../fuse/composition.ts';
import { decodeReplicaMessage } from '../../../../replica/codec.ts';
import { CHANNEL_REPLICA } from '../../../../server/transport/transport.ts';
import { USERS } from '../../../posix/program.ts';
import { flipByte } from '../../../storage/damage.ts';
import { ModelKernel } from '../../kernel/model-kernel.ts';
import { ModelProgram } from '../../kernel/model-program.ts';
import { opcodeName } from '../../kernel/request-queue.ts';
import { clientChannel } from '../client-channel.ts';
import { guardWith } from '../guard.ts';
import { MemberSets } from '../judges/members.ts';
import { Network } from '../network.ts';
import { SimulatedHttp } from '../simulated-http.ts';
import type { SimulatedProcess } from '../simulated-process.ts';
import { type ClusterNet, SimulatedServer } from '../simulated-server.ts';
import { SimulatedPeers } from '../simulated-transport.ts';
import { VirtualTime } from '../virtual-time.ts';
import { ClientCalls } from './client-calls.ts';
import { HeldTraffic } from './held-traffic.ts';

export const VOLUME = 'sim';
const PORT = 7_401;
const START_MS_MAX = 60_000;
/** A call that takes longer does not end. */
const CALL_MS_MAX = 120_000;
const OBJECT_BYTES = 4_096;

export interface StageSettings {
  readonly servers: number;
  readonly replicas: number;
  readonly leaseMs: number;
  readonly seed: number;
  /** Further flags of all servers. */
  readonly flags: readonly string[];
}

export const STAGE_USUAL: StageSettings = { servers: 3, replicas: 3, leaseMs: 2_000, seed: 1, flags: [] };

/** What a call came to: its value, or the name of its error. */
export interface CallOutcome {
  readonly value?: string;
  readonly errno?: string;
}

/** Makes calls: a program on a mount, or one with a client library. */
export interface Caller {
  call(call: string, ...values: string[]): Promise<CallOutcome>;
}

/** A call that was made, and its outcome once it has ended. */
export interface Pending {
  outcome: CallOutcome | null;
}

interface Actor {
  /** The program runs in it. */
  readonly process: SimulatedProcess;
  /** What is paused, cut off and killed: the daemon of a mount, or the client itself. */
  readonly victim: SimulatedProcess;
  /** @returns a further program of the same machine */
  readonly program: () => Caller;
}

/** What a schedule demands is not so. */
export class StageError extends Error {
  override readonly name = 'StageError';
}

/** A cluster of composed servers, clients and mounts without faults of its own: a directed schedule says what happens. */
export class Stage {
  readonly time: VirtualTime;
  readonly network: Network;
  readonly held: HeldTraffic;
  readonly servers = new Map<string, SimulatedServer>();
  readonly settings: StageSettings;
  readonly #net: ClusterNet;
  readonly #members = new MemberSets();
  readonly #actors = new Map<string, Actor>();
  readonly #programs = new Map<string, Caller>();
  readonly #underWay = new Map<string, Pending>();
  readonly #aliases = new Map<string, string>();
  readonly #inodes = new Map<string, number>();

  constructor(time: VirtualTime, root: string, settings: StageSettings) {
    this.time = time;
    this.settings = settings;
    const { seed } = settings;
    const wire = time.process('wire');
    this.network = new Network(time, new Prng(seed * 13 + 2));
    const peers = new SimulatedPeers(this.network, wire);
    this.#net = { time, peers, http: new SimulatedHttp(this.network, wire), supervisor: wire };
    this.held = new HeldTraffic(this.network);
    this.#net.http.gate = this.held.gate;
    peers.sending = (from, to, channel, payload, tail) => {
      if (channel === CHANNEL_REPLICA) this.held.message(from, to, decodeReplicaMessage(payload, tail));
    };
    const ids = Array.from({ length: settings.servers }, (_, index) => `s${index + 1}`);
    const others = ids.flatMap((id, index) => ['--peer', `${id}=127.0.0.1:${PORT + index}`]);
    const timing = ['--lease', `${settings.leaseMs}ms`, '--clock-skew', '100ms', '--direct-writes', 'off'];
    for (const [index, id] of ids.entries()) {
      const server = new SimulatedServer(this.#net, {
        ...{ id, origin: `http://127.0.0.1:${PORT + index}`, folder: `${root}/${id}` },
        random: new Prng(seed * 13 + 100 + index),
        ...{ offsetMs: 0, driftPpm: 0, logLevel: time.onNote === null ? 'silent' : 'info' },
        flags: ['--id', id, '--listen', `127.0.0.1:${PORT + index}`, ...others, ...timing, ...settings.flags],
      });
      this.servers.set(id, server);
    }
  }

  /** Starts all servers, and makes the volume. */
  async begin(): Promise<void> {
    for (const server of this.servers.values()) server.start();
    const { replicas } = this.settings;
    await this.#ask((client) =>
      client.command(
        { kind: 'volume-create', name: VOLUME, replicas, objectBytes: OBJECT_BYTES },
        { timeoutMs: START_MS_MAX },
      ),
    );
  }

  /** Lets virtual time pass. @returns whether `done` holds */
  async wait(forMs: number, done: () => boolean = () => false): Promise<boolean> {
    await this.time.run(this.time.nowMs + forMs, done);
    return done();
  }

  alias(name: string, server: string): void {
    this.#aliases.set(name, server);
  }

  server(name: string): SimulatedServer {
    const id = this.#aliases.get(name) ?? name;
    const server = this.servers.get(id);
    if (server === undefined) throw new StageError(`there is no server "${name}"`);
    return server;
  }

  /** @returns the processes of the machine: of a server, a mount's daemon, or a client */
  victim(name: string): SimulatedProcess {
    const actor = this.#actors.get(name);
    if (actor !== undefined) return actor.victim;
    const { process, id } = this.server(name);
    if (process === null) throw new StageError(`${id} does not run`);
    return process;
  }

  /** @returns the name under which the network knows a machine */
  machine(name: string): string {
    return this.#actors.get(name)?.victim.name ?? this.server(name).id;
  }

  get machines(): string[] {
    return [...this.servers.keys(), ...[...this.#actors.values()].map(({ victim }) => victim.name)];
  }

  origin(name: string): string {
    return `http://127.0.0.1:${PORT + [...this.servers.keys()].indexOf(this.server(name).id)}`;
  }

  /** Mounts the volume on a machine of its own. */
  async mount(name: string, options: string): Promise<void> {
    const kernel = this.time.process(`${name}.kernel`);
    const daemon = this.time.process(name);
    const model = new ModelKernel(kernel, {
      below: daemon,
      seen: ({ opcode, node, pid }) => this.time.note(`${pid} asks for ${opcodeName(opcode)} of ${node}`),
    });
    daemon.onEndOnce(() => model.abort());
    const settings = {
      ...parseMountOptions(options === '' ? [] : [options]),
      ...{ servers: this.#origins, volume: VOLUME, path: '/', directory: '/' },
    };
    const surroundings = {
      ...{ world: daemon, access: this.#access(daemon), transport: model.transport, isRoot: true },
      log: (level: string, message: string, facts?: unknown) =>
        this.time.note(`${level}: ${message} ${JSON.stringify(facts ?? {})}`),
    };
    await this.#inProcess(daemon, () => mountCluster(settings, surroundings));
    const program = (): Caller => new ModelProgram(model, USERS.root);
    this.#actors.set(name, { process: kernel, victim: daemon, program });
  }

  /** A machine with a client library. */
  client(name: string, operationTimeoutMs: number): void {
    const process = this.time.process(name);
    const access = this.#access(process);
    const client = new ClusterClient({ world: process, servers: this.#origins, access, operationTimeoutMs });
    const ask = (server: string) => this.#net.http.channel(process, name, this.origin(server));
    this.#actors.set(name, { process, victim: process, program: () => new ClientCalls(client, ask) });
  }

  /** Has a program make a call: `a` or `a/2`, which is a further program on the machine `a`. */
  start(who: string, call: string, values: readonly string[]): Pending {
    const actor = this.#actors.get(who.replace(/\/.*/, ''));
    if (actor === undefined) throw new StageError(`there is no mount or client "${who}"`);
    const pending: Pending = { outcome: null };
    this.time.after(0, actor.process, () => {
      const program = this.#programs.get(who) ?? actor.program();
      this.#programs.set(who, program);
      this.time.note(`${who}: ${call} ${values.join(' ').slice(0, 60)}`);
      program.call(call, ...values).then(
        (outcome) => {
          this.time.note(`${who}: ${call} ${JSON.stringify(outcome).slice(0, 80)}`);
          pending.outcome = outcome;
        },
        (error: Error) => this.time.fail(error),
      );
    });
    this.#underWay.set(who, pending);
    return pending;
  }

  /** @returns the call that the program has made last */
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

  /** @returns the primary of the catalog, as the cluster sees it */
  async catalogPrimary(): Promise<string> {
    const { catalog } = await this.#ask((client) => client.status({ timeoutMs: START_MS_MAX }));
    if (catalog.primary === null) throw new StageError('the catalog has no primary');
    return catalog.primary;
  }

  /** Flips a bit of an object of a file that was never changed, on the disk of a server. */
  async damage(server: string, path: string, object: number): Promise<void> {
    const inode = await this.inodeOf(path);
    const container = join('objects', (inode % 256).toString(16).padStart(2, '0'), `${inode}.dat`);
    flipByte(join(this.server(server).disk.folder, container), object * OBJECT_BYTES);
  }

  async inodeOf(path: string): Promise<number> {
    const known = this.#inodes.get(path) ?? (await this.#ask((client) => client.resolve(VOLUME, path))).inode;
    this.#inodes.set(path, known);
    return known;
  }

  /** Looks at the disks: for one file and view there is one set of members. @throws StageError */
  lookAtViews(): void {
    for (const { id, disk, hasStarted } of this.servers.values()) {
      const [violation] = hasStarted ? this.#members.sample(id, disk.folder) : [];
      if (violation !== undefined) throw new StageError(violation);
    }
  }

  /** @throws StageError where a process has ended by itself */
  lookAtProcesses(): void {
    for (const { id, failure } of this.servers.values())
      if (failure !== null) throw new StageError(`${id} has ended by itself: ${String(failure)}`);
    for (const [name, { victim }] of this.#actors)
      if (victim.failure !== null)
        throw new StageError(`${name} has ended by itself: ${String(victim.failure)}`);
  }

  get #origins(): string[] {
    return [...this.servers.keys()].map((_, index) => `http://127.0.0.1:${PORT + index}`);
  }

  #access(process: SimulatedProcess): Access {
    return new Access({}, (url) => clientChannel(this.#net.http.channel(process, process.name, url)));
  }

  /** Asks the cluster from a machine of its own. */
  async #ask<Value>(ask: (client: ClusterClient) => Promise<Value>): Promise<Value> {
    const process = this.time.process('asking');
    const access = this.#access(process);
    return this.#inProcess(process, async () => {
      const client = new ClusterClient({ world: process, servers: this.#origins, access });
      const value = await ask(client);
      await client.close();
      return value;
    });
  }

  async #inProcess<Value>(process: SimulatedProcess, run: () => Promise<Value>): Promise<Value> {
    const done: { value?: Value; error?: unknown } = {};
    this.time.after(0, process, () => {
      run().then(
        (value) => {
          done.value = value;
        },
        (error: unknown) => {
          done.error = error;
        },
      );
    });
    await this.wait(START_MS_MAX, () => 'value' in done || 'error' in done);
    if ('error' in done) throw done.error;
    if (!('value' in done)) throw new StageError(`${process.name} is not ready after a minute`);
    return done.value as Value;
  }
}

/** Has `play` use a cluster, which is gone afterwards. */
export async function onStage(
  settings: StageSettings,
  onNote: ((line: string) => void) | null,
  play: (stage: Stage) => Promise<void>,
): Promise<void> {
  const root = mkdtempSync('/dev/shm/leasehold-simulated-');
  const time = new VirtualTime(settings.seed);
  time.onNote = onNote;
  guardWith(time);
  try {
    const stage = new Stage(time, root, settings);
    await stage.begin();
    await play(stage);
  } finally {
    guardWith(null);
    rmSync(root, { recursive: true, force: true });
  }
}
