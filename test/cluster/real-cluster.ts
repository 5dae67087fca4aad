import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { freePorts } from '../../client/dev/free-ports.ts';
import type { ClusterStatus, FileInfo } from '../../wire/http-api.ts';
import { LAUNCHER, launcherOf } from '../launcher.ts';

export { LAUNCHER };

/** Options with which the launcher would start itself again. */
const SERVER_MEMORY = ['--max-semi-space-size=16'];

/** Servers start within a second; with much data, or on a busy machine, within minutes. */
const START_MS_MAX = 300_000;

export interface RealClusterOptions {
  readonly servers?: number;
  readonly lease?: string;
  readonly clockSkew?: string;
  readonly flags?: readonly string[];
  /** Environment of each server, by its index, for all its processes. */
  readonly environment?: (place: number) => NodeJS.ProcessEnv;
  /** The data folder of a server, by its index; a folder of the cluster's own if absent. */
  readonly data?: (place: number) => string;
  /** Servers that are not started, although the others know them. */
  readonly absent?: readonly string[];
}

/**
 * Real server processes on loopback, each with its own data folder, for tests and measurements. They end with the
 * process that started them, whatever ends it; `KEEP=1` keeps their folders.
 */
export class RealCluster {
  readonly folder: string;
  readonly ids: readonly string[];
  readonly #ports: ReadonlyMap<string, number>;
  readonly #flags: readonly string[];
  readonly #environment: (place: number) => NodeJS.ProcessEnv;
  readonly #data: ((place: number) => string) | undefined;
  readonly #processes = new Map<string, ChildProcess>();
  /** Processes that the test ends itself. */
  readonly #foreseen = new WeakSet<ChildProcess>();
  /** What is known of those that ended otherwise. */
  readonly #deaths: { readonly id: string; readonly how: string; readonly logged: Promise<void> }[] = [];
  /** Servers that joined later, with their options besides id, port and folder. */
  readonly #joined = new Map<string, { readonly port: number; readonly flags: readonly string[] }>();
  readonly #onExit = (): void => {
    for (const child of this.#processes.values()) child.kill('SIGKILL');
  };

