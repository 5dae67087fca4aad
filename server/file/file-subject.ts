import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { Epoch, Position } from '../../replica/epoch.ts';
import { epochEqual } from '../../replica/epoch.ts';
import type { Operation } from '../../replica/operation.ts';
import type { ReplicaRecord, Trust } from '../../replica/record.ts';
import { decodeFileOperation, type FileOperation, partsWritten } from '../../wire/file-operation.ts';
import type { CallSource, FetchedState, FetchOptions, Subject } from '../drivers/subject.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import type { FetchedObject, FileDifference, FileStore } from '../storage/store.ts';
import { ObjectMapDifference, objectEqual } from './difference.ts';
import { FileStateSource } from './file-source.ts';
import { decodeComparison, encodeKnown, METHODS } from './file-transfer.ts';
import { ObjectFetch, type ObjectSource } from './object-fetch.ts';
import { UNLIMITED } from './transfer-pace.ts';

/** A fetch fails after this many comparisons: the file changes too fast, and a later fetch continues. */
const PASSES_MAX = 64;
/** After this time without an answer another server is asked for the objects, too, in milliseconds. */
const PATIENCE_MS = 2_000;

export class FileSubject implements Subject {
  readonly appliesAtPrimary = 'first';
  readonly #world: World;
  readonly #file: FileId;
  readonly #store: FileStore;
  readonly #source: FileStateSource;
  #fetched: FileDifference | null = null;
  /** What the source has and this replica lacks, as far as fetches have found it: the next one continues with it. */
  #difference: ObjectMapDifference | null = null;
  /** Number of the latest fetch. An earlier one must not stage anything any more: it would mix two states. */
  #fetch = 0;
  readonly #staging = new Set<Promise<void>>();
  readonly #damagedObjects: Set<number>;

  /** @param damaged the file's objects that are known to be damaged here; this class adds and removes entries */
  constructor(world: World, file: FileId, store: FileStore, damaged: Set<number> = new Set()) {
    this.#world = world;
    this.#file = file;
    this.#store = store;
    this.#damagedObjects = damaged;
    this.#source = new FileStateSource(file, store, (index) => this.markDamaged(index));
  }

  record(): ReplicaRecord {
    return this.#source.record();
  }

  trust(): Trust {
    const trust = this.#store.trust(this.#file);
    return trust === 'intact' && this.#damagedObjects.size > 0 ? 'damaged' : trust;
  }

  promise(epoch: Epoch): Promise<void> {
    return this.#store.promise(this.#file, epoch);
  }

  async apply(epoch: Epoch, seq: number, operation: Operation, sessions: Uint8Array): Promise<void> {
    const { body, view } = operation;
    const change = view === undefined ? decodeFileOperation(body) : ({ kind: 'view', view } as const);
    try {
      await this.#store.apply(this.#file, epoch, seq, change, sessions);
    } catch (error) {
      // A partial change needs the object's old bytes, which cannot be read: the object has to be fetched.
      if (error instanceof ServiceError && error.code === 'integrity') this.#markPartlyWritten(change);
      throw error;
    }
  }

