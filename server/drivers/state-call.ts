import type { FileId } from '../../base/ids.ts';
import { readEpoch, readFileId, writeEpoch } from '../../replica/codec.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';

export const STATE_CALL = 'state';

/** A replica that fetches the primary's state calls `method` of another replica. */
export interface StateTransferCall {
  readonly file: FileId;
  readonly epoch: Epoch;
  readonly method: string;
  readonly payload: Uint8Array;
}

export function encodeStateTransferCall(
  file: FileId,
  epoch: Epoch,
  method: string,
  payload: Uint8Array,
): Uint8Array {
  const writer = new ByteWriter(64 + payload.length).uint53(file);
  return writeEpoch(writer, epoch).text(method).bytes(payload).finish();
}

export function decodeStateTransferCall(bytes: Uint8Array): StateTransferCall {
  const reader = new ByteReader(bytes);
  const file = readFileId(reader);
  const request = {
    file,
    epoch: readEpoch(reader),
    method: reader.text(),
    payload: reader.bytes(),
  };
  reader.end();
  return request;
}
