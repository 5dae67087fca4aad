import { ServiceError } from '../base/errors.ts';
import { REMOVAL_LIMITS } from '../client/removal-limits.ts';
import type { BirthBackend, RemovalOutcome, RemovedName } from './backend.ts';
import { nowNs } from './open-file.ts';
import { type Place, placeKey } from './place.ts';

/** Removals of which the cluster does not know yet: whoever removes more waits. */
const COUNT_MAX = 500;
/** Nothing more is told as done while one is on its way for so long, in milliseconds: others may see what is a second old, and no more is lost with the mount. */
export const SLOW_MS = 1_000;
/** Directories in which a removal failed of which nobody was told yet. */
const FAILURES_MAX = 1_000;

interface Pending extends RemovedName {
  readonly uid: number | undefined;
  readonly sinceMs: number;
  readonly over: Promise<void>;
  readonly end: () => void;
}

interface Answer {
  /** In the order of what was asked. */
  readonly outcomes: readonly RemovalOutcome[];
  readonly atNs: string | null;
  /** The error, where the cluster has said nothing for as long as a request may take. */
  readonly silence?: unknown;
}

export interface RemovalEvents {
  /** The cluster has it. `atNs`: the times of its directory since, where they are known. */
  removed(name: RemovedName, atNs: string | null): void;
  /** The file has its name still, or that is not known. */
  failed(name: RemovedName, error: unknown): void;
}

/**
 * Names that were told to be gone, and are not at the cluster yet. They leave at once, and while a request is under way the next ones gather. Each
 * says which inode it means: what is repeated, or comes late, takes no name from what somebody else has made since.
 */
export class Removals {
  readonly #backend: Pick<BirthBackend, 'remove'>;
  readonly #events: RemovalEvents;
  /** By place, the oldest first. */
  readonly #pending = new Map<string, Pending>();
  #unsent: Pending[] = [];
  #isSending = false;
  /** Who would remove more, and waits until there are fewer. */
  readonly #waiting: (() => void)[] = [];
  /** By directory, the first error of which nobody was told yet. */
  readonly #failures = new Map<number, unknown>();
  /** The clock of whoever answers, as far as it is known, is so much ahead of the one here. */
  #aheadNs = 0n;

  constructor(backend: Pick<BirthBackend, 'remove'>, events: RemovalEvents) {
    this.#backend = backend;
    this.#events = events;
  }

  get isEmpty(): boolean {
    return this.#pending.size === 0;
  }

  /** The cluster has answered nothing for so long that nothing more is told as done. */
  get isSlow(): boolean {
    const [oldest] = this.#pending.values();
    return oldest !== undefined && performance.now() - oldest.sinceMs > SLOW_MS;
  }

