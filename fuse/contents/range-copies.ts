import type { World } from '../../base/world.ts';
import { type ErrnoName, errnoName } from '../errno.ts';
import type { AttributeRecords } from '../metadata/attribute-records.ts';
import type { OpenFile } from './open-file.ts';
import { type ReadAhead, ReadPosition } from './read-ahead.ts';

/** One call copies for so long at the most, in milliseconds: the program can be interrupted after it. */
const COPY_MS_MAX = 1_000;

/** With these a piece was certainly not copied. */
const REFUSALS: ReadonlySet<ErrnoName> = new Set(['EDQUOT', 'ENOSPC', 'EFBIG', 'EROFS']);

interface RangeCopy {
  readonly source: OpenFile;
  readonly fromOffset: number;
  readonly file: OpenFile;
  readonly toOffset: number;
  readonly length: number;
}

/** Copies a range of one open file to another. */
export class RangeCopies {
  readonly #world: World;
  readonly #readAhead: ReadAhead;
  readonly #cache: Pick<AttributeRecords, 'forget' | 'written'>;
  readonly #isCurrent: (source: OpenFile) => boolean | Promise<boolean>;

  /** @param isCurrent as of `ReadAhead.read` */
  constructor(
    world: World,
    readAhead: ReadAhead,
    cache: Pick<AttributeRecords, 'forget' | 'written'>,
    isCurrent: (source: OpenFile) => boolean | Promise<boolean>,
  ) {
    this.#world = world;
    this.#readAhead = readAhead;
    this.#cache = cache;
    this.#isCurrent = isCurrent;
  }

  /**
   * The servers copy, and holes stay holes. A range so small that it can be stored with the new file to which it is copied passes
   * through here: servers could copy only to a file that was created before.
   *
   * @returns how many bytes were copied
   */
  copy(range: RangeCopy): Promise<number> {
    const { file, toOffset, length } = range;
    return file.keeps(toOffset + length) ? this.#throughHere(range) : this.#atServers(range);
  }

  async #throughHere({ source, fromOffset, file, toOffset, length }: RangeCopy): Promise<number> {
    if (length === 0) return 0;
    const isCurrent = () => this.#isCurrent(source);
    const read = await source.read(this.#readAhead, new ReadPosition(), fromOffset, length, 0, isCurrent);
    // What was read is a part of what others read.
    const bytes = Uint8Array.from(read);
    this.#readAhead.taken(read);
    if (bytes.length === 0) return 0;
    this.#cache.written(file.inode);
    await file.write(toOffset, bytes);
    return bytes.length;
  }

  async #atServers({ source, fromOffset, file, toOffset, length }: RangeCopy): Promise<number> {
    const untilMs = this.#world.nowMs() + COPY_MS_MAX;
    let done = 0;
    try {
      while (done < length) {
        const copied = await file.copyFrom(source, fromOffset + done, toOffset + done, length - done);
        done += copied;
        if (copied === 0 || this.#world.nowMs() >= untilMs) break;
      }
    } catch (error) {
      // A short count says that the rest was not copied, nor will be; the next call meets the same error again.
      if (done === 0 || !REFUSALS.has(errnoName(error))) throw error;
    } finally {
      this.#cache.forget(file.inode);
    }
    return done;
  }
}
