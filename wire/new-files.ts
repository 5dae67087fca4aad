import type { ErrorCode } from '../base/errors.ts';
import { ByteReader, ByteWriter, MalformedError } from './bytes.ts';
import type { Attributes, CacheOwner } from './catalog-api.ts';
import { FORGETS_MAX, NEW_FILES_MAX } from './request-limits.ts';
import type { ReservedNumbers } from './reserved-numbers.ts';

/** New files sent with all their contents: `POST /v1/births`. */

export const NEW_FILE_BYTES_MAX = 256 * 1024;
export const NEW_FILES_BYTES_MAX = 4 * 1024 * 1024;
/** Bytes of a request's body: contents, names and attributes. */
export const NEW_FILES_BODY_BYTES_MAX = NEW_FILES_BYTES_MAX + 1024 * 1024;

/** Flag in the mode field: the file already has an entry. Earlier releases refuse it. */
const NAMED_BIT = 0x8000;

const NANOSECONDS = /^-?[0-9]{1,20}$/;

/** A file that no server knows yet. */
export interface FileWithContents {
  /** The directory's inode, and a free name in it. */
  readonly parent: number;
  readonly name: string;
  readonly inode: number;
  /** `create-file` created the file with this number, live and empty; it gets its contents. */
  readonly hasEntry?: true;
  /** Permission bits after the umask. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Nanoseconds since 1970 as decimal text; null: the time of the commit. */
  readonly accessedNs: string | null;
  readonly modifiedNs: string | null;
  readonly changedNs: string | null;
  readonly contents: Uint8Array;
}

/** Body of `POST /v1/births`; a retry carries the same, and is answered, not repeated. */
export interface NewFilesRequest {
  readonly session: number;
  readonly number: number;
  /** As in a command, but in the URL (`?since=`). @see CommandRequest */
  readonly since?: number;
  /** Owner of the reserved numbers. */
  readonly owner: number;
  readonly cache?: CacheOwner;
  readonly newFiles: readonly FileWithContents[];
}

interface Created<Kind> {
  readonly kind: Kind;
  readonly attributes: Attributes;
  /** Time of the commit and of its directory. */
  readonly namedNs: string;
  /** Use new numbers, with servers that are available. */
  readonly renew?: true;
}

/** Certainly not created: the name exists, the directory was removed, or the quota is used up. */
interface Refused {
  readonly kind: 'refused';
  readonly code: ErrorCode;
  readonly message: string;
}

/**
 * The outcome for one file. `not-created`: not by this request, which has no effect any more. The number stays valid
 * for `create-file`, with the same members, but not for create with contents. A file with an entry may have its
 * contents nevertheless.
 */
export type NewFileOutcome = Created<'created'> | Refused | { readonly kind: 'not-created' };

/** Answer of `POST /v1/births`: one outcome per file, in order, in the words of earlier releases. */
export interface NewFilesAnswer {
  readonly outcomes: readonly (Created<'born'> | Refused | { readonly kind: 'unborn' })[];
}

/** The outcomes of a request as its answer has them: `born` is a created file, `unborn` one that is not created. */
export function encodeOutcomes(outcomes: readonly NewFileOutcome[]): NewFilesAnswer {
  return {
    outcomes: outcomes.map((outcome) => {
      if (outcome.kind === 'created') return { ...outcome, kind: 'born' };
      return outcome.kind === 'refused' ? outcome : { kind: 'unborn' };
    }),
  };
}

export function decodeOutcomes({ outcomes }: NewFilesAnswer): NewFileOutcome[] {
  return outcomes.map((outcome) => {
    if (outcome.kind === 'born') return { ...outcome, kind: 'created' };
    return outcome.kind === 'refused' ? outcome : { kind: 'not-created' };
  });
}

/** `ReservedNumbers` in the words of earlier releases. */
export type NumbersAnswer = Omit<ReservedNumbers, 'creatingServer'> & { readonly bearer: string };

export function encodeNumbers({ creatingServer, ...numbers }: ReservedNumbers): NumbersAnswer {
  return { ...numbers, bearer: creatingServer };
}

export function decodeNumbers({ bearer, ...numbers }: NumbersAnswer): ReservedNumbers {
  return { ...numbers, creatingServer: bearer };
}

export function encodeNewFiles({ session, number, owner, cache, newFiles }: NewFilesRequest): Uint8Array {
  const contentBytes = newFiles.reduce((sum, { contents }) => sum + contents.length + 128, 0);
  const writer = new ByteWriter(128 + contentBytes).uint53(session).uint53(number).uint53(owner);
  writer.uint53(cache?.client ?? 0).uint8(cache?.forgets.length ?? 0);
  for (const inode of cache?.forgets ?? []) writer.uint53(inode);
  writer.uint16(newFiles.length);
  for (const file of newFiles) {
    writer.uint53(file.parent).text(file.name).uint53(file.inode);
    writer
      .uint16(file.mode | (file.hasEntry === true ? NAMED_BIT : 0))
      .uint32(file.uid)
      .uint32(file.gid);
    writer
      .text(file.accessedNs ?? '')
      .text(file.modifiedNs ?? '')
      .text(file.changedNs ?? '');
    writer.bytes(file.contents);
  }
  // At the end and only if set: servers of earlier releases know no session here.
  if (cache?.under !== undefined) {
    const { fence = [] } = cache;
    writer.uint53(cache.under).uint8(fence.length);
    for (const { inode, generation } of fence) writer.uint53(inode).uint53(generation);
  }
  return writer.finish();
}

/** Decodes a request; contents are views into `encoded`. @throws MalformedError also for one above the limits */
export function decodeNewFiles(encoded: Uint8Array): NewFilesRequest {
  const reader = new ByteReader(encoded);
  const session = positive(reader, 'session');
  const number = positive(reader, 'number');
  const owner = positive(reader, 'owner');
  const client = reader.uint53();
  const forgetsCount = reader.uint8();
  if (forgetsCount > FORGETS_MAX) throw new MalformedError(`${forgetsCount} inodes are forgotten`);
  const forgets = Array.from({ length: forgetsCount }, () => positive(reader, 'inode'));
  const count = reader.uint16();
  if (count === 0 || count > NEW_FILES_MAX) throw new MalformedError(`${count} new files in one request`);
  const newFiles = Array.from({ length: count }, () => readNewFile(reader));
  const under = reader.remaining > 0 ? readFence(reader) : {};
  reader.end();
  const contentBytes = newFiles.reduce((sum, { contents }) => sum + contents.length, 0);
  if (contentBytes > NEW_FILES_BYTES_MAX) throw new MalformedError(`New files of ${contentBytes} bytes`);
  if (new Set(newFiles.map(({ inode }) => inode)).size !== count) throw new MalformedError('A number twice');
  return {
    session,
    number,
    owner,
    ...(client === 0 ? {} : { cache: { client, forgets, ...under } }),
    newFiles,
  };
}

function readFence(reader: ByteReader): Pick<CacheOwner, 'under' | 'fence'> {
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

function readNewFile(reader: ByteReader): FileWithContents {
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
  if (contents.length > NEW_FILE_BYTES_MAX)
    throw new MalformedError(`A new file of ${contents.length} bytes`);
  const entry = isNamed ? { hasEntry: true as const } : {};
  return { parent, name, inode, ...entry, mode, uid, gid, accessedNs, modifiedNs, changedNs, contents };
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
