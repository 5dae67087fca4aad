import { spawn } from 'node:child_process';
import { LAUNCHER } from '../launcher.ts';

export { LAUNCHER };

export interface CliResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command line as a user does, in a process of its own. */
export async function runCli(
  argv: readonly string[],
  options: { readonly env?: Record<string, string>; readonly input?: string | Buffer } = {},
): Promise<CliResult> {
  const child = spawn(process.execPath, [LAUNCHER, ...argv], { env: { ...process.env, ...options.env } });
  child.stdin.on('error', () => {
    // It ended without reading all: the exit code tells.
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
