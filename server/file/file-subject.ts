import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Epoch, Operation, ReplicaRecord } from '../../replica/actions.ts';
import { decodeFileOperation } from '../../wire/file-operation.ts';
import type { FetchedObject, FileDescription, FileStore, ObjectEntry } from '../storage/store.ts';
import type { AskSource, FetchedState, Subject } from '../subject.ts';
import {
  decodeDescribed,
  decodeDescription,
  decodeKnown,
  decodeObjects,
  decodePiece,
  decodeWanted,
  encodeDescribed,
  encodeDescription,
  encodeKnown,
  encodeObjects,
  encodePiece,
  encodeWanted,
  type Known,
} from './file-transfer.ts';

/** Objects asked for in one call come to about this many bytes, and this many calls run side by side. */
const FETCH_BYTES = 1024 * 1024;
const FETCHES_MAX = 4;
/** After so many descriptions a fetch is given up; a primary that changes this fast is caught up with later. */
const PASSES_MAX = 64;
/** Bytes of a description in one answer, and of the newest objects beside them: together they fit a message. */
const PIECE_BYTES = 2 * 1024 * 1024;
const NEWEST_BYTES = 4 * 1024 * 1024;
/** Long descriptions that are kept for those who still ask for their rest. */
const DESCRIBED_MAX = 4;

/** A file's objects as the subject of a replica. */
export class FileSubject implements Subject {
  readonly appliesAtPrimary = 'first';
  readonly #file: FileId;
  readonly #store: FileStore;
  #fetched: FileDescription | null = null;
  /** Number of the present fetch. One that is not the present one any more stages nothing: it would mix two states. */
  #fetch = 0;
  readonly #described = new Map<number, Uint8Array>();
  #describedId = 0;

  constructor(file: FileId, store: FileStore) {
    this.#file = file;
    this.#store = store;
  }

  record(): ReplicaRecord {
    const record = this.#store.record(this.#file);
    assert(record !== null, 'A replica in use has a record');
    return record;
  }

  promise(epoch: Epoch): Promise<void> {
    return this.#store.promise(this.#file, epoch);
  }

  async apply(epoch: Epoch, seq: number, operation: Operation, sessions: Uint8Array): Promise<void> {
    await this.#store.apply(this.#file, epoch, seq, decodeFileOperation(operation.body), sessions);
  }

  flush(): Promise<void> {
    return this.#store.flush(this.#file);
  }

  /**
   * In passes, because a primary goes on while it is asked: what an answer found moved on, the next pass finds in its
   * new version. Each description brings the newest objects along, read in the same turn, so that the last pass
   * need not ask for any.
   */
  async fetch(ask: AskSource): Promise<FetchedState> {
    const turn = ++this.#fetch;
    this.#store.unstage(this.#file);
    this.#fetched = null;
    const { installed, seq } = this.record();
    let known: Known = { epoch: installed.counter, seq };
    const staged = new Map<number, ObjectEntry>();
    const stage = async (entry: ObjectEntry, bytes: Uint8Array): Promise<void> => {
      this.#assertPresent(turn);
      await this.#store.stage(this.#file, { entry, bytes });
      staged.set(entry.index, entry);
    };
    for (let pass = 1; pass <= PASSES_MAX; pass++) {
      const { description, newest } = await this.#askDescription(ask, known);
      this.#assertPresent(turn);
      const wanted = new Set(this.#missing(description.objects, staged).map((entry) => entry.index));
      for (const { entry, bytes } of newest) if (wanted.has(entry.index)) await stage(entry, bytes);
      await this.#fetchObjects(ask, description, this.#missing(description.objects, staged), stage, turn);
      this.#assertPresent(turn);
      const { record } = description;
      if (this.#missing(description.objects, staged).length === 0) {
        this.#fetched = description;
        return { position: { epoch: record.installed, seq: record.seq }, sessions: record.sessions };
      }
      known = { epoch: record.installed.counter, seq: record.seq };
    }
    throw new ServiceError('precondition-failed', `File ${this.#file} changes faster than it can be fetched`);
  }

  async #askDescription(
    ask: AskSource,
    known: Known,
  ): Promise<{ description: FileDescription; newest: readonly FetchedObject[] }> {
    const { id, totalBytes, piece, objects } = decodeDescribed(await ask('describe', encodeKnown(known)));
    const pieces = [piece];
    for (let offset = piece.length; offset < totalBytes; ) {
      const more = await ask('describe-more', encodePiece(id, offset));
      if (more.length === 0) throw new ServiceError('storage', 'A description ended early');
      pieces.push(more);
      offset += more.length;
    }
    return { description: decodeDescription(Buffer.concat(pieces)), newest: objects };
  }

