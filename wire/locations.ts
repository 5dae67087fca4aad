import { ByteReader, ByteWriter, MalformedError } from './bytes.ts';

/** Bytes of a file of which one request asks where they lie, at the most. */
export const LOCATIONS_BYTES_MAX = 16 * 1024 * 1024;
/**
 * How long bytes stay where they were told to be, in milliseconds from when it was told: until then nothing else is written there. Who
 * asked counts from when it asked, and stops at half of it.
 */
export const LOCATIONS_HELD_MS = 2_000;

/** File in a server's data folder whose contents, drawn at each start, only those know who may read the folder. */
export const LOCAL_PROOF_FILE = 'local-proof';
/** Request header of those: what they made of it. @see localProof in client/local-reads, LocalProof in server/storage */
export const HEADER_LOCAL_PROOF = 'leasehold-local-proof';
/** Request header of a read whose bytes were not where the server had told: why. */
export const HEADER_LOCAL_MISS = 'leasehold-local-miss';
/** What is authenticated with the contents of the file as the key. */
export const LOCAL_PROOF_TEXT = 'leasehold local reads 1';

/** Answer of `GET /v1/local`, to whoever is on the same machine. */
export interface LocalAnswer {
  /** The data folder, as the server's process calls it. */
  readonly folder: string;
}

/** Where the bytes of an object lie on the disk of a server: all of them, for the checksum is of all. */
export interface ObjectLocation {
  /** Where in the file it begins. */
  readonly begin: number;
  readonly length: number;
  /** The file in whose container it is. */
  readonly container: number;
  /** Where in the container it begins. */
  readonly position: number;
  readonly crc32: number;
}

/** Where bytes of a file lie, all of one state. */
export interface FileLocations {
  /** An object has no more bytes. */
  readonly objectBytes: number;
  /** Where the bytes that were asked for end: before what was asked, where the file ends there. */
  readonly end: number;
  /** Objects that have some of the bytes, in order. What is in none of them is zeros. */
  readonly objects: readonly ObjectLocation[];
}

/** Folder of the containers in a data folder. */
export const CONTAINERS_FOLDER = 'objects';

/** @returns the path of a file's container in that folder */
export function containerName(file: number): string {
  return `${(file % 256).toString(16).padStart(2, '0')}/${file}.dat`;
}

/** @param locations objects begin at multiples of their size, in the file and in the container */
export function encodeLocations({ objectBytes, end, objects }: FileLocations): Uint8Array {
  const writer = new ByteWriter(64 + 16 * objects.length);
  writer.varint(objectBytes).varint(end).varint(objects.length);
  for (const { begin, length, container, position, crc32 } of objects) {
    writer
      .varint(begin / objectBytes)
      .varint(length)
      .varint(container);
    writer.varint(position / objectBytes).uint32(crc32);
  }
  return writer.finish();
}

/** @throws MalformedError where `encoded` is not what `encodeLocations` makes */
export function decodeLocations(encoded: Uint8Array): FileLocations {
  const reader = new ByteReader(encoded);
  const objectBytes = reader.varint();
  const end = reader.varint();
  const count = reader.varint();
  if (objectBytes === 0 || count > reader.remaining) throw new MalformedError('Locations that cannot be');
  const objects: ObjectLocation[] = [];
  let last = -1;
  for (let at = 0; at < count; at++) {
    const index = reader.varint();
    const length = reader.varint();
    const container = reader.varint();
    const slot = reader.varint();
    const crc32 = reader.uint32();
    const [begin, position] = [index * objectBytes, slot * objectBytes];
    const isPlace = Number.isSafeInteger(begin + length) && Number.isSafeInteger(position + length);
    if (index <= last || length === 0 || length > objectBytes || container === 0 || !isPlace)
      throw new MalformedError('An object lies where none can be');
    objects.push({ begin, length, container, position, crc32 });
    last = index;
  }
  reader.end();
  return { objectBytes, end, objects };
}
