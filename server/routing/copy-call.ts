import type { FileId } from '../../base/ids.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';

/** The call by which a server is asked to copy the contents of a file that is to have it as a member. */
export const COPY_CALL = 'copy-shared';

/** `not-needed`: the file has contents of its own, or this server is none of its first members. */
export type CopyState = (typeof COPY_STATES)[number];
const COPY_STATES = ['copied', 'copying', 'not-needed'] as const;

export function encodeCopyCall(file: FileId): Uint8Array {
  return new ByteWriter(8).uint53(file).finish();
}

export function decodeCopyCall(bytes: Uint8Array): FileId {
  const reader = new ByteReader(bytes);
  const file = reader.uint53() as FileId;
  reader.end();
  return file;
}

export function encodeCopyAnswer(state: CopyState): Uint8Array {
  return new ByteWriter(1).uint8(COPY_STATES.indexOf(state)).finish();
}

export function decodeCopyAnswer(bytes: Uint8Array): CopyState {
  const reader = new ByteReader(bytes);
  const code = reader.uint8();
  reader.end();
  const state = COPY_STATES[code];
  if (state === undefined) throw new MalformedError(`A copy in state ${code}`);
  return state;
}