  /** Objects that have moved on are passed over. */
  async #fetchObjects(
    ask: AskSource,
    description: FileDescription,
    missing: readonly ObjectEntry[],
    stage: (entry: ObjectEntry, bytes: Uint8Array) => Promise<void>,
    turn: number,
  ): Promise<void> {
    const perCall = Math.max(1, Math.floor(FETCH_BYTES / description.attributes.objectBytes));
    let next = 0;
    const fetchSome = async (): Promise<void> => {
      while (next < missing.length) {
        this.#assertPresent(turn);
        const wanted = missing.slice(next, next + perCall);
        next += wanted.length;
        const contents = decodeObjects(await ask('objects', encodeWanted(wanted)), wanted.length);
        for (const [place, entry] of wanted.entries()) {
          const bytes = contents[place] ?? null;
          if (bytes !== null) await stage(entry, bytes);
        }
      }
    };
    try {
      await Promise.all(Array.from({ length: FETCHES_MAX }, fetchSome));
    } catch (error) {
      // The calls beside the one that failed go no further.
      if (turn === this.#fetch) this.#fetch++;
      throw error;
    }
  }

  async install(epoch: Epoch, seq: number, sessions: Uint8Array, fetched: boolean): Promise<void> {
    const base = fetched ? this.#fetched : null;
    assert(!fetched || base !== null, 'What is installed was fetched before');
    this.#fetched = null;
    await this.#store.install(this.#file, epoch, seq, sessions, base);
  }

  async serve(method: string, payload: Uint8Array): Promise<Uint8Array> {
    switch (method) {
      case 'describe':
        return this.#describe(decodeKnown(payload));
      case 'describe-more': {
        const { id, offset } = decodePiece(payload);
        const encoded = this.#described.get(id);
        if (encoded === undefined) {
          throw new ServiceError(
            'precondition-failed',
            `There is no description ${id} of file ${this.#file}`,
          );
        }
        if (offset + PIECE_BYTES >= encoded.length) this.#described.delete(id);
        return encoded.subarray(offset, offset + PIECE_BYTES);
      }
      case 'objects':
        return encodeObjects(
          await Promise.all(
            decodeWanted(payload).map((entry) =>
              this.#store.readObject(this.#file, entry.index, entry.versionEpoch, entry.versionSeq),
            ),
          ),
        );
      default:
        throw new ServiceError('bad-request', `A file has no state "${method}" to fetch`);
    }
  }

  /** A file's primary keeps nothing open between operations; only a fetch may be under way. */
  abandon(): void {
    this.#fetch++;
  }

  #assertPresent(turn: number): void {
    if (turn === this.#fetch) return;
    throw new ServiceError('precondition-failed', `A later fetch of file ${this.#file} replaced this one`);
  }

  /** Length and checksum are compared too: versions name the epoch's counter, which two servers may both have chosen. */
  async #describe(known: Known): Promise<Uint8Array> {
    const description = this.#store.describe(this.#file);
    const newest = newestObjects(description.objects, known);
    // Pinned in this turn, and so as the description says; none of them can have moved on.
    const reading = newest.map(({ index, versionEpoch, versionSeq }) =>
      this.#store.readObject(this.#file, index, versionEpoch, versionSeq),
    );
    const contents = await Promise.all(reading);
    const objects = newest.flatMap((entry, place) => {
      const bytes = contents[place] ?? null;
      return bytes === null ? [] : [{ entry, bytes }];
    });
    const encoded = encodeDescription(description);
    const id = ++this.#describedId;
    if (encoded.length > PIECE_BYTES) {
      this.#described.set(id, encoded);
      const [oldest] = this.#described.keys();
      if (this.#described.size > DESCRIBED_MAX && oldest !== undefined) this.#described.delete(oldest);
    }
    return encodeDescribed({
      id,
      totalBytes: encoded.length,
      piece: encoded.subarray(0, PIECE_BYTES),
      objects,
    });
  }

  #missing(objects: readonly ObjectEntry[], staged: ReadonlyMap<number, ObjectEntry>): ObjectEntry[] {
    const own = new Map(this.#store.describe(this.#file).objects.map((entry) => [entry.index, entry]));
    return objects.filter(
      (entry) => !sameObject(staged.get(entry.index), entry) && !sameObject(own.get(entry.index), entry),
    );
  }
}

function sameObject(mine: ObjectEntry | undefined, entry: ObjectEntry): boolean {
  return (
    mine?.versionEpoch === entry.versionEpoch &&
    mine.versionSeq === entry.versionSeq &&
    mine.length === entry.length &&
    mine.crc32 === entry.crc32
  );
}

/** Objects behind what is known, the newest first, of a few megabytes together. */
function newestObjects(objects: readonly ObjectEntry[], known: Known): ObjectEntry[] {
  const newest = objects
    .filter((entry) => (entry.versionEpoch - known.epoch || entry.versionSeq - known.seq) > 0)
    .sort((a, b) => b.versionEpoch - a.versionEpoch || b.versionSeq - a.versionSeq);
  let bytes = 0;
  const fitting = newest.findIndex((entry) => {
    bytes += entry.length;
    return bytes > NEWEST_BYTES;
  });
  return fitting < 0 ? newest : newest.slice(0, fitting);
}
