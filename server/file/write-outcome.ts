import { ByteReader, ByteWriter } from '../../wire/bytes.ts';

/** What a client is told of its write, also when it asks again: kept in the file's session table. */
export interface WriteOutcome {
  /** Where the bytes went: of interest to an append. */
  readonly offset: number;
  readonly sizeBytes: number;
  readonly modifiedNs: bigint;
}

export function encodeWriteOutcome(outcome: WriteOutcome): Uint8Array {
  return new ByteWriter(40)
    .uint53(outcome.offset)
    .uint53(outcome.sizeBytes)
    .uint53(Number(outcome.modifiedNs / 1_000_000_000n))
    .uint32(Number(outcome.modifiedNs % 1_000_000_000n))
    .finish();
}

/** @throws MalformedError */
export function decodeWriteOutcome(bytes: Uint8Array): WriteOutcome {
  const reader = new ByteReader(bytes);
  const offset = reader.uint53();
  const sizeBytes = reader.uint53();
  const modifiedNs = BigInt(reader.uint53()) * 1_000_000_000n + BigInt(reader.uint32());
  reader.end();
  return { offset, sizeBytes, modifiedNs };
}
