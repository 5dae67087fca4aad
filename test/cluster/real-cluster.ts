import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ClusterStatus, FileInfo } from '../../wire/http-api.ts';

const LAUNCHER = fileURLToPath(new URL('../../bin/leasehold.js', import.meta.url));

export interface RealClusterOptions {
  readonly servers?: number;
  readonly lease?: string;
  readonly clockSkew?: string;
  readonly flags?: readonly string[];
}

/** Real server processes on loopback, each with a data folder of its own, for tests and measurements. */
export class RealCluster {
  readonly folder: string;
  readonly ids: readonly string[];
  readonly #ports: ReadonlyMap<string, number>;
  readonly #flags: readonly string[];
  readonly #processes = new Map<string, ChildProcess>();

  private constructor(folder: string, ports: ReadonlyMap<string, number>, flags: readonly string[]) {
    this.folder = folder;
    this.ids = [...ports.keys()];
    this.#ports = ports;
    this.#flags = flags;
  }

  /** Starts all servers and waits until each is ready. */
  static async start(options: RealClusterOptions = {}): Promise<RealCluster> {
    const ids = Array.from({ length: options.servers ?? 3 }, (_, place) => `s${place + 1}`);
    const free = await freePorts(ids.length);
    const ports = new Map(ids.map((id, place) => [id, free[place] as number]));
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-cluster-'));
    const timing = ['--lease', options.lease ?? '2s', '--clock-skew', options.clockSkew ?? '100ms'];
    const cluster = new RealCluster(folder, ports, [...timing, ...(options.flags ?? [])]);
    for (const id of ids) cluster.spawn(id);
    await cluster.ready();
    return cluster;
  }

  url(id: string): string {
    return `http://127.0.0.1:${this.#ports.get(id)}`;
  }

  get urls(): string[] {
    return this.ids.map((id) => this.url(id));
  }

  data(id: string): string {
    return join(this.folder, id);
  }

  pid(id: string): number {
    const pid = this.#processes.get(id)?.pid;
    if (pid === undefined) throw new Error(`Server ${id} does not run`);
    return pid;
  }

  spawn(id: string, environment: NodeJS.ProcessEnv = {}): ChildProcess {
    const peers = [...this.#ports].flatMap(([peer, port]) => ['--peer', `${peer}=127.0.0.1:${port}`]);
    const child = spawn(
      process.execPath,
      [
        LAUNCHER,
        'server',
        ...['--id', id, '--listen', `127.0.0.1:${this.#ports.get(id)}`, ...peers],
        ...['--data', this.data(id), ...this.#flags],
      ],
      { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...environment } },
    );
    child.stderr?.pipe(createWriteStream(join(this.folder, `${id}.log`), { flags: 'a' }));
    this.#processes.set(id, child);
    return child;
  }

  /** Waits until the named servers (all by default) say that they can serve. */
  async ready(ids: readonly string[] = this.ids): Promise<void> {
    await Promise.all(ids.map((id) => until(`${id} is ready`, () => isOk(`${this.url(id)}/readyz`))));
  }

  /** Ends a server by a signal and waits until it is gone. */
  async kill(id: string, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#processes.get(id);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
  }

  /** Stops a server's process without ending it, or lets it go on. */
  signal(id: string, signal: 'SIGSTOP' | 'SIGCONT'): void {
    process.kill(this.pid(id), signal);
  }

  async status(id: string): Promise<ClusterStatus> {
    return (await json(`${this.url(id)}/v1/status`)) as ClusterStatus;
  }

  async info(id: string, path: string): Promise<FileInfo> {
    return (await json(`${this.url(id)}/v1/info/${path}`)) as FileInfo;
  }

  async createVolume(name: string): Promise<void> {
    const command = { kind: 'volume-create', name, replicas: Math.min(3, this.ids.length), objectBytes: 131_072 };
    const response = await fetch(`${this.urls[0]}/v1/catalog/commands`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ session: Math.floor(Math.random() * 2 ** 50) + 1, number: 1, command }),
    });
    if (!response.ok) throw new Error(`Volume ${name} was not made: ${await response.text()}`);
  }

  async stop(): Promise<void> {
    await Promise.all(
      this.ids.map(async (id) => {
        const child = this.#processes.get(id);
        if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
        child.kill('SIGCONT');
        await this.kill(id);
      }),
    );
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Asks again and again, with a bound, until `holds`; the last failure is named. */
export async function until(what: string, holds: () => Promise<boolean>, limitMs = 30_000): Promise<void> {
  const deadlineMs = performance.now() + limitMs;
  let last: unknown = 'it did not hold';
  while (performance.now() < deadlineMs) {
    try {
      if (await holds()) return;
      last = 'it did not hold';
    } catch (error) {
      last = error;
    }
    await delay(25);
  }
  throw new Error(`Waited ${limitMs} ms in vain until ${what}`, { cause: last });
}

async function isOk(url: string): Promise<boolean> {
  const response = await fetch(url);
  await response.arrayBuffer();
  return response.ok;
}

async function json(url: string): Promise<unknown> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** @returns ports of 127.0.0.1 that nobody listens on just now */
export async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
