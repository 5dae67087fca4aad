import type { Timer, World } from '../../base/world.ts';
import type { Request, RequestHeader } from './requests.ts';
import type { Signals } from './signals.ts';

const CHECK_INTERVAL_MS = 100;

/** Before this a close is not interrupted: an ended program's bytes are expected to be stored, its locks released. */
const CLOSE_MS = 2_000;

/** Calls that a program may repeat safely, and whose callers expect EINTR. */
const REPEATABLE: ReadonlySet<Request['kind']> = new Set([
  'lookup',
  'attributes',
  'open',
  'read',
  'persist',
  'persist-directory',
  'open-directory',
  'read-directory',
  'space',
  'xattr',
  'xattrs',
]);

export interface CallUnderWay {
  readonly header: RequestHeader;
  readonly request: Request;
  /** Infinity if the call has limits of its own; asked again when it has passed. */
  lateAtMs(): number;
  readonly abort?: AbortController;
}

/**
 * Each call gets exactly one answer: its own, ETIMEDOUT when it is late, or EINTR when its caller was killed or wants
 * to stop. Otherwise a killed caller would stay in the kernel, where no signal reaches it.
 */
export class PendingCalls {
  readonly #world: World;
  readonly #calls = new Map<number, CallUnderWay>();
  readonly #interrupted = new Map<CallUnderWay, number>();
  readonly #aborted: (call: CallUnderWay, errno: 'ETIMEDOUT' | 'EINTR') => void;
  readonly #signals: Signals;
  /** The calls without an answer, for each wait in `#answered`. */
  readonly #waitsForAnswers = new Map<Set<CallUnderWay>, () => void>();
  #timer: Timer | undefined;

  /** @param aborted sends the answer of a call that is aborted */
  constructor(
    world: World,
    aborted: (call: CallUnderWay, errno: 'ETIMEDOUT' | 'EINTR') => void,
    signals: Signals,
  ) {
    this.#world = world;
    this.#aborted = aborted;
    this.#signals = signals;
  }

  begin(call: CallUnderWay): void {
    this.#calls.set(call.header.unique, call);
    this.#timer ??= this.#world.after(CHECK_INTERVAL_MS, () => this.#check());
  }

  /** Called when a call has its outcome. @returns false if it was answered before */
  end(call: CallUnderWay): boolean {
    if (this.#calls.get(call.header.unique) !== call) return false;
    this.#calls.delete(call.header.unique);
    if (this.#interrupted.size > 0) this.#interrupted.delete(call);
    for (const [calls, resolve] of this.#waitsForAnswers) {
      if (!calls.delete(call) || calls.size > 0) continue;
      this.#waitsForAnswers.delete(calls);
      resolve();
    }
    return true;
  }

  /** Resolves when each read of the node that is under way now has its answer. */
  readsAnswered(node: number): Promise<void> {
    return this.#answered(({ header, request }) => request.kind === 'read' && header.node === node);
  }

  /** Resolves when each call that may hold the kernel's lock of a directory, and is under way now, has its answer. */
  directoryCallsAnswered(node: number): Promise<void> {
    return this.#answered(
      ({ header, request }) =>
        header.node === node || (request.kind === 'rename' && request.toParent === node),
    );
  }

  #answered(isAwaited: (call: CallUnderWay) => boolean): Promise<void> {
    const calls = new Set([...this.#calls.values()].filter(isAwaited));
    if (calls.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waitsForAnswers.set(calls, resolve));
  }

  /** The caller got a signal. The kernel sends this once per call, whatever signals follow. */
  interrupt(unique: number): void {
    const call = this.#calls.get(unique);
    if (call === undefined) return;
    // The call may still have to undo what it began; a killed caller does not wait for that.
    call.abort?.abort();
    const sinceMs = this.#world.nowMs();
    this.#interrupted.set(call, sinceMs);
    this.#checkInterrupted(call, sinceMs);
  }

  stop(): void {
    this.#timer?.cancel();
    for (const { abort } of this.#calls.values()) abort?.abort();
    this.#calls.clear();
    this.#interrupted.clear();
    for (const resolve of this.#waitsForAnswers.values()) resolve();
    this.#waitsForAnswers.clear();
  }

  #check(): void {
    const nowMs = this.#world.nowMs();
    for (const call of this.#calls.values()) if (call.lateAtMs() <= nowMs) this.#abort(call, 'ETIMEDOUT');
    for (const [call, sinceMs] of this.#interrupted) this.#checkInterrupted(call, sinceMs);
    this.#timer =
      this.#calls.size > 0 ? this.#world.after(CHECK_INTERVAL_MS, () => this.#check()) : undefined;
  }

  #checkInterrupted(call: CallUnderWay, sinceMs: number): void {
    if (call.request.kind === 'flush' && this.#world.nowMs() - sinceMs < CLOSE_MS) return;
    const pending = this.#signals(call.header.pid);
    if (pending === 'killed' || (pending === 'stopping' && REPEATABLE.has(call.request.kind)))
      this.#abort(call, 'EINTR');
  }

  #abort(call: CallUnderWay, errno: 'ETIMEDOUT' | 'EINTR'): void {
    if (this.end(call)) this.#aborted(call, errno);
  }
}
