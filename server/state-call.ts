import type { FileId, Incarnation, ServerId } from '../base/ids.ts';
import { isFileId, isServerId } from '../base/ids.ts';
import type { Epoch } from '../replica/actions.ts';
import { ByteReader, ByteWriter, MalformedError } from '../wire/bytes.ts';

/** The call between servers by which a replica fetches another's state. */
export const STATE_CALL = 'state';

/** One request of a state transfer: which replica, for which epoch, and what of it. */
export interface StateRequest {
  readonly file: FileId;
  readonly epoch: Epoch;
  readonly method: string;
  readonly payload: Uint8Array;
}

export function encodeStateRequest(file: FileId, epoch: Epoch, method: string, payload: Uint8Array): Uint8Array {
  const writer = new ByteWriter(64 + payload.length).uint53(file);
  writer.uint53(epoch.counter).text(epoch.server).uint53(epoch.incarnation);
  return writer.text(method).bytes(payload).finish();
}

/** @throws MalformedError */
export function decodeStateRequest(bytes: Uint8Array): StateRequest {
  const reader = new ByteReader(bytes);
  const file = reader.uint53();
  const counter = reader.uint53();
  const server: string = reader.text();
  const incarnation = reader.uint53() as Incarnation;
  if (!isFileId(file) || !isServerId(server)) throw new MalformedError('A state request without a file or server');
  const request = {
    file,
    epoch: { counter, server: server as ServerId, incarnation },
    method: reader.text(),
    payload: reader.bytes(),
  };
  reader.end();
  return request;
}
