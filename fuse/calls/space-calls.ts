import { BoundedMap } from '../../base/bounded-map.ts';
import type { Space } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import type { CallParts } from './call-parts.ts';

const SPACE_AGE_MAX_MS = 5_000;
/** `df` waits this long for new numbers, then gets the last ones. */
const SPACE_WAIT_MS = 2_000;
/** Before that, for attributes that are not cached. */
const QUOTA_WAIT_MS = 1_000;
/** Of a call's limit, of which a transport may use the rest to find the inode. */
const SPACE_WAIT_SHARE = 1 / 2;
const QUOTA_WAIT_SHARE = 1 / 4;
/** Directories whose last numbers are kept. */
const QUOTAS_MAX = 1_000;

export class SpaceCalls {
  readonly #parts: CallParts;
  /** By the directory whose quota counts there; 0: the volume's alone. */
  readonly #known = new BoundedMap<number, { readonly space: Space; readonly answeredMs: number }>(
    QUOTAS_MAX,
  );

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  /** @param inode of which the quotas of directories apply */
  async space(inode: number): Promise<Space> {
    const { backend, files, limitMs, log, world } = this.#parts;
    const quota = await this.#quotaOf(inode);
    const known = this.#known.get(quota);
    if (known !== undefined && world.nowMs() - known.answeredMs < SPACE_AGE_MAX_MS) return known.space;
    const answered = backend.space(quota === 0 ? undefined : quota).then((space) => {
      this.#known.set(quota, { space, answeredMs: world.nowMs() });
      files.freeSpace.update(space);
      return space;
    });
    try {
      return await withDeadline(
        world,
        answered,
        Math.min(SPACE_WAIT_MS, limitMs * SPACE_WAIT_SHARE),
        'A request for free space',
      );
    } catch (error) {
      log('debug', 'free space is not known', { error: String(error) });
      return this.#known.get(quota)?.space ?? { totalBytes: 0, freeBytes: 0, inodes: 0 };
    }
  }

  /** @returns the directory whose quota the inode counts against; 0 for the volume's alone, and if it is not known */
  async #quotaOf(inode: number): Promise<number> {
    const { inodes, limitMs, log, world } = this.#parts;
    try {
      const answered = inodes.attributes(inode);
      const { quota = 0 } = await withDeadline(
        world,
        answered,
        Math.min(QUOTA_WAIT_MS, limitMs * QUOTA_WAIT_SHARE),
        'A request for a quota',
      );
      return quota;
    } catch (error) {
      log('debug', 'the quota of a directory is not known', { error: String(error) });
      return 0;
    }
  }
}
