import { isRefusal, ServiceError } from '../../base/errors.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { UNLINKS_MAX } from '../../wire/request-limits.ts';
import type { DelegationBackend, FencedName, UnlinkedName, UnlinkOutcome } from '../backend.ts';
import { type DeadlineOf, withDeadline } from '../deadline.ts';
import { messageOf } from '../errno.ts';
import { type Place, placeKey } from '../place.ts';
import { BUDGET_SHARES, type Budget } from './budget.ts';
import type { ErrorSequence } from './error-sequence.ts';
import { FLUSH_ALL, type FlushScope, isInScope, type PendingKind, type PendingOps } from './pending-ops.ts';
import { SendQueue } from './send-queue.ts';

/** While an unlink has had no answer for this time, no other becomes pending. */
export const SLOW_MS = 1_000;
/** A request without a definite answer is sent again after this time. */
const AGAIN_MS = 100;
/** Unlinks gather for this time, or until they are so many: a request costs as much as ten names in it. */
const PAUSE_MS = 10;
const GATHERED_MAX = 64;

interface Pending extends FencedName {
  readonly uid: number | undefined;
  readonly bytes: 0;
  readonly sinceMs: number;
  readonly ended: Promise<void>;
  readonly end: () => void;
}

/** An acknowledged operation was dropped. */
export interface LateError {
  readonly operation: 'unlink' | 'create';
  readonly directory: number;
  readonly name: string;
  readonly error: unknown;
}

export interface UnlinkOptions {
  /** The longest pause in a streak, whose unlinks may become pending (docs/design/mount.md, "Asynchronous unlink"). */
  readonly streakMs?: number;
  readonly waitMsMax?: number;
  readonly deadlineOf?: DeadlineOf;
  readonly late?: (error: LateError) => void;
  /** Resolves when the kernel has dropped the attributes of directories whose pending changes have an outcome. */
  readonly changed?: (directories: readonly number[]) => Promise<void>;
}

export interface UnlinkEvents {
  /** `atNs`: the directory's new times, if known. */
  removed(name: UnlinkedName, atNs: string | null): void;
  /** It was acknowledged and dropped: the file still has its name, or that is unknown. */
  failed(name: UnlinkedName, error: unknown): void;
  /** Unlinks in these directories have an outcome. Their callers are answered when it resolves. */
  changed(directories: readonly number[]): Promise<void>;
}

/**
 * Asynchronous unlinks: acknowledged, and not executed by the cluster. The first request is sent at once; then names
 * gather for a moment, unless a caller waits. The fence: an unlink is acknowledged under a delegation of its directory,
 * and executed only while that lasts, and only on the same file with the same contents. It is sent until the cluster
 * answers. If refused it is dropped, and `fsync` of the directory returns the error (`ErrorSequence`).
 */
export class Unlinks implements PendingKind {
  readonly #world: World;
  readonly #budget: Budget;
  readonly #errors: ErrorSequence;
  readonly #backend: Pick<DelegationBackend, 'unlink'>;
  readonly #events: UnlinkEvents;
  readonly #waitMsMax: number;
  readonly #deadlineOf: DeadlineOf | undefined;
  readonly #pending = new Map<string, Pending>();
  /** Unlinks with an outcome, while the kernel drops the attributes of their directories. */
  #ending: readonly Pending[] = [];
  readonly #inodes = new Set<number>();
  readonly #directories = new Map<number, { readonly count: number; readonly atNs: string }>();
  readonly #queue: SendQueue<Pending>;
  readonly #stopped = new AbortController();
  /** How far the clock of the catalog's primary is ahead of this mount's. */
  #aheadNs = 0n;

