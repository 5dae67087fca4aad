import type { Attributes } from './backend.ts';

/** Names and attributes are believed for this long after they were heard, where nobody chose otherwise. */
export const ATTRIBUTE_AGE_MAX_MS = 1000;

/** The kernel opens a file right after it looked its name up: one question to the cluster serves both. */
const LOOKUP_AGE_MAX_MS = 50;
const COUNT_MAX = 20_000;

interface Known {
  readonly attributes: Attributes;
  readonly heardMs: number;
  /** Heard with a listing or by our own change: the next questions about it are answered from here. */
  readonly prefetched: boolean;
}

/**
 * What was heard of names and inodes a moment ago. Directories are kept whenever they are heard of, because
 * every path leads through them; files only from a listing or from our own change.
 *
 * An answer that was asked for before a change of ours may be older than the change. `mark` is taken before
 * asking: what arrives after a `forget` is not kept, nor after a `drop` what is about that inode, nor after `made`
 * what is about that name or its directory.
 */
export class AttributeCache {
  readonly #ageMaxMs: number;
  readonly #entries = new Map<string, { readonly inode: number; readonly heardMs: number }>();
  readonly #known = new Map<number, Known>();
  /** Changes of ours, counted. */
  #mark = 0;
  /** What was asked for before this one is too old. */
  #forgotten = 0;
  /** The same of single inodes, and of single names as keys of `#entries`, the latest last. */
  readonly #dropped = new Map<number | string, number>();

  /**
   * @param ageMaxMs for how long what was heard is believed; 0 where whoever answers knows better what may be believed,
   *   or nothing shall be
   */
  constructor(ageMaxMs = ATTRIBUTE_AGE_MAX_MS) {
    this.#ageMaxMs = ageMaxMs;
  }

  get mark(): number {
    return this.#mark;
  }

  entry(parent: number, name: string): Attributes | undefined {
    const entry = this.#entries.get(keyOf(parent, name));
    if (entry === undefined || this.#isOld(entry.heardMs, this.#ageMaxMs)) return undefined;
    return this.attributes(entry.inode);
  }

  attributes(inode: number): Attributes | undefined {
    const known = this.#known.get(inode);
    if (known === undefined || !known.prefetched) return undefined;
    return this.#isOld(known.heardMs, this.#ageMaxMs) ? undefined : known.attributes;
  }

  /** What a lookup heard this very moment, for the open that follows it. */
  looked(inode: number): Attributes | undefined {
    const known = this.#known.get(inode);
    if (known === undefined || known.prefetched) return undefined;
    return this.#isOld(known.heardMs, LOOKUP_AGE_MAX_MS) ? undefined : known.attributes;
  }

  /** @param mark as it was when the question was asked */
  heard(attributes: Attributes, mark: number, prefetched = false): void {
    if (this.#isBefore(mark, attributes.inode)) {
      // Nor is what was heard before: this answer may be newer.
      this.#known.delete(attributes.inode);
      return;
    }
    const kept = this.#ageMaxMs > 0 && (prefetched || attributes.kind === 'directory');
    bounded(this.#known).set(attributes.inode, { attributes, heardMs: performance.now(), prefetched: kept });
  }

  heardEntry(parent: number, name: string, attributes: Attributes, mark: number, prefetched = false): void {
    const key = keyOf(parent, name);
    if (this.#isBefore(mark, key)) return;
    this.heard(attributes, mark, prefetched);
    if (!prefetched && attributes.kind !== 'directory') return;
    const entry = { inode: attributes.inode, heardMs: performance.now() };
    bounded(this.#entries).set(key, entry);
  }

  forget(inode: number): void {
    this.#forgotten = ++this.#mark;
    this.#known.delete(inode);
  }

  /** For changes of contents, which are many: what is heard of other inodes meanwhile is kept. */
  drop(inode: number): void {
    this.#known.delete(inode);
    this.#noteChange(inode);
  }

  /**
   * We gave the name to what is new, which has changed its directory's times and nothing else of it: the directory, through
   * which the path of the next file leads as well, stays known for as long as it would have been.
   *
   * @param attributes of what was made, as its making was answered
   */
  made(parent: number, name: string, attributes: Attributes): void {
    const key = keyOf(parent, name);
    this.#entries.delete(key);
    this.#noteChange(key);
    this.#noteChange(parent);
    const known = this.#known.get(parent);
    if (known === undefined) return;
    // A directory counts those in it: whether the one heard of had this one already cannot be told.
    if (attributes.kind === 'directory') {
      this.#known.delete(parent);
      return;
    }
    const { changedNs } = attributes;
    // What was heard may have later changes already.
    if (BigInt(known.attributes.changedNs) >= BigInt(changedNs)) return;
    const changed = { ...known.attributes, modifiedNs: changedNs, changedNs };
    this.#known.set(parent, { ...known, attributes: changed });
  }

  /** The name, and with it its directory, changed. */
  forgetEntry(parent: number, name: string): void {
    this.#forgotten = ++this.#mark;
    this.#entries.delete(keyOf(parent, name));
    this.#known.delete(parent);
  }

  /** What was asked for about it before now is too old. */
  #noteChange(what: number | string): void {
    this.#dropped.delete(what);
    this.#dropped.set(what, ++this.#mark);
    for (const [oldest, mark] of this.#dropped) {
      if (this.#dropped.size <= COUNT_MAX) break;
      this.#dropped.delete(oldest);
      this.#forgotten = Math.max(this.#forgotten, mark);
    }
  }

  #isBefore(mark: number, what: number | string): boolean {
    return mark < this.#forgotten || mark < (this.#dropped.get(what) ?? 0);
  }

  #isOld(heardMs: number, ageMaxMs: number): boolean {
    return ageMaxMs === 0 || performance.now() - heardMs > ageMaxMs;
  }
}

function keyOf(parent: number, name: string): string {
  return `${parent}/${name}`;
}

function bounded<Key, Value>(map: Map<Key, Value>): Map<Key, Value> {
  if (map.size >= COUNT_MAX) {
    for (const key of map.keys()) {
      map.delete(key);
      break;
    }
  }
  return map;
}
