import { assert } from '../../base/assert.ts';
import type { ObjectEntry } from './object-entry.ts';

/** Children of a node, and objects of a leaf. */
export const FAN_OUT = 16;

/** The exclusive or of the digests of a set of objects. Equal sets have equal digests; the empty one has zero. */
export interface Digest {
  readonly low: number;
  readonly high: number;
}

/** A node of the tree: on level 0 a leaf of `FAN_OUT` objects, on each level above `FAN_OUT` nodes of the one below. */
export interface DigestNode {
  readonly level: number;
  readonly number: number;
}

export interface Version {
  readonly epoch: number;
  readonly seq: number;
}

interface Page {
  readonly digests: Uint32Array;
  /** Epoch and sequence number of the newest version that was ever among each child's objects. */
  readonly newest: Float64Array;
}

/**
 * Digests of ranges of an object map, updated as it changes: comparing two maps costs the difference times the height
 * of the tree.
 *
 * A digest is the exclusive or of 64-bit digests of the entries, so that an entry is removed like it was added, and
 * overlaid trees give the digests of both maps' difference. Digests guard against accidents, not against an attacker:
 * servers trust each other.
 *
 * The newest version of each range finds what changed since a version. It does not decrease when an object is removed,
 * so it may be too new, which only costs a lookup.
 */
export class ObjectDigests {
  readonly #levels: Map<number, Page>[] = [new Map()];
  #low = 0;
  #high = 0;

  /** Number of levels. The node (height, 0), and every node 0 above it, covers all objects. */
  get height(): number {
    return this.#levels.length;
  }

  get total(): Digest {
    return { low: this.#low, high: this.#high };
  }

  replace(before: ObjectEntry | null, after: ObjectEntry | null): void {
    if (before !== null) this.#toggle(before, false);
    if (after !== null) this.#toggle(after, true);
  }

  digest(level: number, number: number): Digest {
    if (level >= this.height) return number === 0 ? this.total : NOTHING;
    const page = this.#levels[level]?.get(Math.floor(number / FAN_OUT));
    if (page === undefined) return NOTHING;
    const at = 2 * (number % FAN_OUT);
    return { low: page.digests[at] as number, high: page.digests[at + 1] as number };
  }

  /** Leaves with objects that may have changed after `since`, from that of object `from` on, in order. */
  leavesSince(since: Version, from: number, countMax: number): number[] {
    const leaves: number[] = [];
    const first = Math.floor(from / FAN_OUT);
    const visit = (level: number, pageNumber: number): void => {
      const page = this.#levels[level]?.get(pageNumber);
      if (page === undefined) return;
      const span = FAN_OUT ** level;
      for (let child = 0; child < FAN_OUT && leaves.length < countMax; child++) {
        const number = pageNumber * FAN_OUT + child;
        if ((number + 1) * span <= first) continue;
        const epoch = page.newest[2 * child] as number;
        const seq = page.newest[2 * child + 1] as number;
        if (epoch < since.epoch || (epoch === since.epoch && seq <= since.seq)) continue;
        if (level === 0) leaves.push(number);
        else visit(level - 1, number);
      }
    };
    visit(this.height - 1, 0);
    return leaves;
  }

  /** Adds an entry to the digests of each level of the tree, or removes it: both are an exclusive or. */
  #toggle(entry: ObjectEntry, isAdded: boolean): void {
    const { low, high } = entryDigest(entry);
    let number = Math.floor(entry.index / FAN_OUT);
    this.#grow(number);
    for (const pages of this.#levels) {
      const up = Math.floor(number / FAN_OUT);
      const child = 2 * (number - up * FAN_OUT);
      let page = pages.get(up);
      if (page === undefined) {
        page = newPage();
        pages.set(up, page);
      }
      const { digests, newest } = page;
      digests[child] = (digests[child] as number) ^ low;
      digests[child + 1] = (digests[child + 1] as number) ^ high;
      if (isAdded) raise(newest, child, entry.versionEpoch, entry.versionSeq);
      number = up;
    }
    this.#low = (this.#low ^ low) >>> 0;
    this.#high = (this.#high ^ high) >>> 0;
  }

  /** Adds levels until one page covers leaf `leaf`. */
  #grow(leaf: number): void {
    assert(Number.isSafeInteger(leaf) && leaf >= 0, 'A leaf has a number');
    while (leaf >= FAN_OUT ** this.height) {
      const page = newPage();
      // The range of all pages so far becomes the first child of the new one.
      page.digests[0] = this.#low;
      page.digests[1] = this.#high;
      const below = this.#levels[this.height - 1]?.get(0);
      if (below !== undefined) {
        for (let child = 0; child < 2 * FAN_OUT; child += 2) {
          raise(page.newest, 0, below.newest[child] as number, below.newest[child + 1] as number);
        }
      }
      this.#levels.push(new Map([[0, page]]));
    }
  }
}

export const NOTHING: Digest = { low: 0, high: 0 };

export function digestEqual(a: Digest, b: Digest): boolean {
  return a.low === b.low && a.high === b.high;
}

export function digestXor(a: Digest, b: Digest): Digest {
  return { low: (a.low ^ b.low) >>> 0, high: (a.high ^ b.high) >>> 0 };
}

export function nodeRange({ level, number }: DigestNode): { readonly first: number; readonly last: number } {
  const span = FAN_OUT ** (level + 1);
  return { first: number * span, last: Math.min((number + 1) * span - 1, Number.MAX_SAFE_INTEGER) };
}

function newPage(): Page {
  return { digests: new Uint32Array(2 * FAN_OUT), newest: new Float64Array(2 * FAN_OUT) };
}

function raise(newest: Float64Array, at: number, epoch: number, seq: number): void {
  const known = newest[at] as number;
  if (epoch < known || (epoch === known && seq <= (newest[at + 1] as number))) return;
  newest[at] = epoch;
  newest[at + 1] = seq;
}

/** Two lanes of MurmurHash3 with different constants, mixed with each other at the end. */
export function entryDigest(entry: ObjectEntry): Digest {
  let a = 0x9747_b28c;
  let b = 0x3c6e_f372;
  const mix = (word: number): void => {
    let k = Math.imul(word, 0xcc9e_2d51);
    k = Math.imul((k << 15) | (k >>> 17), 0x1b87_3593);
    a ^= k;
    a = (Math.imul((a << 13) | (a >>> 19), 5) + 0xe654_6b64) | 0;
    k = Math.imul(word, 0x38b3_4ae5);
    k = Math.imul((k << 17) | (k >>> 15), 0xa1e3_8b93);
    b ^= k;
    b = (Math.imul((b << 11) | (b >>> 21), 5) + 0x38b3_4ae5) | 0;
  };
  mix(entry.index | 0);
  mix(Math.floor(entry.index / 2 ** 32));
  mix(entry.versionEpoch | 0);
  mix(Math.floor(entry.versionEpoch / 2 ** 32));
  mix(entry.versionSeq | 0);
  mix(Math.floor(entry.versionSeq / 2 ** 32));
  mix(entry.length);
  mix(entry.crc32);
  a = (a + b) | 0;
  b = (b + a) | 0;
  a = finish(a);
  b = finish(b);
  a = (a + b) | 0;
  b = (b + a) | 0;
  return { low: a >>> 0, high: b >>> 0 };
}

function finish(word: number): number {
  let h = word;
  h ^= h >>> 16;
  h = Math.imul(h, 0x85eb_ca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2_ae35);
  return h ^ (h >>> 16);
}
