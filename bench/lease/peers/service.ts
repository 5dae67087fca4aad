import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { killAtEnd, removeAtEnd } from '../cleanup.ts';
import { processCpuMs } from '../cpu.ts';

/** The folder of files in memory on Linux. */
const MEMORY_FOLDER = '/dev/shm';
/** A command of util-linux that kills the process after it when this process dies, even if this process is killed. */
const ENDS_WITH_US = existsSync('/usr/bin/setpriv') ? ['/usr/bin/setpriv', '--pdeathsig', 'KILL'] : [];
const START_LIMIT_MS = 60_000;
const RETRY_MS = 100;

/** Several processes of another project's service, with their data in one temporary folder. */
export class Service {
  readonly #processes: ChildProcess[] = [];
  readonly #kills: (() => void)[] = [];
  readonly #remove: () => void;
  /** Removed when the service is stopped. */
  readonly folder: string;
  readonly inMemory: boolean;

  constructor(name: string) {
    this.inMemory = existsSync(MEMORY_FOLDER);
    this.folder = mkdtempSync(join(this.inMemory ? MEMORY_FOLDER : tmpdir(), `leasehold-bench-${name}-`));
    this.#remove = removeAtEnd(this.folder);
  }

  /** Starts a further process; its output goes to a file in the folder. */
  spawn(command: string, args: readonly string[]): void {
    const output = openSync(join(this.folder, `output-${this.#processes.length + 1}`), 'w');
    const [program = command, ...rest] = [...ENDS_WITH_US, command, ...args];
    const child = spawn(program, rest, { stdio: ['ignore', output, output], cwd: this.folder });
    closeSync(output);
    this.#kills.push(killAtEnd(child));
    this.#processes.push(child);
  }

  /**
   * Repeats `attempt` until it succeeds.
   *
   * @throws Error if it has not for a minute
   */
  async ready<Result>(attempt: () => Promise<Result>): Promise<Result> {
    const untilMs = performance.now() + START_LIMIT_MS;
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (performance.now() > untilMs) throw new Error('The service did not start', { cause: error });
        await delay(RETRY_MS);
      }
    }
  }

  /** @returns CPU that its processes have used since their start, in milliseconds */
  cpuMs(): number {
    return processCpuMs(this.#processes);
  }

  stop(): void {
    for (const kill of this.#kills) kill();
    this.#remove();
  }
}
