import { ServiceError } from '../../base/errors.ts';
import type { Timer, World } from '../../base/world.ts';
import { crc32 } from '../../platform/crc32.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import { decodeObjects, encodeWanted, WANTED_MAX } from './file-transfer.ts';
import type { TransferPace } from './transfer-pace.ts';

const FETCH_BYTES = 1024 * 1024;
const FETCHES_MAX = 4;

export interface ObjectSource {
  ask(wanted: Uint8Array): Promise<Uint8Array>;
}

export interface ObjectFetchParts {
  readonly world: World;
  readonly wanted: Iterable<ObjectEntry>;
  /** The first one is the server whose state is fetched. */
  readonly sources: readonly ObjectSource[];
  readonly pace: Pick<TransferPace, 'take'>;
  /** After this time without an answer, in milliseconds, a call is made to another server as well. */
  readonly patienceMs: number;
  /** Stores an object whose bytes match its entry. An error ends the fetch. */
  stage(entry: ObjectEntry, bytes: Uint8Array): Promise<void>;
}

interface SourceState {
  readonly source: ObjectSource;
  /** Calls in progress. */
  callCount: number;
  error: unknown;
  /** False once a call failed or its answer had wrong bytes. */
  usable: boolean;
}

interface Batch {
  /** Objects that no source has sent yet, by index. */
  readonly missing: Map<number, ObjectEntry>;
  readonly tried: Set<SourceState>;
  callCount: number;
}

/**
 * Fetches objects by their exact version and checksum, concurrently from all servers that may have them. A call that is
 * not answered in time is repeated at another server. A server that fails or sends wrong bytes gets no further calls, a
 * slow one fewer. Objects that no server has are skipped: they have changed.
 */
export class ObjectFetch {
  readonly #parts: ObjectFetchParts;
  readonly #wanted: Iterator<ObjectEntry>;
  readonly #sources: SourceState[];
  readonly #queue: Batch[] = [];
  readonly #openBatches = new Set<Batch>();
  #areAllDrawn = false;
  /** Calls in progress for less than `patienceMs`. */
  #timelyCalls = 0;
  #skippedCount = 0;
  #ended = false;
  #resolve: (answered: boolean) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;

  constructor(parts: ObjectFetchParts) {
    this.#parts = parts;
    this.#wanted = parts.wanted[Symbol.iterator]();
    this.#sources = parts.sources.map((source) => ({ source, callCount: 0, error: null, usable: true }));
  }

  /**
   * @returns whether every source answered all requests: then none of them has the missing objects
   * @throws the first source's error if it failed, and others do not have all objects
   */
  run(): Promise<boolean> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#pump();
    });
  }

  /** Starts calls while fewer than `FETCHES_MAX` wait for an answer in time; ends the fetch once no batch is open. */
  #pump(): void {
    if (this.#sources.every(({ usable }) => !usable)) this.#skipRest();
    while (!this.#ended && this.#timelyCalls < FETCHES_MAX) {
      const batch = this.#queue.shift() ?? this.#nextBatch();
      if (batch === null) break;
      if (!this.#openBatches.has(batch)) continue;
      const source = this.#leastBusy(batch);
      if (source !== null) void this.#ask(batch, source);
      else if (batch.callCount === 0) this.#close(batch);
    }
    if (this.#ended || !this.#areAllDrawn || this.#openBatches.size > 0) return;
    this.#ended = true;
    const [first] = this.#sources;
    if (this.#skippedCount > 0 && first?.usable === false) this.#reject(first.error);
    else this.#resolve(this.#sources.every(({ usable }) => usable));
  }

  #nextBatch(): Batch | null {
    const entries: ObjectEntry[] = [];
    for (let bytes = 0; !this.#areAllDrawn && bytes < FETCH_BYTES && entries.length < WANTED_MAX; ) {
      const drawn = this.#wanted.next();
      if (drawn.done === true) {
        this.#areAllDrawn = true;
        break;
      }
      entries.push(drawn.value);
      bytes += drawn.value.length;
    }
    if (entries.length === 0) return null;
    entries.sort((a, b) => a.index - b.index);
    const missing = new Map(entries.map((entry) => [entry.index, entry]));
    const batch = { missing, tried: new Set<SourceState>(), callCount: 0 };
    this.#openBatches.add(batch);
    return batch;
  }

  #skipRest(): void {
    this.#areAllDrawn = true;
    this.#skippedCount++;
    this.#queue.length = 0;
    for (const batch of this.#openBatches) if (batch.callCount === 0) this.#close(batch);
  }

  #close(batch: Batch): void {
    this.#openBatches.delete(batch);
    this.#skippedCount += batch.missing.size;
  }

  /** @returns the usable source with the fewest calls that has not been asked for this batch; null if there is none */
  #leastBusy(batch: Batch): SourceState | null {
    let chosen: SourceState | null = null;
    for (const state of this.#sources) {
      if (!state.usable || batch.tried.has(state)) continue;
      if (chosen === null || state.callCount < chosen.callCount) chosen = state;
    }
    return chosen;
  }

  /** Asks a source for the objects of a batch; after `patienceMs` without an answer, queues them for another, too. */
  async #ask(batch: Batch, state: SourceState): Promise<void> {
    const entries = [...batch.missing.values()];
    batch.tried.add(state);
    batch.callCount++;
    state.callCount++;
    this.#timelyCalls++;
    let isTimely = true;
    const release = (): void => {
      if (isTimely) this.#timelyCalls--;
      isTimely = false;
    };
    let timer: Timer | undefined;
    try {
      await this.#parts.pace.take(entries.reduce((sum, { length }) => sum + length, 0));
      if (this.#ended) return;
      timer = this.#parts.world.after(this.#parts.patienceMs, () => {
        release();
        this.#queue.push(batch);
        this.#pump();
      });
      const contents = decodeObjects(await state.source.ask(encodeWanted(entries)), entries.length);
      await this.#stageAnswer(batch, state, entries, contents);
    } catch (error) {
      state.usable = false;
      state.error = error;
    } finally {
      timer?.cancel();
      release();
      state.callCount--;
      batch.callCount--;
    }
    if (batch.missing.size === 0) this.#openBatches.delete(batch);
    else if (this.#openBatches.has(batch) && !this.#queue.includes(batch)) this.#queue.push(batch);
    this.#pump();
  }

  /** Stages the objects that a source returned. One that does not match its checksum makes the source unusable. */
  async #stageAnswer(
    batch: Batch,
    state: SourceState,
    entries: readonly ObjectEntry[],
    contents: readonly (Uint8Array | null)[],
  ): Promise<void> {
    for (const [place, entry] of entries.entries()) {
      const bytes = contents[place] ?? null;
      if (bytes === null || this.#ended || !batch.missing.has(entry.index)) continue;
      if (bytes.length !== entry.length || crc32(bytes) !== entry.crc32) {
        const what = `Object ${entry.index}, fetched from another replica,`;
        state.error = new ServiceError('integrity', `${what} does not match its checksum`);
        state.usable = false;
        return;
      }
      batch.missing.delete(entry.index);
      try {
        await this.#parts.stage(entry, bytes);
      } catch (error) {
        if (!this.#ended) this.#reject(error);
        this.#ended = true;
        return;
      }
    }
  }
}
