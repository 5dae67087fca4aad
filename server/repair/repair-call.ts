import type { FileId } from '../../base/ids.ts';
import { readFileId } from '../../replica/codec.ts';
import { ByteReader, ByteWriter } from '../../wire/bytes.ts';
import type { ObjectEntry } from '../storage/object-entry.ts';

export const REPAIR_CALL = 'repair';

export interface RepairRequest {
  readonly file: FileId;
  readonly entry: ObjectEntry;
}

export function encodeRepairRequest({ file, entry }: RepairRequest): Uint8Array {
  return new ByteWriter(40)
    .uint53(file)
    .uint53(entry.index)
    .uint53(entry.versionEpoch)
    .uint53(entry.versionSeq)
    .uint32(entry.length)
    .uint32(entry.crc32)
    .finish();
}

export function decodeRepairRequest(bytes: Uint8Array): RepairRequest {
  const reader = new ByteReader(bytes);
  const file = readFileId(reader);
  const entry = {
    index: reader.uint53(),
    versionEpoch: reader.uint53(),
    versionSeq: reader.uint53(),
    length: reader.uint32(),
    crc32: reader.uint32(),
  };
  reader.end();
  return { file, entry };
}
