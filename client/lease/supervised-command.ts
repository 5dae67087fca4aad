import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Timer, World } from '../../base/world.ts';
import { isSystemError } from '../terminal/failure.ts';
import {
  type LeaseMoment,
  leaseMomentAfter,
  leaseMomentEarlier,
  leaseMomentNow,
  leaseRemainingMs,
} from './lease-clock.ts';
import {
  SUPERVISOR_FD,
  type SupervisorDeadline,
  type SupervisorOrder,
  SupervisorReader,
  type SupervisorReport,
  supervisorText,
} from './supervisor-messages.ts';

/** With the extension of this file, TypeScript or JavaScript. */
const SUPERVISOR = fileURLToPath(new URL(`supervisor${extname(import.meta.url)}`, import.meta.url));

/** How long before the end of the lease the command is asked to end, and killed: shares of the lease. */
const STOP_SHARE = 0.25;
const KILL_SHARE = 0.1;
const KILL_MS_MIN = 100;
/** A supervisor that is later by this share of the time between its kill and the end of the lease is replaced. */
const SUPERVISOR_LATE_SHARE = 0.5;
const CHECK_MS_MAX = 1_000;

export type CommandEnd =
  | Extract<SupervisorReport, { readonly kind: 'ended' | 'failed' }>
  /** The supervisor was killed early. `killed`: the command, too; false if its pid was not yet reported. */
  | { readonly kind: 'unsupervised'; readonly killed: boolean };

/** How long before the end of a lease its command is asked to end, in milliseconds. */
export function stopMarginMs(ttlMs: number): number {
  return Math.max(2 * KILL_MS_MIN, ttlMs * STOP_SHARE);
}

function killMarginMs(ttlMs: number): number {
  return Math.max(KILL_MS_MIN, ttlMs * KILL_SHARE);
}

/** A command under a lease, supervised by a process of its own. This process replaces a supervisor that is stopped. */
export class SupervisedCommand {
  readonly #world: World;
  readonly #ttlMs: number;
  readonly #supervisor: ChildProcess;
  readonly #socket: Socket;
  /** Resolves when nothing of the command runs any more, as far as can be known. */
  readonly ended: Promise<CommandEnd>;
  #commandPid: number | null = null;
  #lastReport: CommandEnd | null = null;
  #killAt: LeaseMoment;
  #stopping = false;
  #timer: Timer | null = null;

  constructor(
    world: World,
    argv: readonly string[],
    env: NodeJS.ProcessEnv,
    ttlMs: number,
    end: LeaseMoment,
  ) {
    this.#world = world;
    this.#ttlMs = ttlMs;
    const deadline = this.#deadline(end);
    this.#killAt = deadline.kill;
    const stdio = ['inherit', 'inherit', 'inherit', 'pipe'] as const;
    // A session of its own: Ctrl-C and Ctrl-Z are for the keeper of the lease.
    this.#supervisor = spawn(process.execPath, [SUPERVISOR], { detached: true, stdio: [...stdio], env });
    this.#socket = this.#supervisor.stdio[SUPERVISOR_FD] as Socket;
    this.#socket.on('error', () => this.#socket.destroy());
    this.ended = this.#waitForEnd();
    const [command = '', ...args] = argv;
    this.#send({ kind: 'run', command, args, deadline });
    this.#arm();
  }

