import type { Timer, World } from '../base/world.ts';
import type { CacheAnswer, CacheRequest, NotedRead } from '../wire/catalog-api.ts';

/** A client's number is drawn of so many bytes, so that no two clients have the same. */
const CLIENT_NUMBER_BYTES = 6;
/** Between polls that brought nothing, because nobody could answer. */
const PAUSE_MS = 100;
/** A poll that is not answered by then is given up; a server answers sooner, or waits for an election. */
const POLL_MS_MAX = 10_000;
/** The primary learns within this time that a session was left; else the session ends by itself. */
const LEAVE_MS_MAX = 1_000;

/** What a session reports. */
export interface SessionEvents {
  /** Resolves when nothing of these inodes is cached any more. Nothing requested before the call is cached after it. */
  recalled(inodes: readonly number[]): Promise<void>;
  /** What is granted was read. Resolves when no answer from the cache has an earlier access time. */
  read?(reads: readonly NotedRead[]): Promise<void>;
  /** Nothing is granted any more. */
  ended(): void;
  /** Resolves when no operation is under way that is fenced by a session that has just ended here. */
  flushed?(): Promise<void>;
  /** Resolves when nothing is used that was granted so far. Called before `ended`, where the primary ends the session before its time. */
  unused?(): Promise<void>;
  /** Called where a poll failed; the next one follows. */
  failed(error: unknown): void;
}

export interface CacheSessionParts extends SessionEvents {
  readonly world: World;
  /** The same for the whole life of this client, and no other's. */
  readonly client: number;
  /** Asks the cluster. @returns the answer, and when the attempt that it answers was sent (monotonic) */
  poll(
    request: CacheRequest,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number },
  ): Promise<{ readonly answer: CacheAnswer; readonly sentMs: number }>;
  /** A session that was not used for so long, in milliseconds, is left for another: it has no grants. Absent: it is always in use. */
  readonly idleMs?: number;
}

interface Polls {
  readonly abort: AbortController;
  readonly over: Promise<void>;
}

/** @returns a number for a client, for its whole life */
export function drawClientNumber(world: World): number {
  return 1 + Math.floor(world.randomBytes(CLIENT_NUMBER_BYTES).readUIntBE(0, CLIENT_NUMBER_BYTES) / 2);
}

/**
 * The time in which this client may use what it was granted, renewed by one poll after the other. It ends by itself, counted from
 * before the poll was sent: then no change waits for this client any more.
 */
export class CacheSession {
  readonly client: number;
  readonly #parts: CacheSessionParts;
  /** Null before the first one, and once the session was left. */
  #polls: Polls | null = null;
  /** Resolves when the primary knows of the session that was left last, or cannot be told. */
  #leaving: Promise<void> | null = null;
  #session: number | null = null;
  /** The one before, of which no grant is used any more. */
  #left: number | null = null;
  #acked = 0;
  #untilMs = -Infinity;
  #timer: Timer | null = null;
  #idle: Timer | undefined;
  #isClosed = false;

  constructor(parts: CacheSessionParts) {
    this.#parts = parts;
    this.client = parts.client;
  }

  /** To be named with questions, so that the answers are granted; null while there is none. */
  get session(): number | null {
    return this.leftMs > 0 ? this.#session : null;
  }

