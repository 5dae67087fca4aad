import './guard.ts';
import { mkdtempSync, rmSync } from 'node:fs';
import { Prng } from '../../../base/prng.ts';
import { Access } from '../../../client/access.ts';
import { ClusterClient } from '../../../client/cluster-client.ts';
import { historyCheck } from '../../history/checker.ts';
import { clientChannel } from './client-channel.ts';
import { guardWith } from './guard.ts';
import { FAIR, FOUL, Network } from './network.ts';
import { ReplicasJudge } from './replicas-judge.ts';
import { SimulatedHttp } from './simulated-http.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import { type ClusterNet, SimulatedServer } from './simulated-server.ts';
import { SimulatedPeers } from './simulated-transport.ts';
import { VirtualTime } from './virtual-time.ts';
import { Actor, type SharedFile, SharedWork, VOLUME } from './workload.ts';

const LEASE_MS = 2_000;
const SKEW_MS = 100;
const PORT = 7_401;
const ACTORS = 3;
const START_MS_MAX = 60_000;
/** How long a starved process runs before it waits again. */
const RUNS_MS_MAX = 20;
/** All faults have ended: so long the cluster has to become idle and whole. */
const HEAL_MS_MAX = 120_000;

/** After the last operation: primaries settle files, and backups catch up. */
const SETTLE_MS = 30_000;
const QUIET_MS = 10_000;
/** Between two looks at the views of all servers. */
const LOOK_MS = 5_000;
/** Requests that an idle server makes in a second. */
const QUIET_REQUESTS_MAX = 0.5;
/** Files that are flushed before all servers lose their power. */
const FLUSHED_FILES = 3;

export interface RunOptions {
  readonly seed: number;
  readonly servers: number;
  readonly clients: number;
  readonly forMs: number;
  readonly onNote?: (line: string) => void;
  readonly faults?: boolean;
  /** Every server and client waits for a processor for up to so long, in milliseconds, runs for a moment, and waits again. */
  readonly starvedMs?: number;
}

export interface RunReport {
  readonly seed: number;
  readonly simulatedMs: number;
  readonly operations: number;
  readonly unknown: number;
  readonly events: number;
  readonly requests: number;
  readonly traceHash: string;
  readonly violations: readonly string[];
  readonly undecided: number;
  /** Changes of the catalog's primary before all was healed. */
  readonly successions: number;
  /** What happened, by kind. */
  readonly coverage: ReadonlyMap<string, number>;
}

/** Runs one seed: a cluster of composed servers, clients that use it, and faults; then all is healed and judged. */
export async function runCluster(options: RunOptions): Promise<RunReport> {
  const root = mkdtempSync('/dev/shm/leasehold-simulated-');
  const time = new VirtualTime(options.seed);
  guardWith(time);
  try {
    return await new ClusterRun(time, root, options).run();
  } finally {
    guardWith(null);
    rmSync(root, { recursive: true, force: true });
  }
}

class ClusterRun {
  readonly #options: RunOptions;
  readonly #time: VirtualTime;
  readonly #prng: Prng;
  readonly #network: Network;
  readonly #net: ClusterNet;
  /** Draws the faults; it is no machine. */
  readonly #nemesis: SimulatedProcess;
  readonly #servers: readonly SimulatedServer[];
  readonly #work: SharedWork;
  readonly #coverage = new Map<string, number>();
  readonly #violations: string[] = [];
  readonly #replicas = new ReplicasJudge();
  readonly #clients: SimulatedProcess[] = [];
  #clientLives = 0;
  #isHealed = false;
  /** Faults follow each other within so long: some seeds are calm, some are not. */
  readonly #pauseMs: number;

