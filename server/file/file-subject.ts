import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Epoch, Operation, ReplicaRecord } from '../../replica/actions.ts';
import { decodeFileOperation } from '../../wire/file-operation.ts';
import type { FileDescription, FileStore, ObjectEntry } from '../storage/store.ts';
import type { AskSource, FetchedState, Subject } from '../subject.ts';
import {
  decodeDescription,
  decodeObjects,
  decodeWanted,
  encodeDescription,
  encodeObjects,
  encodeWanted,
} from './file-transfer.ts';

/** Objects asked for in one call come to about this many bytes, and this many calls run side by side. */
const FETCH_BYTES = 1024 * 1024;
const FETCHES_MAX = 4;

/** A file's objects as the subject of a replica. */
export class FileSubject implements Subject {
  readonly appliesAtPrimary = 'first';
  readonly #file: FileId;
  readonly #store: FileStore;
  #fetched: FileDescription | null = null;
  /** Number of the present fetch. One that is not the present one any more stages nothing: it would mix two states. */
  #fetch = 0;

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

  async fetch(ask: AskSource): Promise<FetchedState> {
    const turn = ++this.#fetch;
    this.#store.unstage(this.#file);
    this.#fetched = null;
    const description = decodeDescription(await ask('describe', new Uint8Array(0)));
    this.#assertPresent(turn);
    const missing = this.#missing(description.objects);
    const perCall = Math.max(1, Math.floor(FETCH_BYTES / description.attributes.objectBytes));
    let next = 0;
    const fetchSome = async (): Promise<void> => {
      while (next < missing.length) {
        const wanted = missing.slice(next, next + perCall);
        next += wanted.length;
        const contents = decodeObjects(await ask('objects', encodeWanted(wanted)), wanted.length);
        for (const [place, entry] of wanted.entries()) {
          this.#assertPresent(turn);
          const bytes = contents[place] ?? null;
          if (bytes === null) {
            throw new ServiceError(
              'precondition-failed',
              `Object ${entry.index} of file ${this.#file} moved on`,
            );
          }
          await this.#store.stage(this.#file, { entry, bytes });
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
    this.#assertPresent(turn);
    this.#fetched = description;
    const { installed: epoch, seq, sessions } = description.record;
    return { position: { epoch, seq }, sessions };
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
        return encodeDescription(this.#store.describe(this.#file));
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
  #missing(objects: readonly ObjectEntry[]): ObjectEntry[] {
    const own = new Map(this.#store.describe(this.#file).objects.map((entry) => [entry.index, entry]));
    return objects.filter((entry) => {
      const mine = own.get(entry.index);
      return (
        mine?.versionEpoch !== entry.versionEpoch ||
        mine.versionSeq !== entry.versionSeq ||
        mine.length !== entry.length ||
        mine.crc32 !== entry.crc32
      );
    });
  }
}
