import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Timer, World } from '../../base/world.ts';
import { isSystemError } from '../failure.ts';
import {
  GUARD_FD,
  type GuardDeadline,
  type GuardOrder,
  GuardReader,
  type GuardReport,
  guardText,
} from './guard-messages.ts';
import {
  type LeaseMoment,
  leaseLeftMs,
  leaseMomentAfter,
  leaseMomentEarlier,
  leaseMomentNow,
} from './lease-clock.ts';

/** TypeScript as this file is, or JavaScript. */
const GUARD = fileURLToPath(new URL(`guard${extname(import.meta.url)}`, import.meta.url));

/** How long before the end of the lease the command is asked to end, and killed: parts of the lease. */
const STOP_SHARE = 0.25;
const KILL_SHARE = 0.1;
const KILL_MS_MIN = 100;
/** A guard that is late by this part of the time between its kill and the end of the lease is not waited for. */
const GUARD_LATE_SHARE = 0.5;
/** The clocks are looked at this often at the least: they may have gone on while the machine slept. */
const LOOK_MS_MAX = 1_000;

export type CommandEnd =
  | Extract<GuardReport, { readonly kind: 'ended' | 'failed' }>
  /**
   * The guard itself was killed, and with it the command, unless the guard had no time to tell whom it guards: then the
   * command may go on.
   */
  | { readonly kind: 'unguarded'; readonly killed: boolean };

/** How long before the end of a lease its command is asked to end, in milliseconds. */
export function stopMarginMs(ttlMs: number): number {
  return Math.max(2 * KILL_MS_MIN, ttlMs * STOP_SHARE);
}

function killMarginMs(ttlMs: number): number {
  return Math.max(KILL_MS_MIN, ttlMs * KILL_SHARE);
}

/**
 * A command that runs under a lease, in the care of a process of its own. Where that one does not do what it is there
 * for, because it was stopped, this process kills the command.
 */
export class GuardedCommand {
  readonly #world: World;
  readonly #ttlMs: number;
  readonly #guard: ChildProcess;
  readonly #socket: Socket;
  /** Resolves when nothing of the command runs any more, as far as one can know. */
  readonly ended: Promise<CommandEnd>;
  #pid: number | null = null;
  #last: CommandEnd | null = null;
  #kill: LeaseMoment;
  #stopping = false;
  #timer: Timer | null = null;

  /** @param end of the lease; the command is started only if there is time left */
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
    this.#kill = deadline.kill;
    const stdio = ['inherit', 'inherit', 'inherit', 'pipe'] as const;
    // A session of its own: Ctrl-C and Ctrl-Z are for the keeper of the lease.
    this.#guard = spawn(process.execPath, [GUARD], { detached: true, stdio: [...stdio], env });
    this.#socket = this.#guard.stdio[GUARD_FD] as Socket;
    // A guard that is gone is noticed by its exit.
    this.#socket.on('error', () => this.#socket.destroy());
    this.ended = this.#wait();
    const [command = '', ...args] = argv;
    this.#order({ kind: 'run', command, args, deadline });
    this.#arm();
  }

  /** The lease was refreshed. */
  extend(end: LeaseMoment): void {
    if (this.#stopping) return;
    const deadline = this.#deadline(end);
    this.#kill = deadline.kill;
    this.#order({ kind: 'extend', deadline });
    this.#arm();
  }

  /**
   * The lease is lost: the command is asked to end now.
   *
   * @param graceMs after this it is killed, or when its lease would have made it, whichever comes first
   */
  stop(graceMs: number): void {
    this.#stopping = true;
    this.#kill = leaseMomentEarlier(
      this.#world,
      this.#kill,
      leaseMomentAfter(leaseMomentNow(this.#world), graceMs),
    );
    this.#order({ kind: 'stop', kill: this.#kill });
    this.#arm();
  }

  signal(signal: NodeJS.Signals): void {
    this.#order({ kind: 'signal', signal });
  }

  #deadline(end: LeaseMoment): GuardDeadline {
    return {
      stop: leaseMomentAfter(end, -stopMarginMs(this.#ttlMs)),
      kill: leaseMomentAfter(end, -killMarginMs(this.#ttlMs)),
    };
  }

  #order(order: GuardOrder): void {
    // A write to a guard that is gone would end the reading of its last word as well. So that is read before, in
    // a process that was stopped while it came.
    this.#world.soon(() => {
      if (this.#last === null && this.#socket.writable) this.#socket.write(guardText(order));
    });
  }

  #wait(): Promise<CommandEnd> {
    const { promise, resolve, reject } = Promise.withResolvers<CommandEnd>();
    const reader = new GuardReader<GuardReport>();
    this.#socket.setEncoding('utf8').on('data', (text: string) => {
      for (const report of reader.push(text)) {
        if (report.kind !== 'started') this.#last = report;
        else {
          this.#pid = report.pid;
          this.#arm();
        }
      }
    });
    this.#guard.on('error', reject);
    this.#guard.on('close', () => {
      this.#timer?.cancel();
      if (this.#last === null) this.#killCommand();
      resolve(this.#last ?? this.#unheard());
    });
    return promise;
  }

  /**
   * The guard is gone without a last word. Where the time of the command was over it has done what it is there for: its word is lost if this
   * process was stopped while it was about to write to it.
   */
  #unheard(): CommandEnd {
    if (this.#pid === null || leaseLeftMs(this.#world, this.#kill) > 0)
      return { kind: 'unguarded', killed: this.#pid !== null };
    return { kind: 'ended', code: null, signal: 'SIGKILL', expired: true };
  }

  /** Process of the command; null until the guard has told it. */
  get pid(): number | null {
    return this.#pid;
  }

  #arm(): void {
    this.#timer?.cancel();
    if (this.#guard.exitCode !== null || this.#guard.signalCode !== null) return;
    const leftMs = this.#guardLeftMs();
    // The turn after this one: what the guard has said while this process was stopped is to be read before.
    this.#timer =
      leftMs > 0
        ? this.#world.after(Math.min(leftMs, LOOK_MS_MAX), () => this.#arm())
        : this.#world.after(0, () => void this.#world.soon(() => this.#replaceGuard()));
  }

  /** How long the guard may still take to kill the command, in milliseconds. */
  #guardLeftMs(): number {
    return leaseLeftMs(
      this.#world,
      leaseMomentAfter(this.#kill, killMarginMs(this.#ttlMs) * GUARD_LATE_SHARE),
    );
  }

  /** Does what the guard has not done in time. */
  #replaceGuard(): void {
    if (this.#last !== null || this.#guardLeftMs() > 0) return;
    // It may have been stopped before it could tell whom it guards. One that has begun nothing begins nothing any more.
    const pid = this.#pid ?? childOf(this.#guard.pid);
    if (pid === undefined) return;
    this.#pid = pid;
    this.#killCommand();
    this.#last = { kind: 'ended', code: null, signal: pid === null ? null : 'SIGKILL', expired: true };
    this.#guard.kill('SIGKILL');
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

/** @returns a process that this one has begun; null where there is none, undefined where it has just ended, or the system does not tell */
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
