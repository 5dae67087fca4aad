/** An object (fixed-size piece) of a file as a replica holds it. A hole has no entry. */
export interface ObjectEntry {
  readonly index: number;
  /** Epoch counter and sequence number of the operation that wrote it: equal versions, equal bytes. */
  readonly versionEpoch: number;
  readonly versionSeq: number;
  /** Bytes in the object, 1 to the object size. What the file has beyond them up to its size reads as zeros. */
  readonly length: number;
  readonly crc32: number;
}
