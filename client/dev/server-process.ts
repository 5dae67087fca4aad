import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';
import { LAUNCHER, logTail } from '../mounts/programs.ts';
import { CommandFailure, EXIT_FAILED, isSystemError, temporaryFailure } from '../terminal/failure.ts';
import { formatDuration } from '../terminal/quantities.ts';
import type { Access } from '../transport/access.ts';
import { answersReady } from './answers-ready.ts';

const CABLE = new URL(`./cable${extname(import.meta.url)}`, import.meta.url).href;
const READY_POLL_MS = 50;
const READY_ANSWER_MS = 1_000;
/** In the data folder, with the pid; it stays if the process is killed. */
const LOCK_FILE = 'lock.pid';
const STOP_TIMEOUT_MS = 10_000;

export interface ServerPlan {
  readonly id: string;
  readonly url: string;
  readonly address: string;
  readonly data: string;
  /** URL of its S3 interface; null or absent: without. */
  readonly s3?: string | null;
  readonly log: string;
  readonly argv: readonly string[];
  readonly access: Access;
  readonly environment?: NodeJS.ProcessEnv;
}

export type ProcessState = 'running' | 'paused' | 'cut' | 'dead';

/** One server as a child process, which may be killed and started again with the same data. */
export class ServerProcess {
  readonly plan: ServerPlan;
  readonly #onUnexpectedEnd: (server: ServerProcess, how: string) => void;
  #child: ChildProcess | null = null;
  #ended: Promise<unknown> = Promise.resolve();
  #endText = '';
  /** Until the server is stopped here: its end would be unexpected. */
  #isReady = false;
  #paused = false;
  #isCut = false;
  readonly #listeners = new Set<() => void>();

  constructor(plan: ServerPlan, onUnexpectedEnd: (server: ServerProcess, how: string) => void) {
    this.plan = plan;
    this.#onUnexpectedEnd = onUnexpectedEnd;
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  get state(): ProcessState {
    if (this.#child === null) return 'dead';
    if (this.#paused) return 'paused';
    return this.#isCut ? 'cut' : 'running';
  }

  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  async start(): Promise<void> {
    const log = await open(this.plan.log, 'a');
    try {
      const child = spawn(process.execPath, [LAUNCHER, 'server', ...this.plan.argv], {
        // A group of its own: Ctrl-C in a terminal is meant for this process, which stops the servers in order.
        detached: true,
        stdio: ['pipe', 'ignore', log.fd],
        // Few heaps for the C library: each thread of the pool would keep one of its own.
        env: {
          MALLOC_ARENA_MAX: '2',
          ...process.env,
          NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ''} --import ${CABLE}`.trim(),
          LEASEHOLD_STOP_WITH_STDIN: '1',
          ...this.plan.environment,
        },
      });
      this.#child = child;
      this.#paused = false;
      this.#isCut = false;
      this.#isReady = false;
      // The child closes the other end when it ends.
      child.stdin?.on('error', () => {});
      this.#ended = once(child, 'exit').then(([code, signal]) => {
        this.#endText = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
        if (this.#child === child) this.#child = null;
        this.#notify();
        if (this.#isReady) this.#onUnexpectedEnd(this, this.#endText);
        return code;
      });
      await once(child, 'spawn');
      this.#notify();
    } finally {
      await log.close();
    }
  }

  /** Polls until the server can serve. @throws CommandFailure with the end of its log if it ends or is late */
  async waitUntilReady(timeoutMs: number): Promise<void> {
    const deadlineMs = systemWorld.nowMs() + timeoutMs;
    const end = { isOver: false };
    void this.#ended.then(() => {
      end.isOver = true;
    });
    while (!(await answersReady(this.plan.url, this.plan.access.tls, READY_ANSWER_MS))) {
      if (end.isOver) {
        const code = Number(await this.#ended);
        const exit = code > 0 && code < 10 ? code : EXIT_FAILED;
        throw new CommandFailure(
          exit,
          `Cannot start server ${this.plan.id}: it ${this.#endText}${await logTail(this.plan.log)}`,
        );
      }
      if (systemWorld.nowMs() > deadlineMs) {
        throw temporaryFailure(
          `Cannot start server ${this.plan.id}: it was not ready after ${formatDuration(timeoutMs)}${await logTail(this.plan.log)}`,
        );
      }
      // There is no event for the readiness of another process.
      await systemWorld.sleep(READY_POLL_MS);
    }
    this.#isReady = true;
  }

  /** Sends SIGKILL: what the server has not stored is lost, what it has acknowledged must not be. */
  async kill(): Promise<void> {
    this.#isReady = false;
    this.#child?.kill('SIGKILL');
    await this.#ended;
  }

  /** Sends SIGSTOP: what reaches the server waits, as on a machine that sleeps. */
  pause(): void {
    if (this.state !== 'running') return;
    this.#child?.kill('SIGSTOP');
    this.#paused = true;
    this.#notify();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#child?.kill('SIGCONT');
    this.#paused = false;
    this.#notify();
  }

  disconnect(): void {
    if (this.state === 'running') this.#toggleCable();
  }

  reconnect(): void {
    if (this.state === 'cut') this.#toggleCable();
  }

  #toggleCable(): void {
    this.#child?.kill('SIGURG');
    this.#isCut = !this.#isCut;
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  /** @returns the pid of a process elsewhere that uses its data while it is ended here; null if there is none */
  async foreignPid(): Promise<number | null> {
    if (this.#child !== null) return null;
    try {
      const pid = Number.parseInt(await readFile(join(this.plan.data, LOCK_FILE), 'utf8'), 10);
      process.kill(pid, 0);
      return pid;
    } catch (error) {
      if (isSystemError(error) && ['ENOENT', 'ESRCH'].includes(error.code ?? '')) return null;
      throw error;
    }
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#isReady = false;
    this.resume();
    this.reconnect();
    child.kill('SIGTERM');
    const timer = systemWorld.after(STOP_TIMEOUT_MS, () => child.kill('SIGKILL'));
    await this.#ended;
    timer.cancel();
  }
}
