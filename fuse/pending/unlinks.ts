import { ServiceError } from '../../base/errors.ts';
import { nowNs } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { UNLINKS_MAX } from '../../wire/request-limits.ts';
import type { DelegationBackend, FencedName, UnlinkedName, UnlinkOutcome } from '../backend.ts';
import { type Place, placeKey } from '../place.ts';
import { type Budget, SHARES } from './budget.ts';
import type { ErrorSequence } from './error-sequence.ts';
import { FLUSH_ALL, type FlushScope, isInScope, type PendingKind, type PendingOps } from './pending-ops.ts';
import { SendQueue } from './send-queue.ts';

/** While one is under way for so long, in milliseconds, no other is acknowledged ahead of the cluster. */
export const SLOW_MS = 1_000;
/** A request is sent again after so long, in milliseconds, where the client library has no certain answer. */
const AGAIN_MS = 100;
/** Unlinks gather for so long, in milliseconds, or until they are so many: a request costs as much as ten of the names in it. */
const PAUSE_MS = 10;
const GATHERED_MAX = 64;

interface Pending extends FencedName {
  readonly uid: number | undefined;
  readonly bytes: 0;
  readonly sinceMs: number;
  readonly over: Promise<void>;
  readonly end: () => void;
}

/** What was acknowledged and dropped. */
export interface LateError {
  readonly operation: 'unlink' | 'create';
  readonly directory: number;
  readonly name: string;
  readonly error: unknown;
}

export interface UnlinkOptions {
  /** Files that are removed no later than this one after the other, in milliseconds, are acknowledged ahead of the cluster (docs/design/mount.md, "Asynchronous unlink"). */
  readonly streakMs?: number;
  /** How long a call waits for removals of before, in milliseconds. */
  readonly waitMsMax?: number;
  readonly late?: (error: LateError) => void;
  /** Resolves when the kernel caches no attributes of these directories: the outcome of acknowledged changes in them is known. */
  readonly changed?: (directories: readonly number[]) => Promise<void>;
}

export interface UnlinkEvents {
  /** The cluster has it. `atNs`: the times of its directory since, where they are known. */
  removed(name: UnlinkedName, atNs: string | null): void;
  /** It was acknowledged and dropped: the file has its name still, or that is not known. */
  failed(name: UnlinkedName, error: unknown): void;
  /** The outcome of unlinks in these directories is known. Callers that wait for them are answered when it resolves. */
  changed(directories: readonly number[]): Promise<void>;
}

/**
 * Asynchronous unlinks: names that were acknowledged as gone, and that the cluster has still. The first one's request leaves at once; then names gather
 * for a moment, unless a caller waits for one of them. The fence: each is acknowledged under a delegation of its directory and has effect only while that delegation lasts,
 * and only on the file and the contents that were there. An unlink is sent until the cluster answers. One that is refused is dropped, and
 * reported by `fsync` of the directory (`ErrorSequence`).
 */
export class Unlinks implements PendingKind {
  readonly #world: World;
  readonly #budget: Budget;
  readonly #errors: ErrorSequence;
  readonly #backend: Pick<DelegationBackend, 'unlink'>;
  readonly #events: UnlinkEvents;
  readonly #waitMsMax: number;
  /** By place, the oldest first. */
  readonly #pending = new Map<string, Pending>();
  /** Whose outcome is known, and whose directory the kernel has not dropped. */
  #ending: readonly Pending[] = [];
  /** Files whose unlink is pending. */
  readonly #inodes = new Set<number>();
  /** Of directories with pending unlinks: how many, and the times of the directory since the last one. */
  readonly #directories = new Map<number, { readonly count: number; readonly atNs: string }>();
  readonly #queue: SendQueue<Pending>;
  readonly #stopped = new AbortController();
  /** The clock of the server that answers, as far as it is known, is so much ahead of the one here. */
  #aheadNs = 0n;

