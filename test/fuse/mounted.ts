import { type ChildProcess, execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, readFile, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { kernelTransportObstacle } from '../../fuse/kernel/kernel-mount.ts';
import type { TransportName } from '../../fuse/transports.ts';
import { onlyLong } from '../long.ts';
import type { Disturbance } from './memory-backend.ts';
import type { DaemonOptions, Order, Report } from './memory-daemon.ts';

const run = promisify(execFile);
const DAEMON = fileURLToPath(new URL('memory-daemon.ts', import.meta.url));

/** The reason why no mount is possible on this machine, or false. */
export const noMount: string | false = await findObstacle();

async function findObstacle(): Promise<string | false> {
  try {
    await access('/dev/fuse', constants.R_OK | constants.W_OK);
  } catch (error) {
    return missing(error, '/dev/fuse is absent or not accessible');
  }
  try {
    await run('fusermount3', ['--version']);
  } catch (error) {
    return missing(error, 'fusermount3 is not installed (Debian package fuse3)');
  }
  return false;
}

/** Throws errors that are not a reason to skip a test. */
function missing(error: unknown, obstacle: string): string {
  const { code } = error as NodeJS.ErrnoException;
  if (!['ENOENT', 'EACCES', 'EPERM', 'ENODEV'].includes(code ?? '')) throw error;
  return obstacle;
}

/** Each way to the kernel, and the reason why it is not possible on this machine, or false. */
const transports: readonly { readonly transport: TransportName; readonly skip: string | false }[] = [
  { transport: 'native', skip: noMount },
  { transport: 'kernel', skip: kernelTransportObstacle() ?? false },
];

/** Enough for a slow machine; a test that hangs is killed. */
const TEST_TIMEOUT_MS = 600_000;
const SHELL_TIMEOUT_MS = 300_000;

/**
 * Runs one test over each way to the kernel: programs see the same.
 *
 * @param kernelShownBy a test that checks the same over the transport `kernel` in `npm test`
 */
export function overTransports(
  name: string,
  run: (start: (limitMs?: number) => Promise<TestMount>, test: TestContext) => Promise<void>,
  kernelShownBy?: string,
  more: Pick<DaemonOptions, 'nested'> = {},
): void {
  for (const { transport, skip: obstacle } of transports) {
    const isShown = transport === 'kernel' && kernelShownBy !== undefined;
    const skip = isShown ? obstacle || onlyLong(kernelShownBy) : obstacle;
    test(`${name} (${transport})`, { skip, timeout: TEST_TIMEOUT_MS }, (context) =>
      run((limitMs) => TestMount.start(context, limitMs, transport, more), context),
    );
  }
}

export interface ShellResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number;
}

/** A mount of a volume in memory, in a process of its own. */
export class TestMount {
  readonly directory: string;
  #daemon: ChildProcess;

  constructor(directory: string, daemon: ChildProcess) {
    this.directory = directory;
    this.#daemon = daemon;
  }

  /** The mount ends with the test, whatever its outcome. */
  static async start(
    test: TestContext,
    limitMs = 20_000,
    transport: TransportName = 'auto',
    more: Pick<DaemonOptions, 'ageMaxMs' | 'flushBehind' | 'nested'> = {},
  ): Promise<TestMount> {
    // In a directory of its own: a program that lists its parent must not wait for another test's mount.
    const directory = join(await mkdtemp(join(tmpdir(), 'leasehold-mount-')), 'mount');
    await mkdir(directory);
    const mount = new TestMount(directory, spawnDaemon(directory, { limitMs, transport, ...more }));
    test.after(() => mount.#remove());
    await mount.#ready();
    return mount;
  }

  /** Starts it again after its end, at the same directory with a new volume. */
  async restart(limitMs: number, transport: TransportName): Promise<void> {
    this.#daemon = spawnDaemon(this.directory, { limitMs, transport });
    await this.#ready();
  }

  async #ready(): Promise<void> {
    const ready = this.#daemon.stdio[3] as Readable;
    // The process closes the pipe when it ends.
    const [line = ''] = (await Promise.race([once(ready, 'data'), once(ready, 'close')])) as [Buffer?];
    if (line === '') throw new Error('The process of the mount has ended');
    const said = JSON.parse(String(line)) as { ready?: boolean };
    if (said.ready !== true) throw new Error(`The mount does not start: ${line}`);
  }

