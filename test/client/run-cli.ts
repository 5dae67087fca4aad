import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { LAUNCHER } from '../launcher.ts';
import { runHere } from './command-here.ts';

export { LAUNCHER };

export interface CliResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly env?: Record<string, string>;
  readonly input?: string | Buffer;
}

/** Commands that start processes, wait for signals, or concern their own process. */
const APART: ReadonlySet<string> = new Set([
  ...[
    'dev',
    'demo',
    'lease',
    'events',
    'top',
    'bench',
    'doctor',
    'mount-daemon',
    'mount-helper',
    'man',
    'completion',
  ],
]);

/** Runs a command: in this process if that makes no difference. */
export async function runCli(argv: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const [command = '', first = ''] = argv;
  const isServer = command === 'server' && !/^[a-z]/.test(first);
  if (isServer || APART.has(command) || argv.includes('--foreground')) return runProcess(argv, options);
  return { signal: null, ...(await runHere(argv, options)) };
}

/**
 * @returns what a command printed
 * @throws {Error} with its code and what it printed if it fails, as `execFile` does
 */
export async function printedBy(argv: readonly string[], options: CliOptions = {}): Promise<string> {
  const { code, stdout, stderr } = await runCli(argv, options);
  if (code === 0) return stdout;
  const error = new Error(`leasehold ${argv.join(' ')}: exit code ${code}\n${stderr}`);
  throw Object.assign(error, { code, stdout, stderr });
}

/** Asserts that a command fails with an exit code, and says why. */
export async function assertRefused(
  argv: readonly string[],
  exit: number,
  why: RegExp,
  options: CliOptions = {},
): Promise<void> {
  const { code, stderr } = await runCli(argv, options);
  assert.match(stderr, why, argv.join(' '));
  assert.equal(code, exit, `${argv.join(' ')}: ${stderr}`);
}

/** Runs the command line as a user does, in a separate process. */
export async function runProcess(argv: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const child = spawn(process.execPath, [LAUNCHER, ...argv], { env: { ...process.env, ...options.env } });
  child.stdin.on('error', () => {
    // It ended without reading all its input: the exit code says so.
  });
  child.stdin.end(options.input ?? '');
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}
