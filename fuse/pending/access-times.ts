import { assert } from '../../base/assert.ts';
import { BoundedMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import { isLater, nowNs } from '../../base/times.ts';
import type { Timer, World } from '../../base/world.ts';
import { ACCESSES_MAX } from '../../wire/request-limits.ts';
import type { Attributes, FileSystemBackend, NotedAccess } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import type { Log } from '../transport.ts';
import { SHARES } from './budget.ts';
import { FLUSH_ALL, type FlushScope, type PendingKind } from './pending-ops.ts';

/** When a read makes an access time later, as the options of mount(8) have it. */
export interface AccessRule {
  /** `relatime`: where nobody has read it since it changed, or for a day. `strictatime`: always. `noatime`: never. */
  readonly times: 'relatime' | 'strictatime' | 'noatime';
  /** Also of directories. */
  readonly directories: boolean;
}

export const ACCESS_RULE_DEFAULT: AccessRule = { times: 'relatime', directories: true };

/** For so long access times gather before the cluster is told of them, in milliseconds. */
export const GATHER_MS = 5_000;
/** So many are told of at once. */
const GATHERED_COUNT = 5_000;
/** Of those that the cluster was told of, so many are remembered: an answer may be older. */
const TOLD_COUNT_MAX = 10_000;
/** What could not be told is told again after so long. */
const AGAIN_MS = 30_000;
/** After a refusal, as by servers of an earlier release, nothing is noted for so long. */
const OFF_MS = 600_000;
/** The longest that the end of the mount waits for it. */
const STOP_LIMIT_MS = 5_000;
const DAY_NS = 86_400_000_000_000n;

/** A read of which the cluster knows nothing yet, or has been told. */
type Note = Omit<NotedAccess, 'inode'>;

/**
 * Access times of what is read through this mount. They are kept here, shown with whatever is told of an inode, and told to the cluster many at a
 * time, some seconds behind the reads (docs/design/mount.md, "Access times"). No call waits for that, but those that ask for it, and none fails.
 */
export class AccessTimes implements PendingKind {
  readonly #world: World;
  readonly #backend: Pick<FileSystemBackend, 'noteAccesses'>;
  readonly #rule: AccessRule;
  readonly #log: Log;
  readonly #stored: (access: NotedAccess) => void;
  /** By inode, the oldest first. */
  readonly #noted = new Map<number, Note>();
  /** In the request that is under way. */
  #sending = new Map<number, Note>();
  /** Whether the cluster has heard of those. */
  #sent: Promise<boolean> = Promise.resolve(true);
  /** The cluster has been told of these, the latest last. */
  readonly #told = new BoundedMap<number, Note>(TOLD_COUNT_MAX);
  #timer: Timer | undefined;
  /** The timer is not for what gathers, but for what is much. */
  #isSoon = false;
  /** What has gathered is being told, and what comes meanwhile is seen to afterwards. */
  #isTelling = false;
  /** Before this it is not told again by itself. */
  #againMs = Number.NEGATIVE_INFINITY;
  #offUntilMs = Number.NEGATIVE_INFINITY;
  #isStopped = false;
  /** No read is noted: the mount is read-only for now. */
  isPaused = false;

  /** @param stored called when the cluster has a read: `seen` is outdated in attributes that were known before */
  constructor(
    world: World,
    backend: Pick<FileSystemBackend, 'noteAccesses'>,
    rule: AccessRule,
    log: Log,
    stored: (access: NotedAccess) => void,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#rule = rule;
    this.#log = log;
    this.#stored = stored;
  }

  /** How many reads the cluster knows nothing of. */
  get count(): number {
    return this.#noted.size + this.#sending.size;
  }

  /**
   * It was read in this moment.
   *
   * @param attributes as far as they are known here, but not what `shown` made of them
   * @returns whether its access time is another one by that
   */
  read(attributes: Attributes): boolean {
    const { inode, changedNs, kind } = attributes;
    const isKept = this.#rule.times !== 'noatime' && (kind !== 'directory' || this.#rule.directories);
    if (!isKept || this.#isStopped || this.isPaused) return false;
    const { accessedNs } = this.shown(attributes);
    const readNs = nowNs(this.#world);
    if (!this.#isWanted(accessedNs, attributes, readNs)) return false;
    if (this.#world.nowMs() < this.#offUntilMs) return false;
    if (this.#noted.size >= SHARES['access-time'].countMax && !this.#noted.has(inode)) return false;
    // What was seen here was there before the read, also where the clock of whoever has changed it is ahead.
    const changed = BigInt(changedNs);
    const atNs = readNs > changed ? readNs : changed + 1n;
    if (atNs <= BigInt(accessedNs)) return false;
    const told = this.#told.get(inode);
    const heardNs = told !== undefined && isSince(told, attributes) ? told.accessedNs : attributes.accessedNs;
    this.#noted.set(inode, { accessedNs: String(atNs), seen: { accessedNs: heardNs, changedNs } });
    this.#schedule();
    return true;
  }

  /** It is gone, and nobody looks at it any more. */
  forget(inode: number): void {
    this.#noted.delete(inode);
    this.#told.delete(inode);
  }

  /** Its access time is about to be set by hand: resolves when no read of before comes after that. */
  async setting(inode: number): Promise<void> {
    this.forget(inode);
    while (this.#sending.has(inode)) await this.#sent;
    this.forget(inode);
  }

  /**
   * Resolves when the cluster has the earlier reads, or did not take them: all, or those of an inode, with which the others travel. Those of
   * names, and in a directory, no caller waits for.
   */
  async flush(scope: FlushScope): Promise<void> {
    const isMeant =
      scope.kind === 'inode'
        ? this.#noted.has(scope.inode) || this.#sending.has(scope.inode)
        : scope.kind === 'all';
    if (!isMeant) return;
    for (let left = this.count; left > 0; left -= ACCESSES_MAX) {
      // Whoever waits has waited as long as for a question of its own.
      while (this.#sending.size > 0) if (!(await this.#sent)) return;
      if (this.#noted.size === 0 || !(await this.#sendSome())) return;
    }
  }

  /** The mount is at its end. */
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

  /** @returns whether more can be told of */
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
      await this.#backend.noteAccesses([...batch].map(([inode, note]) => ({ inode, ...note })));
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
      // It was read again meanwhile, when this was not known yet.
      if (next?.seen.accessedNs === seen.accessedNs)
        this.#noted.set(inode, { ...next, seen: { ...next.seen, accessedNs } });
      this.#told.set(inode, note);
      this.#stored({ inode, ...note });
    }
  }

  #failed(batch: ReadonlyMap<number, Note>, error: unknown): void {
    const facts = { count: batch.size, error: String(error) };
    if (error instanceof ServiceError && error.remedy === 'give-up') {
      this.#offUntilMs = this.#world.nowMs() + OFF_MS;
      this.#noted.clear();
      this.#log('warn', 'the cluster takes no access times: for now none are kept', facts);
      return;
    }
    this.#log('debug', 'the cluster could not be told of reads', facts);
    for (const [inode, note] of batch)
      if (!this.#noted.has(inode) && this.#noted.size < SHARES['access-time'].countMax)
        this.#noted.set(inode, note);
    this.#againMs = this.#world.nowMs() + AGAIN_MS;
    this.#schedule();
  }

  /** As the kernel has it of a local disk. */
  #isWanted(accessedNs: string, { modifiedNs, changedNs }: Attributes, readNs: bigint): boolean {
    if (this.#rule.times === 'strictatime') return true;
    if (!isLater(accessedNs, modifiedNs) || !isLater(accessedNs, changedNs)) return true;
    return readNs - BigInt(accessedNs) >= DAY_NS;
  }

  /** @returns attributes with the access time of reads here */
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

/** Whether the read counts at the cluster, where this is what is known there. */
function isAfter({ accessedNs, seen }: Note, attributes: Attributes): boolean {
  if (!isLater(accessedNs, attributes.accessedNs)) return false;
  if (attributes.changedNs === seen.changedNs) return true;
  return attributes.accessedNs === seen.accessedNs && attributes.changedNs === attributes.modifiedNs;
}

/** Whether the attributes are older than the cluster's knowledge of the read: nobody has set another time since. */
function isSince({ accessedNs, seen }: Note, attributes: Attributes): boolean {
  return isLater(accessedNs, attributes.accessedNs) && !isLater(attributes.changedNs, seen.changedNs);
}

function withAccess<Known extends Attributes>(attributes: Known, { accessedNs }: Note): Known {
  return { ...attributes, accessedNs };
}
