import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { FAN_OUT, type ObjectDigests, type Version } from '../storage/object-digests.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';
import type { FetchedObject, FileStore } from '../storage/store.ts';
import {
  decodeKnown,
  decodeNodes,
  decodeRanges,
  decodeSince,
  decodeWanted,
  type EntryPage,
  encodeComparison,
  encodeDigests,
  encodeObjects,
  encodePage,
  type IndexRange,
  METHODS,
  PAGE_ENTRIES_MAX,
} from './file-transfer.ts';

/** Bounds of the objects in a comparison, so that they fit one message with its entries. */
const NEWEST_MAX = 128;
const NEWEST_BYTES = 4 * 1024 * 1024;
const LEAVES_MAX = PAGE_ENTRIES_MAX / FAN_OUT;

/** Answers the calls of another replica that fetches the state here; each answer shows one instant. */
export class FileStateSource {
  readonly #file: FileId;
  readonly #store: FileStore;
  readonly #foundDamaged: (index: number) => void;

  constructor(file: FileId, store: FileStore, foundDamaged: (index: number) => void) {
    this.#file = file;
    this.#store = store;
    this.#foundDamaged = foundDamaged;
  }

  /** @throws ServiceError `not-found` if the replica was removed, which may happen during a read of it */
  record(): ReplicaRecord {
    const record = this.#store.record(this.#file);
    if (record !== null) return record;
    throw new ServiceError('not-found', `The replica of file ${this.#file} was removed from this server`);
  }

  /** Answers the requests of another replica that finds and fetches what it lacks of the state here. */
  async serve(method: string, payload: Uint8Array): Promise<Uint8Array> {
    switch (method) {
      case METHODS.compare:
        return this.#compare(decodeKnown(payload));
      case METHODS.changes: {
        const { known, from } = decodeSince(payload);
        return encodePage(this.#entriesSince(await this.#store.digests(this.#file), known, from));
      }
      case METHODS.digests: {
        const nodes = decodeNodes(payload);
        const digests = await this.#store.digests(this.#file);
        return encodeDigests(
          nodes.flatMap(({ level, number }) =>
            Array.from({ length: FAN_OUT }, (_, child) =>
              digests.digest(level - 1, number * FAN_OUT + child),
            ),
          ),
        );
      }
      case METHODS.entries:
        return encodePage(this.#entriesOf(decodeRanges(payload)));
      case METHODS.objects:
        return encodeObjects(await Promise.all(decodeWanted(payload).map((wanted) => this.#read(wanted))));
      default:
        throw new ServiceError('bad-request', `Unknown file fetch method "${method}"`);
    }
  }

  /** The state here in this tick, with the entries later than `known`, and as many of the newest objects as fit. */
  async #compare(known: Version): Promise<Uint8Array> {
    const digests = await this.#store.digests(this.#file);
    const record = this.record();
    const changes = this.#entriesSince(digests, known, 0);
    const newest = newestObjects(changes.entries);
    const { total, height } = digests;
    const attributes = this.#store.attributes(this.#file);
    // Pinned in this tick, in which no object can change: they match the digests.
    const contents = await Promise.all(newest.map((entry) => this.#read(entry)));
    const objects = newest.flatMap((entry, place): FetchedObject[] => {
      const bytes = contents[place] ?? null;
      return bytes === null ? [] : [{ entry, bytes }];
    });
    const { installed, seq, view, sessions } = record;
    const position = { epoch: installed, seq };
    return encodeComparison({ position, view, sessions, attributes, total, height, changes, objects });
  }

  /** Entries from index `from` on with a later version than `known`, of up to `LEAVES_MAX` leaves of the digests. */
  #entriesSince(digests: ObjectDigests, known: Version, from: number): EntryPage {
    const leaves = digests.leavesSince(known, from, LEAVES_MAX + 1);
    const ranges: IndexRange[] = [];
    for (const leaf of leaves.slice(0, LEAVES_MAX)) {
      const first = leaf * FAN_OUT;
      const last = first + FAN_OUT - 1;
      const before = ranges.at(-1);
      if (before?.last === first - 1) ranges[ranges.length - 1] = { first: before.first, last };
      else ranges.push({ first, last });
    }
    const entries = ranges.flatMap(({ first, last }) =>
      this.#store
        .entries(this.#file, first, last, PAGE_ENTRIES_MAX)
        .filter(
          (entry) =>
            entry.index >= from && (entry.versionEpoch - known.epoch || entry.versionSeq - known.seq) > 0,
        ),
    );
    const next = leaves[LEAVES_MAX];
    return { entries, next: next === undefined ? null : next * FAN_OUT };
  }

  #entriesOf(ranges: readonly IndexRange[]): EntryPage {
    const entries: ObjectEntry[] = [];
    for (const { first, last } of ranges) {
      const left = PAGE_ENTRIES_MAX - entries.length;
      if (left === 0) return { entries, next: first };
      const some = this.#store.entries(this.#file, first, last, left);
      for (const entry of some) entries.push(entry);
      const end = some.at(-1);
      if (end !== undefined && some.length === left && end.index < last)
        return { entries, next: end.index + 1 };
    }
    return { entries, next: null };
  }

  /** @returns the bytes, or null if exactly this object is not here, or is damaged */
  async #read(wanted: ObjectEntry): Promise<Uint8Array | null> {
    const { index, versionEpoch, versionSeq, length, crc32 } = wanted;
    const [own] = this.#store.entries(this.#file, index, index, 1);
    // Versions contain only the epoch's counter, which two servers may both have chosen: their bytes then differ.
    if (own === undefined || own.length !== length || own.crc32 !== crc32) return null;
    try {
      return await this.#store.readObject(this.#file, index, versionEpoch, versionSeq);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'integrity') throw error;
      this.#foundDamaged(index);
      return null;
    }
  }
}

function newestObjects(entries: readonly ObjectEntry[]): ObjectEntry[] {
  const newest = [...entries].sort((a, b) => b.versionEpoch - a.versionEpoch || b.versionSeq - a.versionSeq);
  let bytes = 0;
  const fitting = newest.findIndex((entry, place) => {
    bytes += entry.length;
    return bytes > NEWEST_BYTES || place >= NEWEST_MAX;
  });
  return fitting < 0 ? newest : newest.slice(0, fitting);
}
