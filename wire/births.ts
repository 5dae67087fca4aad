import type { ErrorCode } from '../base/errors.ts';
import { ByteReader, ByteWriter, MalformedError } from './bytes.ts';
import type { Attributes, CacheOwner } from './catalog-api.ts';
import { BIRTHS_MAX, FORGETS_MAX } from './request-limits.ts';

/** New files that travel with all of their contents: `POST /v1/births`. */

/** Bytes of one file at the most. */
export const BIRTH_BYTES_MAX = 256 * 1024;
/** Bytes of all files of one request together at the most. */
export const BIRTHS_BYTES_MAX = 4 * 1024 * 1024;
/** Bytes of a request's body at the most: names and attributes come to the contents. */
export const BIRTHS_BODY_BYTES_MAX = BIRTHS_BYTES_MAX + 1024 * 1024;

/** Beside the permission bits of a file that has its name. Servers of earlier releases refuse it. */
const NAMED_BIT = 0x8000;

const NANOSECONDS = /^-?[0-9]{1,20}$/;

/** A file that nobody knows of yet. */
export interface Birth {
  /** Inode of the directory, and the name in it, which must not be there. */
  readonly parent: number;
  readonly name: string;
  /** A number that was reserved. */
  readonly inode: number;
  /** `create-file` has created it by this number, live and without contents: it has its name, and gets its contents. */
  readonly isNamed?: true;
  /** Permission bits, the mask of the process already taken from them. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** In nanoseconds since 1970, as decimal text; null: the moment in which it gets its name. */
  readonly accessedNs: string | null;
  readonly modifiedNs: string | null;
  readonly changedNs: string | null;
  /** All of it; the file is as long as this. */
  readonly contents: Uint8Array;
}

/** Body of `POST /v1/births`: a retry carries the same, and is answered, not repeated. */
export interface BirthRequest {
  readonly session: number;
  readonly number: number;
  /** As of a command; it is in the request's URL (`?since=`), not in its body. @see CommandRequest */
  readonly since?: number;
  /** Who reserved the numbers. */
  readonly owner: number;
  /** @see CommandRequest */
  readonly cache?: CacheOwner;
  readonly births: readonly Birth[];
}

/** What became of one birth. */
export type BirthOutcome =
  /**
   * `namedNs`: when it got its name, which is its directory's time. `renew`: a server that its number is reserved for is away or
   * nearly full, and new files are better made by other numbers.
   */
  | {
      readonly kind: 'born';
      readonly attributes: Attributes;
      readonly namedNs: string;
      readonly renew?: true;
    }
  /** It is not there, and will not be: the name is taken, the directory is gone, the quota is used up. */
  | { readonly kind: 'refused'; readonly code: ErrorCode; readonly message: string }
  /**
   * It is not there by this request, which will have no effect any more; its number is as good as before for `create-file`, which
   * gives the file the same members, and contents that are then written as to any other file. No server can bear it by this number.
   * A file that has its name may have its contents all the same.
   */
  | { readonly kind: 'unborn' };

/** Answer of `POST /v1/births`: one outcome for each birth, in their order. */
export interface BirthAnswer {
  readonly outcomes: readonly BirthOutcome[];
}

export function encodeBirths({ session, number, owner, cache, births }: BirthRequest): Uint8Array {
  const contentBytes = births.reduce((sum, { contents }) => sum + contents.length + 128, 0);
  const writer = new ByteWriter(128 + contentBytes).uint53(session).uint53(number).uint53(owner);
  writer.uint53(cache?.client ?? 0).uint8(cache?.forgets.length ?? 0);
  for (const inode of cache?.forgets ?? []) writer.uint53(inode);
  writer.uint16(births.length);
  for (const birth of births) {
    writer.uint53(birth.parent).text(birth.name).uint53(birth.inode);
    writer
      .uint16(birth.mode | (birth.isNamed === true ? NAMED_BIT : 0))
      .uint32(birth.uid)
      .uint32(birth.gid);
    writer
      .text(birth.accessedNs ?? '')
      .text(birth.modifiedNs ?? '')
      .text(birth.changedNs ?? '');
    writer.bytes(birth.contents);
  }
  // At the end, and only where it says something: servers of earlier releases know no session here.
  if (cache?.under !== undefined) {
    const { fence = [] } = cache;
    writer.uint53(cache.under).uint8(fence.length);
    for (const { inode, generation } of fence) writer.uint53(inode).uint53(generation);
  }
  return writer.finish();
}

/**
 * @returns the request; contents are views into `encoded`
 * @throws MalformedError where `encoded` is not what `encodeBirths` makes, or more than a request may hold
 */
export function decodeBirths(encoded: Uint8Array): BirthRequest {
  const reader = new ByteReader(encoded);
  const session = positive(reader, 'session');
  const number = positive(reader, 'number');
  const owner = positive(reader, 'owner');
  const client = reader.uint53();
  const forgetsCount = reader.uint8();
  if (forgetsCount > FORGETS_MAX) throw new MalformedError(`${forgetsCount} inodes are forgotten`);
  const forgets = Array.from({ length: forgetsCount }, () => positive(reader, 'inode'));
  const count = reader.uint16();
  if (count === 0 || count > BIRTHS_MAX) throw new MalformedError(`${count} births in one request`);
  const births = Array.from({ length: count }, () => readBirth(reader));
  const under = reader.remaining > 0 ? readUnder(reader) : {};
  reader.end();
  const contentBytes = births.reduce((sum, { contents }) => sum + contents.length, 0);
  if (contentBytes > BIRTHS_BYTES_MAX) throw new MalformedError(`Births of ${contentBytes} bytes`);
  if (new Set(births.map(({ inode }) => inode)).size !== count) throw new MalformedError('A number twice');
  return {
    session,
    number,
    owner,
    ...(client === 0 ? {} : { cache: { client, forgets, ...under } }),
    births,
  };
}

function readUnder(reader: ByteReader): Pick<CacheOwner, 'under' | 'fence'> {
  const under = positive(reader, 'session');
  const count = reader.uint8();
  if (count > FORGETS_MAX) throw new MalformedError(`${count} delegations in one fence`);
  if (count === 0) return { under };
  const fence = Array.from({ length: count }, () => ({
    inode: positive(reader, 'inode'),
    generation: positive(reader, 'generation'),
  }));
  return { under, fence };
}

function readBirth(reader: ByteReader): Birth {
  const parent = positive(reader, 'parent');
  const name = reader.text();
  const inode = positive(reader, 'inode');
  const bits = reader.uint16();
  const isNamed = (bits & NAMED_BIT) !== 0;
  const mode = bits & ~NAMED_BIT;
  if (mode > 0o7777) throw new MalformedError(`Mode ${mode} cannot be`);
  const uid = reader.uint32();
  const gid = reader.uint32();
  const accessedNs = readTime(reader);
  const modifiedNs = readTime(reader);
  const changedNs = readTime(reader);
  const contents = reader.bytes();
  if (contents.length > BIRTH_BYTES_MAX) throw new MalformedError(`A birth of ${contents.length} bytes`);
  const named = isNamed ? { isNamed } : {};
  return { parent, name, inode, ...named, mode, uid, gid, accessedNs, modifiedNs, changedNs, contents };
}

function readTime(reader: ByteReader): string | null {
  const text = reader.text();
  if (text === '') return null;
  if (!NANOSECONDS.test(text)) throw new MalformedError('A time is no number of nanoseconds');
  return text;
}

function positive(reader: ByteReader, what: string): number {
  const value = reader.uint53();
  if (value === 0) throw new MalformedError(`A ${what} of 0`);
  return value;
}
