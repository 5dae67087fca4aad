import {
  type ArchiveEntry,
  BLOCK_BYTES,
  entryOf,
  PAX_BYTES_MAX,
  paddingOf,
  readHeader,
  readRecords,
} from './pax.ts';

export interface DataRange {
  readonly offset: number;
  readonly length: number;
}

/** A member with its data. The data is skipped when the next member is requested. */
export interface ArchiveMember {
  readonly entry: ArchiveEntry;
  /** Where the data belongs; one range for a file without holes. */
  readonly ranges: readonly DataRange[];
  readonly data: AsyncGenerator<Buffer, void, undefined>;
}

const RANGES_MAX = 1_000_000;

/** Reads an archive as a stream; skips members of unknown kinds. @throws Error that says what is wrong with it */
export async function* readArchive(
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<ArchiveMember, void, undefined> {
  const bytes = new Bytes(source);
  let records = new Map<string, Buffer>();
  for (;;) {
    const block = await bytes.take(BLOCK_BYTES);
    const raw = readHeader(block);
    if (raw === null) return;
    if (raw.flag === 'x' || raw.flag === 'g' || raw.flag === 'L' || raw.flag === 'K') {
      if (raw.dataBytes > PAX_BYTES_MAX) throw new Error('an extended header is too large');
      const contents = await bytes.take(raw.dataBytes);
      await bytes.skip(paddingOf(raw.dataBytes));
      // GNU tar's long names have the same meaning.
      if (raw.flag === 'x') records = new Map([...records, ...readRecords(contents)]);
      else if (raw.flag !== 'g')
        records.set(raw.flag === 'L' ? 'path' : 'linkpath', contents.subarray(0, contents.indexOf(0)));
      continue;
    }
    const entry = entryOf(raw, records);
    records = new Map();
    const dataBytes = entry?.dataBytes ?? raw.dataBytes;
    const end = bytes.position + dataBytes;
    if (entry !== null) {
      const ranges =
        entry.sparseBytes === null ? [{ offset: 0, length: dataBytes }] : await readSparseMap(bytes);
      yield { entry, ranges, data: bytes.until(end) };
    }
    await bytes.skip(end - bytes.position + paddingOf(dataBytes));
  }
}

/** Reads GNU tar's map of a sparse file, format 1.0: decimal numbers, one per line, padded to a block. */
async function readSparseMap(bytes: Bytes): Promise<DataRange[]> {
  const begin = bytes.position;
  const count = await bytes.readNumber();
  if (!(count <= RANGES_MAX)) throw new Error('the map of a sparse file is damaged');
  const ranges: DataRange[] = [];
  for (let index = 0; index < count; index++)
    ranges.push({ offset: await bytes.readNumber(), length: await bytes.readNumber() });
  await bytes.skip(paddingOf(bytes.position - begin));
  return ranges.filter(({ length }) => length > 0);
}

class Bytes {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);
  position = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  async take(count: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let remaining = count; remaining > 0; ) {
      const piece = await this.#piece(remaining);
      pieces.push(piece);
      remaining -= piece.length;
    }
    return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces);
  }

  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) left -= (await this.#piece(left)).length;
  }

  async *until(end: number): AsyncGenerator<Buffer, void, undefined> {
    while (this.position < end) yield await this.#piece(end - this.position);
  }

  async readNumber(): Promise<number> {
    let digits = '';
    for (;;) {
      const byte = (await this.take(1)).toString('latin1');
      if (byte === '\n' && digits !== '') return Number(digits);
      digits += byte;
      if (!/^[0-9]{1,16}$/.test(digits)) throw new Error('the map of a sparse file is damaged');
    }
  }

  async #piece(most: number): Promise<Buffer> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done) throw new Error('the archive is truncated');
      this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    const piece = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(piece.length);
    this.position += piece.length;
    return piece;
  }
}
