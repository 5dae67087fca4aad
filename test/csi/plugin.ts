import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type Client, credentials, type ServiceError, status } from '@grpc/grpc-js';
import { csiServices } from '../../client/csi/grpc-server.ts';
import { LAUNCHER } from '../launcher.ts';

type Call = (
  request: object,
  options: object,
  answer: (error: ServiceError | null, value: unknown) => void,
) => void;
type Method =
  `${'Get' | 'Probe' | 'Create' | 'Delete' | 'List' | 'Validate' | 'Controller' | 'Node'}${string}`;

/** Where a plugin and its launcher have their sockets and state; removed by `remove`. */
export class PluginFolder {
  readonly folder = mkdtempSync(join(tmpdir(), 'leasehold-csi-'));

  path(...names: string[]): string {
    return join(this.folder, ...names);
  }

  endpoint(name: string): string {
    return `unix://${this.path(name)}`;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A process of `leasehold csi`, and clients of all its services. */
export class Plugin {
  readonly child: ChildProcess;
  readonly #clients: readonly Client[];
  readonly #lines: string[];

  private constructor(child: ChildProcess, clients: readonly Client[], lines: string[]) {
    this.child = child;
    this.#clients = clients;
    this.#lines = lines;
  }

  /** @param wrapper words before the command, such as those of unshare(1) */
  static async start(
    folder: PluginFolder,
    argv: readonly string[],
    {
      wrapper = [],
      env = {},
    }: { readonly wrapper?: readonly string[]; readonly env?: NodeJS.ProcessEnv } = {},
  ): Promise<Plugin> {
    const words = [...wrapper, process.execPath, LAUNCHER, 'csi', '--endpoint', folder.endpoint('csi.sock')];
    const { child, lines } = await started([...words, '--state-dir', folder.path('state'), ...argv], env);
    const clients = Object.values(csiServices()).map(
      (Service) => new Service(folder.endpoint('csi.sock'), credentials.createInsecure()),
    );
    return new Plugin(child, clients, lines);
  }

  /** What it has logged so far. */
  get log(): string {
    return this.#lines.join('\n');
  }

  /** Calls a method of any of its services. */
  call<Answer = Readonly<Record<string, unknown>>>(
    method: Method,
    request: object = {},
    options = {},
  ): Promise<Answer> {
    for (const client of this.#clients) {
      const call = (client as unknown as Record<string, Call | undefined>)[method];
      if (call === undefined) continue;
      return new Promise((resolve, reject) => {
        call.call(client, request, options, (error, value) =>
          error === null ? resolve(value as Answer) : reject(error),
        );
      });
    }
    throw new Error(`There is no method ${method}`);
  }

  /** Calls a method, and no longer waits after `ms`. */
  async callFor(ms: number, method: Method, request: object): Promise<void> {
    await this.call(method, request, { deadline: Date.now() + ms }).catch((error: ServiceError) => {
      if (error.code !== status.DEADLINE_EXCEEDED) throw error;
    });
  }

  /** @returns the status code with which a call fails, and its message; `OK` if it does not */
  async codeOf(method: Method, request: object): Promise<string> {
    try {
      await this.call(method, request);
      return 'OK';
    } catch (error) {
      const { code } = error as ServiceError;
      return status[code];
    }
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    for (const client of this.#clients) client.close();
    await ended(this.child, signal);
  }
}

/** A process of `leasehold csi launcher`. */
export async function startLauncherProcess(
  folder: PluginFolder,
  wrapper: readonly string[] = [],
): Promise<ChildProcess> {
  const words = [
    ...wrapper,
    process.execPath,
    LAUNCHER,
    'csi',
    'launcher',
    '--endpoint',
    folder.endpoint('launcher.sock'),
  ];
  return (await started(words, {})).child;
}

export async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill(signal);
  await gone;
}

/** Starts a program, and waits for its first line, which it prints when it serves. */
async function started(
  [program = '', ...argv]: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ readonly child: ChildProcess; readonly lines: string[] }> {
  const child = spawn(program, argv, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  // Not even a failed test leaves it behind.
  process.once('exit', () => child.kill('SIGKILL'));
  child.unref();
  const lines: string[] = [];
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const reader = createInterface({ input: child.stdout });
  reader.on('line', (line) => lines.push(line));
  await Promise.race([
    once(reader, 'line'),
    once(child, 'exit').then(([code]) => {
      throw new Error(`${argv.join(' ')}: exit code ${code}\n${errors}`);
    }),
  ]);
  return { child, lines };
}

/** A capability of a mounted volume. */
export function mounted(mode = 'MULTI_NODE_MULTI_WRITER', ...mountFlags: string[]): object {
  return { mount: { mountFlags }, accessMode: { mode } };
}
