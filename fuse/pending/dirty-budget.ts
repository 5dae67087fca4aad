import { assert } from '../../base/assert.ts';
import type { World } from '../../base/world.ts';
import { withDeadline } from '../deadline.ts';

/**
 * Bytes accepted from programs and not yet acknowledged by the cluster, over all files of the mount.
 * Whoever would exceed the limit waits in line.
 */
export class DirtyBudget {
  readonly #world: World;
  readonly #bytesMax: number;
  readonly #waiting: { readonly bytes: number; readonly admit: () => void }[] = [];
  #bytes = 0;

  constructor(world: World, bytesMax: number) {
    this.#world = world;
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** @returns whether the bytes are admitted at once; only if nobody waits already */
  tryReserve(bytes: number): boolean {
    if (this.#waiting.length > 0 || !this.#fits(bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  async reserve(bytes: number, limitMs: number): Promise<void> {
    if (this.tryReserve(bytes)) return;
    let entry: { readonly bytes: number; readonly admit: () => void } | undefined;
    const admitted = new Promise<void>((resolve) => {
      entry = { bytes, admit: resolve };
      this.#waiting.push(entry);
    });
    try {
      await withDeadline(this.#world, admitted, limitMs, 'Waiting for room in the write buffer');
    } catch (error) {
      assert(entry !== undefined, 'The executor of a promise runs at once');
      const index = this.#waiting.indexOf(entry);
      // Admitted in the same turn in which the time was up: the bytes go back.
      if (index < 0) this.release(bytes);
      else this.#waiting.splice(index, 1);
      this.#admitNext();
      throw error;
    }
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
    assert(this.#bytes >= 0, 'No more is released than was reserved');
    this.#admitNext();
  }

  #admitNext(): void {
    for (let next = this.#waiting[0]; next !== undefined && this.#fits(next.bytes); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#bytes += next.bytes;
      next.admit();
    }
  }

  /** A single write larger than the limit passes when it is alone. */
  #fits(bytes: number): boolean {
    return this.#bytes === 0 || this.#bytes + bytes <= this.#bytesMax;
  }
}
