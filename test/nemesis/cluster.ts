import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts } from '../../client/dev/free-ports.ts';
import type { ClusterStatus } from '../../wire/http-api.ts';
import { LAUNCHER, until } from '../cluster/real-cluster.ts';
import { type Disk, FolderDisk, ImageDisk } from './disk.ts';
import type { Network } from './network.ts';

const CLOCK = new URL('skewed-clock.ts', import.meta.url).href;
const LOG_LINES_SHOWN = 6;

export interface ClusterOptions {
  readonly servers: number;
  readonly leaseMs: number;
  readonly clockSkewMs: number;
  readonly operationTimeoutMs: number;
  readonly network: Network;
  readonly ownDisks: boolean;
  /** The size of each disk image. */
  readonly diskBytes?: number;
}

interface Member {
  readonly id: string;
  readonly place: number;
  readonly folder: string;
  readonly url: string;
  readonly disk: Disk;
  process: ChildProcess | null;
  /** Whether this process has ordered its end. */
  ending: boolean;
}

/** A server that ended by itself. */
export interface Death {
  readonly id: string;
  readonly how: string;
  readonly log: string;
}

/**
 * @returns whether the server ended because its disk refused to write, which is allowed; an internal error never is
 */
export function isOfFullDisk({ log }: Death): boolean {
  return /ENOSPC|SQLITE_FULL|disk is full/.test(log) && !log.includes('server stops: internal error');
}

/** Servers for faults: each with an address, a disk and a wall clock of its own. */
export class NemesisCluster {
  readonly ids: readonly string[];
  readonly folder: string;
  readonly deaths: Death[] = [];
  readonly #options: ClusterOptions;
  readonly #members: ReadonlyMap<string, Member>;
  #stopped = false;
  readonly #onExit = (): void => {
    for (const { process: child } of this.#members.values()) child?.kill('SIGKILL');
    for (const { disk } of this.#members.values()) disk.remove();
    this.remove();
  };

  private constructor(folder: string, options: ClusterOptions, ports: readonly number[]) {
    this.folder = folder;
    this.#options = options;
    this.ids = ports.map((_, place) => `s${place + 1}`);
    this.#members = new Map(
      ports.map((port, place): [string, Member] => {
        const id = `s${place + 1}`;
        const own = join(folder, id);
        mkdirSync(own);
        writeFileSync(join(own, 'clock'), '0');
        const disk = options.ownDisks ? new ImageDisk(own, options.diskBytes) : new FolderDisk(own);
        const url = `http://${options.network.host(place)}:${port}`;
        return [id, { id, place, folder: own, url, disk, process: null, ending: false }];
      }),
    );
    process.on('exit', this.#onExit);
  }

  /** Starts all servers, and waits until each is ready. */
  static async start(options: ClusterOptions): Promise<NemesisCluster> {
    const ports =
      options.network.skipped === null
        ? Array.from({ length: options.servers }, () => 7400)
        : await freePorts(options.servers);
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-nemesis-'));
    const cluster = new NemesisCluster(folder, options, ports);
    try {
      for (const id of cluster.ids) cluster.spawn(id);
      await cluster.ready();
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  get network(): Network {
    return this.#options.network;
  }

  #member(id: string): Member {
    const member = this.#members.get(id);
    if (member === undefined) throw new Error(`There is no server ${id}`);
    return member;
  }

  url(id: string): string {
    return this.#member(id).url;
  }

  disk(id: string): Disk {
    return this.#member(id).disk;
  }

  place(id: string): number {
    return this.#member(id).place;
  }

  isRunning(id: string): boolean {
    const { process: child } = this.#member(id);
    return child !== null && child.exitCode === null && child.signalCode === null;
  }

  spawn(id: string): void {
    const member = this.#member(id);
    const { leaseMs, clockSkewMs, operationTimeoutMs, network } = this.#options;
    const peers = [...this.#members.values()].flatMap(({ id: peer, url }) => [
      '--peer',
      `${peer}=${new URL(url).host}`,
    ]);
    const timing = ['--lease', `${leaseMs}ms`, '--clock-skew', `${clockSkewMs}ms`];
    const limits = ['--op-timeout', `${operationTimeoutMs}ms`];
    const own = ['--id', id, '--listen', new URL(member.url).host, '--data', member.disk.data];
    const open = network.skipped === null ? ['--insecure-network'] : [];
    const server = [process.execPath, LAUNCHER, 'server', ...own, ...peers, ...timing, ...limits, ...open];
    const [program = '', ...args] = network.inside(member.place, server);
    const child = spawn(program, args, {
      // The launcher ends its server when its standard input ends: no orphans, whatever ends this process.
      stdio: ['pipe', 'ignore', 'pipe'],
      env: {
        ...process.env,
        LEASEHOLD_STOP_WITH_STDIN: '1',
        NODE_OPTIONS: `--import ${CLOCK}`,
        SKEW_FILE: join(member.folder, 'clock'),
      },
    });
    child.stdin?.on('error', () => undefined);
    child.stderr?.pipe(createWriteStream(join(member.folder, 'log'), { flags: 'a' }));
    child.once('exit', (code, signal) => {
      if (member.process !== child || member.ending) return;
      const how = signal === null ? `exit code ${code}` : signal;
      this.deaths.push({ id, how, log: this.logEnd(id) });
    });
    member.process = child;
    member.ending = false;
  }

  /** @returns the last lines of a server's log */
  logEnd(id: string): string {
    const lines = readFileSync(join(this.#member(id).folder, 'log'), 'utf8')
      .trimEnd()
      .split('\n');
    return lines.slice(-LOG_LINES_SHOWN).join('\n');
  }

  /** Kills a server, also a stopped one, and waits for its exit. */
  async kill(id: string): Promise<void> {
    const member = this.#member(id);
    const child = member.process;
    if (child === null || !this.isRunning(id)) return;
    member.ending = true;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  signal(id: string, signal: 'SIGSTOP' | 'SIGCONT'): void {
    if (this.isRunning(id)) this.#member(id).process?.kill(signal);
  }

  /** Sets the offset of a server's wall clock, from now on; `rate` is its speed. */
  setClock(id: string, offsetMs: number, rate = 1): void {
    writeFileSync(join(this.#member(id).folder, 'clock'), `${offsetMs} ${rate}`);
  }

  /** Waits until the given servers (all by default) report that they are ready. */
  async ready(ids: readonly string[] = this.ids, limitMs = 240_000): Promise<void> {
    await Promise.all(
      ids.map((id) =>
        until(
          `${id} is ready`,
          async () => {
            const response = await fetch(`${this.url(id)}/readyz`, { signal: AbortSignal.timeout(2_000) });
            await response.arrayBuffer();
            return response.ok;
          },
          limitMs,
        ),
      ),
    );
  }

  /** @returns the status of the cluster as the first server that answers reports it, or null */
  async status(): Promise<ClusterStatus | null> {
    for (const id of this.ids) {
      if (!this.isRunning(id)) continue;
      try {
        const response = await fetch(`${this.url(id)}/v1/status`, { signal: AbortSignal.timeout(2_000) });
        if (response.ok) return (await response.json()) as ClusterStatus;
      } catch (error) {
        // A stopped or disconnected server does not answer; the next one is queried.
        if (!(error instanceof Error)) throw error;
      }
    }
    return null;
  }

  /** Ends all servers and unmounts their disks; a second call does nothing. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    process.off('exit', this.#onExit);
    for (const id of this.ids) await this.kill(id);
    for (const { disk } of this.#members.values()) disk.remove();
  }

  /** Removes the folders of stopped servers, with disks and logs. */
  remove(): void {
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }
}