  extend(end: LeaseMoment): void {
    if (this.#stopping) return;
    const deadline = this.#deadline(end);
    this.#killAt = deadline.kill;
    this.#send({ kind: 'extend', deadline });
    this.#arm();
  }

  /** The lease is lost: kills the command after `graceMs`, or at the lease's own deadline if that is earlier. */
  stop(graceMs: number): void {
    this.#stopping = true;
    this.#killAt = leaseMomentEarlier(
      this.#world,
      this.#killAt,
      leaseMomentAfter(leaseMomentNow(this.#world), graceMs),
    );
    this.#send({ kind: 'stop', kill: this.#killAt });
    this.#arm();
  }

  signal(signal: NodeJS.Signals): void {
    this.#send({ kind: 'signal', signal });
  }

  #deadline(end: LeaseMoment): SupervisorDeadline {
    return {
      stop: leaseMomentAfter(end, -stopMarginMs(this.#ttlMs)),
      kill: leaseMomentAfter(end, -killMarginMs(this.#ttlMs)),
    };
  }

  #send(order: SupervisorOrder): void {
    // A write to a dead supervisor would also end the reading of its last report, so that is read first, in a process
    // that was stopped meanwhile.
    this.#world.soon(() => {
      if (this.#lastReport === null && this.#socket.writable) this.#socket.write(supervisorText(order));
    });
  }

  #waitForEnd(): Promise<CommandEnd> {
    const { promise, resolve, reject } = Promise.withResolvers<CommandEnd>();
    const reader = new SupervisorReader<SupervisorReport>();
    this.#socket.setEncoding('utf8').on('data', (text: string) => {
      for (const report of reader.push(text)) {
        if (report.kind !== 'started') this.#lastReport = report;
        else {
          this.#commandPid = report.pid;
          this.#arm();
        }
      }
    });
    this.#supervisor.on('error', reject);
    this.#supervisor.on('close', () => {
      this.#timer?.cancel();
      if (this.#lastReport === null) this.#killCommand();
      resolve(this.#lastReport ?? this.#endWithoutReport());
    });
    return promise;
  }

  /**
   * @returns what is known of a command whose supervisor ended without a last report. After the deadline that has
   * killed it. This process, the keeper, lost the report if it was stopped and then wrote to the other's closed socket.
   */
  #endWithoutReport(): CommandEnd {
    if (this.#commandPid === null || leaseRemainingMs(this.#world, this.#killAt) > 0)
      return { kind: 'unsupervised', killed: this.#commandPid !== null };
    return { kind: 'ended', code: null, signal: 'SIGKILL', expired: true };
  }

  get commandPid(): number | null {
    return this.#commandPid;
  }

  #arm(): void {
    this.#timer?.cancel();
    if (this.#supervisor.exitCode !== null || this.#supervisor.signalCode !== null) return;
    const leftMs = this.#supervisorLeftMs();
    // One tick later: reports that arrived while this process was stopped are read first.
    this.#timer =
      leftMs > 0
        ? this.#world.after(Math.min(leftMs, CHECK_MS_MAX), () => this.#arm())
        : this.#world.after(0, () => void this.#world.soon(() => this.#replaceSupervisor()));
  }

  /** How long the supervisor may still take to kill the command, in milliseconds. */
  #supervisorLeftMs(): number {
    return leaseRemainingMs(
      this.#world,
      leaseMomentAfter(this.#killAt, killMarginMs(this.#ttlMs) * SUPERVISOR_LATE_SHARE),
    );
  }

  /** Kills the command in place of a supervisor that is stopped or late. */
  #replaceSupervisor(): void {
    if (this.#lastReport !== null || this.#supervisorLeftMs() > 0) return;
    // The supervisor may have been stopped before it could report its command. Without a child it will start none.
    const pid = this.#commandPid ?? childOf(this.#supervisor.pid);
    if (pid === undefined) return;
    this.#commandPid = pid;
    this.#killCommand();
    this.#lastReport = { kind: 'ended', code: null, signal: pid === null ? null : 'SIGKILL', expired: true };
    this.#supervisor.kill('SIGKILL');
  }

  #killCommand(): void {
    if (this.#commandPid === null) return;
    try {
      process.kill(-this.#commandPid, 'SIGKILL');
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}

/** @returns a child of the process; null if there is none, undefined if the process has just ended */
function childOf(parent: number | undefined): number | null | undefined {
  try {
    const threads = readdirSync(`/proc/${parent}/task`);
    const children = threads.map((thread) => readFileSync(`/proc/${parent}/task/${thread}/children`, 'utf8'));
    const [first = ''] = children.join(' ').trim().split(/\s+/);
    return first === '' ? null : Number(first);
  } catch (error) {
    if (isSystemError(error) && (error.code === 'ENOENT' || error.code === 'ESRCH')) return undefined;
    throw error;
  }
}

/** @returns the exit code that a shell would give for this end of a command */
export function exitCodeOf(end: Extract<CommandEnd, { readonly kind: 'ended' | 'failed' }>): number {
  if (end.kind === 'failed') return end.code === 'ENOENT' ? 127 : 126;
  return end.signal === null ? (end.code ?? 1) : 128 + constants.signals[end.signal];
}
