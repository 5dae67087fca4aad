import { type ChildProcess, spawn } from 'node:child_process';
import { Socket } from 'node:net';
import type { Timer } from '../../base/world.ts';
import { systemWorld as world } from '../../world/system-world.ts';
import { type LeaseMoment, leaseMomentEarlier, leaseRemainingMs } from './lease-clock.ts';
import {
  SUPERVISOR_FD,
  type SupervisorDeadline,
  type SupervisorOrder,
  SupervisorReader,
  type SupervisorReport,
  supervisorText,
} from './supervisor-messages.ts';

const CHECK_MS_MAX = 200;

/**
 * A process between the keeper of a lease and its command. It is outside the keeper's terminal and process group, so
 * that a signal that stops the keeper does not stop it. When no extension arrives by the deadline, or the keeper has
 * ended, it ends the command and everything in the command's process group.
 */
class Supervisor {
  readonly #keeper = new Socket({ fd: SUPERVISOR_FD, readable: true, writable: true });
  readonly #reader = new SupervisorReader<SupervisorOrder>();
  #child: ChildProcess | null = null;
  #deadline: SupervisorDeadline | null = null;
  /** The command was asked to end because of the lease, which is final. */
  #expired = false;
  #timer: Timer | null = null;

  start(): void {
    this.#keeper.setEncoding('utf8');
    this.#keeper.on('data', (text: string) => {
      for (const order of this.#reader.push(text)) this.#execute(order);
    });
    // The connection ended: the lease is not extended any more.
    this.#keeper.on('error', () => this.#keeperEnded());
    this.#keeper.on('end', () => this.#keeperEnded());
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
      process.on(signal, () => this.#signal(signal));
  }

  #execute(order: SupervisorOrder): void {
    switch (order.kind) {
      case 'run':
        this.#deadline = order.deadline;
        // This process may have started late: a command without time left is not started.
        if (leaseRemainingMs(world, order.deadline.stop) > 0) this.#run(order.command, order.args);
        else this.#sendLast({ kind: 'ended', code: null, signal: null, expired: true });
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
    // A session of its own, so that one signal reaches the whole command and nothing else.
    const child = spawn(command, args, { stdio: 'inherit', detached: true });
    this.#child = child;
    // At once: if this process is killed, the keeper has to know what to kill.
    if (child.pid !== undefined) this.#send({ kind: 'started', pid: child.pid });
    this.#arm();
    child.on('error', (error: NodeJS.ErrnoException) => {
      if (child.pid !== undefined) return;
      this.#sendLast({ kind: 'failed', code: error.code ?? '', message: error.message });
    });
    child.on('exit', (code, signal) => {
      // What the command has left in its group runs under the same lease.
      this.#signal('SIGKILL');
      this.#sendLast({ kind: 'ended', code, signal, expired: this.#expired });
    });
  }

  #arm(): void {
    this.#timer?.cancel();
    const deadline = this.#deadline;
    if (deadline === null || this.#child === null) return;
    const leftMs = leaseRemainingMs(world, this.#expired ? deadline.kill : deadline.stop);
    // One tick later: an extension that arrived while this process was stopped must count.
    this.#timer =
      leftMs > 0
        ? world.after(Math.min(leftMs, CHECK_MS_MAX), () => this.#arm())
        : world.after(0, () => void world.soon(() => this.#enforceDeadline()));
  }

  #enforceDeadline(): void {
    const deadline = this.#deadline;
    if (deadline === null) return;
    if (leaseRemainingMs(world, deadline.kill) <= 0) {
      this.#expired = true;
      this.#signal('SIGKILL');
      return;
    }
    if (leaseRemainingMs(world, deadline.stop) <= 0 && !this.#expired) {
      this.#expired = true;
      this.#signal('SIGTERM');
    }
    this.#arm();
  }

  #keeperEnded(): void {
    if (this.#child === null) process.exit(1);
    if (this.#deadline !== null) this.#stop(this.#deadline.kill);
  }

  /** Asks the command to end, for good; it is killed at `kill`, or at its own deadline if that is earlier. */
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
      // A stopped process ends by SIGKILL only; SIGCONT lets it receive the others.
      if (signal !== 'SIGKILL') process.kill(-pid, 'SIGCONT');
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }

  #send(report: SupervisorReport): void {
    if (!this.#keeper.destroyed) this.#keeper.write(supervisorText(report));
  }

  #sendLast(report: SupervisorReport): void {
    if (this.#keeper.destroyed) process.exit();
    this.#keeper.end(supervisorText(report), () => process.exit());
  }
}

if (import.meta.main) new Supervisor().start();