  constructor(
    world: World,
    pending: PendingOps,
    backend: Pick<DelegationBackend, 'unlink'>,
    events: UnlinkEvents,
    waitMsMax: number,
    deadlineOf?: DeadlineOf,
  ) {
    this.#world = world;
    this.#budget = pending.budget.share(BUDGET_SHARES.unlink);
    this.#errors = pending.errors;
    pending.add('unlink', this);
    this.#queue = new SendQueue<Pending>({
      ...{ requestsMax: 1, countMax: UNLINKS_MAX, pause: { world, ms: PAUSE_MS, countMax: GATHERED_MAX } },
      isAlike: (one, other) => one.uid === other.uid && one.fence.session === other.fence.session,
      send: (batch) => this.#send(batch),
    });
    this.#backend = backend;
    this.#events = events;
    this.#waitMsMax = waitMsMax;
    this.#deadlineOf = deadlineOf;
  }

  get isEmpty(): boolean {
    return this.#pending.size === 0;
  }

  /** Whether the oldest unlink has had no answer for more than `SLOW_MS`: then no other becomes pending. */
  get isSlow(): boolean {
    const [oldest] = this.#pending.values();
    return oldest !== undefined && this.#world.nowMs() - oldest.sinceMs > SLOW_MS;
  }

  /** Resolves when another unlink is within the budget. @throws ServiceError `no-majority` after the limit */
  async waitForBudget(): Promise<void> {
    while (this.#budget.isFull) {
      this.#queue.sendNow();
      await this.#bounded(this.#budget.untilReleased());
    }
  }

  /** Makes an unlink pending: the caller removes the name here. @returns an estimate of the directory's new times */
  add(name: FencedName, uid: number | undefined): string {
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const pending: Pending = { ...name, uid, bytes: 0, sinceMs: this.#world.nowMs(), ended, end };
    this.#pending.set(placeKey(name), pending);
    this.#inodes.add(name.inode);
    const atNs = String(nowNs(this.#world) + this.#aheadNs);
    this.#directories.set(name.parent, { count: (this.#directories.get(name.parent)?.count ?? 0) + 1, atNs });
    this.#budget.add(1, 0);
    this.#queue.add(pending);
    return atNs;
  }

  timesOf(directory: number): string | null {
    return this.#directories.get(directory)?.atNs ?? null;
  }

  /** @param atNs time of a change that the cluster has just executed */
  observeServerTime(atNs: string): void {
    this.#aheadNs = BigInt(atNs) - nowNs(this.#world);
  }

  isAt(place: Place): boolean {
    return this.#pending.has(placeKey(place));
  }

  isOf(inode: number): boolean {
    return this.#inodes.has(inode);
  }

  /**
   * Resolves when the unlinks have an outcome. The scope of an inode includes those in it, if a directory.
   * @param waitMsMax infinite before a delegation is returned
   * @throws ServiceError `no-majority` if the cluster does not answer within that time
   */
  async flush(scope: FlushScope, waitMsMax = this.#waitMsMax): Promise<void> {
    const pending = this.#inScope(scope);
    if (pending.length === 0) return;
    this.#queue.sendNow();
    const ended = Promise.all(pending.map((unlink) => unlink.ended));
    await (waitMsMax === Number.POSITIVE_INFINITY ? ended : this.#bounded(ended));
  }

  /** Makes a change. If it exceeds the quota, makes it again after the pending unlinks, which may free some. */
  async withQuota<Result>(change: () => Promise<Result>): Promise<Result> {
    if (this.isEmpty) return change();
    try {
      return await change();
    } catch (error) {
      if (!isOverQuota(error)) throw error;
      await this.flush(FLUSH_ALL);
      return change();
    }
  }

  /** Waits as long as a call may, then drops the remaining unlinks. */
  async stop(): Promise<void> {
    await this.flush(FLUSH_ALL).catch(() => undefined);
    this.#stopped.abort(new Error('The mount ended before the cluster answered'));
    await this.flush(FLUSH_ALL, Number.POSITIVE_INFINITY);
  }

  #inScope(scope: FlushScope): readonly Pending[] {
    if (scope.kind === 'name') {
      const pending = this.#pending.get(placeKey(scope));
      return pending === undefined ? [] : [pending];
    }
    return [...this.#pending.values(), ...this.#ending].filter(
      (pending) => isInScope(scope, pending) || (scope.kind === 'inode' && scope.inode === pending.parent),
    );
  }

  async #bounded(work: Promise<unknown>): Promise<void> {
    const [limitMs, deadlineOf] = [this.#waitMsMax, this.#deadlineOf];
    await withDeadline(this.#world, work, limitMs, 'The answer to pending unlinks', deadlineOf).catch(
      (late) => {
        throw new ServiceError('no-majority', messageOf(late));
      },
    );
  }

  /** Sends a batch. Records its outcomes; waits until the kernel has dropped the attributes; then ends the flushes. */
  async #send(batch: readonly Pending[]): Promise<void> {
    const { outcomes, atNs } = await this.#outcomes(batch);
    if (atNs !== null) this.observeServerTime(atNs);
    this.#ending = batch;
    for (const [index, pending] of batch.entries()) {
      const outcome = outcomes[index] ?? { kind: 'refused', error: new Error('The answer has no outcome') };
      this.#pending.delete(placeKey(pending));
      this.#inodes.delete(pending.inode);
      this.#countEnded(pending.parent);
      if (outcome.kind === 'refused') {
        this.#errors.set({ kind: 'directory', inode: pending.parent }, outcome.error);
        this.#events.failed(pending, outcome.error);
      } else this.#events.removed(pending, outcome.kind === 'removed' ? atNs : null);
    }
    await this.#events.changed([...new Set(batch.map(({ parent }) => parent))]);
    this.#ending = [];
    for (const { end } of batch) end();
    this.#budget.release(0, batch.length);
  }

  #countEnded(parent: number): void {
    const known = this.#directories.get(parent);
    if (known === undefined || known.count === 1) this.#directories.delete(parent);
    else this.#directories.set(parent, { ...known, count: known.count - 1 });
  }

  async #outcomes(batch: readonly Pending[]): ReturnType<DelegationBackend['unlink']> {
    const { signal } = this.#stopped;
    for (;;) {
      try {
        return await this.#backend.unlink(batch, { uid: batch[0]?.uid, signal });
      } catch (error) {
        const isAnswered = isRefusal(error);
        if (isAnswered || signal.aborted)
          return { outcomes: batch.map((): UnlinkOutcome => ({ kind: 'refused', error })), atNs: null };
      }
      await this.#world.sleep(AGAIN_MS, { signal }).catch(() => undefined);
    }
  }
}

export function isOverQuota(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'quota-exceeded';
}