  /** Resolves when one more can be told as done. */
  async room(): Promise<void> {
    while (this.#pending.size >= COUNT_MAX) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /**
   * The name is gone for whoever looks here.
   *
   * @returns the times of its directory since, as near as they are known here
   */
  add(name: RemovedName, uid: number | undefined): string {
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const pending = { ...name, uid, sinceMs: performance.now(), over, end };
    this.#pending.set(placeKey(name), pending);
    this.#unsent.push(pending);
    if (!this.#isSending) void this.#send();
    return String(nowNs() + this.#aheadNs);
  }

  /** @param atNs when the cluster changed something a moment ago */
  heard(atNs: string): void {
    this.#aheadNs = BigInt(atNs) - nowNs();
  }

  isAt(place: Place): boolean {
    return this.#pending.has(placeKey(place));
  }

  /** Resolves when none is under way that was told before: all, or those of a name, of an inode, in directories. */
  async goneAt(place: Place): Promise<void> {
    await this.#pending.get(placeKey(place))?.over;
  }

  async goneOf(inode: number): Promise<void> {
    await this.#gone((name) => name.inode === inode || name.parent === inode);
  }

  async goneFrom(directories: ReadonlySet<number>): Promise<void> {
    await this.#gone(({ parent }) => directories.has(parent));
  }

  async gone(): Promise<void> {
    await this.#gone(() => true);
  }

  /** As `goneFrom` one directory, or `gone`, for whoever has to know. @throws the first error since it was last told */
  async persist(directory?: number): Promise<void> {
    await this.#gone(({ parent }) => directory === undefined || parent === directory);
    for (const [of, error] of this.#failures) {
      if (directory !== undefined && of !== directory) continue;
      if (directory === undefined) this.#failures.clear();
      else this.#failures.delete(of);
      throw error;
    }
  }

  /** Once more where there was no quota for it, when what was told before is gone. */
  async withQuota<Result>(change: () => Promise<Result>): Promise<Result> {
    if (this.isEmpty) return change();
    try {
      return await change();
    } catch (error) {
      if (!isOverQuota(error)) throw error;
      await this.gone();
      return change();
    }
  }

  async #gone(isMeant: (name: RemovedName) => boolean): Promise<void> {
    if (this.isEmpty) return;
    await Promise.all([...this.#pending.values()].filter(isMeant).map(({ over }) => over));
  }

  async #send(): Promise<void> {
    this.#isSending = true;
    while (this.#unsent.length > 0) await this.#sendBatch(this.#takeBatch());
    this.#isSending = false;
  }

  /** At least one, all by one user, and no more than fit one request. */
  #takeBatch(): Pending[] {
    const batch: Pending[] = [];
    const left: Pending[] = [];
    const directories = new Set<number>();
    for (const pending of this.#unsent) {
      const fits =
        batch.length < REMOVAL_LIMITS.files &&
        (directories.size < REMOVAL_LIMITS.directories || directories.has(pending.parent)) &&
        (batch[0] === undefined || batch[0].uid === pending.uid);
      if (!fits) {
        left.push(pending);
        continue;
      }
      batch.push(pending);
      directories.add(pending.parent);
    }
    this.#unsent = left;
    return batch;
  }

  async #sendBatch(batch: readonly Pending[]): Promise<void> {
    const { outcomes, atNs, silence } = await this.#outcomes(batch);
    if (atNs !== null) this.heard(atNs);
    // Whoever waits for the others has waited as long as for these.
    const told = silence === undefined ? batch : [...batch, ...this.#unsent.splice(0)];
    for (const [place, pending] of told.entries()) {
      const error = silence ?? new Error('No outcome was told');
      const outcome = outcomes[place] ?? { kind: 'refused', error };
      this.#pending.delete(placeKey(pending));
      if (outcome.kind === 'refused') this.#fail(pending, outcome.error);
      else this.#events.removed(pending, outcome.kind === 'removed' ? atNs : null);
      pending.end();
    }
    for (const go of this.#waiting.splice(0)) go();
  }

  async #outcomes(batch: readonly Pending[]): Promise<Answer> {
    const names = batch.map(({ parent, name, inode }) => ({ parent, name, inode }));
    const ask = () => this.#backend.remove(names, batch[0]?.uid);
    const beganMs = performance.now();
    const isLong = (): boolean => performance.now() - beganMs > SLOW_MS;
    try {
      // What became of the first request may not be known: of what it has removed the second one finds nothing more.
      return await ask().catch((error: unknown) => (isLong() ? Promise.reject(error) : ask()));
    } catch (error) {
      const outcomes = batch.map((): RemovalOutcome => ({ kind: 'refused', error }));
      return { outcomes, atNs: null, ...(isLong() ? { silence: error } : {}) };
    }
  }

  #fail(pending: Pending, error: unknown): void {
    if (!this.#failures.has(pending.parent)) this.#failures.set(pending.parent, error);
    for (const oldest of this.#failures.keys()) {
      if (this.#failures.size <= FAILURES_MAX) break;
      this.#failures.delete(oldest);
    }
    this.#events.failed(pending, error);
  }
}

export function isOverQuota(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'quota-exceeded';
}
