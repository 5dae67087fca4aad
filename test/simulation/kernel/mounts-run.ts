import '../cluster/guard.ts';
import { mkdtempSync, rmSync } from 'node:fs';
import { Prng } from '../../../base/prng.ts';
import { Access } from '../../../client/access.ts';
import { ClusterClient } from '../../../client/cluster-client.ts';
import { parseMountOptions } from '../../../client/mount-options.ts';
import { mountCluster } from '../../../fuse/composition.ts';
import { historyCheck } from '../../history/checker.ts';
import { clientChannel } from '../cluster/client-channel.ts';
import { guardWith } from '../cluster/guard.ts';
import { FAIR, FOUL, Network } from '../cluster/network.ts';
import { SimulatedHttp } from '../cluster/simulated-http.ts';
import type { SimulatedProcess } from '../cluster/simulated-process.ts';
import { type ClusterNet, SimulatedServer } from '../cluster/simulated-server.ts';
import { SimulatedPeers } from '../cluster/simulated-transport.ts';
import { VirtualTime } from '../cluster/virtual-time.ts';
import { ModelKernel } from './model-kernel.ts';
import { MountsActor, MountsWork, Turns } from './mounts-work.ts';
import { opcodeName } from './request-queue.ts';

const VOLUME = 'sim';
const LEASE_MS = 2_000;
const SKEW_MS = 100;
const PORT = 7_401;
const SERVERS = 3;
const PROGRAMS = 2;
const START_MS_MAX = 60_000;
/** All faults have ended: so long each call may take until it is answered. */
const HEAL_MS_MAX = 120_000;

export const CACHES = ['strict', 'leases'] as const;
export type Cache = (typeof CACHES)[number];

export interface MountsOptions {
  readonly seed: number;
  readonly mounts: number;
  readonly cache: Cache;
  readonly forMs: number;
  readonly faults?: boolean;
  readonly onNote?: (line: string) => void;
}

export interface MountsReport {
  readonly simulatedMs: number;
  readonly operations: number;
  readonly unknown: number;
  readonly events: number;
  readonly traceHash: string;
  readonly violations: readonly string[];
  readonly undecided: number;
  readonly coverage: ReadonlyMap<string, number>;
}

/**
 * Runs one seed: composed servers, and mounts as they ship below the model of the kernel, with programs of several processes
 * on each. With the caches `strict` and `leases` what was closed is seen by each later open, and names at once.
 */
export async function runMounts(options: MountsOptions): Promise<MountsReport> {
  const root = mkdtempSync('/dev/shm/leasehold-simulated-');
  const time = new VirtualTime(options.seed);
  guardWith(time);
  try {
    return await new MountsRun(time, root, options).run();
  } finally {
    guardWith(null);
    rmSync(root, { recursive: true, force: true });
  }
}

/** A machine with a mount: its kernel and its programs are one simulated process, the daemon is another. */
interface Machine {
  readonly name: string;
  readonly kernel: SimulatedProcess;
  readonly daemon: SimulatedProcess;
  /** Its programs have come to their end. */
  hasEnded: boolean;
}

class MountsRun {
  readonly #options: MountsOptions;
  readonly #time: VirtualTime;
  readonly #prng: Prng;
  readonly #network: Network;
  readonly #net: ClusterNet;
  readonly #nemesis: SimulatedProcess;
  readonly #servers: readonly SimulatedServer[];
  readonly #work: MountsWork;
  readonly #machines: Machine[] = [];
  readonly #coverage = new Map<string, number>();
  #lives = 0;
  #isHealed = false;
  #undecided = 0;

