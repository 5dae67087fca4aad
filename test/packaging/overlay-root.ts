import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const NAMESPACES = ['--mount', '--pid', '--fork', '--kill-child'];

/** Makes a root folder in a mount namespace: this machine's below, changes in memory; then waits until it is killed. */
const SETUP = `
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/run"
echo ready
exec sleep infinity
`;

/** @returns why this machine cannot have one; null if it can */
export function overlayObstacle(): string | null {
  if (process.getuid?.() !== 0) return 'only root installs packages';
  const script = `${SETUP.replace('exec sleep infinity', '')}`;
  try {
    execFileSync('unshare', [...NAMESPACES, 'sh', '-c', script, 'sh', tmpdir()], { stdio: 'pipe' });
    return null;
  } catch (error) {
    return `no overlay of the root folder: ${error instanceof Error ? error.message : String(error)}`;
  }
}

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** This machine's files in a namespace: what is installed or changed there ends with it, and so do its processes. */
export class OverlayRoot {
  readonly #folder: string;
  readonly #holder: ChildProcess;
  readonly #child: number;

  private constructor(folder: string, holder: ChildProcess, child: number) {
    this.#folder = folder;
    this.#holder = holder;
    this.#child = child;
  }

  static async create(): Promise<OverlayRoot> {
    const folder = await mkdtemp(join(tmpdir(), 'leasehold-root-'));
    const words = [...NAMESPACES, 'sh', '-c', SETUP, 'sh', folder];
    const holder = spawn('unshare', words, { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(holder, 'exit').then(([code]) => {
      throw new Error(`The root folder could not be made: exit code ${code}`);
    });
    if (holder.stdout === null) throw new Error('unreachable');
    await Promise.race([once(holder.stdout, 'data'), ended]);
    ended.catch(() => undefined); // It ends at the end.
    const children = execFileSync('pgrep', ['-P', `${holder.pid}`], { encoding: 'utf8' });
    return new OverlayRoot(folder, holder, Number(children.trim()));
  }

  /** Runs a program there; the caller checks its exit code. */
  async try(command: string, ...argv: readonly string[]): Promise<Ended> {
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    return run('nsenter', this.#words(command, argv), { env, timeout: 240_000 }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      (error: Ended) => error,
    );
  }

  /** @returns what it printed @throws Error if it fails */
  async run(command: string, ...argv: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await this.try(command, ...argv);
    if (code !== 0) throw new Error(`${command} ${argv.join(' ')}: exit code ${code}\n${stdout}${stderr}`);
    return `${stdout}${stderr}`;
  }

  /** Starts a program there, which ends with the root folder at the latest. */
  start(command: string, ...argv: readonly string[]): ChildProcess {
    return spawn('nsenter', this.#words(command, argv), { stdio: ['ignore', 'ignore', 'pipe'] });
  }

  async remove(): Promise<void> {
    const gone = once(this.#holder, 'exit');
    this.#holder.kill('SIGKILL');
    await gone;
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 3 });
  }

  #words(command: string, argv: readonly string[]): string[] {
    const root = join(this.#folder, 'root');
    return ['--target', `${this.#child}`, '--mount', '--pid', 'chroot', root, command, ...argv];
  }
}
