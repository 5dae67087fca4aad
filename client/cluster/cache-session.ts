import type { Timer, World } from '../../base/world.ts';
import type { CacheAnswer, CacheRequest, NotedRead } from '../../wire/catalog-api.ts';

const CLIENT_NUMBER_BYTES = 6;
const PAUSE_MS = 100;
/** A poll without an answer is aborted after this time; servers answer sooner, or wait for an election. */
const POLL_MS_MAX = 10_000;
/** The report that a session has ended is aborted after this time; the session then expires by itself. */
const REPORT_MS_MAX = 1_000;

export interface SessionEvents {
  /** Resolves when nothing of these inodes is cached any more, and nothing requested before the call will be. */
  recalled(inodes: readonly number[]): Promise<void>;
  /** Granted inodes were read. Resolves when no answer from the cache has an earlier access time. */
  readsNoted?(reads: readonly NotedRead[]): Promise<void>;
  /** The session has ended or expired: no grant is valid any more. */
  ended(): void;
  /** Resolves when no operation is in flight that is fenced by a session which has just ended here. */
  flushed?(): Promise<void>;
  /** Resolves when nothing granted so far is in use. Called before `ended` if the primary ends the session early. */
  unused?(): Promise<void>;
  failed(error: unknown): void;
}

export interface CacheSessionParts extends SessionEvents {
  readonly world: World;
  readonly client: number;
  /** Sends a poll. @returns the answer, and when the answered attempt was sent (monotonic) */
  poll(
    request: CacheRequest,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number },
  ): Promise<{ readonly answer: CacheAnswer; readonly sentMs: number }>;
  /** A session unused for this long, in ms, is replaced by one without grants. Absent: it is always in use. */
  readonly idleMs?: number;
}

interface Polls {
  readonly abort: AbortController;
  readonly ended: Promise<void>;
}

/** Draws a random number that identifies a client until its process ends. */
export function drawClientNumber(world: World): number {
  return 1 + Math.floor(world.randomBytes(CLIENT_NUMBER_BYTES).readUIntBE(0, CLIENT_NUMBER_BYTES) / 2);
}

/**
 * The time during which this client may use its grants, renewed by one poll after another. It expires by itself,
 * counted from before the poll was sent: after that no change waits for this client.
 */
export class CacheSession {
  readonly client: number;
  readonly #parts: CacheSessionParts;
  #polls: Polls | null = null;
  /** Resolves when the last session has ended, and the report of that was answered, has failed or is not needed. */
  #reporting: Promise<void> | null = null;
  #session: number | null = null;
  /** An ended session, none of whose grants is in use any more; the next polls report it to the primary. */
  #endedSession: number | null = null;
  #acked = 0;
  #untilMs = -Infinity;
  #timer: Timer | null = null;
  #idle: Timer | undefined;
  #isClosed = false;

  constructor(parts: CacheSessionParts) {
    this.#parts = parts;
    this.client = parts.client;
  }

  /** Sent with queries, so that their answers are granted; null while no session is valid. */
  get session(): number | null {
    return this.remainingMs > 0 ? this.#session : null;
  }

  /** For how long grants may still be used, in milliseconds; 0: not at all. Callers ask before each use. */
  get remainingMs(): number {
    return Math.max(0, this.#untilMs - this.#parts.world.nowMs());
  }

  start(): void {
    if (this.#isClosed || this.#polls !== null) return;
    const abort = new AbortController();
    const run = (): Promise<void> => this.#run(abort.signal);
    // The report that a session has ended has the same client number: it comes first.
    this.#polls = { abort, ended: this.#reporting === null ? run() : this.#reporting.then(run) };
  }

  /** Marks the session as in use: something is granted, or soon will be. */
  markUsed(): void {
    const { world, idleMs } = this.#parts;
    if (this.#isClosed || idleMs === undefined) return;
    this.start();
    this.#idle?.cancel();
    this.#idle = world.after(idleMs, () => {
      void this.#endSession(true);
      this.start();
    });
  }

  /**
   * Ends the session here at once and begins another, because a command that names it has an unknown outcome: the
   * command may still be executed without a recall of this session's grants. The primary is notified only when no
   * fenced operation is in flight and the session's time is over: until then the kernel uses attributes that were
   * granted under it.
   */
  renounce(): void {
    const session = this.#session;
    if (session === null) return;
    const flushed = this.#parts.flushed?.() ?? Promise.resolve();
    // It keeps no process alive: a session that is not renewed expires by itself.
    const expired = this.#parts.world.sleep(this.remainingMs, { unref: true });
    this.#end();
    this.#acked = 0;
    void Promise.allSettled([flushed, expired]).then(() => {
      this.#endedSession = session;
    });
  }

  /** Ends the session here, without a report, and begins another: the volume is in another catalog, which had none. */
  restart(): void {
    if (this.#isClosed || this.#polls === null) return;
    void this.#endSession(false);
    this.start();
  }

  async stop(): Promise<void> {
    this.#isClosed = true;
    const polls = this.#endPolls();
    this.#end();
    await polls?.ended;
  }

  /** As `stop`, and notifies the primary, so that no change waits for this client. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#endSession(true);
  }

  #endPolls(): Polls | null {
    this.#idle?.cancel();
    const polls = this.#polls;
    polls?.abort.abort();
    this.#polls = null;
    return polls;
  }

  /** Ends the session here; the next one begins once its polls have ended and, if wanted, the primary was notified. */
  async #endSession(isReported: boolean): Promise<void> {
    const session = this.#session;
    const polls = this.#endPolls();
    if (polls === null) return this.#reporting ?? undefined;
    this.#end();
    // A recall whose handling has not ended counts for the session that has ended.
    this.#reporting = Promise.all([this.#reporting, polls.ended]).then(async () => {
      [this.#endedSession, this.#acked] = [null, 0];
      if (isReported && session !== null) await this.#reportEnded(session);
    });
    await this.#reporting;
  }

