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

/** Objects in one answer at the most: they are looked up in one turn of a server's event loop. */
export const LOCATED_OBJECTS_MAX = 512;
/** Objects side by side are one extent within each so many bytes of a file: whoever reads these has read whole extents. */
export const EXTENT_BYTES = 1024 * 1024;
/** An object may be larger. */
const EXTENT_LENGTH_MAX = 4 * 1024 * 1024;

/** Bytes of a file that lie side by side on the disk of a server: one object, or several. */
export interface Extent {
  /** Where in the file it begins. */
  readonly begin: number;
  readonly length: number;
  /** The file in whose container it is. */
  readonly container: number;
  /** Where in the container it begins. */
  readonly position: number;
  /** Of all of it. */
  readonly crc32: number;
}

/** Where bytes of a file lie, all of one state. */
export interface FileLocations {
  /** Of the file. */
  readonly sizeBytes: number;
  /** Where the bytes of which it is told end: before what was asked for, where the file ends there, or there are too many objects. */
  readonly end: number;
  /** Those that have some of the bytes, in order. What is in none of them is zeros. */
  readonly extents: readonly Extent[];
}

/** Folder of the containers in a data folder. */
export const CONTAINERS_FOLDER = 'objects';

/** They are spread over so many directories. */
export const CONTAINER_DIRECTORIES = 256;

/** @returns the name of a directory of containers, by its index */
export function containerDirectory(index: number): string {
  return index.toString(16).padStart(2, '0');
}

/** @returns the path of a file's container in that folder */
export function containerName(file: number): string {
  return `${containerDirectory(file % CONTAINER_DIRECTORIES)}/${file}.dat`;
}

export function encodeLocations({ sizeBytes, end, extents }: FileLocations): Uint8Array {
  const writer = new ByteWriter(64 + 32 * extents.length);
  writer.varint(sizeBytes).varint(end).varint(extents.length);
  for (const { begin, length, container, position, crc32 } of extents)
    writer.varint(begin).varint(length).varint(container).varint(position).uint32(crc32);
  return writer.finish();
}

/** @throws MalformedError where `encoded` is not what `encodeLocations` makes */
export function decodeLocations(encoded: Uint8Array): FileLocations {
  const reader = new ByteReader(encoded);
  const sizeBytes = reader.varint();
  const end = reader.varint();
  const count = reader.varint();
  if (end > sizeBytes || count > LOCATED_OBJECTS_MAX) throw new MalformedError('Locations that cannot be');
  const extents: Extent[] = [];
  let from = 0;
  for (let at = 0; at < count; at++) {
    const [begin, length] = [reader.varint(), reader.varint()];
    const [container, position] = [reader.varint(), reader.varint()];
    const crc32 = reader.uint32();
    const isPlace =
      length > 0 && length <= EXTENT_LENGTH_MAX && begin >= from && begin < end && container > 0;
    if (!isPlace) throw new MalformedError('Bytes lie where none can be');
    extents.push({ begin, length, container, position, crc32 });
    from = begin + length;
  }
  reader.end();
  return { sizeBytes, end, extents };
}
