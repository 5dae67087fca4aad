import { ByteReader, ByteWriter, MalformedError } from './bytes.ts';

/** Bytes of a file per request for locations. */
export const LOCATIONS_BYTES_MAX = 16 * 1024 * 1024;
/** How long reported bytes stay in place, in milliseconds; the client counts from its request and stops at half. */
export const LOCATIONS_VALID_MS = 2_000;

/** File in the data folder, random at each start: it lets a client prove that it can read the folder. */
export const LOCAL_PROOF_FILE = 'local-proof';
/** Request header with that proof. @see localProof in client/local-reads, LocalProof in server/storage */
export const HEADER_LOCAL_PROOF = 'leasehold-local-proof';
/** Request header of a read whose bytes were not at the reported location: why. */
export const HEADER_LOCAL_MISS = 'leasehold-local-miss';
/** Authenticated with the file's contents as the key. */
export const LOCAL_PROOF_TEXT = 'leasehold local reads 1';

/** Answer of `GET /v1/local` to clients on the same machine. */
export interface LocalAnswer {
  /** The data folder as the server names it. */
  readonly folder: string;
}

/** Objects per answer: they are looked up in one tick of the event loop. */
export const LOCATED_OBJECTS_MAX = 512;
/** Adjacent objects form one extent within each range of this size, so such a range has whole extents. */
export const EXTENT_BYTES = 1024 * 1024;
/** An object may be larger than `EXTENT_BYTES`. */
const EXTENT_LENGTH_MAX = 4 * 1024 * 1024;

/** Adjacent bytes on a server's disk: one object, or several. */
export interface Extent {
  readonly begin: number;
  readonly length: number;
  readonly container: number;
  readonly position: number;
  readonly crc32: number;
}

export interface FileLocations {
  readonly sizeBytes: number;
  /** End of the described range: earlier than requested at the file's end, or with too many objects. */
  readonly end: number;
  /** Extents with bytes of the range, in order; the rest is zeros. */
  readonly extents: readonly Extent[];
}

export const CONTAINERS_FOLDER = 'objects';

export const CONTAINER_DIRECTORIES = 256;

/** @returns the directory of containers with this index */
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

/** @throws MalformedError */
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
