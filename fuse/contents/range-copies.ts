import type { World } from '../../base/world.ts';
import { type ErrnoName, errnoName } from '../errno.ts';
import type { AttributeRecords } from '../metadata/attribute-records.ts';
import type { OpenFile } from './open-file.ts';
import { type ReadAhead, ReadPosition } from './read-ahead.ts';

/** Bounds one call, so that the program can be interrupted between calls. */
const COPY_MS_MAX = 1_000;

/** With these errors nothing of the piece was copied. */
const REFUSALS: ReadonlySet<ErrnoName> = new Set(['EDQUOT', 'ENOSPC', 'EFBIG', 'EROFS']);

interface RangeCopy {
  readonly source: OpenFile;
  readonly fromOffset: number;
  readonly file: OpenFile;
  readonly toOffset: number;
  readonly length: number;
}

export class RangeCopies {
  readonly #world: World;
  readonly #readAhead: ReadAhead;
  readonly #cache: Pick<AttributeRecords, 'forget' | 'written'>;
  readonly #isCurrent: (source: OpenFile) => boolean | Promise<boolean>;

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
   * Copies at the servers, which keep holes, unless the range can be stored together with the new target file: servers
   * can copy only to a file that exists.
   */
  copy(range: RangeCopy): Promise<number> {
    const { file, toOffset, length } = range;
    return file.staysUncommitted(toOffset + length) ? this.#throughHere(range) : this.#atServers(range);
  }

  async #throughHere({ source, fromOffset, file, toOffset, length }: RangeCopy): Promise<number> {
    if (length === 0) return 0;
    const isCurrent = () => this.#isCurrent(source);
    const read = await source.read(this.#readAhead, new ReadPosition(), fromOffset, length, 0, isCurrent);
    // The block is shared with other reads.
    const bytes = Uint8Array.from(read);
    this.#readAhead.release(read);
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
      // After a short count the program's next call gets the same error.
      if (done === 0 || !REFUSALS.has(errnoName(error))) throw error;
    } finally {
      this.#cache.forget(file.inode);
    }
    return done;
  }
}
