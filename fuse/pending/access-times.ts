import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import { isRefusal } from '../../base/errors.ts';
import { isLater, nowNs } from '../../base/times.ts';
import type { Timer, World } from '../../base/world.ts';
import { ACCESSES_MAX } from '../../wire/request-limits.ts';
import type { Attributes, FileSystemBackend, RecordedAccess } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import type { Log } from '../transport.ts';
import { BUDGET_SHARES } from './budget.ts';
import { FLUSH_ALL, type FlushScope, type PendingKind } from './pending-ops.ts';

export interface AccessRule {
  /** `relatime`: if not read since the last change, or for a day. */
  readonly times: 'relatime' | 'strictatime' | 'noatime';
  readonly directories: boolean;
}

export const ACCESS_RULE_DEFAULT: AccessRule = { times: 'relatime', directories: true };

/** Access times are sent after this time, or once there are `GATHERED_COUNT`. */
export const GATHER_MS = 5_000;
const GATHERED_COUNT = 5_000;
/** Access times that are kept after they were sent, as later answers may lack them. */
const SENT_COUNT_MAX = 10_000;
const AGAIN_MS = 30_000;
/** Nothing is recorded for this time after a refusal, as by servers of an earlier release. */
const OFF_MS = 600_000;
const STOP_LIMIT_MS = 5_000;
const DAY_NS = 86_400_000_000_000n;

type PendingRead = Omit<RecordedAccess, 'inode'>;

/**
 * Access times of reads here, merged into all answers, and sent in batches some seconds after the reads
 * (docs/design/mount.md, "Access times"). Only calls that need them wait, and no call fails.
 */
export class AccessTimes implements PendingKind {
  readonly #world: World;
  readonly #backend: Pick<FileSystemBackend, 'recordAccesses'>;
  readonly #rule: AccessRule;
  readonly #log: Log;
  readonly #stored: (access: RecordedAccess) => void;
  readonly #pending = new Map<number, PendingRead>();
  /** Reads in the request under way. */
  #sending = new Map<number, PendingRead>();
  /** Whether that request succeeded. */
  #sendResult: Promise<boolean> = Promise.resolve(true);
  readonly #sentReads = new BoundedMap<number, PendingRead>(SENT_COUNT_MAX);
  #timer: Timer | undefined;
  /** The timer is for `GATHERED_COUNT`, not `GATHER_MS`. */
  #isSoon = false;
  #isFlushing = false;
  /** No request before this time, unless a caller flushes. */
  #againMs = Number.NEGATIVE_INFINITY;
  #offUntilMs = Number.NEGATIVE_INFINITY;
  #isStopped = false;
  /** Set while the mount is read-only. */
  isPaused = false;

  /** @param stored called when the cluster has a read: `seen` is outdated in attributes that were cached before */
  constructor(
    world: World,
    backend: Pick<FileSystemBackend, 'recordAccesses'>,
    rule: AccessRule,
    log: Log,
    stored: (access: RecordedAccess) => void,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#rule = rule;
    this.#log = log;
    this.#stored = stored;
  }

  get count(): number {
    return this.#pending.size + this.#sending.size;
  }

