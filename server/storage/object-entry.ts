/** An object (fixed-size piece) of a file at a replica. A hole has no entry. */
export interface ObjectEntry {
  readonly index: number;
  /** Epoch counter and sequence number of the operation that wrote it: equal versions have equal bytes. */
  readonly versionEpoch: number;
  readonly versionSeq: number;
  /** Bytes in the object, 1 to the object size. The rest, up to the file's size, reads as zeros. */
  readonly length: number;
  readonly crc32: number;
}
