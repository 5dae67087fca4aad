import { type ErrorCode, isErrorCode } from '../../base/errors.ts';
import { readEpoch, readFileId, readView, writeEpoch, writeView } from '../../replica/codec.ts';
import type { Epoch } from '../../replica/epoch.ts';
import type { View } from '../../replica/view.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import { decodeFileOperation, encodeFileOperation } from '../../wire/file-operation.ts';
import { NEW_FILES_MAX } from '../../wire/request-limits.ts';
import type { NewReplica } from '../storage/store.ts';

/** The call by which a server that creates files with contents has others store their replicas. */
export const CREATE_CALL = 'birth';
/**
 * For backups beyond the majority: no answer is awaited. It has a name of its own because earlier releases stored these
 * replicas without recording that they may be there, which a resumed primary depends on.
 */
export const BACKUP_CREATE_CALL = 'birth-later';

/** As `CREATE_CALL`, but durable before the answer. Earlier releases do not know it. */
export const SYNCED_CREATE_CALL = 'create-synced';

/** One operation writes the contents, and one settles the file. */
const OPERATIONS_MAX = 2;

export interface CreateCall {
  readonly epoch: Epoch;
  readonly view: View;
  readonly objectBytes: number;
  readonly replicas: readonly NewReplica[];
}

export function encodeCreateCall({ epoch, view, objectBytes, replicas }: CreateCall): Uint8Array {
  const encoded = replicas.map(({ operations }) => operations.map(encodeFileOperation));
  const bytes = encoded.flat().reduce((sum, { length }) => sum + length + 16, 0);
  const writer = writeView(writeEpoch(new ByteWriter(256 + bytes), epoch), view).uint32(objectBytes);
  writer.uint16(replicas.length);
  for (const [place, { file }] of replicas.entries()) {
    const operations = encoded[place] ?? [];
    writer.uint53(file).uint8(operations.length);
    for (const operation of operations) writer.bytes(operation);
  }
  return writer.finish();
}

export function decodeCreateCall(bytes: Uint8Array): CreateCall {
  const reader = new ByteReader(bytes);
  const epoch = readEpoch(reader);
  const view = readView(reader);
  const objectBytes = reader.uint32();
  const count = reader.uint16();
  if (count === 0 || count > NEW_FILES_MAX) throw new MalformedError(`${count} files in one create call`);
  const replicas = Array.from({ length: count }, () => readReplica(reader));
  reader.end();
  return { epoch, view, objectBytes, replicas };
}

function readReplica(reader: ByteReader): NewReplica {
  const file = readFileId(reader);
  const count = reader.uint8();
  if (count === 0 || count > OPERATIONS_MAX)
    throw new MalformedError(`A file created by ${count} operations`);
  return { file, operations: Array.from({ length: count }, () => decodeFileOperation(reader.bytes())) };
}

export function encodeCreateAnswer(refusals: readonly (ErrorCode | null)[]): Uint8Array {
  const isAllStored = refusals.every((refusal) => refusal === null);
  return isAllStored ? new Uint8Array(0) : Buffer.from(JSON.stringify(refusals));
}

export function decodeCreateAnswer(bytes: Uint8Array, count: number): (ErrorCode | null)[] {
  if (bytes.length === 0) return Array.from({ length: count }, () => null);
  const refusals: unknown = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString());
  const isGood = Array.isArray(refusals) && refusals.length === count;
  if (!isGood || !refusals.every((each) => each === null || isErrorCode(each)))
    throw new MalformedError('Malformed answer to a create call');
  return refusals;
}