  /** Records a read. @param attributes as known here, without `withReads`. @returns whether the access time changes */
  recordRead(attributes: Attributes): boolean {
    const { inode, changedNs, kind } = attributes;
    const isKept = this.#rule.times !== 'noatime' && (kind !== 'directory' || this.#rule.directories);
    if (!isKept || this.#isStopped || this.isPaused) return false;
    const { accessedNs } = this.withReads(attributes);
    const readNs = nowNs(this.#world);
    if (!this.#isWanted(accessedNs, attributes, readNs)) return false;
    if (this.#world.nowMs() < this.#offUntilMs) return false;
    if (this.#pending.size >= BUDGET_SHARES['access-time'].countMax && !this.#pending.has(inode))
      return false;
    // The read follows the change that it saw, even if the clock of that change is ahead.
    const changed = BigInt(changedNs);
    const atNs = readNs > changed ? readNs : changed + 1n;
    if (atNs <= BigInt(accessedNs)) return false;
    const sent = this.#sentReads.get(inode);
    const clusterNs =
      sent !== undefined && isSince(sent, attributes) ? sent.accessedNs : attributes.accessedNs;
    this.#pending.set(inode, { accessedNs: String(atNs), seen: { accessedNs: clusterNs, changedNs } });
    this.#schedule();
    return true;
  }

  /** Drops reads of an inode that is removed and not open, or whose access time a program sets. */
  forget(inode: number): void {
    this.#pending.delete(inode);
    this.#sentReads.delete(inode);
  }

  /** Called before a program sets the access time. Resolves when no earlier read can override it. */
  async setting(inode: number): Promise<void> {
    this.forget(inode);
    while (this.#sending.has(inode)) await this.#sendResult;
    this.forget(inode);
  }

  /** Resolves when the cluster has earlier reads, or a request failed: all of them, or at least those of an inode. */
  async flush(scope: FlushScope): Promise<void> {
    const isMeant =
      scope.kind === 'inode'
        ? this.#pending.has(scope.inode) || this.#sending.has(scope.inode)
        : scope.kind === 'all';
    if (!isMeant) return;
    for (let remaining = this.count; remaining > 0; remaining -= ACCESSES_MAX) {
      // A failed request also ends this flush: its caller has waited as long as for one of its own.
      while (this.#sending.size > 0) if (!(await this.#sendResult)) return;
      if (this.#pending.size === 0 || !(await this.#sendSome())) return;
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await withDeadline(this.#world, this.flush(FLUSH_ALL), STOP_LIMIT_MS, 'Sending access times').catch(
      () => undefined,
    );
    if (this.count > 0) this.#log('info', 'access times are lost', { count: this.count });
    this.#pending.clear();
  }

  #schedule(): void {
    if (this.#isStopped || this.#isFlushing || this.#pending.size === 0) return;
    const isMany = this.#pending.size >= GATHERED_COUNT;
    if (isMany && !this.#isSoon) {
      this.#timer?.cancel();
      this.#timer = undefined;
    }
    this.#isSoon = isMany;
    const waitMs = Math.max(isMany ? 0 : GATHER_MS, this.#againMs - this.#world.nowMs());
    this.#timer ??= this.#world.after(waitMs, () => void this.#flushLater()).unref();
  }

  async #flushLater(): Promise<void> {
    this.#timer = undefined;
    this.#isSoon = false;
    this.#isFlushing = true;
    await this.flush(FLUSH_ALL);
    this.#isFlushing = false;
    this.#schedule();
  }

  async #sendSome(): Promise<boolean> {
    assert(this.#sending.size === 0, 'One request is under way at a time');
    const batch = new Map<number, PendingRead>();
    for (const [inode, read] of this.#pending) {
      if (batch.size === ACCESSES_MAX) break;
      batch.set(inode, read);
      this.#pending.delete(inode);
    }
    this.#sending = batch;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#sendResult = promise;
    let failure: unknown;
    try {
      await this.#backend.recordAccesses([...batch].map(([inode, read]) => ({ inode, ...read })));
    } catch (error) {
      failure = error;
    }
    this.#sending = new Map();
    if (failure === undefined) this.#succeeded(batch);
    else this.#failed(batch, failure);
    resolve(failure === undefined);
    return failure === undefined;
  }

  #succeeded(batch: ReadonlyMap<number, PendingRead>): void {
    for (const [inode, read] of batch) {
      const { accessedNs, seen } = read;
      const next = this.#pending.get(inode);
      // It was read again during the request.
      if (next?.seen.accessedNs === seen.accessedNs)
        this.#pending.set(inode, { ...next, seen: { ...next.seen, accessedNs } });
      this.#sentReads.set(inode, read);
      this.#stored({ inode, ...read });
    }
  }

  #failed(batch: ReadonlyMap<number, PendingRead>, error: unknown): void {
    const facts = { count: batch.size, error: String(error) };
    if (isRefusal(error)) {
      this.#offUntilMs = this.#world.nowMs() + OFF_MS;
      this.#pending.clear();
      this.#log('warn', 'the cluster refuses access times: none are recorded for now', facts);
      return;
    }
    this.#log('debug', 'access times are not sent', facts);
    for (const [inode, read] of batch)
      if (!this.#pending.has(inode) && this.#pending.size < BUDGET_SHARES['access-time'].countMax)
        this.#pending.set(inode, read);
    this.#againMs = this.#world.nowMs() + AGAIN_MS;
    this.#schedule();
  }

  #isWanted(accessedNs: string, { modifiedNs, changedNs }: Attributes, readNs: bigint): boolean {
    if (this.#rule.times === 'strictatime') return true;
    if (!isLater(accessedNs, modifiedNs) || !isLater(accessedNs, changedNs)) return true;
    return readNs - BigInt(accessedNs) >= DAY_NS;
  }

  /** Adds the access time of this mount's last read, if the attributes lack it and the cluster accepts or has it. */
  withReads<Known extends Attributes>(attributes: Known): Known {
    if (this.#pending.size + this.#sending.size + this.#sentReads.size === 0) return attributes;
    const { inode } = attributes;
    const read = this.#pending.get(inode) ?? this.#sending.get(inode);
    if (read !== undefined && isAfter(read, attributes)) return withAccess(attributes, read);
    const sent = this.#sentReads.get(inode);
    if (sent === undefined || !isSince(sent, attributes)) return attributes;
    return withAccess(attributes, sent);
  }
}

/** Whether the cluster will accept the read over these attributes. */
function isAfter({ accessedNs, seen }: PendingRead, attributes: Attributes): boolean {
  if (!isLater(accessedNs, attributes.accessedNs)) return false;
  if (attributes.changedNs === seen.changedNs) return true;
  return attributes.accessedNs === seen.accessedNs && attributes.changedNs === attributes.modifiedNs;
}

/** Whether the attributes are from before the cluster had the read, and no client has set another access time since. */
function isSince({ accessedNs, seen }: PendingRead, attributes: Attributes): boolean {
  return isLater(accessedNs, attributes.accessedNs) && !isLater(attributes.changedNs, seen.changedNs);
}

function withAccess<Known extends Attributes>(attributes: Known, { accessedNs }: PendingRead): Known {
  return { ...attributes, accessedNs };
}
