import { type ChildProcess, spawn } from 'node:child_process';
import { Socket } from 'node:net';
import type { Timer } from '../../base/world.ts';
import { systemWorld as world } from '../../world/system-world.ts';
import {
  GUARD_FD,
  type GuardDeadline,
  type GuardOrder,
  GuardReader,
  type GuardReport,
  guardText,
} from './guard-messages.ts';
import { type LeaseMoment, leaseLeftMs, leaseMomentEarlier } from './lease-clock.ts';

/** The clocks are looked at this often at the least: they may have gone on while the machine slept. */
const LOOK_MS_MAX = 200;

/**
 * A process between the keeper of a lease and its command. It is no child of the keeper's terminal or process group, so
 * that whatever stops the keeper does not stop it: when no extension has come by the deadline, or the keeper is
 * gone, it ends the command and everything that the command has started in its process group.
 */
class Guard {
  readonly #keeper = new Socket({ fd: GUARD_FD, readable: true, writable: true });
  readonly #reader = new GuardReader<GuardOrder>();
  #child: ChildProcess | null = null;
  #deadline: GuardDeadline | null = null;
  /** The command was told to end because of the lease: there is no way back. */
  #expired = false;
  #timer: Timer | null = null;

  start(): void {
    this.#keeper.setEncoding('utf8');
    this.#keeper.on('data', (text: string) => {
      for (const order of this.#reader.push(text)) this.#obey(order);
    });
    // Whatever ends the connection: nobody extends the lease any more.
    this.#keeper.on('error', () => this.#orphaned());
    this.#keeper.on('end', () => this.#orphaned());
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
      process.on(signal, () => this.#signal(signal));
  }

  #obey(order: GuardOrder): void {
    switch (order.kind) {
      case 'run':
        this.#deadline = order.deadline;
        // This process may have been slow to start: a command that has no time is not begun.
        if (leaseLeftMs(world, order.deadline.stop) > 0) this.#run(order.command, order.args);
        else this.#report({ kind: 'ended', code: null, signal: null, expired: true });
        return;
      case 'extend':
        if (this.#expired) return;
        this.#deadline = order.deadline;
        this.#arm();
        return;
      case 'stop':
        this.#stop(order.kill);
        return;
      case 'signal':
        this.#signal(order.signal);
        return;
    }
  }

  #run(command: string, args: readonly string[]): void {
    // A session of its own, so that one signal reaches all of it and none that is meant for others does.
    const child = spawn(command, args, { stdio: 'inherit', detached: true });
    this.#child = child;
    // At once: should this process be killed, the keeper has to know whom to kill.
    if (child.pid !== undefined) this.#tell({ kind: 'started', pid: child.pid });
    this.#arm();
    child.on('error', (error: NodeJS.ErrnoException) => {
      if (child.pid !== undefined) return;
      this.#report({ kind: 'failed', code: error.code ?? '', message: error.message });
    });
    child.on('exit', (code, signal) => {
      // What the command has left behind in its group works under the same lease.
      this.#signal('SIGKILL');
      this.#report({ kind: 'ended', code, signal, expired: this.#expired });
    });
  }

  #arm(): void {
    this.#timer?.cancel();
    const deadline = this.#deadline;
    if (deadline === null || this.#child === null) return;
    const leftMs = leaseLeftMs(world, this.#expired ? deadline.kill : deadline.stop);
    // The turn after this one: an extension that waits to be read, because this process was stopped, counts.
    this.#timer =
      leftMs > 0
        ? world.after(Math.min(leftMs, LOOK_MS_MAX), () => this.#arm())
        : world.after(0, () => void world.soon(() => this.#judge()));
  }

  #judge(): void {
    const deadline = this.#deadline;
    if (deadline === null) return;
    if (leaseLeftMs(world, deadline.kill) <= 0) {
      this.#expired = true;
      this.#signal('SIGKILL');
      return;
    }
    if (leaseLeftMs(world, deadline.stop) <= 0 && !this.#expired) {
      this.#expired = true;
      this.#signal('SIGTERM');
    }
    this.#arm();
  }

  #orphaned(): void {
    if (this.#child === null) process.exit(1);
    if (this.#deadline !== null) this.#stop(this.#deadline.kill);
  }

  #stop(kill: LeaseMoment): void {
    if (this.#deadline === null) return;
    this.#deadline = { ...this.#deadline, kill: leaseMomentEarlier(world, kill, this.#deadline.kill) };
    if (!this.#expired) this.#signal('SIGTERM');
    this.#expired = true;
    this.#arm();
  }

  #signal(signal: NodeJS.Signals): void {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
      // One that is stopped ends by SIGKILL only; it is woken to hear the others.
      if (signal !== 'SIGKILL') process.kill(-pid, 'SIGCONT');
    } catch (error) {
      // The whole group is gone.
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }

  #tell(report: GuardReport): void {
    if (!this.#keeper.destroyed) this.#keeper.write(guardText(report));
  }

  /** The last word. */
  #report(report: GuardReport): void {
    if (this.#keeper.destroyed) process.exit();
    this.#keeper.end(guardText(report), () => process.exit());
  }
}

if (import.meta.main) new Guard().start();
