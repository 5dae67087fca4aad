import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { Bucket } from './buckets.ts';
import { type Entry, entriesOf, xattrOf } from './catalog-reads.ts';
import { keyCompare, UPLOADS_NAME } from './keys.ts';
import { decodeRecord, type ObjectRecord, RECORD_XATTR } from './object-record.ts';

/** Something on the way was removed, or cannot exist. */
const GONE: ReadonlySet<string> = new Set([
  ...['not-found', 'not-directory', 'junction', 'bad-request', 'name-too-long'],
]);
/** With it, a text comes after all but a few texts that begin with the same characters. */
const LAST_CHARACTER = '\u{10ffff}';

export interface WalkedObject {
  readonly key: string;
  readonly attributes: Attributes;
  readonly record: ObjectRecord;
}

/** Where a walk begins: after a key, and with `past` also after all keys that begin with it. */
export interface WalkPosition {
  readonly after: string;
  readonly past: boolean;
}

export interface WalkRange extends WalkPosition {
  readonly prefix: string;
  /** Directories are entered; otherwise each is one step of the walk, as it is a prefix of keys. */
  readonly descends: boolean;
  /** How many steps the caller will take, about. */
  readonly countMax: number;
}

export type WalkStep =
  | { readonly kind: 'object'; readonly object: WalkedObject }
  /** A directory that is not entered, with its slash. */
  | { readonly kind: 'directory'; readonly key: string };

/**
 * Walks the keys of a bucket in the order of their bytes. That is not the order of names in a tree: `a-b` comes before
 * `a/b`, although the directory `a` comes before `a-b`. Each directory is therefore held back until a name follows that
 * comes after its name with a slash.
 */
export class KeyWalk {
  readonly #gateway: Pick<Gateway, 'query' | 'queryCatalog'>;

  constructor(gateway: Pick<Gateway, 'query' | 'queryCatalog'>) {
    this.#gateway = gateway;
  }

  /** Yields what comes in `range`, in order. Costs queries for what it yields, not for what is before or after. */
  async *steps(bucket: Bucket, range: WalkRange): AsyncGenerator<WalkStep> {
    const slash = range.prefix.lastIndexOf('/');
    const directory = range.prefix.slice(0, slash + 1);
    const names = directory === '' ? [] : directory.slice(0, -1).split('/');
    if (names.some((name) => name === '' || name === '.' || name === '..') || names[0] === UPLOADS_NAME)
      return;
    const root = await this.#directoryAt(bucket, names);
    if (root === null) return;
    yield* this.#directory(root, directory, range);
  }

  async *#directory(directory: Attributes, path: string, range: WalkRange): AsyncGenerator<WalkStep> {
    const { after, past } = range;
    // All keys here begin with `path`.
    if (past && after !== '' && path.startsWith(after)) return;
    if (!after.startsWith(path) && keyCompare(after, path) > 0) return;
    if (path !== '' && keyCompare(path, after) > 0 && path.startsWith(range.prefix)) {
      const object = await this.#directoryObject(directory, path);
      if (object !== null) yield { kind: 'object', object };
    }
    for await (const entry of this.#inOrder(directory.inode, path, range)) {
      const key = keyOf(path, entry);
      if (entry.attributes.kind !== 'directory') {
        if (keyCompare(key, after) <= 0 || (past && key.startsWith(after))) continue;
        yield {
          kind: 'object',
          object: { key, attributes: entry.attributes, record: decodeRecord(entry.xattr) },
        };
      } else if (range.descends || !key.startsWith(range.prefix))
        yield* this.#directory(entry.attributes, key, range);
      else if (isAfter(key, range) || (await this.#hasLater(entry.attributes, key, range)))
        yield { kind: 'directory', key };
    }
  }

  /** Whether keys in a directory that the position is in come after it. */
  async #hasLater(directory: Attributes, path: string, range: WalkRange): Promise<boolean> {
    if (!range.after.startsWith(path) || (range.past && range.after === path)) return false;
    const one = { ...range, descends: true, countMax: 1 };
    for await (const _ of this.#directory(directory, path, one)) return true;
    return false;
  }

  /** The entries of a directory from the position on, in the order of their keys. */
  async *#inOrder(inode: number, path: string, range: WalkRange): AsyncGenerator<Entry> {
    const first = firstName(path, range);
    const held: Entry[] = await this.#before(inode, first, namePrefix(path, range));
    for await (const entry of this.#entries(inode, first, range.countMax)) {
      if (!keyOf(path, entry).startsWith(range.prefix) && !range.prefix.startsWith(keyOf(path, entry))) {
        // Names after the prefix: only directories that are held back come before them.
        if (keyCompare(path + entry.name, range.prefix) > 0) break;
        continue;
      }
      if (path === '' && entry.name === UPLOADS_NAME) continue;
      // Held directories are prefixes of each other's names, the longest last.
      for (let last = held.at(-1); last !== undefined; last = held.at(-1)) {
        if (keyCompare(`${last.name}/`, entry.name) > 0) break;
        yield last;
        held.pop();
      }
      if (entry.attributes.kind === 'directory') held.push(entry);
      else if (entry.attributes.kind === 'file') yield entry;
    }
    for (let last = held.pop(); last !== undefined; last = held.pop()) yield last;
  }

