import type { Timer, World } from '../base/world.ts';
import type { CacheAnswer, CacheRequest } from '../wire/catalog-api.ts';

/** A client's number is drawn of so many bytes, so that no two clients have the same. */
const CLIENT_NUMBER_BYTES = 6;
/** Between polls that brought nothing, because nobody could answer. */
const PAUSE_MS = 100;
/** A poll that is not answered by then is given up; a server answers sooner, or waits for an election. */
const POLL_MS_MAX = 10_000;
/** Where nobody hears that a session is left, it ends by itself. */
const LEAVE_MS_MAX = 1_000;

export interface CacheSessionParts {
  readonly world: World;
  /** The same for the whole life of this client, and no other's. */
  readonly client: number;
  /** Asks the cluster. @returns the answer, and when the attempt that it answers was sent (monotonic) */
  poll(
    request: CacheRequest,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number },
  ): Promise<{ readonly answer: CacheAnswer; readonly sentMs: number }>;
  /** Has forgotten what was heard of these inodes when it resolves. Nothing heard before the call is learned after it. */
  recalled(inodes: readonly number[]): Promise<void>;
  /** Forgets everything, at once. */
  ended(): void;
  /** Resolves when no operation is under way that is fenced by a session that has just ended here. */
  flushed?(): Promise<void>;
  /** Called where a poll failed; polls go on. */
  failed(error: unknown): void;
}

/** @returns a number for a client, for its whole life */
export function drawClientNumber(world: World): number {
  return 1 + Math.floor(world.randomBytes(CLIENT_NUMBER_BYTES).readUIntBE(0, CLIENT_NUMBER_BYTES) / 2);
}

/**
 * The right of this client to believe what it was told, renewed by one poll after the other. It ends by itself, counted from
 * before the poll was sent: then nobody waits any more for what this client has to forget.
 */
export class CacheSession {
  readonly client: number;
  readonly #parts: CacheSessionParts;
  readonly #abort = new AbortController();
  #session: number | null = null;
  /** The one before, of which nothing is believed any more. */
  #left: number | null = null;
  #acked = 0;
  #untilMs = -Infinity;
  #timer: Timer | null = null;
  #running: Promise<void> | null = null;

  constructor(parts: CacheSessionParts) {
    this.#parts = parts;
    this.client = parts.client;
  }

  /** To be named with questions, so that the answers are granted; null while there is none. */
  get session(): number | null {
    return this.leftMs > 0 ? this.#session : null;
  }

  /** For how long what was granted may still be believed, in milliseconds; 0 if not. Looked at for each use. */
  get leftMs(): number {
    return Math.max(0, this.#untilMs - this.#parts.world.nowMs());
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /**
   * Ends the session here at once and begins another: the outcome of a command that names this one is unknown, and the command may still
   * be executed without a recall of what this session was granted. The primary learns of the end when nothing fenced is under way any more.
   */
  renounce(): void {
    const session = this.#session;
    if (session === null) return;
    this.#end();
    this.#acked = 0;
    const left = (): void => {
      this.#left = session;
    };
    void (this.#parts.flushed?.() ?? Promise.resolve()).then(left, left);
  }

  /** Believes nothing any more. */
  async stop(): Promise<void> {
    this.#abort.abort();
    this.#end();
    await this.#running;
  }

  /** Believes nothing any more, and says so, so that nobody waits for it to forget. */
  async leave(): Promise<void> {
    const session = this.#session;
    await this.stop();
    if (session === null) return;
    await this.#parts.flushed?.();
    const request = { client: this.client, left: session, acked: 0, fenced: true };
    const signal = this.#parts.world.timeout(LEAVE_MS_MAX);
    await this.#parts.poll(request, { signal, timeoutMs: LEAVE_MS_MAX }).catch(this.#parts.failed);
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort;
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
      this.#end();
      this.#left = session ?? this.#left;
      this.#session = answer.session;
      this.#acked = 0;
    }
    if (answer.session === null) return session !== null;
    if (answer.validMs > 0) this.#renew(sentMs + answer.validMs);
    if (answer.recalls.length > 0) await this.#parts.recalled(answer.recalls);
    this.#acked = Math.max(this.#acked, answer.through);
    return answer.validMs > 0 || answer.recalls.length > 0;
  }

  #renew(untilMs: number): void {
    // What was believed under a right that is over may have changed since.
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
