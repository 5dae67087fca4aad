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
  asked: number;
  error: unknown;
  usable: boolean;
}

interface Batch {
  readonly left: Map<number, ObjectEntry>;
  readonly tried: Set<SourceState>;
  asked: number;
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
  readonly #open = new Set<Batch>();
  #drawn = false;
  #slots = 0;
  #passedOver = 0;
  #settled = false;
  #resolve: (answered: boolean) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;

  constructor(parts: ObjectFetchParts) {
    this.#parts = parts;
    this.#wanted = parts.wanted[Symbol.iterator]();
    this.#sources = parts.sources.map((source) => ({ source, asked: 0, error: null, usable: true }));
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

  #pump(): void {
    if (this.#sources.every(({ usable }) => !usable)) this.#giveUp();
    while (!this.#settled && this.#slots < FETCHES_MAX) {
      const batch = this.#queue.shift() ?? this.#draw();
      if (batch === null) break;
      if (!this.#open.has(batch)) continue;
      const source = this.#choose(batch);
      if (source !== null) void this.#ask(batch, source);
      else if (batch.asked === 0) this.#close(batch);
    }
    if (this.#settled || !this.#drawn || this.#open.size > 0) return;
    this.#settled = true;
    const [first] = this.#sources;
    if (this.#passedOver > 0 && first?.usable === false) this.#reject(first.error);
    else this.#resolve(this.#sources.every(({ usable }) => usable));
  }

  #draw(): Batch | null {
    const entries: ObjectEntry[] = [];
    for (let bytes = 0; !this.#drawn && bytes < FETCH_BYTES && entries.length < WANTED_MAX; ) {
      const drawn = this.#wanted.next();
      if (drawn.done === true) {
        this.#drawn = true;
        break;
      }
      entries.push(drawn.value);
      bytes += drawn.value.length;
    }
    if (entries.length === 0) return null;
    entries.sort((a, b) => a.index - b.index);
    const left = new Map(entries.map((entry) => [entry.index, entry]));
    const batch = { left, tried: new Set<SourceState>(), asked: 0 };
    this.#open.add(batch);
    return batch;
  }

  #giveUp(): void {
    this.#drawn = true;
    this.#passedOver++;
    this.#queue.length = 0;
    for (const batch of this.#open) if (batch.asked === 0) this.#close(batch);
  }

  #close(batch: Batch): void {
    this.#open.delete(batch);
    this.#passedOver += batch.left.size;
  }

  #choose(batch: Batch): SourceState | null {
    let chosen: SourceState | null = null;
    for (const state of this.#sources) {
      if (!state.usable || batch.tried.has(state)) continue;
      if (chosen === null || state.asked < chosen.asked) chosen = state;
    }
    return chosen;
  }

  async #ask(batch: Batch, state: SourceState): Promise<void> {
    const entries = [...batch.left.values()];
    batch.tried.add(state);
    batch.asked++;
    state.asked++;
    this.#slots++;
    let patient = true;
    const release = (): void => {
      if (patient) this.#slots--;
      patient = false;
    };
    let timer: Timer | undefined;
    try {
      await this.#parts.pace.take(entries.reduce((sum, { length }) => sum + length, 0));
      if (this.#settled) return;
      timer = this.#parts.world.after(this.#parts.patienceMs, () => {
        release();
        this.#queue.push(batch);
        this.#pump();
      });
      const contents = decodeObjects(await state.source.ask(encodeWanted(entries)), entries.length);
      await this.#take(batch, state, entries, contents);
    } catch (error) {
      state.usable = false;
      state.error = error;
    } finally {
      timer?.cancel();
      release();
      state.asked--;
      batch.asked--;
    }
    if (batch.left.size === 0) this.#open.delete(batch);
    else if (this.#open.has(batch) && !this.#queue.includes(batch)) this.#queue.push(batch);
    this.#pump();
  }

  async #take(
    batch: Batch,
    state: SourceState,
    entries: readonly ObjectEntry[],
    contents: readonly (Uint8Array | null)[],
  ): Promise<void> {
    for (const [place, entry] of entries.entries()) {
      const bytes = contents[place] ?? null;
      if (bytes === null || this.#settled || !batch.left.has(entry.index)) continue;
      if (bytes.length !== entry.length || crc32(bytes) !== entry.crc32) {
        const what = `Object ${entry.index}, fetched from another replica,`;
        state.error = new ServiceError('integrity', `${what} does not match its checksum`);
        state.usable = false;
        return;
      }
      batch.left.delete(entry.index);
      try {
        await this.#parts.stage(entry, bytes);
      } catch (error) {
        if (!this.#settled) this.#reject(error);
        this.#settled = true;
        return;
      }
    }
  }
}
