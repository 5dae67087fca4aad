import type { Space } from '../backend.ts';
import { withDeadline } from '../deadline.ts';
import type { CallParts } from './call-parts.ts';

const SPACE_AGE_MAX_MS = 5_000;
/** `df` waits this long for new numbers, then gets the last ones. */
const SPACE_WAIT_MS = 2_000;

export class SpaceCalls {
  readonly #parts: CallParts;
  #known: { readonly space: Space; readonly answeredMs: number } | undefined;

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  async space(): Promise<Space> {
    const { backend, files, limitMs, log, world } = this.#parts;
    const known = this.#known;
    if (known !== undefined && world.nowMs() - known.answeredMs < SPACE_AGE_MAX_MS) return known.space;
    const answered = backend.space().then((space) => {
      this.#known = { space, answeredMs: world.nowMs() };
      files.freeSpace.update(space);
      return space;
    });
    try {
      return await withDeadline(
        world,
        answered,
        Math.min(SPACE_WAIT_MS, limitMs),
        'A request for free space',
      );
    } catch (error) {
      log('debug', 'free space is not known', { error: String(error) });
      return this.#known?.space ?? { totalBytes: 0, freeBytes: 0, inodes: 0 };
    }
  }
}