  constructor(time: VirtualTime, root: string, options: MountsOptions) {
    this.#options = options;
    this.#time = time;
    this.#prng = new Prng(options.seed * 11 + 1);
    if (options.onNote !== undefined) time.onNote = options.onNote;
    const wire = time.process('wire');
    this.#nemesis = time.process('nemesis');
    this.#network = new Network(time, new Prng(options.seed * 11 + 2));
    const peers = new SimulatedPeers(this.#network, wire);
    this.#net = { time, peers, http: new SimulatedHttp(this.#network, wire), supervisor: wire };
    this.#work = new MountsWork(time);
    const ids = Array.from({ length: SERVERS }, (_, index) => `s${index + 1}`);
    const others = ids.flatMap((id, index) => ['--peer', `${id}=127.0.0.1:${PORT + index}`]);
    const timing = ['--lease', `${LEASE_MS}ms`, '--clock-skew', `${SKEW_MS}ms`, '--direct-writes', 'off'];
    this.#servers = ids.map(
      (id, index) =>
        new SimulatedServer(this.#net, {
          ...{ id, origin: this.#origin(index), folder: `${root}/${id}` },
          random: new Prng(options.seed * 11 + 100 + index),
          offsetMs: (this.#prng.next() - 0.5) * 0.8 * SKEW_MS,
          driftPpm: (this.#prng.next() - 0.5) * 60,
          logLevel: options.onNote === undefined ? 'silent' : 'info',
          flags: ['--id', id, '--listen', `127.0.0.1:${PORT + index}`, ...others, ...timing],
        }),
    );
  }

  #origin(index: number): string {
    return `http://127.0.0.1:${PORT + index}`;
  }

  get #origins(): string[] {
    return this.#servers.map((_, index) => this.#origin(index));
  }

