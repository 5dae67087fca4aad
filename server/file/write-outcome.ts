import { ByteReader, ByteWriter } from '../../wire/bytes.ts';

/** Bit of the nanoseconds, which need 30. Servers of earlier releases read a time that is two seconds later. */
const SAME_NAMES = 0x8000_0000;

/** Another bit of them. */
const APPEND_ONLY = 0x4000_0000;

/** What a client is told of its write, also when it asks again: kept in the file's session table. */
export interface WriteOutcome {
  /** Where the bytes went: of interest to an append. */
  readonly offset: number;
  readonly sizeBytes: number;
  readonly modifiedNs: bigint;
  /** @see WriteResult.sameNames */
  readonly sameNames?: true;
  /** The file was append-only: the next primary must not take the mark of the catalog over without asking what it allows. */
  readonly appendOnly?: true;
}

export function encodeWriteOutcome(outcome: WriteOutcome): Uint8Array {
  const ns = Number(outcome.modifiedNs % 1_000_000_000n);
  return new ByteWriter(40)
    .uint53(outcome.offset)
    .uint53(outcome.sizeBytes)
    .uint53(Number(outcome.modifiedNs / 1_000_000_000n))
    .uint32(
      ns + (outcome.sameNames === true ? SAME_NAMES : 0) + (outcome.appendOnly === true ? APPEND_ONLY : 0),
    )
    .finish();
}

/** @throws MalformedError */
export function decodeWriteOutcome(bytes: Uint8Array): WriteOutcome {
  const reader = new ByteReader(bytes);
  const offset = reader.uint53();
  const sizeBytes = reader.uint53();
  const seconds = BigInt(reader.uint53());
  const rest = reader.uint32();
  reader.end();
  const modifiedNs = seconds * 1_000_000_000n + BigInt(rest % APPEND_ONLY);
  return {
    ...{ offset, sizeBytes, modifiedNs },
    ...(rest < SAME_NAMES ? {} : { sameNames: true }),
    ...(rest % SAME_NAMES < APPEND_ONLY ? {} : { appendOnly: true }),
  };
}
