import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
export const DOCKERFILE = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
const HEALTH_POLL_MS = 100;

export interface Service {
  readonly command: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly volumes?: readonly (string | { readonly target: string })[];
  readonly network_mode?: string;
  readonly user?: string;
}

export interface ComposeFile {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, null>>;
}

export function readCompose(): ComposeFile {
  return parse(readFileSync(join(ROOT, 'docker-compose.yml'), 'utf8'), { merge: true }) as ComposeFile;
}

/** `ENV` of the image, which a container has besides its own. */
export const IMAGE_ENV: Readonly<Record<string, string>> = Object.fromEntries(
  [...DOCKERFILE.matchAll(/\b(LEASEHOLD_[A-Z_]+)=(\S+)/g)].map(([, name = '', value = '']) => [name, value]),
);

/** @returns the arguments of ENTRYPOINT or of HEALTHCHECK's CMD */
export function imageWords(pattern: RegExp): string[] {
  return JSON.parse(pattern.exec(DOCKERFILE)?.[1] ?? '[]') as string[];
}

const ENTRYPOINT = imageWords(/^ENTRYPOINT (.+)$/m);
const HEALTH = imageWords(/^HEALTHCHECK [^\n]*\\\n\s*CMD (.+)$/m);

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * docker-compose.yml without containers: each service is a process with the arguments, the environment and the folders
 * of the file and the image. A port replaces a container's network, folders replace its volumes.
 */
export class PlayedCompose {
  readonly file = readCompose();
  readonly folder = mkdtempSync(join(tmpdir(), 'leasehold-compose-'));
  readonly processes = new Map<string, ChildProcess>();
  readonly #ports: ReadonlyMap<string, number>;
  readonly #roots = new Map<string, string>();

  /** @param ports one for each service that listens */
  constructor(ports: ReadonlyMap<string, number>) {
    this.#ports = ports;
  }

  /** Starts a service and all that it waits for, as `up` does. */
  async up(name: string): Promise<void> {
    for (const [other, { condition }] of Object.entries(this.service(name).depends_on ?? {})) {
      if (!this.processes.has(other)) await this.up(other);
      if (condition === 'service_completed_successfully') await this.#completed(other);
      else await this.#healthy(other);
    }
    const words = [...ENTRYPOINT, ...this.service(name).command];
    // It ends with the process that plays it, whatever ends that.
    this.processes.set(name, this.#execute(name, words, { LEASEHOLD_STOP_WITH_STDIN: '1' }));
  }

  /** Runs a command in a container of a service, as `run --rm` does. */
  async run(name: string, words: readonly string[], input = ''): Promise<Ended> {
    const child = this.#execute(name, [...ENTRYPOINT, ...words], {});
    child.stdin?.end(input);
    const text = { stdout: '', stderr: '' };
    child.stdout?.on('data', (chunk: Buffer) => {
      text.stdout += chunk.toString();
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      text.stderr += chunk.toString();
    });
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, ...text };
  }

  async kill(name: string): Promise<void> {
    const child = this.processes.get(name);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** Where a path of a container of this service is. */
  path(name: string, inside: string): string {
    return join(this.#root(name), inside);
  }

  async stop(): Promise<void> {
    for (const name of this.processes.keys()) await this.kill(name);
    rmSync(this.folder, { recursive: true, force: true });
  }

  service(name: string): Service {
    const service = this.file.services[name];
    if (service === undefined) throw new Error(`There is no service ${name}`);
    return service;
  }

  environment(name: string): Record<string, string> {
    const given = { ...IMAGE_ENV, ...this.service(name).environment };
    return Object.fromEntries(Object.entries(given).map(([key, value]) => [key, this.#here(name, value)]));
  }

  /** A folder with the volumes of a service in their places: its file system. */
  #root(name: string): string {
    const known = this.#roots.get(name);
    if (known !== undefined) return known;
    const root = join(this.folder, 'containers', name);
    mkdirSync(root, { recursive: true });
    for (const volume of this.service(name).volumes ?? []) {
      if (typeof volume !== 'string') throw new Error(`${name} mounts a folder of the machine`);
      const [source = '', target = ''] = volume.split(':');
      const kept = join(this.folder, 'volumes', source);
      mkdirSync(kept, { recursive: true });
      mkdirSync(dirname(join(root, target)), { recursive: true });
      symlinkSync(kept, join(root, target));
    }
    this.#roots.set(name, root);
    return root;
  }

  /** An argument or a value as it has to be outside of a container. */
  #here(name: string, text: string): string {
    const service = this.#ports.get(name);
    return text
      .replaceAll(/\b(s\d+):7401\b/g, (_, server: string) => `127.0.0.1:${this.#ports.get(server)}`)
      .replace(/^0\.0\.0\.0:7401$/, `0.0.0.0:${service}`)
      .replace(/^\/(data|credentials)(?=\/|$)/, (path) => this.path(name, path))
      .replace(/^\/opt\/leasehold\//, ROOT);
  }

  #execute(name: string, [program, ...words]: readonly string[], besides: NodeJS.ProcessEnv): ChildProcess {
    return spawn(
      program === 'node' ? process.execPath : (program ?? ''),
      words.map((word) => this.#here(name, word)),
      {
        cwd: ROOT,
        env: { PATH: process.env.PATH, ...this.environment(name), ...besides },
        stdio: ['pipe', 'pipe', 'pipe'],
      },
    );
  }

  async #completed(name: string): Promise<void> {
    const child = this.processes.get(name) as ChildProcess;
    if (child.exitCode === null) await once(child, 'exit');
    if (child.exitCode !== 0) throw new Error(`${name} ended with ${child.exitCode}`);
  }

  /** Queries as often as the container's health check, and more often. */
  async #healthy(name: string): Promise<void> {
    for (;;) {
      const check = this.#execute(name, HEALTH, {});
      const [code] = (await once(check, 'exit')) as [number | null];
      if (code === 0) return;
      const server = this.processes.get(name) as ChildProcess;
      if (server.exitCode !== null) throw new Error(`${name} ended with ${server.exitCode}`);
      await delay(HEALTH_POLL_MS);
    }
  }
}