  async run(): Promise<MountsReport> {
    const time = this.#time;
    await this.#begin();
    const beganMs = time.nowMs;
    for (let index = 0; index < this.#options.mounts; index++) this.#startMachine(index);
    if (this.#options.faults !== false) this.#nextFault();
    await time.run(beganMs + this.#options.forMs);
    this.#heal();
    await time.run(time.nowMs + HEAL_MS_MAX, () => this.#machines.every(({ hasEnded }) => hasEnded));
    for (const { name, hasEnded } of this.#machines)
      if (!hasEnded) this.#work.violations.push(`the programs of ${name} do not come to their end`);
    this.#judge();
    return {
      ...{ simulatedMs: time.nowMs, operations: this.#work.completed, unknown: this.#work.unknown },
      ...{ events: time.eventCount, traceHash: time.traceHash, violations: this.#work.violations },
      ...{ undecided: this.#undecided, coverage: this.#coverage },
    };
  }

  async #begin(): Promise<void> {
    const time = this.#time;
    for (const server of this.#servers) server.start();
    const maker = time.process('maker');
    let isReady = false;
    time.after(0, maker, () => {
      const client = new ClusterClient({ world: maker, servers: this.#origins, access: this.#access(maker) });
      const command = { kind: 'volume-create', name: VOLUME, replicas: SERVERS, objectBytes: 4_096 } as const;
      client
        .command(command, { timeoutMs: START_MS_MAX })
        .then(() => client.close())
        .then(
          () => {
            isReady = true;
          },
          (error: Error) => time.fail(error),
        );
    });
    await time.run(START_MS_MAX, () => isReady);
    if (!isReady) throw new Error(`Seed ${this.#options.seed}: the cluster did not start`);
  }

  #access(process: SimulatedProcess): Access {
    return new Access({}, (url) => clientChannel(this.#net.http.channel(process, process.name, url)));
  }

  #startMachine(index: number): void {
    this.#lives++;
    const name = `m${index + 1}.${this.#lives}`;
    const clocks = {
      offsetMs: (this.#prng.next() - 0.5) * 10_000,
      driftPpm: (this.#prng.next() - 0.5) * 100,
    };
    const kernel = this.#time.process(`${name}.kernel`, clocks);
    const daemon = this.#time.process(`${name}.daemon`, clocks);
    const machine: Machine = { name, kernel, daemon, hasEnded: false };
    this.#machines[index] = machine;
    const wakes = new Prng(this.#prng.nextUint32());
    const model = new ModelKernel(kernel, {
      below: daemon,
      seen: ({ opcode, node, pid }) => this.#time.note(`${pid} asks for ${opcodeName(opcode)} of ${node}`),
      // Now and then a caller does not get to run at once.
      wakeMs: () => (wakes.chance(0.05) ? wakes.next() * 30 : 0),
    });
    daemon.onEndOnce(() => model.abort());
    const settings = {
      ...parseMountOptions([`cache=${this.#options.cache}`]),
      ...{ servers: this.#origins, volume: VOLUME, path: '/', directory: '/' },
    };
    this.#time.after(0, daemon, () => {
      const surroundings = {
        ...{ world: daemon, access: this.#access(daemon), transport: model.transport, isRoot: true },
        log: (level: string, message: string) => this.#time.note(`${level}: ${message}`),
      };
      mountCluster(settings, surroundings).then(
        () => this.#runPrograms(machine, model),
        (error: Error) => {
          this.#time.note(`cannot mount: ${error.message}`);
          machine.hasEnded = true;
          this.#later(1_000, () => this.#replace(machine));
        },
      );
    });
  }

  #runPrograms(machine: Machine, model: ModelKernel): void {
    const seed = this.#prng.nextUint32();
    this.#time.after(0, machine.kernel, () => {
      const turns = new Turns();
      const programs = Array.from({ length: PROGRAMS }, (_, number) => {
        const name = `${machine.name}.${number + 1}`;
        return new MountsActor(
          name,
          model.process(),
          machine.kernel,
          new Prng(seed + number),
          this.#work,
          turns,
        ).run();
      });
      Promise.all(programs).then(
        () => {
          machine.hasEnded = true;
        },
        (error: Error) => this.#time.fail(error),
      );
    });
  }

  /** The daemon of a machine is gone: what was mounted is mounted again, for new programs. */
  #replace(machine: Machine): void {
    const index = this.#machines.indexOf(machine);
    if (index < 0) return;
    machine.kernel.end();
    machine.daemon.end();
    this.#startMachine(index);
  }

  #later(delayMs: number, run: () => void): void {
    this.#time.after(delayMs, this.#nemesis, () => {
      if (!this.#isHealed) run();
    });
  }

  #nextFault(): void {
    this.#later(200 + this.#prng.next() * 2_500, () => {
      this.#fault();
      this.#nextFault();
    });
  }

  #fault(): void {
    const prng = this.#prng;
    const server = prng.pick(this.#servers);
    const machine = prng.pick(this.#machines);
    const durationMs = prng.chance(0.7) ? 50 + prng.next() * 2_000 : 1_000 + prng.next() * 6_000;
    const what = prng.pick(FAULTS);
    this.#time.note(`fault ${what} ${server.id} ${machine.name} ${durationMs.toFixed(0)}`);
    switch (what) {
      case 'kill server': {
        const others = this.#servers.filter((other) => other !== server && other.runs).length;
        if (!server.runs || others * 2 <= SERVERS) return;
        server.kill();
        this.#later(durationMs, () => {
          if (server.process === null) server.start();
        });
        break;
      }
      case 'pause server':
        server.process?.pause(durationMs);
        break;
      case 'pause mount':
        machine.daemon.pause(durationMs);
        break;
      case 'kill mount':
        this.#replace(machine);
        break;
      case 'isolate mount':
        for (const { id } of this.#servers) {
          if (prng.chance(0.8)) this.#network.cut(id, machine.daemon.name);
          if (prng.chance(0.8)) this.#network.cut(machine.daemon.name, id);
        }
        this.#later(durationMs, () => this.#network.heal());
        break;
      case 'isolate server':
        for (const { id } of this.#servers) {
          if (id === server.id) continue;
          this.#network.cut(id, server.id);
          if (prng.chance(0.7)) this.#network.cut(server.id, id);
        }
        this.#later(durationMs, () => this.#network.heal());
        break;
      case 'foul':
        this.#network.weather = FOUL;
        this.#later(durationMs * 3, () => {
          this.#network.weather = FAIR;
        });
        break;
    }
    this.#coverage.set(what, (this.#coverage.get(what) ?? 0) + 1);
  }

  #heal(): void {
    this.#isHealed = true;
    this.#network.weather = FAIR;
    this.#network.heal();
    for (const server of this.#servers) {
      if (server.failure !== null)
        this.#work.violations.push(`${server.id} ended by itself: ${server.failure}`);
      if (server.process === null) server.start();
    }
    this.#work.isEnding = true;
    this.#time.note('all faults have ended');
  }

  #judge(): void {
    for (const { name, daemon } of this.#machines)
      if (daemon.failure !== null)
        this.#work.violations.push(`the mount of ${name} ended by itself: ${daemon.failure}`);
    const verdict = historyCheck(this.#work.history, { configurationsMax: 50_000 });
    this.#undecided = verdict.undecided.length;
    for (const violation of verdict.violations)
      this.#work.violations.push(`${violation.key} is not linearizable: ${JSON.stringify(violation)}`);
    for (const [what, count] of this.#work.outcomes) this.#coverage.set(what, count);
  }
}

const FAULTS = [
  ...['kill server', 'pause server', 'pause mount', 'kill mount', 'isolate mount', 'isolate server'],
  'foul',
] as const;