  /**
   * Directories whose name comes before `first`, and whose keys come after it: their names are the beginning of it, and
   * a character before the slash follows.
   */
  async #before(inode: number, first: string, prefix: string): Promise<Entry[]> {
    const found: Entry[] = [];
    const characters = [...first];
    for (let count = 1; count < characters.length; count++) {
      const name = characters.slice(0, count).join('');
      if ((characters[count] as string) >= '/' || !name.startsWith(prefix)) continue;
      const attributes = await this.#lookup(inode, name);
      if (attributes?.kind === 'directory') found.push({ name, attributes });
    }
    return found;
  }

  /** From `first` on, `first` included. */
  async *#entries(inode: number, first: string, countMax: number): AsyncGenerator<Entry> {
    if (first !== '') {
      const attributes = await this.#lookup(inode, first);
      if (attributes !== null) {
        const record =
          attributes.kind === 'file' ? await xattrOf(this.#gateway, attributes, RECORD_XATTR) : undefined;
        yield { name: first, attributes, ...(record === undefined ? {} : { xattr: record }) };
      }
    }
    const wanted = { live: true, xattr: RECORD_XATTR, after: first, countMax } as const;
    try {
      yield* entriesOf(this.#gateway, { inode }, wanted);
    } catch (error) {
      if (!isGone(error)) throw error;
    }
  }

  /** A directory is an object if a client has put it, or created it otherwise: but not if it came with an object. */
  async #directoryObject(attributes: Attributes, key: string): Promise<WalkedObject | null> {
    const record = decodeRecord(await xattrOf(this.#gateway, attributes, RECORD_XATTR));
    return record.implicit === true ? null : { key, attributes, record };
  }

  async #lookup(parent: number, name: string): Promise<Attributes | null> {
    if (Buffer.byteLength(name) > 255) return null;
    return (await nullIfGone(this.#gateway.query({ kind: 'lookup', parent, name })))?.attributes ?? null;
  }

  async #directoryAt({ volume, names: base }: Bucket, names: readonly string[]): Promise<Attributes | null> {
    const query = { kind: 'resolve', volume, path: volumePath([...base, ...names]), follow: false } as const;
    const attributes = (await nullIfGone(this.#gateway.queryCatalog(query)))?.attributes ?? null;
    return attributes?.kind === 'directory' ? attributes : null;
  }
}

function keyOf(path: string, { name, attributes }: Entry): string {
  return attributes.kind === 'directory' ? `${path}${name}/` : path + name;
}

function isAfter(key: string, { after, past }: WalkPosition): boolean {
  return keyCompare(key, after) > 0 && !(past && after !== '' && key.startsWith(after));
}

/** The part of the prefix that names in this directory begin with. */
function namePrefix(path: string, { prefix }: WalkRange): string {
  return prefix.startsWith(path) ? (prefix.slice(path.length).split('/')[0] as string) : '';
}

/** The first name of a directory that can matter: of the position, or of the prefix. */
function firstName(path: string, range: WalkRange): string {
  const ofPrefix = namePrefix(path, range);
  const [name = '', ...below] = range.after.startsWith(path) ? range.after.slice(path.length).split('/') : [];
  const isPast = range.past && name !== '' && below.length === 0;
  const ofPosition = isPast ? name + LAST_CHARACTER : name;
  return keyCompare(ofPosition, ofPrefix) > 0 ? ofPosition : ofPrefix;
}

async function nullIfGone<Result>(query: Promise<Result>): Promise<Result | null> {
  try {
    return await query;
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

function isGone(error: unknown): boolean {
  return error instanceof ServiceError && GONE.has(error.code);
}
