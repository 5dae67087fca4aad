import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { killAtEnd } from '../lease/cleanup.ts';

const CALLS = ['fdatasync', 'fsync', 'syncfs', 'sync_file_range', 'msync'];
const ATTACH_MS_MAX = 5_000;
const ATTACH_LOOK_MS = 20;

interface Tracer {
  readonly pid: number;
  readonly process: ChildProcess;
  readonly text: Promise<string>;
  readonly kill: () => void;
}

/** Counts the calls by which processes make data durable. They run slower meanwhile. */
export class SyncCounter {
  readonly #tracers: readonly Tracer[];

  private constructor(tracers: readonly Tracer[]) {
    this.#tracers = tracers;
  }

  /** @returns why counting is not possible on this machine, or null */
  static obstacle(): string | null {
    if (process.platform !== 'linux') return 'syncs are counted on Linux alone';
    return spawnSync('strace', ['-V']).error === undefined
      ? null
      : 'there is no "strace" to count syncs with';
  }

  /** @returns once all threads of the processes are traced */
  static async attach(pids: readonly number[]): Promise<SyncCounter> {
    const tracers = pids.map((pid): Tracer => {
      const args = [
        '-f',
        '-qq',
        '-c',
        '-U',
        'name,calls',
        '-e',
        `trace=${CALLS.join(',')}`,
        '-p',
        String(pid),
      ];
      const child = spawn('strace', args, { stdio: ['ignore', 'ignore', 'pipe'] });
      return { pid, process: child, text: textOf(child), kill: killAtEnd(child) };
    });
    const counter = new SyncCounter(tracers);
    const deadlineMs = performance.now() + ATTACH_MS_MAX;
    for (const { pid, process: child } of tracers) {
      // strace attaches to the process: only /proc shows when it has.
      while (!isTraced(pid)) {
        if (child.exitCode !== null || performance.now() > deadlineMs) {
          await counter.detach();
          throw new Error(`strace cannot watch process ${pid}`);
        }
        await delay(ATTACH_LOOK_MS);
      }
    }
    return counter;
  }

  /** Detaches from the processes. @returns the number of calls of all of them */
  async detach(): Promise<number> {
    const texts = this.#tracers.map(async ({ process: child, text, kill }) => {
      child.kill('SIGINT');
      const said = await text;
      kill();
      return said;
    });
    return (await Promise.all(texts)).reduce((sum, text) => sum + syncCallsOf(text), 0);
  }
}

/** @param text the summary of `strace -c -U name,calls` @returns the number of calls of all kinds */
export function syncCallsOf(text: string): number {
  let calls = 0;
  for (const line of text.split('\n')) {
    const [name, count] = line.trim().split(/\s+/);
    if (name !== undefined && CALLS.includes(name)) calls += Number(count);
  }
  return calls;
}

async function textOf(child: ChildProcess): Promise<string> {
  let text = '';
  child.stderr?.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  await once(child, 'close');
  return text;
}

function isTraced(pid: number): boolean {
  const tracer = /^TracerPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return tracer !== undefined && tracer !== '0';
}
