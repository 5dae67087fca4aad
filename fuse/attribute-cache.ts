import type { Attributes } from './backend.ts';

/** Names and attributes are believed for this long after they were heard. */
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
 * asking, and what arrives after a `forget` is not kept.
 */
export class AttributeCache {
  readonly #entries = new Map<string, { readonly inode: number; readonly heardMs: number }>();
  readonly #known = new Map<number, Known>();
  #mark = 0;

  get mark(): number {
    return this.#mark;
  }

  entry(parent: number, name: string): Attributes | undefined {
    const entry = this.#entries.get(`${parent}/${name}`);
    if (entry === undefined || performance.now() - entry.heardMs > ATTRIBUTE_AGE_MAX_MS) return undefined;
    return this.attributes(entry.inode);
  }

  attributes(inode: number): Attributes | undefined {
    const known = this.#known.get(inode);
    if (known === undefined || !known.prefetched) return undefined;
    return performance.now() - known.heardMs > ATTRIBUTE_AGE_MAX_MS ? undefined : known.attributes;
  }

  /** What a lookup heard this very moment, for the open that follows it. */
  looked(inode: number): Attributes | undefined {
    const known = this.#known.get(inode);
    if (known === undefined || known.prefetched) return undefined;
    return performance.now() - known.heardMs > LOOKUP_AGE_MAX_MS ? undefined : known.attributes;
  }

  /** @param mark as it was when the question was asked */
  heard(attributes: Attributes, mark: number, prefetched = false): void {
    if (mark !== this.#mark) return;
    const kept = prefetched || attributes.kind === 'directory';
    bounded(this.#known).set(attributes.inode, { attributes, heardMs: performance.now(), prefetched: kept });
  }

  heardEntry(parent: number, name: string, attributes: Attributes, mark: number, prefetched = false): void {
    if (mark !== this.#mark) return;
    this.heard(attributes, mark, prefetched);
    if (!prefetched && attributes.kind !== 'directory') return;
    const entry = { inode: attributes.inode, heardMs: performance.now() };
    bounded(this.#entries).set(`${parent}/${name}`, entry);
  }

  forget(inode: number): void {
    this.#mark++;
    this.#known.delete(inode);
  }

  /** For changes of contents: whoever has the file open knows better than an answer that was under way. */
  drop(inode: number): void {
    this.#known.delete(inode);
  }

  /** The name, and with it its directory, changed. */
  forgetEntry(parent: number, name: string): void {
    this.#mark++;
    this.#entries.delete(`${parent}/${name}`);
    this.#known.delete(parent);
  }
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
