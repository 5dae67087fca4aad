import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { run } from '../cluster/cluster-mount.ts';

const LOCK = `
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))
except OSError: print('locked'); sys.exit()
print('free', flush=True)
if sys.argv[4] == 'hold': sys.stdin.read()
`;

/** @returns whether another process or mount has a lock on the byte */
export async function lockedAt(path: string, start: number): Promise<boolean> {
  const { text } = await run('python3', ['-c', LOCK, path, String(start), '1', 'try']);
  return text.trim() === 'locked';
}

/** A lock that a process holds. */
export class HeldLock {
  readonly #holder: ChildProcess;

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
  }

  static async take(path: string, start: number, length: number): Promise<HeldLock> {
    const argv = ['-c', LOCK, path, String(start), String(length), 'hold'];
    const holder = spawn('python3', argv, { stdio: ['pipe', 'pipe', 'inherit'] });
    const [data] = (await once(holder.stdout, 'data')) as [Buffer];
    assert.equal(data.toString().trim(), 'free');
    return new HeldLock(holder);
  }

  async release(): Promise<void> {
    if (this.#holder.exitCode !== null) return;
    this.#holder.stdin?.end();
    await once(this.#holder, 'exit');
  }
}
