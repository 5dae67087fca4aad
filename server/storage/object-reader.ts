import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { releasableMemory } from '../../base/releasable-memory.ts';
import { crc32 } from '../../platform/crc32.ts';
import { EXTENT_BYTES, type Extent } from '../../wire/locations.ts';
import { crc32Joined } from './checksum.ts';
import type { Container, Containers } from './container.ts';
import type { FileState } from './contents.ts';
import { isDamage } from './failures.ts';
import type { ObjectRow } from './index-rows.ts';
import { type Mend, readObjectRow, readSoundRow } from './object-rows.ts';

const READ_BYTES_MAX = 4 * 1024 * 1024;

/** A replica whose objects are read. The caller has pinned them. */
interface Source {
  readonly id: FileId;
  readonly objectBytes: number;
  readonly state: Pick<FileState, 'lender'>;
}

interface Place {
  readonly owner: FileId;
  readonly row: ObjectRow;
}

interface ReadRun {
  readonly rows: ObjectRow[];
  readonly target: Uint8Array;
  readonly begin: number;
  byteCount: number;
}

/** Reads objects of replicas from their containers: a replica's own, or that of the file that lends them. */
export class ObjectReader {
  readonly #containers: Containers;
  readonly #mend: Mend;

  constructor(containers: Containers, mend: Mend) {
    this.#containers = containers;
    this.#mend = mend;
  }

  /** @returns the object's bytes; null if there is no container @throws ServiceError `integrity` if they are damaged */
  async objectHere(source: Source, row: ObjectRow): Promise<Uint8Array | null> {
    const { owner, row: located } = placeOf(source, row);
    return this.#containers.use(owner, false, (container) =>
      readObjectRow(container, source.id, located, source.objectBytes),
    );
  }

  /** @returns the object's bytes, from another replica if they are damaged here */
  async object(source: Source, row: ObjectRow): Promise<Uint8Array> {
    const { owner, row: located } = placeOf(source, row);
    const bytes = await this.#containers.use(owner, false, (container) =>
      readSoundRow(this.#mend, container, source.id, located, source.objectBytes),
    );
    return bytes ?? (await this.#mend(source.id, row, containerMissing(source.id)));
  }

  /** Reads the bytes from `offset` to before `end`, of which `rows` has the objects; holes are zeros. */
  async range(source: Source, rows: readonly ObjectRow[], offset: number, end: number): Promise<Uint8Array> {
    const { objectBytes } = source;
    const out = releasableMemory(end - offset);
    let filledTo = offset;
    for (const row of rows) {
      const begin = row.index * objectBytes;
      // What no object has reads as zeros.
      if (Math.max(begin, offset) > filledTo)
        out.fill(0, filledTo - offset, Math.max(begin, offset) - offset);
      filledTo = Math.max(filledTo, Math.min(begin + row.length, end));
    }
    if (filledTo < end) out.fill(0, filledTo - offset);
    const places = rows.map((row) => placeOf(source, row));
    for (const owner of new Set(places.map((place) => place.owner))) {
      const there = places.filter((place) => place.owner === owner).map(({ row }) => row);
      await this.#readFrom(owner, source, there, out, offset, end);
    }
    return out;
  }

  /** Reads those objects that are in one container into `out`: whole adjacent ones at once, others through a copy. */
  async #readFrom(
    owner: FileId,
    { id, objectBytes }: Source,
    rows: readonly ObjectRow[],
    out: Buffer,
    offset: number,
    end: number,
  ): Promise<void> {
    const runs: ReadRun[] = [];
    const partial: ObjectRow[] = [];
    for (const row of rows) {
      const begin = row.index * objectBytes;
      const stop = Math.min(begin + row.length, end);
      if (begin < offset || begin + row.length > end) {
        if (stop > offset) partial.push(row);
        continue;
      }
      const run = runs.at(-1);
      const previous = run?.rows.at(-1);
      if (
        run !== undefined &&
        previous?.slot === row.slot - 1 &&
        previous.index === row.index - 1 &&
        previous.length === objectBytes &&
        run.byteCount + row.length <= READ_BYTES_MAX
      ) {
        run.rows.push(row);
        run.byteCount += row.length;
      } else {
        runs.push({ rows: [row], target: out, begin: begin - offset, byteCount: row.length });
      }
    }
    const done = await this.#containers.use(owner, false, async (container) => {
      await Promise.all([
        ...runs.map((run) => readRun(this.#mend, container, id, run, objectBytes)),
        ...partial.map(async (row) => {
          const bytes = await readSoundRow(this.#mend, container, id, row, objectBytes);
          const begin = row.index * objectBytes;
          const from = Math.max(begin, offset);
          out.set(bytes.subarray(from - begin, Math.min(begin + row.length, end) - begin), from - offset);
        }),
      ]);
      return true;
    });
    if (done !== null) return;
    for (const row of rows) {
      const bytes = await this.#mend(id, row, containerMissing(id));
      const begin = row.index * objectBytes;
      const from = Math.max(begin, offset);
      const to = Math.min(begin + row.length, end);
      if (from < to) out.set(bytes.subarray(from - begin, to - begin), from - offset);
    }
  }
}

/** Returns the positions of these objects on the disk; adjacent ones of the same part of the file are one extent. */
export function extentsOf(source: Source, rows: readonly ObjectRow[]): Extent[] {
  const { objectBytes } = source;
  const extents: Extent[] = [];
  for (const { owner, row } of rows.map((one) => placeOf(source, one))) {
    const begin = row.index * objectBytes;
    const position = row.slot * objectBytes;
    const { length } = row;
    const last = extents.at(-1);
    const isNext =
      last !== undefined &&
      last.container === owner &&
      last.begin + last.length === begin &&
      last.position + last.length === position &&
      Math.floor(last.begin / EXTENT_BYTES) === Math.floor((begin + length - 1) / EXTENT_BYTES);
    const whole = { begin, length, container: owner, position, crc32: row.crc32 };
    if (!isNext) extents.push(whole);
    else
      extents[extents.length - 1] = {
        ...last,
        length: last.length + length,
        crc32: crc32Joined(last.crc32, row.crc32, length),
      };
  }
  return extents;
}

function placeOf({ id, state }: Source, row: ObjectRow): Place {
  if (row.slot >= 0) return { owner: id, row };
  return { owner: state.lender as FileId, row: { ...row, slot: -1 - row.slot } };
}

/** Reads adjacent objects in one call, and those that are damaged again, one by one. */
async function readRun(
  mend: Mend,
  container: Container,
  file: FileId,
  run: ReadRun,
  objectBytes: number,
): Promise<void> {
  const bytes = run.target.subarray(run.begin, run.begin + run.byteCount);
  const first = run.rows[0];
  assert(first !== undefined, 'A run has objects');
  const count = await container.read(bytes, first.slot * objectBytes).catch((cause: unknown) => {
    // One unreadable sector does not damage its neighbors: they are read one by one.
    if (isDamage(cause)) return 0;
    throw cause;
  });
  let at = 0;
  for (const row of run.rows) {
    const own = bytes.subarray(at, at + row.length);
    const ownCount = Math.max(0, Math.min(row.length, count - at));
    if (ownCount < row.length || crc32(own) !== row.crc32)
      own.set(await readSoundRow(mend, container, file, row, objectBytes));
    at += row.length;
  }
}

function containerMissing(file: FileId): ServiceError {
  return new ServiceError('integrity', `Cannot read file ${file}: its container is missing`);
}