  path(...names: string[]): string {
    return join(this.directory, ...names);
  }

  get daemonPid(): number {
    const { pid } = this.#daemon;
    if (pid === undefined) throw new Error('The daemon has no pid');
    return pid;
  }

  /** Runs a shell script in the mount; `code` is its exit code. */
  async shell(script: string, timeoutMs = SHELL_TIMEOUT_MS): Promise<ShellResult> {
    // The shell changes into the mount: a chdir of this process would be a synchronous call.
    const child = execFile('sh', ['-c', `cd "$0" && ${script}`, this.directory], { timeout: timeoutMs });
    const collect = async (stream: Readable | null): Promise<string> => {
      let text = '';
      for await (const chunk of stream ?? []) text += chunk;
      return text;
    };
    const [stdout, stderr, [code]] = await Promise.all([
      collect(child.stdout),
      collect(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
    ]);
    return { stdout, stderr, code: code ?? -1 };
  }

  async disturb(disturbance: Disturbance): Promise<void> {
    await this.#order({ kind: 'disturb', disturbance });
  }

  async writeFromElsewhere(name: string, text: string): Promise<void> {
    await this.#order({ kind: 'write-from-elsewhere', name, text });
  }

  async replaceFromElsewhere(name: string, text: string): Promise<void> {
    await this.#order({ kind: 'replace-from-elsewhere', name, text });
  }

  async renameFromElsewhere(name: string, to: string): Promise<void> {
    await this.#order({ kind: 'rename-from-elsewhere', name, to });
  }

  report(): Promise<Report> {
    return this.#order({ kind: 'report' });
  }

  /** @returns the report that the process sends when it ends */
  async lastReport(): Promise<Report> {
    return ((await once(this.#daemon, 'message')) as [Report])[0];
  }

  /** Ends the process without an unmount. */
  crash(exitCode: number): void {
    this.#daemon.send({ kind: 'crash', exitCode } satisfies Order);
  }

  signal(signal: NodeJS.Signals): void {
    this.#daemon.kill(signal);
  }

  /** @returns the exit code of the process */
  async exited(): Promise<number | null> {
    if (this.#daemon.exitCode === null && this.#daemon.signalCode === null) await once(this.#daemon, 'exit');
    return this.#daemon.exitCode;
  }

  async isMounted(): Promise<boolean> {
    return (await readFile('/proc/self/mountinfo', 'utf8')).includes(` ${this.directory} `);
  }

  async #order(order: Order): Promise<Report> {
    const answered = once(this.#daemon, 'message') as Promise<[Report]>;
    this.#daemon.send(order);
    return (await answered)[0];
  }

  async #remove(): Promise<void> {
    if (this.#daemon.exitCode === null && this.#daemon.signalCode === null) {
      this.#daemon.kill('SIGKILL');
      await once(this.#daemon, 'exit');
    }
    // The kernel may still have the mount, or none.
    await run('fusermount3', ['-uz', this.directory]).catch(() => undefined);
    await rmdir(this.directory);
    await rmdir(dirname(this.directory));
  }
}

/** Its arguments mark it as the process of a mount, as those of a mount of a cluster do. */
function spawnDaemon(directory: string, options: DaemonOptions): ChildProcess {
  return fork(DAEMON, ['mount-daemon', JSON.stringify(options), directory], {
    // Without those of the test runner, which would have the process run tests.
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'pipe', 'ipc'],
  });
}