  constructor(time: VirtualTime, root: string, options: RunOptions) {
    this.#options = options;
    this.#time = time;
    this.#prng = new Prng(options.seed * 7 + 1);
    this.#pauseMs = this.#prng.pick([800, 1_500, 3_000]);
    if (options.onNote !== undefined) time.onNote = options.onNote;
    const wire = time.process('wire');
    this.#nemesis = time.process('nemesis');
    this.#network = new Network(time, new Prng(options.seed * 7 + 2));
    this.#net = {
      time,
      peers: new SimulatedPeers(this.#network, wire),
      http: new SimulatedHttp(this.#network, wire),
      supervisor: wire,
    };
    const ids = Array.from({ length: options.servers }, (_, index) => `s${index + 1}`);
    this.#work = new SharedWork(time, ids);
    const peers = ids.flatMap((id, index) => ['--peer', `${id}=127.0.0.1:${PORT + index}`]);
    const timing = [
      '--lease',
      `${LEASE_MS}ms`,
      '--clock-skew',
      `${SKEW_MS}ms`,
      '--direct-writes',
      'off',
      '--compare-every',
      '10s',
    ];
    this.#servers = ids.map(
      (id, index) =>
        new SimulatedServer(this.#net, {
          id,
          origin: this.#origin(index),
          folder: `${root}/${id}`,
          random: new Prng(options.seed * 7 + 100 + index),
          // Two clocks differ by less than the bound for all of the run.
          offsetMs: (this.#prng.next() - 0.5) * 0.8 * SKEW_MS,
          driftPpm: (this.#prng.next() - 0.5) * 60,
          logLevel: options.onNote === undefined ? 'silent' : 'info',
          flags: ['--id', id, '--listen', `127.0.0.1:${PORT + index}`, ...peers, ...timing],
        }),
    );
  }

  #origin(index: number): string {
    return `http://127.0.0.1:${PORT + index}`;
  }

  async run(): Promise<RunReport> {
    const time = this.#time;
    await this.#begin();
    const beganMs = time.nowMs;
    for (let index = 0; index < this.#options.clients; index++) this.#startClient(index);
    const { starvedMs, faults } = this.#options;
    const epoch = await this.#catalogEpoch();
    if (faults !== false) this.#nextFault();
    if (starvedMs !== undefined) this.#starveAll(starvedMs);
    this.#nextLook();
    await time.run(beganMs + this.#options.forMs);
    this.#heal();
    const successions = (await this.#catalogEpoch()) - epoch;
    await this.#end();
    this.#judge();
    return {
      seed: this.#options.seed,
      simulatedMs: time.nowMs,
      operations: this.#work.completed,
      unknown: this.#work.unknown,
      events: time.eventCount,
      requests: this.#net.http.requestCount,
      traceHash: time.traceHash,
      violations: this.#violations,
      undecided: this.#undecided,
      successions,
      coverage: this.#coverage,
    };
  }

  /** Starts all servers, and makes the volume. */
  async #begin(): Promise<void> {
    const time = this.#time;
    for (const server of this.#servers) server.start();
    let ready = false;
    const maker = time.process('maker');
    time.after(0, maker, () => {
      const client = this.#client(maker);
      const replicas = Math.min(3, this.#servers.length);
      client
        .command(
          { kind: 'volume-create', name: VOLUME, replicas, objectBytes: 4_096 },
          { timeoutMs: START_MS_MAX },
        )
        .then(() => client.close())
        .then(
          () => {
            ready = true;
          },
          (error: Error) => time.fail(error),
        );
    });
    await time.run(START_MS_MAX, () => ready);
    if (!ready) throw new Error(`Seed ${this.#options.seed}: the cluster did not start`);
  }

  #client(process: SimulatedProcess): ClusterClient {
    const access = new Access({}, (url) => clientChannel(this.#net.http.channel(process, process.name, url)));
    const servers = this.#servers.map((_, index) => this.#origin(index));
    return new ClusterClient({ world: process, servers, access, operationTimeoutMs: 20_000 });
  }

  #startClient(index: number): void {
    const life = ++this.#clientLives;
    const process = this.#time.process(`c${index + 1}.${life}`, {
      // A client's clock may be anything.
      offsetMs: (this.#prng.next() - 0.5) * 10_000,
      driftPpm: (this.#prng.next() - 0.5) * 100,
    });
    this.#clients[index] = process;
    const seed = this.#prng.nextUint32();
    this.#time.after(0, process, () => {
      const client = this.#client(process);
      const actors = Array.from({ length: ACTORS }, (_, number) => {
        const name = `${process.name}.${number + 1}`;
        return new Actor(name, client, process, new Prng(seed + number), this.#work).run();
      });
      Promise.all(actors)
        .then(() => client.close())
        .then(
          () => process.end(),
          (error: Error) => this.#time.fail(error),
        );
    });
  }

  #cover(what: string): void {
    this.#coverage.set(what, (this.#coverage.get(what) ?? 0) + 1);
  }

  #later(delayMs: number, run: () => void): void {
    this.#time.after(delayMs, this.#nemesis, () => {
      if (!this.#isHealed) run();
    });
  }