  /** Marks as damaged the objects at the edges of a change, of which it keeps a part. */
  #markPartlyWritten(change: FileOperation): void {
    const { objectBytes } = this.#store.attributes(this.#file);
    if (change.kind === 'truncate') this.markDamaged(Math.floor(change.sizeBytes / objectBytes));
    if (change.kind === 'punch') {
      this.markDamaged(Math.floor(change.from / objectBytes));
      this.markDamaged(Math.floor(change.to / objectBytes));
    }
    for (const { offset, bytes } of partsWritten(change)) {
      this.markDamaged(Math.floor(offset / objectBytes));
      this.markDamaged(Math.floor((offset + bytes.length - 1) / objectBytes));
    }
  }

  flush(): Promise<void> {
    return this.#store.flush(this.#file);
  }

  markDamaged(index: number): void {
    this.#damagedObjects.add(index);
    this.#difference = null;
  }

  /**
   * Fetches the difference from the local contents to the source's state, at a cost proportional to it: first what
   * changed since the local position, which is all unless the two have diverged, then what the digests of ranges of
   * objects find. It works in passes, because a primary continues to write meanwhile. Each comparison includes the
   * newest objects, so that the last pass needs no further request. A failed fetch leaves what it staged to the next
   * one.
   *
   * An object that no member of the view has undamaged is installed as lost: reading it fails here, too.
   * @throws ServiceError if the source cannot be reached or changes faster than it can be fetched, or if only an
   * unreachable server may have an object undamaged (`integrity`)
   */
  async fetch(ask: CallSource, help: FetchOptions = {}): Promise<FetchedState> {
    const fetchNumber = ++this.#fetch;
    const assertLatestFetch = (): void => this.#assertLatestFetch(fetchNumber);
    this.#fetched = null;
    // Writes of an earlier fetch that are still in progress might replace what this one stages.
    await Promise.allSettled(this.#staging);
    assertLatestFetch();
    let before: Position | null = null;
    const lost: number[] = [];
    for (let pass = 1; pass <= PASSES_MAX; pass++) {
      const difference = this.#currentDifference();
      const comparison = decodeComparison(await ask(METHODS.compare, encodeKnown(difference.known)));
      assertLatestFetch();
      const { position, view, sessions, attributes, total } = comparison;
      await difference.learn(ask, comparison, assertLatestFetch);
      if (pass === 1) this.#unstageUnwanted(difference);
      const missing = difference.missing.size;
      await this.#stageAll(difference, comparison.objects, assertLatestFetch);
      const answered =
        difference.missing.size > 0 && (await this.#fetchObjects(ask, help, difference, assertLatestFetch));
      assertLatestFetch();
      const matches = await difference.matches(total);
      assertLatestFetch();
      const record = this.record();
      if (matches && difference.missing.size === 0 && isAt(record, difference.from)) {
        const { from, changes } = difference;
        this.#fetched = { record: { ...record, view }, attributes, from, changes };
        return { position, view, sessions, lost };
      }
      if (before !== null && isSame(before, position) && missing > 0 && difference.missing.size === missing) {
        const [index] = difference.missing.keys();
        if (!answered)
          throw new ServiceError(
            'integrity',
            `Object ${index} of file ${this.#file} is damaged or missing on all ` +
              'reachable replicas: start the other servers of the file',
          );
        // No member has them: a lost object must not keep the rest of the file, and later changes, from this replica.
        for (const entry of [...difference.missing.values()]) {
          await this.#stageLost(difference, entry, assertLatestFetch);
          lost.push(entry.index);
        }
      }
      before = position;
    }
    throw new ServiceError(
      'precondition-failed',
      `Cannot fetch file ${this.#file}: it changes faster than it can be copied; trying again`,
    );
  }

  /** Installs the base of `epoch`: the fetched state, or this replica's own. Its position is then (epoch, `seq`). */
  async install(epoch: Epoch, seq: number, sessions: Uint8Array, fetched: boolean): Promise<void> {
    const base = fetched ? this.#fetched : null;
    assert(!fetched || base !== null, 'What is installed was fetched before');
    this.#fetched = null;
    this.#difference = null;
    await this.#store.install(this.#file, epoch, seq, sessions, base);
    for (const index of this.#damagedObjects)
      if (base?.changes.has(index)) this.#damagedObjects.delete(index);
  }

  serve(method: string, payload: Uint8Array): Promise<Uint8Array> {
    return this.#source.serve(method, payload);
  }

  abandon(): void {
    this.#fetch++;
  }

  #currentDifference(): ObjectMapDifference {
    const record = this.record();
    if (this.#difference === null || !isAt(record, this.#difference.from)) {
      const from = { epoch: record.installed, seq: record.seq };
      this.#difference = new ObjectMapDifference(
        this.#world,
        this.#file,
        this.#store,
        from,
        new Set(this.#damagedObjects),
      );
    }
    return this.#difference;
  }

  #unstageUnwanted(difference: ObjectMapDifference): void {
    this.#store.unstage(this.#file, (entry) =>
      objectEqual(difference.changes.get(entry.index) ?? null, entry),
    );
  }

  async #stageAll(
    difference: ObjectMapDifference,
    objects: readonly FetchedObject[],
    assertLatestFetch: () => void,
  ): Promise<void> {
    const wanted = objects.filter(({ entry }) =>
      objectEqual(difference.missing.get(entry.index) ?? null, entry),
    );
    const staging = wanted.map(async ({ entry, bytes }) => {
      try {
        await this.#stage(difference, entry, bytes, assertLatestFetch);
      } catch (error) {
        // Damaged in transit: it is requested again.
        if (!(error instanceof ServiceError) || error.code !== 'integrity') throw error;
      }
    });
    await Promise.all(staging);
  }

  #stage(
    difference: ObjectMapDifference,
    entry: ObjectEntry,
    bytes: Uint8Array,
    assertLatestFetch: () => void,
  ): Promise<void> {
    assertLatestFetch();
    return this.#staged(
      difference,
      entry,
      this.#store.stage(this.#file, { entry, bytes }),
      assertLatestFetch,
    );
  }

  /** Waits until an object is staged, and notes it in the difference, unless a later fetch has begun. */
  async #staged(
    difference: ObjectMapDifference,
    entry: ObjectEntry,
    staging: Promise<void>,
    assertLatestFetch: () => void,
  ): Promise<void> {
    this.#staging.add(staging);
    try {
      await staging;
    } finally {
      this.#staging.delete(staging);
    }
    assertLatestFetch();
    difference.noteStaged(entry);
  }

  #stageLost(
    difference: ObjectMapDifference,
    entry: ObjectEntry,
    assertLatestFetch: () => void,
  ): Promise<void> {
    return this.#staged(difference, entry, this.#store.stageLost(this.#file, entry), assertLatestFetch);
  }

  /** Objects that have changed at the source are skipped. @returns whether all servers that may have them answered */
  #fetchObjects(
    ask: CallSource,
    help: FetchOptions,
    difference: ObjectMapDifference,
    assertLatestFetch: () => void,
  ): Promise<boolean> {
    const { others = [], callOther, pace = UNLIMITED, patienceMs = PATIENCE_MS } = help;
    const sources: ObjectSource[] = [{ ask: (wanted) => ask(METHODS.objects, wanted) }];
    if (callOther !== undefined) {
      for (const server of others) {
        sources.push({ ask: (wanted) => callOther(server, METHODS.objects, wanted) });
      }
    }
    return new ObjectFetch({
      world: this.#world,
      wanted: difference.missing.values(),
      sources,
      pace,
      patienceMs,
      stage: (entry, bytes) => this.#stage(difference, entry, bytes, assertLatestFetch),
    }).run();
  }

  #assertLatestFetch(turn: number): void {
    if (turn === this.#fetch) return;
    throw new ServiceError('precondition-failed', `A later fetch of file ${this.#file} superseded this one`);
  }
}

function isAt({ installed, seq }: ReplicaRecord, position: Position): boolean {
  return isSame({ epoch: installed, seq }, position);
}

function isSame(a: Position, b: Position): boolean {
  return a.seq === b.seq && epochEqual(a.epoch, b.epoch);
}
