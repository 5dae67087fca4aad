import { BIRTH_BYTES_MAX } from '../../wire/births.ts';
import type { Budget } from './budget.ts';

/** The smallest objects of which files are made. */
const OBJECT_BYTES_MIN = 4096;

/** Contents of a small file, in memory. */
export class KeptContents {
  readonly #budget: Pick<Budget, 'add' | 'release'>;
  #memory = Buffer.alloc(0);
  #sizeBytes = 0;
  /** Counted in the budget. */
  #countedBytes = 0;

  constructor(budget: Pick<Budget, 'add' | 'release'>) {
    this.#budget = budget;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  get bytes(): Uint8Array {
    return this.#memory.subarray(0, this.#sizeBytes);
  }

  /** Whether all bytes of an object would be a hole: a file is created as data from its beginning to its end. */
  leavesHole(offset: number): boolean {
    const firstObject = Math.ceil(this.#sizeBytes / OBJECT_BYTES_MIN);
    return (firstObject + 1) * OBJECT_BYTES_MIN <= offset;
  }

  /** @returns a copy: what is written next may be written in its place */
  read(offset: number, length: number): Uint8Array {
    return Buffer.from(this.#memory.subarray(offset, Math.min(offset + length, this.#sizeBytes)));
  }

  put(offset: number, parts: readonly Uint8Array[]): void {
    let at = offset;
    this.#reserve(offset + parts.reduce((sum, part) => sum + part.length, 0));
    for (const part of parts) {
      this.#memory.set(part, at);
      at += part.length;
    }
    this.#sizeBytes = Math.max(this.#sizeBytes, at);
  }

  truncate(sizeBytes: number): void {
    this.#memory.fill(0, Math.min(sizeBytes, this.#sizeBytes), this.#sizeBytes);
    this.#reserve(sizeBytes);
    this.#sizeBytes = sizeBytes;
  }

  /** The bytes are not needed any more; the size stays. */
  release(): void {
    this.#memory = Buffer.alloc(0);
    this.#budget.release(this.#countedBytes);
    this.#countedBytes = 0;
  }

  #reserve(sizeBytes: number): void {
    const before = this.#memory.length;
    if (sizeBytes <= before) return;
    const larger = Buffer.alloc(
      before === 0 ? sizeBytes : Math.min(BIRTH_BYTES_MAX, Math.max(sizeBytes, 2 * before)),
    );
    this.#memory.copy(larger);
    this.#memory = larger;
    this.#countedBytes += larger.length - before;
    this.#budget.add(0, larger.length - before);
  }
}
