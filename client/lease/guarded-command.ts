import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import {
  GUARD_FD,
  type GuardDeadline,
  type GuardOrder,
  GuardReader,
  type GuardReport,
  guardText,
} from './guard-messages.ts';
import { type LeaseMoment, leaseMomentAfter } from './lease-clock.ts';

const GUARD = fileURLToPath(new URL('guard.ts', import.meta.url));

/** How long before the end of the lease the command is asked to end, and killed: parts of the lease. */
const STOP_SHARE = 0.25;
const KILL_SHARE = 0.1;
const KILL_MS_MIN = 100;

export type CommandEnd =
  | Extract<GuardReport, { readonly kind: 'ended' | 'failed' }>
  /** The guard itself was killed; so is the command. */
  | { readonly kind: 'unguarded' };

/** How long before the end of a lease its command is asked to end, in milliseconds. */
export function stopMarginMs(ttlMs: number): number {
  return Math.max(2 * KILL_MS_MIN, ttlMs * STOP_SHARE);
}

/** A command that runs under a lease, in the care of a process of its own. */
export class GuardedCommand {
  readonly #ttlMs: number;
  readonly #guard: ChildProcess;
  readonly #socket: Socket;
  /** Resolves when nothing of the command runs any more. */
  readonly ended: Promise<CommandEnd>;
  #pid: number | null = null;

  /** @param end of the lease; the command is started only if there is time left */
  constructor(argv: readonly string[], env: NodeJS.ProcessEnv, ttlMs: number, end: LeaseMoment) {
    this.#ttlMs = ttlMs;
    const stdio = ['inherit', 'inherit', 'inherit', 'pipe'] as const;
    // A session of its own: Ctrl-C and Ctrl-Z are for the keeper of the lease.
    this.#guard = spawn(process.execPath, [GUARD], { detached: true, stdio: [...stdio], env });
    this.#socket = this.#guard.stdio[GUARD_FD] as Socket;
    // A guard that is gone is noticed by its exit.
    this.#socket.on('error', () => this.#socket.destroy());
    this.ended = this.#wait();
    const [command = '', ...args] = argv;
    this.#order({ kind: 'run', command, args, deadline: this.#deadline(end) });
  }

  /** The lease was refreshed. */
  extend(end: LeaseMoment): void {
    this.#order({ kind: 'extend', deadline: this.#deadline(end) });
  }

  signal(signal: NodeJS.Signals): void {
    this.#order({ kind: 'signal', signal });
  }

  #deadline(end: LeaseMoment): GuardDeadline {
    return {
      stop: leaseMomentAfter(end, -stopMarginMs(this.#ttlMs)),
      kill: leaseMomentAfter(end, -Math.max(KILL_MS_MIN, this.#ttlMs * KILL_SHARE)),
    };
  }

  #order(order: GuardOrder): void {
    if (this.#socket.writable) this.#socket.write(guardText(order));
  }

  #wait(): Promise<CommandEnd> {
    const { promise, resolve, reject } = Promise.withResolvers<CommandEnd>();
    const reader = new GuardReader<GuardReport>();
    let last: CommandEnd | null = null;
    this.#socket.setEncoding('utf8').on('data', (text: string) => {
      for (const report of reader.push(text)) {
        if (report.kind === 'started') this.#pid = report.pid;
        else last = report;
      }
    });
    this.#guard.on('error', reject);
    this.#guard.on('close', () => {
      if (last === null) this.#killCommand();
      resolve(last ?? { kind: 'unguarded' });
    });
    return promise;
  }

  #killCommand(): void {
    if (this.#pid === null) return;
    try {
      process.kill(-this.#pid, 'SIGKILL');
    } catch (error) {
      // It was gone already.
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}

/** @returns the exit code that a shell would give for this end of a command */
export function exitCodeOf(end: Extract<CommandEnd, { readonly kind: 'ended' | 'failed' }>): number {
  if (end.kind === 'failed') return end.code === 'ENOENT' ? 127 : 126;
  return end.signal === null ? (end.code ?? 1) : 128 + constants.signals[end.signal];
}
