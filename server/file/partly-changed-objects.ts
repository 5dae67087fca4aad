import type { FileId } from '../../base/ids.ts';
import type { FileStore } from '../storage/store.ts';

/** Objects that are remembered as whole: many times the edges of one change. An evicted object is read again. */
const READABLE_MAX = 8_192;

export interface ByteRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Objects of which a change replaces a part. A replica cannot apply such a change to damaged bytes, and a replica that
 * has applied it no longer has the old bytes. So the primary reads each of these objects once in its epoch before it
 * orders the first such change, which repairs a damaged one, on the disk, from another replica.
 */
export class PartlyChangedObjects {
  readonly #file: FileId;
  readonly #store: Pick<FileStore, 'attributes' | 'entries' | 'readObject'>;
  readonly #readable = new Set<number>();

  constructor(file: FileId, store: Pick<FileStore, 'attributes' | 'entries' | 'readObject'>) {
    this.#file = file;
    this.#store = store;
  }

  /** @returns the objects of which these changes replace a part, and which were not read in this epoch */
  unread(ranges: readonly ByteRange[]): number[] {
    return ranges.flatMap((range) => this.#edgesOf(range).filter((index) => this.#isUnread(index, range)));
  }

  /** Reads these objects, which repairs damaged ones. @throws ServiceError `integrity` if no replica has one intact */
  async read(indices: readonly number[]): Promise<void> {
    for (const index of indices) {
      const [entry] = this.#store.entries(this.#file, index, index, 1);
      if (entry === undefined) continue;
      const { versionEpoch, versionSeq } = entry;
      const bytes = await this.#store.readObject(this.#file, index, versionEpoch, versionSeq);
      // Null: another change, which has read the object, replaced it meanwhile.
      if (bytes !== null) this.#noteReadable(index);
    }
  }

  #edgesOf({ from, to }: ByteRange): number[] {
    const { objectBytes } = this.#store.attributes(this.#file);
    if (from >= to) return [];
    const edges = [from, to].filter((at) => Number.isFinite(at) && at % objectBytes !== 0);
    return [...new Set(edges.map((at) => Math.floor(at / objectBytes)))];
  }

  /** Whether the change keeps a part of the object, and the object was not read in this primary's epoch. */
  #isUnread(index: number, { from, to }: ByteRange): boolean {
    if (this.#readable.has(index)) return false;
    const { objectBytes } = this.#store.attributes(this.#file);
    const [entry] = this.#store.entries(this.#file, index, index, 1);
    const begin = index * objectBytes;
    if (entry !== undefined && (from > begin || to < begin + entry.length)) return true;
    // The change creates it, or replaces all of it.
    this.#noteReadable(index);
    return false;
  }

  #noteReadable(index: number): void {
    this.#readable.add(index);
    const [oldest] = this.#readable;
    if (this.#readable.size > READABLE_MAX && oldest !== undefined) this.#readable.delete(oldest);
  }
}