  /** @param waitMsMax how long a call waits for earlier unlinks, in milliseconds */
  constructor(
    world: World,
    pending: PendingOps,
    backend: Pick<DelegationBackend, 'unlink'>,
    events: UnlinkEvents,
    waitMsMax: number,
  ) {
    this.#world = world;
    this.#budget = pending.budget.share(SHARES.unlink);
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
  }

  get isEmpty(): boolean {
    return this.#pending.size === 0;
  }

  /** The cluster has answered nothing for so long that no further removal is acknowledged ahead of it. */
  get isSlow(): boolean {
    const [oldest] = this.#pending.values();
    return oldest !== undefined && this.#world.nowMs() - oldest.sinceMs > SLOW_MS;
  }

  /** Resolves when one more can be acknowledged. */
  async room(): Promise<void> {
    while (this.#budget.isFull) {
      this.#queue.hurry();
      await this.#bounded(this.#budget.released());
    }
  }

  /**
   * The name is gone for every caller of this mount.
   *
   * @returns the times of its directory since, as near as they are known here
   */
  add(name: FencedName, uid: number | undefined): string {
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const pending: Pending = { ...name, uid, bytes: 0, sinceMs: this.#world.nowMs(), over, end };
    this.#pending.set(placeKey(name), pending);
    this.#inodes.add(name.inode);
    const atNs = String(nowNs(this.#world) + this.#aheadNs);
    this.#directories.set(name.parent, { count: (this.#directories.get(name.parent)?.count ?? 0) + 1, atNs });
    this.#budget.add(1, 0);
    this.#queue.add(pending);
    return atNs;
  }

  /** @returns the times of a directory with pending unlinks, as near as they are known here; null where it has none */
  timesOf(directory: number): string | null {
    return this.#directories.get(directory)?.atNs ?? null;
  }

  /** @param atNs when the cluster changed something a moment ago */
  heard(atNs: string): void {
    this.#aheadNs = BigInt(atNs) - nowNs(this.#world);
  }

  isAt(place: Place): boolean {
    return this.#pending.has(placeKey(place));
  }

  /** Whether the unlink of the file is pending. */
  isOf(inode: number): boolean {
    return this.#inodes.has(inode);
  }

  /**
   * Resolves when the cluster has answered those that were acknowledged before. An unlink changes the attributes of its directory, too.
   *
   * @param waitMsMax infinite before a delegation is returned
   * @throws ServiceError `no-majority` where the cluster does not answer within that time
   */
  async flush(scope: FlushScope, waitMsMax = this.#waitMsMax): Promise<void> {
    const pending = this.#inScope(scope);
    if (pending.length === 0) return;
    this.#queue.hurry();
    const over = Promise.all(pending.map((unlink) => unlink.over));
    await (waitMsMax === Number.POSITIVE_INFINITY ? over : this.#bounded(over));
  }

  /** Once more where there was no quota for it, when what was removed before is gone. */
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

  /** Waits for as long as a call may, and drops what the cluster has not answered by then. */
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
    const { promise: late, reject } = Promise.withResolvers<never>();
    const why = `Unlinks of before have no answer of the cluster within ${this.#waitMsMax} ms`;
    const timer = this.#world.after(this.#waitMsMax, () => reject(new ServiceError('no-majority', why)));
    await Promise.race([work, late]).finally(() => timer.cancel());
  }

  async #send(batch: readonly Pending[]): Promise<void> {
    const { outcomes, atNs } = await this.#outcomes(batch);
    if (atNs !== null) this.heard(atNs);
    this.#ending = batch;
    for (const [index, pending] of batch.entries()) {
      const outcome = outcomes[index] ?? { kind: 'refused', error: new Error('The answer has no outcome') };
      this.#pending.delete(placeKey(pending));
      this.#inodes.delete(pending.inode);
      this.#ended(pending.parent);
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

  #ended(parent: number): void {
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
        const isAnswered = error instanceof ServiceError && error.remedy === 'give-up';
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