  async #reportEnded(session: number): Promise<void> {
    await this.#parts.flushed?.();
    const request = { client: this.client, left: session, acked: 0, fenced: true };
    const signal = this.#parts.world.timeout(REPORT_MS_MAX);
    await this.#parts.poll(request, { signal, timeoutMs: REPORT_MS_MAX }).catch(this.#parts.failed);
  }

  /** Polls until `signal` aborts, with a pause after a poll that failed or brought nothing. */
  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        if (await this.#poll(signal)) continue;
      } catch (error) {
        if (signal.aborted) return;
        this.#parts.failed(error);
      }
      await this.#parts.world.sleep(PAUSE_MS, { signal }).catch(() => undefined);
    }
  }

  /** Sends a poll; takes a new session, recalls and reads from its answer. @returns whether to poll again at once */
  async #poll(signal: AbortSignal): Promise<boolean> {
    const session = this.#session;
    const request = {
      client: this.client,
      ...(session === null ? {} : { session }),
      ...(this.#endedSession === null ? {} : { left: this.#endedSession }),
      acked: this.#acked,
      fenced: true,
    };
    const { answer: polled, sentMs } = await this.#parts.poll(request, { signal, timeoutMs: POLL_MS_MAX });
    if (signal.aborted) return false;
    if (this.#session !== session) return true;
    // A server of an earlier release enforces no fences, so its grants are not used.
    const answer = polled.fenced === true ? polled : { ...polled, session: null };
    if (answer.session !== session) {
      const { remainingMs } = this;
      const { unused, flushed, world } = this.#parts;
      const grantsUnused = remainingMs > 0 ? Promise.allSettled([unused?.(), flushed?.()]) : undefined;
      this.#end();
      // The primary delays a handover until the next poll reports that the session has ended. Before that it executes
      // what was acknowledged under the session.
      if (grantsUnused !== undefined)
        await Promise.race([grantsUnused, world.sleep(remainingMs, { unref: true })]);
      if (signal.aborted) return false;
      this.#endedSession = session ?? this.#endedSession;
      this.#session = answer.session;
      this.#acked = 0;
    }
    if (answer.session === null) return session !== null;
    if (answer.validMs > 0) this.#renew(sentMs + answer.validMs);
    if (answer.recalls.length > 0) await this.#parts.recalled(answer.recalls);
    if (answer.reads !== undefined) await this.#parts.readsNoted?.(answer.reads);
    this.#acked = Math.max(this.#acked, answer.through);
    return answer.validMs > 0 || answer.recalls.length > 0;
  }

  /** Extends the session, as a poll's answer allows. */
  #renew(untilMs: number): void {
    // What an expired session granted may have changed since.
    if (this.remainingMs === 0) this.#parts.ended();
    if (untilMs <= this.#untilMs) return;
    this.#untilMs = untilMs;
    this.#timer?.cancel();
    this.#timer = this.#parts.world.after(Math.max(0, this.remainingMs), () => this.#parts.ended()).unref();
  }

  #end(): void {
    this.#session = null;
    this.#untilMs = -Infinity;
    this.#timer?.cancel();
    this.#timer = null;
    this.#parts.ended();
  }
}
