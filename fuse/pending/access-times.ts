import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import { isRefusal } from '../../base/errors.ts';
import { isLater, nowNs } from '../../base/times.ts';
import type { Timer, World } from '../../base/world.ts';
import { ACCESSES_MAX } from '../../wire/request-limits.ts';
import type { Attributes, FileSystemBackend, RecordedAccess } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import type { Log } from '../transport.ts';
import { SHARES } from './budget.ts';
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
const TOLD_COUNT_MAX = 10_000;
const AGAIN_MS = 30_000;
/** Nothing is recorded for this time after a refusal, as by servers of an earlier release. */
const OFF_MS = 600_000;
const STOP_LIMIT_MS = 5_000;
const DAY_NS = 86_400_000_000_000n;

type Note = Omit<RecordedAccess, 'inode'>;

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
  readonly #noted = new Map<number, Note>();
  /** Reads in the request under way. */
  #sending = new Map<number, Note>();
  /** Whether that request succeeded. */
  #sent: Promise<boolean> = Promise.resolve(true);
  readonly #told = new BoundedMap<number, Note>(TOLD_COUNT_MAX);
  #timer: Timer | undefined;
  /** The timer is for `GATHERED_COUNT`, not `GATHER_MS`. */
  #isSoon = false;
  #isTelling = false;
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
    return this.#noted.size + this.#sending.size;
  }

  /** Records a read. @param attributes as known here, without `shown`. @returns whether the access time changes */
  read(attributes: Attributes): boolean {
    const { inode, changedNs, kind } = attributes;
    const isKept = this.#rule.times !== 'noatime' && (kind !== 'directory' || this.#rule.directories);
    if (!isKept || this.#isStopped || this.isPaused) return false;
    const { accessedNs } = this.shown(attributes);
    const readNs = nowNs(this.#world);
    if (!this.#isWanted(accessedNs, attributes, readNs)) return false;
    if (this.#world.nowMs() < this.#offUntilMs) return false;
    if (this.#noted.size >= SHARES['access-time'].countMax && !this.#noted.has(inode)) return false;
    // The read follows the change that it saw, even if the clock of that change is ahead.
    const changed = BigInt(changedNs);
    const atNs = readNs > changed ? readNs : changed + 1n;
    if (atNs <= BigInt(accessedNs)) return false;
    const told = this.#told.get(inode);
    const heardNs = told !== undefined && isSince(told, attributes) ? told.accessedNs : attributes.accessedNs;
    this.#noted.set(inode, { accessedNs: String(atNs), seen: { accessedNs: heardNs, changedNs } });
    this.#schedule();
    return true;
  }

  /** Drops reads of an inode that is removed and not open, or whose access time a program sets. */
  forget(inode: number): void {
    this.#noted.delete(inode);
    this.#told.delete(inode);
  }

  /** Called before a program sets the access time. Resolves when no earlier read can override it. */
  async setting(inode: number): Promise<void> {
    this.forget(inode);
    while (this.#sending.has(inode)) await this.#sent;
    this.forget(inode);
  }

  /** Resolves when the cluster has earlier reads, or a request failed: all of them, or at least those of an inode. */
  async flush(scope: FlushScope): Promise<void> {
    const isMeant =
      scope.kind === 'inode'
        ? this.#noted.has(scope.inode) || this.#sending.has(scope.inode)
        : scope.kind === 'all';
    if (!isMeant) return;
    for (let left = this.count; left > 0; left -= ACCESSES_MAX) {
      // A failed request also ends this flush: its caller has waited as long as for one of its own.
      while (this.#sending.size > 0) if (!(await this.#sent)) return;
      if (this.#noted.size === 0 || !(await this.#sendSome())) return;
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await withDeadline(this.#world, this.flush(FLUSH_ALL), STOP_LIMIT_MS, 'Telling of reads').catch(
      () => undefined,
    );
    if (this.count > 0) this.#log('info', 'access times are lost', { count: this.count });
    this.#noted.clear();
  }

  #schedule(): void {
    if (this.#isStopped || this.#isTelling || this.#noted.size === 0) return;
    const isMany = this.#noted.size >= GATHERED_COUNT;
    if (isMany && !this.#isSoon) {
      this.#timer?.cancel();
      this.#timer = undefined;
    }
    this.#isSoon = isMany;
    const waitMs = Math.max(isMany ? 0 : GATHER_MS, this.#againMs - this.#world.nowMs());
    this.#timer ??= this.#world.after(waitMs, () => void this.#tell()).unref();
  }

  async #tell(): Promise<void> {
    this.#timer = undefined;
    this.#isSoon = false;
    this.#isTelling = true;
    await this.flush(FLUSH_ALL);
    this.#isTelling = false;
    this.#schedule();
  }

  async #sendSome(): Promise<boolean> {
    assert(this.#sending.size === 0, 'One request is under way at a time');
    const batch = new Map<number, Note>();
    for (const [inode, note] of this.#noted) {
      if (batch.size === ACCESSES_MAX) break;
      batch.set(inode, note);
      this.#noted.delete(inode);
    }
    this.#sending = batch;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#sent = promise;
    let failure: unknown;
    try {
      await this.#backend.recordAccesses([...batch].map(([inode, note]) => ({ inode, ...note })));
    } catch (error) {
      failure = error;
    }
    this.#sending = new Map();
    if (failure === undefined) this.#wasTold(batch);
    else this.#failed(batch, failure);
    resolve(failure === undefined);
    return failure === undefined;
  }

  #wasTold(batch: ReadonlyMap<number, Note>): void {
    for (const [inode, note] of batch) {
      const { accessedNs, seen } = note;
      const next = this.#noted.get(inode);
      // It was read again during the request.
      if (next?.seen.accessedNs === seen.accessedNs)
        this.#noted.set(inode, { ...next, seen: { ...next.seen, accessedNs } });
      this.#told.set(inode, note);
      this.#stored({ inode, ...note });
    }
  }

  #failed(batch: ReadonlyMap<number, Note>, error: unknown): void {
    const facts = { count: batch.size, error: String(error) };
    if (isRefusal(error)) {
      this.#offUntilMs = this.#world.nowMs() + OFF_MS;
      this.#noted.clear();
      this.#log('warn', 'the cluster refuses access times: none are recorded for now', facts);
      return;
    }
    this.#log('debug', 'access times are not sent', facts);
    for (const [inode, note] of batch)
      if (!this.#noted.has(inode) && this.#noted.size < SHARES['access-time'].countMax)
        this.#noted.set(inode, note);
    this.#againMs = this.#world.nowMs() + AGAIN_MS;
    this.#schedule();
  }

  #isWanted(accessedNs: string, { modifiedNs, changedNs }: Attributes, readNs: bigint): boolean {
    if (this.#rule.times === 'strictatime') return true;
    if (!isLater(accessedNs, modifiedNs) || !isLater(accessedNs, changedNs)) return true;
    return readNs - BigInt(accessedNs) >= DAY_NS;
  }

  /** The attributes with the access time of reads here that they lack. */
  shown<Known extends Attributes>(attributes: Known): Known {
    if (this.#noted.size + this.#sending.size + this.#told.size === 0) return attributes;
    const { inode } = attributes;
    const note = this.#noted.get(inode) ?? this.#sending.get(inode);
    if (note !== undefined && isAfter(note, attributes)) return withAccess(attributes, note);
    const told = this.#told.get(inode);
    if (told === undefined || !isSince(told, attributes)) return attributes;
    return withAccess(attributes, told);
  }
}

/** Whether the cluster will accept the read over these attributes. */
function isAfter({ accessedNs, seen }: Note, attributes: Attributes): boolean {
  if (!isLater(accessedNs, attributes.accessedNs)) return false;
  if (attributes.changedNs === seen.changedNs) return true;
  return attributes.accessedNs === seen.accessedNs && attributes.changedNs === attributes.modifiedNs;
}

/** Whether the attributes are from before the cluster had the read, and no client has set another access time since. */
function isSince({ accessedNs, seen }: Note, attributes: Attributes): boolean {
  return isLater(accessedNs, attributes.accessedNs) && !isLater(attributes.changedNs, seen.changedNs);
}

function withAccess<Known extends Attributes>(attributes: Known, { accessedNs }: Note): Known {
  return { ...attributes, accessedNs };
}