  #nextLook(): void {
    this.#later(LOOK_MS, () => {
      this.#lookAtViews();
      this.#nextLook();
    });
  }

  #lookAtViews(): void {
    for (const server of this.#servers) {
      if (server.hasStarted) this.#time.asHost(() => this.#replicas.sample(server.id, server.disk.folder));
    }
  }

  #nextFault(): void {
    this.#later(100 + this.#prng.next() * this.#pauseMs, () => {
      this.#fault();
      this.#nextFault();
    });
  }

  #fault(): void {
    const prng = this.#prng;
    const server = prng.pick(this.#servers);
    const durationMs = prng.chance(0.7) ? 50 + prng.next() * 3_000 : 1_000 + prng.next() * 9_000;
    const what = prng.pick(FAULTS);
    this.#time.note(`fault ${what} ${server.id} ${durationMs.toFixed(0)}`);
    switch (what) {
      case 'kill':
        if (!this.#maySpare(server)) return;
        server.kill();
        this.#restartLater(server, durationMs);
        break;
      case 'power': {
        // One server of the cluster has a weak supply: of each file a majority of the replicas never loses its power, and
        // what that majority acknowledged and did not sync survives; see docs/replication.md.
        const weak = this.#servers[this.#options.seed % this.#servers.length] as SimulatedServer;
        if (this.#servers.some((other) => !other.hasStarted)) return;
        weak.losePower();
        this.#restartLater(weak, durationMs);
        break;
      }
      case 'pause':
        if (!server.runs) return;
        server.process?.pause(durationMs);
        break;
      case 'pause-client': {
        const client = this.#clients[prng.integer(0, this.#clients.length - 1)];
        client?.pause(durationMs);
        break;
      }
      case 'kill-client': {
        const index = prng.integer(0, this.#clients.length - 1);
        this.#clients[index]?.end();
        this.#startClient(index);
        break;
      }
      case 'isolate': {
        const oneWay = prng.integer(0, 2);
        for (const other of this.#everyone()) {
          if (other === server.id) continue;
          if (oneWay !== 1) this.#network.cut(server.id, other);
          if (oneWay !== 2) this.#network.cut(other, server.id);
        }
        this.#later(durationMs, () => this.#network.heal());
        break;
      }
      case 'part': {
        // Each machine is on one of two sides; servers and clients of a side reach each other.
        const sides = new Map(this.#everyone().map((name) => [name, prng.chance(0.5)]));
        // Or a server has lost the other servers alone.
        const isAlone = prng.chance(0.5);
        const ids = this.#servers.map(({ id }) => id);
        for (const from of isAlone ? ids : sides.keys()) {
          for (const to of isAlone ? ids : sides.keys()) {
            const isApart = isAlone
              ? (from === server.id) !== (to === server.id)
              : sides.get(from) !== sides.get(to);
            if (from !== to && isApart) this.#network.cut(from, to);
          }
        }
        this.#later(durationMs, () => this.#network.heal());
        break;
      }
      case 'slow-link':
        for (const other of this.#everyone()) {
          if (other === server.id || prng.chance(0.4)) continue;
          this.#network.slow(server.id, other, 5 + prng.next() * 300);
        }
        this.#later(durationMs * 2, () => this.#network.heal());
        break;
      case 'cut': {
        const other = prng.pick(this.#everyone());
        if (other === server.id) return;
        if (prng.chance(0.7)) this.#network.cut(server.id, other);
        if (prng.chance(0.7)) this.#network.cut(other, server.id);
        this.#later(durationMs, () => this.#network.heal());
        break;
      }
      case 'foul':
        this.#network.weather = FOUL;
        this.#later(durationMs * 4, () => {
          this.#network.weather = FAIR;
        });
        break;
      case 'full-disk':
        server.disk.isFull = true;
        this.#later(durationMs, () => {
          server.disk.isFull = false;
        });
        break;
      case 'slow-disk':
        server.disk.slowness = 1 + prng.next() * 60;
        this.#later(durationMs, () => {
          server.disk.slowness = 1;
        });
        break;
    }
    this.#cover(what);
  }

  /** All wait and run by turns, as processes do that share few processors with many busy loops. */
  #starveAll(waitMsMax: number): void {
    this.#work.isPatient = true;
    const starve = (process: SimulatedProcess): void => {
      const waitMs = waitMsMax * (0.4 + 0.6 * this.#prng.next());
      process.pause(waitMs);
      this.#later(waitMs + 1 + this.#prng.next() * RUNS_MS_MAX, () => starve(process));
    };
    for (const { process } of this.#servers) if (process !== null) starve(process);
    for (const client of this.#clients) starve(client);
  }

  /** Each epoch has a primary of its own. */
  async #catalogEpoch(): Promise<number> {
    const asking = this.#time.process('asking');
    let epoch: number | null = null;
    this.#time.after(0, asking, () => {
      const client = this.#client(asking);
      client
        .status({ timeoutMs: START_MS_MAX })
        .then(async ({ catalog }) => {
          await client.close();
          epoch = catalog.epoch;
        })
        .catch((error: Error) => this.#time.fail(error));
    });
    await this.#time.run(this.#time.nowMs + START_MS_MAX, () => epoch !== null);
    asking.end();
    return epoch ?? Number.NaN;
  }

  #everyone(): string[] {
    return [...this.#servers.map(({ id }) => id), ...this.#clients.map(({ name }) => name)];
  }

  /** Most of the time a majority runs. */
  #maySpare(server: SimulatedServer): boolean {
    const running = this.#servers.filter((other) => other !== server && other.runs).length;
    return server.runs && (running * 2 > this.#servers.length || this.#prng.chance(0.2));
  }

  #restartLater(server: SimulatedServer, delayMs: number): void {
    this.#later(delayMs, () => {
      if (server.process === null) server.start();
    });
  }

  #heal(): void {
    this.#isHealed = true;
    this.#network.weather = FAIR;
    this.#network.heal();
    for (const server of this.#servers) {
      this.#mourn(server);
      server.disk.slowness = 1;
      server.disk.isFull = false;
      if (server.process === null) server.start();
    }
    this.#work.isEnding = true;
    this.#time.note('all faults have ended');
  }

  /** A server that ended by itself has a broken invariant, or an error that its code did not catch. */
  #mourn(server: SimulatedServer): void {
    if (server.failure === null) return;
    const { failure } = server;
    const text = failure instanceof Error ? (failure.stack ?? failure.message) : String(failure);
    this.#violations.push(`${server.id} ended by itself: ${text}`);
    server.failure = null;
    server.kill();
  }

  #undecided = 0;

  async #end(): Promise<void> {
    const time = this.#time;
    const untilMs = time.nowMs + HEAL_MS_MAX;
    await time.run(untilMs, () => this.#clients.every((client) => client.hasEnded));
    for (const client of this.#clients) {
      if (!client.hasEnded)
        this.#violations.push(`${client.name} did not come to its end after all was healed`);
      client.end();
    }
    const unread = await this.#readAll(untilMs);
    for (const file of unread) this.#violations.push(`file ${file} cannot be read after all was healed`);
    await this.#quieten();
    await this.#losePowerEverywhere();
    for (const server of this.#servers) this.#mourn(server);
  }

  /** Without clients and faults the replicas of a file become equal, and next to nothing is asked. */
  async #quieten(): Promise<void> {
    const time = this.#time;
    await time.run(time.nowMs + SETTLE_MS);
    this.#lookAtViews();
    const { http } = this.#net;
    const [before, beganMs] = [http.requestCount, time.nowMs];
    await time.run(beganMs + QUIET_MS);
    const perSecond = ((http.requestCount - before) * 1_000) / QUIET_MS;
    if (perSecond > QUIET_REQUESTS_MAX * this.#servers.length) {
      this.#violations.push(`the idle cluster makes ${perSecond.toFixed(1)} requests in a second`);
    }
    const folders = new Map(this.#servers.map(({ id, disk }) => [id, disk.folder]));
    const files = this.#work.allFiles.map(({ inode }) => inode);
    this.#violations.push(...this.#replicas.differences(folders, files));
  }

  /** What is flushed survives a loss of power of all servers, files and names alike. */
  async #losePowerEverywhere(): Promise<void> {
    if (!this.#prng.chance(0.6)) return;
    this.#cover('power of all');
    const files = this.#work.allFiles.slice(-FLUSHED_FILES);
    const contents = new Map<number, string>();
    const name = `/kept-${this.#work.freshValue()}`;
    await this.#program('flusher', async (client) => {
      await client.command({
        ...{ kind: 'symlink', place: { volume: VOLUME, path: name }, target: 'kept', uid: 0, gid: 0 },
      });
      await client.flushCatalog();
      for (const { inode, replicas, low } of files) {
        const handle = client.openFile(inode, { replicas });
        await handle.write(low, Buffer.from(this.#work.freshValue(), 'latin1'));
        await handle.flush();
        const { bytes } = await handle.read(0, 8_192);
        contents.set(inode, Buffer.from(bytes).toString('latin1'));
      }
    });
    for (const server of this.#servers) {
      this.#mourn(server);
      server.losePower();
    }
    for (const server of this.#servers) server.start();
    await this.#program('checker', async (client) => {
      const { target } = await client.resolve(VOLUME, name, { follow: false });
      if (target !== 'kept')
        this.#violations.push('a name that was flushed is another one after a loss of power');
      for (const { inode, replicas } of files) {
        const { bytes } = await client.openFile(inode, { replicas }).read(0, 8_192);
        const read = Buffer.from(bytes).toString('latin1');
        const kept = contents.get(inode);
        if (read !== kept)
          this.#violations.push(
            `file ${inode} was flushed with ${JSON.stringify(kept)} and has ${JSON.stringify(read)} after a loss of power`,
          );
      }
    });
  }

  /** Runs a program on a machine of its own to its end. */
  async #program(name: string, run: (client: ClusterClient) => Promise<void>): Promise<void> {
    const process = this.#time.process(name);
    let outcome = 'under way' as 'under way' | 'done' | Error;
    this.#time.after(0, process, () => {
      const client = this.#client(process);
      run(client)
        .then(() => client.close())
        .then(
          () => {
            outcome = 'done';
          },
          (error: Error) => {
            outcome = error;
          },
        );
    });
    await this.#time.run(this.#time.nowMs + HEAL_MS_MAX, () => outcome !== 'under way');
    process.end();
    if (outcome !== 'done') this.#violations.push(`the ${name} did not come to its end: ${String(outcome)}`);
  }

  /** Reads every file once more, so that its last state is part of the history. @returns those that cannot be read */
  async #readAll(untilMs: number): Promise<readonly number[]> {
    const reader = this.#time.process('reader');
    const left = new Set(this.#work.allFiles.map(({ inode }) => inode));
    let isDone = false;
    this.#time.after(0, reader, () => {
      const client = this.#client(reader);
      const readOne = async ({ inode, replicas, low }: SharedFile): Promise<void> => {
        const handle = client.openFile(inode, { replicas });
        const call = this.#work.nowNs();
        const { bytes } = await handle.read(low, 4_000, { timeoutMs: HEAL_MS_MAX });
        left.delete(inode);
        this.#work.history.push({
          ...{ client: 'reader', key: `file/${inode}`, call, return: this.#work.nowNs(), status: 'ok' },
          ...{ op: 'pread', input: { off: low, len: 4_000 }, output: Buffer.from(bytes).toString('latin1') },
        });
      };
      const all = this.#work.allFiles.map((file) => readOne(file).catch(() => undefined));
      void Promise.all(all)
        .then(() => client.close())
        .then(() => {
          isDone = true;
        });
    });
    await this.#time.run(untilMs + HEAL_MS_MAX, () => isDone);
    reader.end();
    return [...left];
  }

  #judge(): void {
    const verdict = historyCheck(this.#work.history, { configurationsMax: 300_000 });
    this.#undecided = verdict.undecided.length;
    for (const violation of verdict.violations) {
      this.#violations.push(`${violation.key} is not linearizable: ${JSON.stringify(violation, null, 1)}`);
    }
    this.#violations.push(...this.#replicas.violations);
    this.#coverage.set('views', this.#replicas.views);
    for (const surprise of this.#work.surprises) this.#violations.push(`surprise: ${surprise}`);
    for (const [what, count] of Object.entries(this.#net.http.faults))
      this.#coverage.set(`http ${what}`, count);
    for (const [what, count] of this.#work.outcomes) this.#coverage.set(what, count);
  }
}

const FAULTS = [
  'kill',
  'kill',
  'power',
  'power',
  'pause',
  'pause',
  'pause-client',
  'kill-client',
  'isolate',
  'part',
  'part',
  'slow-link',
  'slow-link',
  'cut',
  'foul',
  'foul',
  'slow-disk',
  'full-disk',
] as const;
