import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { crc32Of } from './checksum.ts';
import type { Container } from './container.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import type { ObjectEntry } from './object-entry.ts';
import type { FetchedObject } from './store.ts';

const ROWS_PER_TICK = 2_000;

export type RowChange = readonly [ObjectRow | null, ObjectRow | null];

/** Gets a damaged object's bytes. @param cause thrown if it is no damage, or no server has the bytes */
export type Mend = (file: FileId, row: ObjectRow, cause: unknown) => Promise<Uint8Array>;

/** @returns a copy without the slot, for other servers */
export function entryOf({ index, versionEpoch, versionSeq, length, crc32 }: ObjectEntry): ObjectEntry {
  return { index, versionEpoch, versionSeq, length, crc32 };
}

/** The rows of objects after index `after`, up to `last`, at most `countMax` per tick of the event loop. */
export async function* rowsOf(
  world: World,
  index: Pick<IndexDatabase, 'objectsUpTo'>,
  file: FileId,
  after = -1,
  last = Number.MAX_SAFE_INTEGER,
  countMax = ROWS_PER_TICK,
): AsyncGenerator<ObjectRow[]> {
  let seen = after;
  for (;;) {
    const rows = index.objectsUpTo(file, seen + 1, last, countMax);
    if (rows.length > 0) yield rows;
    if (rows.length < countMax) return;
    seen = (rows.at(-1) as ObjectRow).index;
    await world.nextTick();
  }
}

/** @throws ServiceError `integrity` */
export async function readObjectRow(
  container: Container,
  file: FileId,
  row: ObjectRow,
  objectBytes: number,
): Promise<Uint8Array> {
  const bytes = Buffer.allocUnsafeSlow(row.length);
  const count = await container.read(bytes, row.slot * objectBytes);
  if (count < row.length) {
    throw new ServiceError(
      'integrity',
      `Cannot read object ${row.index} of file ${file}: the disk has only ${count} of its ${row.length} bytes`,
    );
  }
  if (crc32Of([bytes]) !== row.crc32) {
    throw new ServiceError(
      'integrity',
      `Cannot read object ${row.index} of file ${file}: its bytes do not match their checksum`,
    );
  }
  return bytes;
}

/** As `readObjectRow`; if the object is damaged, gets the bytes of another replica. */
export async function readSoundRow(
  mend: Mend,
  container: Container,
  file: FileId,
  row: ObjectRow,
  objectBytes: number,
): Promise<Uint8Array> {
  try {
    return await readObjectRow(container, file, row, objectBytes);
  } catch (cause) {
    return mend(file, row, cause);
  }
}

/**
 * @param isLost no server has the bytes: these replace them, and do not match the checksum
 * @returns why an object from another replica is refused; null if it matches its entry
 */
export function fetchedMismatch(
  file: FileId,
  { entry, bytes }: FetchedObject,
  objectBytes: number,
  isLost = false,
): ServiceError | null {
  const fits = entry.length === bytes.length && bytes.length <= objectBytes;
  if (fits && (isLost || crc32Of([bytes]) === entry.crc32)) return null;
  const what = `Object ${entry.index} of file ${file}, fetched from another replica,`;
  return new ServiceError('integrity', `${what} does not match its checksum`);
}
