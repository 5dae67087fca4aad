import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { type CliOptions, runCli } from '../client/run-cli.ts';
import { launcherOf } from '../launcher.ts';
import type { RealCluster } from './real-cluster.ts';

const PATIENCE = '120s';

export interface RunResult {
  /** Exit code; null if a signal or the time limit ended it. */
  readonly code: number | null;
  readonly text: string;
  readonly tookMs: number;
}

export interface RunOptions {
  readonly cwd?: string;
  readonly timeoutMs?: number;
  readonly env?: NodeJS.ProcessEnv;
  /** Its input. */
  readonly input?: AsyncIterable<Uint8Array>;
}

/** Runs a program to its end, in a separate process: a mount that hangs must not hang the test. */
export async function run(
  program: string,
  argv: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const beganMs = performance.now();
  const child = spawn(program, [...argv], {
    cwd: options.cwd ?? '/',
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...options.env },
  });
  assert.ok(child.stdout !== null && child.stderr !== null);
  const fed = feed(child.stdin, options.input);
  let text = '';
  const collect = (chunk: Buffer) => {
    if (text.length < 100_000) text += chunk.toString();
  };
  child.stdout.on('data', collect);
  child.stderr.on('data', collect);
  const ended = once(child, 'exit') as Promise<[number | null]>;
  const abort = new AbortController();
  const limit = delay(options.timeoutMs ?? 60_000, 'late' as const, { signal: abort.signal });
  limit.catch(() => undefined);
  const outcome = await Promise.race([ended, limit]);
  abort.abort();
  if (outcome !== 'late') await fed;
  const tookMs = performance.now() - beganMs;
  if (outcome !== 'late') return { code: outcome[0], text, tookMs };
  // Not waited for: a process in an uninterruptible call of the mount would hang the test.
  child.kill('SIGKILL');
  return { code: null, text: `${text}\n(killed after ${Math.round(tookMs)} ms)`, tookMs };
}

/** Resolves when all is written, or the program no longer reads: its exit code says what it made of that. */
async function feed(to: Writable | null, input: AsyncIterable<Uint8Array> | undefined): Promise<void> {
  if (to === null || input === undefined) return;
  try {
    await pipeline(input, to);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EPIPE')) throw error;
  }
}

export async function runOk(
  program: string,
  argv: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const result = await run(program, argv, options);
  if (result.code !== 0) {
    throw new Error(`${program} ${argv.join(' ')}: exit code ${result.code}\n${result.text.slice(-4_000)}`);
  }
  return result;
}

/** Runs a command of `leasehold`, in this process if that makes no difference. */
export async function command(argv: readonly string[], options: CliOptions = {}): Promise<RunResult> {
  const beganMs = performance.now();
  const { code, stdout, stderr } = await runCli(argv, options);
  return { code, text: `${stdout}${stderr}`, tookMs: performance.now() - beganMs };
}

export async function commandOk(argv: readonly string[], options: CliOptions = {}): Promise<RunResult> {
  const result = await command(argv, options);
  if (result.code !== 0) {
    throw new Error(`leasehold ${argv.join(' ')}: exit code ${result.code}\n${result.text.slice(-4_000)}`);
  }
  return result;
}

/**
 * Options of every mount of a run, as after `-o`: `MOUNT_OPTIONS=cache=leases,transport=kernel`. Tests that name an
 * option keep theirs.
 */
const { MOUNT_OPTIONS = '' } = process.env;

/** A volume of a real cluster, mounted as its users would. */
export class ClusterMount {
  readonly directory: string;
  readonly pid: number;
  readonly log: string;

  private constructor(directory: string, pid: number, log: string) {
    this.directory = directory;
    this.pid = pid;
    this.log = log;
  }

  static start(cluster: RealCluster, volume: string, ...flags: string[]): Promise<ClusterMount> {
    return ClusterMount.startIn({}, cluster, volume, ...flags);
  }

  /** @param env added to the environment of the command and of the mount's process */
  static async startIn(
    env: NodeJS.ProcessEnv,
    cluster: RealCluster,
    volume: string,
    ...flags: string[]
  ): Promise<ClusterMount> {
    const directory = mkdtempSync(join(tmpdir(), 'leasehold-volume-'));
    const log = join(cluster.folder, `${basename(directory)}.log`);
    const argv = ['mount', volume, directory, '--servers', cluster.urls.join(','), '--log', log, '--json'];
    // If tests share a machine, a failover may take longer than its bound.
    if (!flags.includes('--op-timeout')) argv.push('--op-timeout', PATIENCE);
    if (MOUNT_OPTIONS !== '') argv.push('-o', MOUNT_OPTIONS);
    try {
      const whole = [...argv, ...flags];
      const isPlain = Object.keys(env).length === 0;
      const { text } = isPlain
        ? await commandOk(whole)
        : await runOk(process.execPath, [launcherOf(env), ...whole], { env });
      const { pid } = JSON.parse(text) as { pid: number };
      return new ClusterMount(directory, pid, log);
    } catch (error) {
      await detach(directory);
      throw error;
    }
  }

  path(...names: string[]): string {
    return join(this.directory, ...names);
  }

  /** Unmounts in order. */
  async unmount(): Promise<RunResult> {
    return commandOk(['umount', this.directory]);
  }

  /** Removes the mount and its folders, whether it works or not. */
  async stop(): Promise<void> {
    try {
      process.kill(this.pid, 'SIGKILL');
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
    await detach(this.directory);
  }
}

async function detach(directory: string): Promise<void> {
  await new Promise<void>((resolve) => {
    // It may already be unmounted.
    execFile('fusermount3', ['-uz', directory], { timeout: 10_000 }, () => resolve());
  });
  rmdirSync(directory);
}
