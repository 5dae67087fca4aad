import type { Timer, World } from '../../base/world.ts';
import type { Request, RequestHeader } from './requests.ts';
import type { Signals } from './signals.ts';

/** How often calls are looked at that may be late, or whose caller may have been killed. */
const LOOK_INTERVAL_MS = 100;

/**
 * The end of a program closes its files, and whoever waits for that end may count on its bytes and on its locks being given
 * back. So a close is broken off no sooner than after this time, in milliseconds.
 */
const CLOSE_MS = 2_000;

/** Calls that a program may repeat without a difference, and whose callers know EINTR. */
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
  /** When its answer is late; Infinity where the call has limits of its own. */
  readonly lateAtMs: number;
  /** For calls that end by themselves when they are told to. */
  readonly abort?: AbortController;
}

/**
 * Calls that the kernel waits for. Each gets exactly one answer: its own, or ETIMEDOUT when it is late, or EINTR
 * when its caller was killed or wants to stop. A caller that was killed would otherwise stay in the kernel,
 * where no signal reaches it, until the call is answered.
 */
export class CallsUnderWay {
  readonly #world: World;
  readonly #calls = new Map<number, CallUnderWay>();
  /** And since when they are. */
  readonly #interrupted = new Map<CallUnderWay, number>();
  readonly #broken: (call: CallUnderWay, errno: 'ETIMEDOUT' | 'EINTR') => void;
  readonly #signals: Signals;
  /** Waits of `#answered`, each with the calls that have no answer yet. */
  readonly #waits = new Map<Set<CallUnderWay>, () => void>();
  #timer: Timer | undefined;

  /** @param broken gives the kernel the answer of a call that is waited for no longer */
  constructor(
    world: World,
    broken: (call: CallUnderWay, errno: 'ETIMEDOUT' | 'EINTR') => void,
    signals: Signals,
  ) {
    this.#world = world;
    this.#broken = broken;
    this.#signals = signals;
  }

  begin(call: CallUnderWay): void {
    this.#calls.set(call.header.unique, call);
    this.#timer ??= this.#world.after(LOOK_INTERVAL_MS, () => this.#look());
  }

  /** @returns false where the call has its answer already */
  end(call: CallUnderWay): boolean {
    if (this.#calls.get(call.header.unique) !== call) return false;
    this.#calls.delete(call.header.unique);
    if (this.#interrupted.size > 0) this.#interrupted.delete(call);
    for (const [calls, resolve] of this.#waits) {
      if (!calls.delete(call) || calls.size > 0) continue;
      this.#waits.delete(calls);
      resolve();
    }
    return true;
  }

  /** Resolves when each read of the node that is under way now has its answer. */
  readsAnswered(node: number): Promise<void> {
    return this.#answered(({ header, request }) => request.kind === 'read' && header.node === node);
  }

  /** As `readsAnswered`, of each call on a directory, for which the kernel may have locked it. */
  directoryCallsAnswered(node: number): Promise<void> {
    return this.#answered(
      ({ header, request }) =>
        header.node === node || (request.kind === 'rename' && request.toParent === node),
    );
  }

  #answered(isAwaited: (call: CallUnderWay) => boolean): Promise<void> {
    const calls = new Set([...this.#calls.values()].filter(isAwaited));
    if (calls.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waits.set(calls, resolve));
  }

  /** A signal came for the caller. The kernel says this once of each call, whatever signals follow. */
  interrupt(unique: number): void {
    const call = this.#calls.get(unique);
    if (call === undefined) return;
    // It ends when all is put right that it has begun, for which nobody waits who is killed, now or later.
    call.abort?.abort();
    const sinceMs = this.#world.nowMs();
    this.#interrupted.set(call, sinceMs);
    this.#lookAtInterrupted(call, sinceMs);
  }

  /** The mount is gone: nothing is answered any more. */
  stop(): void {
    this.#timer?.cancel();
    for (const { abort } of this.#calls.values()) abort?.abort();
    this.#calls.clear();
    this.#interrupted.clear();
    for (const resolve of this.#waits.values()) resolve();
    this.#waits.clear();
  }

  #look(): void {
    const nowMs = this.#world.nowMs();
    for (const call of this.#calls.values()) if (call.lateAtMs <= nowMs) this.#break(call, 'ETIMEDOUT');
    for (const [call, sinceMs] of this.#interrupted) this.#lookAtInterrupted(call, sinceMs);
    this.#timer = this.#calls.size > 0 ? this.#world.after(LOOK_INTERVAL_MS, () => this.#look()) : undefined;
  }

  #lookAtInterrupted(call: CallUnderWay, sinceMs: number): void {
    if (call.request.kind === 'flush' && this.#world.nowMs() - sinceMs < CLOSE_MS) return;
    const pending = this.#signals(call.header.pid);
    if (pending === 'killed' || (pending === 'stopping' && REPEATABLE.has(call.request.kind)))
      this.#break(call, 'EINTR');
  }

  #break(call: CallUnderWay, errno: 'ETIMEDOUT' | 'EINTR'): void {
    if (this.end(call)) this.#broken(call, errno);
  }
}
