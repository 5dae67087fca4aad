import { execFile } from 'node:child_process';
import { systemWorld } from '../../world/system-world.ts';
import { formatDuration } from '../terminal/quantities.ts';

export type RunResult =
  | { readonly kind: 'done'; readonly output: string }
  | { readonly kind: 'missing' }
  | { readonly kind: 'failed'; readonly output: string };

const TIMEOUT_MS = 30_000;

/**
 * Runs a program. `output` is what it printed, errors first. After `timeoutMs` it is killed and has failed. Linux lets
 * no process end in a call that a mount has received and does not answer: that one is left behind.
 */
export function run(
  program: string,
  argv: readonly string[],
  timeoutMs: number = TIMEOUT_MS,
): Promise<RunResult> {
  return new Promise((resolve) => {
    const child = execFile(program, [...argv], (error, stdout, stderr) => {
      limit.cancel();
      if (error === null) resolve({ kind: 'done', output: `${stderr}${stdout}`.trim() });
      else if (error.code === 'ENOENT') resolve({ kind: 'missing' });
      else resolve({ kind: 'failed', output: (stderr || stdout || error.message).trim() });
    });
    const limit = systemWorld.after(timeoutMs, () => {
      child.kill('SIGKILL');
      child.unref();
      child.stdout?.destroy();
      child.stderr?.destroy();
      resolve({ kind: 'failed', output: `it took longer than ${formatDuration(timeoutMs)}` });
    });
  });
}
