/**
 * What a backup of a chain contains, in the sealed stream: first what it is, then the steps from the snapshot before,
 * each with the contents that it has, and last how many there were.
 */
import { createHash } from 'node:crypto';
import type { ContentsPiece, DifferenceRecord } from '../difference/difference-records.ts';
import { hasContents } from '../difference/difference-records.ts';
import { ByteReader, SealedStreamError } from './sealed-stream.ts';

const FORMAT = 1;
const LENGTH_BYTES = 4;
const OFFSET_BYTES = 8;
const DIGEST_BYTES = 32;
const RECORD_BYTES_MAX = 64 * 1024 * 1024;
const PIECE_BYTES_MAX = 16 * 1024 * 1024;

export interface SnapshotOfLink {
  readonly name: string;
  readonly serial: number;
  readonly madeNs: string;
}

/** First record of a link. */
export interface LinkBegin {
  readonly kind: 'begin';
  readonly format: number;
  readonly volume: string;
  /** The volume's root: another volume of the same name has another one. */
  readonly root: number;
  readonly snapshot: SnapshotOfLink;
  /** The snapshot from which the steps begin; null: they are all of the volume. */
  readonly from: SnapshotOfLink | null;
}

interface LinkEnd {
  readonly kind: 'end';
  readonly records: number;
  readonly bytes: number;
}

export interface LinkTotals {
  records: number;
  bytes: number;
}

export interface WrittenStep {
  readonly record: DifferenceRecord;
  readonly contents: AsyncIterable<ContentsPiece>;
}

export function linkBegin(parts: Omit<LinkBegin, 'kind' | 'format'>): LinkBegin {
  return { kind: 'begin', format: FORMAT, ...parts };
}

/** @param totals are advanced */
export async function* writeLink(
  begin: LinkBegin,
  steps: AsyncIterable<WrittenStep>,
  totals: LinkTotals,
): AsyncGenerator<Buffer, void, undefined> {
  yield encode(begin);
  for await (const { record, contents } of steps) {
    totals.records += 1;
    yield encode(record);
    if (!hasContents(record)) continue;
    const digest = createHash('sha256');
    for await (const { offset, bytes } of contents) {
      if (bytes.length === 0) continue;
      const head = Buffer.alloc(LENGTH_BYTES + OFFSET_BYTES);
      head.writeUInt32BE(bytes.length);
      head.writeBigUInt64BE(BigInt(offset), LENGTH_BYTES);
      digest.update(head).update(bytes);
      totals.bytes += bytes.length;
      yield head;
      yield Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    }
    yield Buffer.alloc(LENGTH_BYTES);
    yield digest.digest();
  }
  yield encode({ kind: 'end', ...totals } satisfies LinkEnd);
}

/** A step of a link; its contents must be read before the next one. */
export interface ReadStep {
  readonly record: DifferenceRecord;
  readonly contents: AsyncGenerator<ContentsPiece, void, undefined>;
}

export class LinkReader {
  readonly #bytes: ByteReader;
  readonly totals: LinkTotals = { records: 0, bytes: 0 };

  /** @param source the opened stream */
  constructor(source: AsyncIterable<Uint8Array>) {
    this.#bytes = new ByteReader(source);
  }

  async begin(): Promise<LinkBegin> {
    const begin = await this.#record<LinkBegin>();
    if (begin.kind !== 'begin')
      throw new SealedStreamError('its first record is not the beginning of a backup');
    if (begin.format !== FORMAT)
      throw new SealedStreamError(`it has format ${begin.format}; this release reads format ${FORMAT}`);
    return begin;
  }

  /** Yields the steps, and checks the digest of each contents, the totals and the end. @throws SealedStreamError */
  async *steps(): AsyncGenerator<ReadStep, void, undefined> {
    for (;;) {
      const record = await this.#record<DifferenceRecord | LinkEnd>();
      if (record.kind === 'end') {
        const { records, bytes } = this.totals;
        if (record.records !== records || record.bytes !== bytes)
          throw new SealedStreamError(`it has ${records} records, and should have ${record.records}`);
        if (!(await this.#bytes.isAtEnd())) throw new SealedStreamError('there are records after its end');
        return;
      }
      this.totals.records += 1;
      const contents = this.#contents(record);
      yield { record, contents };
      // What was not read is skipped, and checked.
      for await (const _ of contents);
    }
  }

  async *#contents(record: DifferenceRecord): AsyncGenerator<ContentsPiece, void, undefined> {
    if (!hasContents(record)) return;
    const digest = createHash('sha256');
    for (;;) {
      const length = await this.#bytes.take(LENGTH_BYTES);
      const count = length.readUInt32BE();
      if (count === 0) break;
      if (count > PIECE_BYTES_MAX) throw new SealedStreamError('a piece of contents is too long');
      const offset = await this.#bytes.take(OFFSET_BYTES);
      const bytes = await this.#bytes.take(count);
      digest.update(length).update(offset).update(bytes);
      this.totals.bytes += count;
      yield { offset: Number(offset.readBigUInt64BE()), bytes };
    }
    if (!digest.digest().equals(await this.#bytes.take(DIGEST_BYTES)))
      throw new SealedStreamError('the digest of the contents of a file is another one');
  }

  async #record<Value>(): Promise<Value> {
    const length = (await this.#bytes.take(LENGTH_BYTES)).readUInt32BE();
    if (length > RECORD_BYTES_MAX) throw new SealedStreamError('a record is too long');
    try {
      return JSON.parse((await this.#bytes.take(length)).toString()) as Value;
    } catch (error) {
      if (error instanceof SealedStreamError) throw error;
      throw new SealedStreamError('a record is damaged');
    }
  }
}

function encode(value: LinkBegin | DifferenceRecord | LinkEnd): Buffer {
  const text = Buffer.from(JSON.stringify(value));
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, text]);
}
