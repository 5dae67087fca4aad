/** Layout in 32-bit words: a generation, which `forgetAll` increments, then slots. */
const GENERATION = 0;
const SLOTS_AT = 8;
const SLOT_WORDS = 8;
const SLOTS = 16_384;
/** Words of a slot. The first is odd while the others are being written. */
const SEQUENCE = 0;
const INODE = 1;
const UNTIL = 3;
const OF_GENERATION = 5;
const LOW = 2 ** 32;

/**
 * Inodes without access control lists, of recent answers to the kernel, in memory of both threads: a program that lists
 * files has the kernel request the lists of each, and the reader thread can answer. The main thread writes; a newer
 * inode replaces an older one.
 */
export class InodesWithoutAcls {
  readonly #memory: Int32Array;
  readonly #nowMs: () => number;

  /** @param nowMs monotonic, and the same in both threads */
  constructor(memory: SharedArrayBuffer, nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#memory = new Int32Array(memory);
  }

  static memory(): SharedArrayBuffer {
    return new SharedArrayBuffer(4 * (SLOTS_AT + SLOTS * SLOT_WORDS));
  }

  add(inode: number, forMs: number): void {
    const at = slotOf(inode);
    const words = this.#memory;
    Atomics.add(words, at + SEQUENCE, 1);
    this.#put(at + INODE, inode);
    this.#put(at + UNTIL, this.#nowMs() + forMs);
    Atomics.store(words, at + OF_GENERATION, Atomics.load(words, GENERATION));
    Atomics.add(words, at + SEQUENCE, 1);
  }

  /** Invalidates all earlier answers: a list was set, or another client may set one. */
  forgetAll(): void {
    Atomics.add(this.#memory, GENERATION, 1);
  }

  /** Called by the reader thread. @returns false also if expired or being written: then the main thread answers */
  has(inode: number): boolean {
    const at = slotOf(inode);
    const words = this.#memory;
    const sequence = Atomics.load(words, at + SEQUENCE);
    const isKnown =
      this.#get(at + INODE) === inode &&
      this.#get(at + UNTIL) > this.#nowMs() &&
      Atomics.load(words, at + OF_GENERATION) === Atomics.load(words, GENERATION);
    return isKnown && sequence % 2 === 0 && Atomics.load(words, at + SEQUENCE) === sequence;
  }

  #put(at: number, value: number): void {
    Atomics.store(this.#memory, at, value | 0);
    Atomics.store(this.#memory, at + 1, Math.floor(value / LOW));
  }

  #get(at: number): number {
    return Atomics.load(this.#memory, at + 1) * LOW + (Atomics.load(this.#memory, at) >>> 0);
  }
}

function slotOf(inode: number): number {
  return SLOTS_AT + (inode % SLOTS) * SLOT_WORDS;
}
