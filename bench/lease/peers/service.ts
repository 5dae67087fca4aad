import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { killAtEnd, removeAtEnd } from '../cleanup.ts';
import { processCpuMs } from '../cpu.ts';

/** Where Linux keeps files in memory. */
const MEMORY_FOLDER = '/dev/shm';
/** Starts what follows in a way that it ends with us even where we are killed and cannot clean up. Of util-linux. */
const ENDS_WITH_US = existsSync('/usr/bin/setpriv') ? ['/usr/bin/setpriv', '--pdeathsig', 'KILL'] : [];
const START_LIMIT_MS = 60_000;
const RETRY_MS = 100;

/** Several processes of a service that another project has written, with their data in one temporary folder. */
export class Service {
  readonly #processes: ChildProcess[] = [];
  readonly #kills: (() => void)[] = [];
  readonly #remove: () => void;
  /** Gone when the service is stopped. */
  readonly folder: string;
  readonly inMemory: boolean;

  constructor(name: string) {
    this.inMemory = existsSync(MEMORY_FOLDER);
    this.folder = mkdtempSync(join(this.inMemory ? MEMORY_FOLDER : tmpdir(), `leasehold-bench-${name}-`));
    this.#remove = removeAtEnd(this.folder);
  }

  /** Starts one more process; what it says goes to a file in the folder. */
  spawn(command: string, args: readonly string[]): void {
    const output = openSync(join(this.folder, `output-${this.#processes.length + 1}`), 'w');
    const [program = command, ...rest] = [...ENDS_WITH_US, command, ...args];
    const child = spawn(program, rest, { stdio: ['ignore', output, output], cwd: this.folder });
    closeSync(output);
    this.#kills.push(killAtEnd(child));
    this.#processes.push(child);
  }

  /**
   * Tries until it works.
   *
   * @throws Error when it has not for a minute
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

  /** CPU that its processes have used since their start, in milliseconds. */
  cpuMs(): number {
    return processCpuMs(this.#processes);
  }

  stop(): void {
    for (const kill of this.#kills) kill();
    this.#remove();
  }
}
