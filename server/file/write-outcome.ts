import { ByteReader, ByteWriter } from '../../wire/bytes.ts';

/** A bit above the nanoseconds, which need 30. Earlier releases read a time that is two seconds later. */
const SAME_NAMES = 0x8000_0000;

const APPEND_ONLY = 0x4000_0000;

/** The result of a change of a file, kept in its session table to answer repeated requests. */
export interface WriteOutcome {
  readonly offset: number;
  readonly sizeBytes: number;
  readonly modifiedNs: bigint;
  readonly sameNames?: true;
  /** The next primary must not inherit the catalog's mark without asking what it allows. */
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

export function decodeWriteOutcome(bytes: Uint8Array): WriteOutcome {
  const reader = new ByteReader(bytes);
  const offset = reader.uint53();
  const sizeBytes = reader.uint53();
  const seconds = BigInt(reader.uint53());
  const nsAndFlags = reader.uint32();
  reader.end();
  const modifiedNs = seconds * 1_000_000_000n + BigInt(nsAndFlags % APPEND_ONLY);
  return {
    ...{ offset, sizeBytes, modifiedNs },
    ...(nsAndFlags < SAME_NAMES ? {} : { sameNames: true }),
    ...(nsAndFlags % SAME_NAMES < APPEND_ONLY ? {} : { appendOnly: true }),
  };
}