  private constructor(
    folder: string,
    ports: ReadonlyMap<string, number>,
    flags: readonly string[],
    environment: (place: number) => NodeJS.ProcessEnv,
    data: ((place: number) => string) | undefined,
  ) {
    this.folder = folder;
    this.ids = [...ports.keys()];
    this.#ports = ports;
    this.#flags = flags;
    this.#environment = environment;
    this.#data = data;
    process.on('exit', this.#onExit);
  }

  /** Starts all servers and waits until each is ready. */
  static async start(options: RealClusterOptions = {}): Promise<RealCluster> {
    const ids = Array.from({ length: options.servers ?? 3 }, (_, place) => `s${place + 1}`);
    const free = await freePorts(ids.length);
    const ports = new Map(ids.map((id, place) => [id, free[place] as number]));
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-cluster-'));
    const timing = ['--lease', options.lease ?? '2s', '--clock-skew', options.clockSkew ?? '100ms'];
    const cluster = new RealCluster(
      folder,
      ports,
      [...timing, ...(options.flags ?? [])],
      options.environment ?? (() => ({})),
      options.data,
    );
    try {
      const present = ids.filter((id) => options.absent?.includes(id) !== true);
      for (const id of present) cluster.spawn(id);
      await cluster.ready(present);
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  url(id: string): string {
    return `http://127.0.0.1:${this.port(id)}`;
  }

  get urls(): string[] {
    return this.ids.map((id) => this.url(id));
  }

  port(id: string): number {
    const port = this.#ports.get(id) ?? this.#joined.get(id)?.port;
    if (port === undefined) throw new Error(`There is no server ${id}`);
    return port;
  }

  data(id: string): string {
    const place = this.ids.indexOf(id);
    return this.#data === undefined || place < 0 ? join(this.folder, id) : this.#data(place);
  }

  pid(id: string): number {
    const pid = this.#processes.get(id)?.pid;
    if (pid === undefined) throw new Error(`Server ${id} does not run`);
    return pid;
  }

  spawn(id: string, environment: NodeJS.ProcessEnv = {}): ChildProcess {
    const own = { ...this.#environment(this.ids.indexOf(id)), ...environment };
    const argv = [...SERVER_MEMORY, launcherOf(own), 'server', ...this.flags(id)];
    const child = spawn(process.execPath, argv, {
      // The launcher ends its server when its standard input ends: no orphans, even after a kill -9 of the test.
      stdio: ['pipe', 'ignore', 'pipe'],
      // The folder in which the system stores core dumps of processes that crash.
      cwd: this.folder,
      env: { ...process.env, LEASEHOLD_STOP_WITH_STDIN: '1', ...own },
    });
    child.stdin?.on('error', () => undefined);
    const log = createWriteStream(this.logFile(id), { flags: 'a' });
    child.stderr?.pipe(log);
    this.#processes.set(id, child);
    child.once('exit', (code, signal) => {
      if (this.#foreseen.has(child)) return;
      this.#deaths.push({ id, how: signal ?? `exit code ${code}`, logged: finished(log) });
    });
    return child;
  }

  /** The server's present process may end: this is no failure of the test. */
  foreseeEnd(id: string): void {
    const child = this.#processes.get(id);
    if (child !== undefined) this.#foreseen.add(child);
  }

  /** Command line of `leasehold server` for this server. */
  flags(id: string): string[] {
    const joined = this.#joined.get(id);
    if (joined !== undefined) {
      const own = ['--id', id, '--listen', `127.0.0.1:${joined.port}`, '--data', this.data(id)];
      return [...own, ...joined.flags, ...this.#flags];
    }
    const peers = [...this.#ports].flatMap(([peer, port]) => ['--peer', `${peer}=127.0.0.1:${port}`]);
    const address = ['--id', id, '--listen', `127.0.0.1:${this.port(id)}`];
    return [...address, ...peers, '--data', this.data(id), ...this.#flags];
  }

  /** Starts a server that joins the running cluster by itself, and waits until it can serve. */
  async join(id: string, at: readonly string[], flags: readonly string[] = []): Promise<void> {
    const [port] = await freePorts(1);
    const join = at.map((server) => this.url(server)).join(',');
    this.#joined.set(id, { port: port as number, flags: ['--join', join, ...flags] });
    this.spawn(id);
    // Until it is accepted it does not listen, and a catalog without a primary accepts no server.
    await this.ready([id]);
  }

  logFile(id: string): string {
    return join(this.folder, `${id}.log`);
  }

  log(id: string): string {
    return readFileSync(this.logFile(id), 'utf8');
  }

  isRunning(id: string): boolean {
    const child = this.#processes.get(id);
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Starts a server that was killed, and waits until it can serve. */
  async restart(id: string): Promise<void> {
    this.spawn(id);
    await this.ready([id]);
  }

  /** Waits until the named servers (all by default) report that they can serve. */
  async ready(ids: readonly string[] = this.ids): Promise<void> {
    await Promise.all(ids.map((id) => until(`${id} is ready`, () => this.#isReady(id), START_MS_MAX)));
  }

  async #isReady(id: string): Promise<boolean> {
    if (!this.isRunning(id)) throw new InVain(`It has ended:\n${this.log(id)}`);
    const response = await fetch(`${this.url(id)}/readyz`);
    const text = await response.text();
    if (!response.ok) throw new Error(`${response.status} ${text}\n${this.log(id)}`);
    return true;
  }

  /**
   * Ends a server by a signal and waits for its end.
   *
   * @returns its exit code, or the signal that has ended it; null if it did not run
   */
  async kill(id: string, signal: NodeJS.Signals = 'SIGKILL'): Promise<number | NodeJS.Signals | null> {
    const child = this.#processes.get(id);
    if (child === undefined || !this.isRunning(id)) return null;
    const gone = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
    this.#foreseen.add(child);
    child.kill(signal);
    const [code, by] = await gone;
    return by ?? code;
  }

  /** Stops a server's process without ending it, or lets it continue. */
  signal(id: string, signal: 'SIGSTOP' | 'SIGCONT'): void {
    process.kill(this.pid(id), signal);
  }

  async status(id: string): Promise<ClusterStatus> {
    return (await json(`${this.url(id)}/v1/status`)) as ClusterStatus;
  }

  async info(id: string, path: string): Promise<FileInfo> {
    return (await json(`${this.url(id)}/v1/info/${path}`)) as FileInfo;
  }

  /**
   * @param metric the name of a counter
   * @param labels selects the series that have all of these, each as `name="value"`
   * @returns the sum over the servers that run
   */
  async counted(metric: string, ...labels: readonly string[]): Promise<number> {
    const running = this.ids.filter((id) => this.isRunning(id));
    const counts = await Promise.all(running.map((id) => this.countedAt(id, metric, ...labels)));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** The same, of one server. */
  async countedAt(id: string, metric: string, ...labels: readonly string[]): Promise<number> {
    const text = await (await fetch(`${this.url(id)}/metrics`)).text();
    return [...text.matchAll(new RegExp(`^${metric}(\\{.*\\})? (\\d+)$`, 'gm'))]
      .filter(([, of = '']) => labels.every((label) => of.includes(label)))
      .reduce((sum, [, , value]) => sum + Number(value), 0);
  }

  async createVolume(name: string, replicas = Math.min(3, this.ids.length)): Promise<void> {
    const command = {
      kind: 'volume-create',
      name,
      replicas,
      objectBytes: 131_072,
    };
    const response = await fetch(`${this.urls[0]}/v1/catalog/commands`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ session: Math.floor(Math.random() * 2 ** 50) + 1, number: 1, command }),
    });
    if (!response.ok) throw new Error(`Volume ${name} was not made: ${await response.text()}`);
  }

  /** @returns the primary of a file; waits until there is one that runs */
  async primaryOf(path: string): Promise<string> {
    let primary: string | null = null;
    await until(`${path} has a primary`, async () => {
      primary = await this.runningPrimaryOf(path);
      return primary !== null;
    });
    if (primary === null) throw new Error('unreachable');
    return primary;
  }

  /** @returns the primary of a file, if it has one that runs @throws Error if there is no such file */
  async runningPrimaryOf(path: string): Promise<string | null> {
    const asked = this.ids.find((id) => this.isRunning(id));
    if (asked === undefined) throw new Error('No server runs');
    const { primary } = await this.info(asked, path);
    return primary !== null && this.isRunning(primary) ? primary : null;
  }

  /** Waits until all replicas of the file have all acknowledged operations. */
  async current(path: string, limitMs?: number): Promise<FileInfo> {
    let info: FileInfo | null = null;
    await until(
      `all replicas of ${path} are current`,
      async () => {
        info = await this.info(this.ids[0] as string, path);
        const states = info.replicas.map(({ state }) => state);
        return states.length === Math.min(3, this.ids.length) && states.every((state) => state === 'current');
      },
      limitMs,
    );
    if (info === null) throw new Error('unreachable');
    return info;
  }

  /** @throws {Error} with its log if a server has ended although the test did not end it */
  async stop(): Promise<void> {
    process.off('exit', this.#onExit);
    // SIGKILL also ends a stopped process.
    await Promise.all([...this.#processes.keys()].map((id) => this.kill(id)));
    // The last lines may reach the log after the end.
    await Promise.all(this.#deaths.map(({ logged }) => logged));
    const deaths = this.#deaths.map(({ id, how }) => {
      return `Server ${id} ended by itself, with ${how}; the end of its log:\n${this.log(id).slice(-8_000)}`;
    });
    if (process.env.KEEP === '1') process.stderr.write(`The cluster's folder stays: ${this.folder}\n`);
    else rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
    if (deaths.length > 0) throw new Error(deaths.join('\n'));
  }
}

/** Pause between two queries of `until`. */
const REST_MS_MIN = 20;
const REST_MS_MAX = 250;

/** The awaited condition can no longer become true. */
export class InVain extends Error {}

/**
 * Queries again and again, with a time limit, until `holds`; the error contains the last failure. It pauses for as long
 * as the query took, and longer the longer it waits: the awaited processes need the processors, too.
 */
export async function until(what: string, holds: () => Promise<boolean>, limitMs = 240_000): Promise<void> {
  const deadlineMs = performance.now() + limitMs;
  let last: unknown = 'it did not hold';
  let restMs = REST_MS_MIN;
  while (performance.now() < deadlineMs) {
    const askedMs = performance.now();
    try {
      if (await holds()) return;
      last = 'it did not hold';
    } catch (error) {
      last = error;
      if (error instanceof InVain) break;
    }
    await delay(Math.max(restMs, performance.now() - askedMs));
    restMs = Math.min(REST_MS_MAX, restMs * 1.2);
  }
  throw new Error(`Waited ${Math.round(performance.now() - deadlineMs + limitMs)} ms in vain until ${what}`, {
    cause: last,
  });
}

async function json(url: string): Promise<unknown> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** @returns the most memory that a process has used at once, in MiB, as the kernel counted */
export function memoryPeakMiB(pid: number): number {
  const line = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  if (line === null) throw new Error(`Process ${pid} has no memory`);
  return Number(line[1]) / 1024;
}