  /** For how long grants may still be used, in milliseconds; 0 if not. Asked for each use. */
  get leftMs(): number {
    return Math.max(0, this.#untilMs - this.#parts.world.nowMs());
  }

  /** Begins a session, so that there is one for the first request. */
  start(): void {
    if (this.#isClosed || this.#polls !== null) return;
    const abort = new AbortController();
    const run = (): Promise<void> => this.#run(abort.signal);
    // A session that is being left has the same client's number.
    this.#polls = { abort, over: this.#leaving === null ? run() : this.#leaving.then(run) };
  }

  /** What is granted, or soon to be, is in use. */
  use(): void {
    const { world, idleMs } = this.#parts;
    if (this.#isClosed || idleMs === undefined) return;
    this.start();
    this.#idle?.cancel();
    this.#idle = world.after(idleMs, () => {
      void this.#leave();
      this.start();
    });
  }

  /**
   * Ends the session here at once and begins another: the outcome of a command that names this one is unknown, and the command may still
   * be executed without a recall of what this session was granted. The primary learns of the end when nothing fenced is under way any more,
   * and the session's time is over: until then the kernel uses attributes that were granted under it.
   */
  renounce(): void {
    const session = this.#session;
    if (session === null) return;
    const flushed = this.#parts.flushed?.() ?? Promise.resolve();
    // No process stays for it: a session that nobody renews ends by itself.
    const over = this.#parts.world.sleep(this.leftMs, { unref: true });
    this.#end();
    this.#acked = 0;
    void Promise.allSettled([flushed, over]).then(() => {
      this.#left = session;
    });
  }

  /** Uses no grant any more. */
  async stop(): Promise<void> {
    this.#isClosed = true;
    const polls = this.#endPolls();
    this.#end();
    await polls?.over;
  }

  /** As `stop`, and reports that to the primary, so that no change waits for this client. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#leave();
  }

  #endPolls(): Polls | null {
    this.#idle?.cancel();
    const polls = this.#polls;
    polls?.abort.abort();
    this.#polls = null;
    return polls;
  }

  async #leave(): Promise<void> {
    const session = this.#session;
    const polls = this.#endPolls();
    if (polls === null) return this.#leaving ?? undefined;
    this.#end();
    this.#leaving = (this.#leaving ?? Promise.resolve()).then(async () => {
      await polls.over;
      [this.#left, this.#acked] = [null, 0];
      if (session !== null) await this.#reportLeft(session);
    });
    await this.#leaving;
  }

  async #reportLeft(session: number): Promise<void> {
    await this.#parts.flushed?.();
    const request = { client: this.client, left: session, acked: 0, fenced: true };
    const signal = this.#parts.world.timeout(LEAVE_MS_MAX);
    await this.#parts.poll(request, { signal, timeoutMs: LEAVE_MS_MAX }).catch(this.#parts.failed);
  }

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

  /** @returns whether to go on at once */
  async #poll(signal: AbortSignal): Promise<boolean> {
    const session = this.#session;
    const request = {
      client: this.client,
      ...(session === null ? {} : { session }),
      ...(this.#left === null ? {} : { left: this.#left }),
      acked: this.#acked,
      fenced: true,
    };
    const { answer: polled, sentMs } = await this.#parts.poll(request, { signal, timeoutMs: POLL_MS_MAX });
    if (signal.aborted) return false;
    // Renounced meanwhile.
    if (this.#session !== session) return true;
    // A server of an earlier release obeys no fence: nothing is to be granted by it.
    const answer = polled.fenced === true ? polled : { ...polled, session: null };
    if (answer.session !== session) {
      const { leftMs } = this;
      const unused = leftMs > 0 ? this.#parts.unused?.() : undefined;
      this.#end();
      // Before a handover the primary waits until the next poll says that the session was left.
      if (unused !== undefined)
        await Promise.race([unused, this.#parts.world.sleep(leftMs, { unref: true })]);
      if (signal.aborted) return false;
      this.#left = session ?? this.#left;
      this.#session = answer.session;
      this.#acked = 0;
    }
    if (answer.session === null) return session !== null;
    if (answer.validMs > 0) this.#renew(sentMs + answer.validMs);
    if (answer.recalls.length > 0) await this.#parts.recalled(answer.recalls);
    if (answer.reads !== undefined) await this.#parts.read?.(answer.reads);
    this.#acked = Math.max(this.#acked, answer.through);
    return answer.validMs > 0 || answer.recalls.length > 0;
  }

  #renew(untilMs: number): void {
    // What was granted under a session that is over may have changed since.
    if (this.leftMs === 0) this.#parts.ended();
    if (untilMs <= this.#untilMs) return;
    this.#untilMs = untilMs;
    this.#timer?.cancel();
    this.#timer = this.#parts.world.after(Math.max(0, this.leftMs), () => this.#parts.ended()).unref();
  }

  #end(): void {
    this.#session = null;
    this.#untilMs = -Infinity;
    this.#timer?.cancel();
    this.#timer = null;
    this.#parts.ended();
  }
}
