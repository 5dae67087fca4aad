import { NEW_FILE_BYTES_MAX } from '../../wire/new-files.ts';
import type { Budget } from './budget.ts';

/** The smallest object size of a volume. */
const OBJECT_BYTES_MIN = 4096;

/** Contents of a small file in memory, which count in the budget. */
export class BufferedContents {
  readonly #budget: Pick<Budget, 'add' | 'release'>;
  #memory = Buffer.alloc(0);
  #sizeBytes = 0;
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

  /** Whether the gap would be a whole object: a file is created without holes. */
  leavesHole(offset: number): boolean {
    const firstObject = Math.ceil(this.#sizeBytes / OBJECT_BYTES_MIN);
    return (firstObject + 1) * OBJECT_BYTES_MIN <= offset;
  }

  /** Copies, since later writes reuse the memory. */
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

  release(): void {
    this.#memory = Buffer.alloc(0);
    this.#budget.release(this.#countedBytes);
    this.#countedBytes = 0;
  }

  #reserve(sizeBytes: number): void {
    const before = this.#memory.length;
    if (sizeBytes <= before) return;
    const larger = Buffer.alloc(
      before === 0 ? sizeBytes : Math.min(NEW_FILE_BYTES_MAX, Math.max(sizeBytes, 2 * before)),
    );
    this.#memory.copy(larger);
    this.#memory = larger;
    this.#countedBytes += larger.length - before;
    this.#budget.add(0, larger.length - before);
  }
}
