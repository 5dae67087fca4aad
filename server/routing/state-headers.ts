import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import {
  type FileState,
  HEADER_AGE,
  HEADER_CONTENTS,
  HEADER_EPOCH,
  HEADER_MODIFIED,
  HEADER_PRIMARY,
  HEADER_SEQ,
  HEADER_SERVED,
  HEADER_SIZE,
} from '../../wire/http-api.ts';
import type { PeerAnswer } from './peer-http.ts';
import type { FileRead } from './service-interfaces.ts';

const AGE_UNKNOWN = 'unknown';

/** The headers with the file's state; `stateOfHeaders` is the inverse. */
export function headersOfState(state: FileState): Record<string, string> {
  return {
    [HEADER_SIZE]: String(state.sizeBytes),
    [HEADER_CONTENTS]: `${state.contents.epoch}-${state.contents.seq}`,
    [HEADER_MODIFIED]: state.modifiedNs,
    [HEADER_SEQ]: String(state.seq),
  };
}

export function stateOfHeaders(file: FileId, headers: PeerAnswer['headers']): FileState {
  const text = (name: string) => {
    const value = headers[name];
    if (typeof value !== 'string')
      throw new ServiceError('internal', `A peer's answer lacks the header ${name}`);
    return value;
  };
  const [epoch, seq] = text(HEADER_CONTENTS).split('-').map(Number);
  return {
    file,
    sizeBytes: Number(text(HEADER_SIZE)),
    modifiedNs: text(HEADER_MODIFIED),
    contents: { epoch: epoch ?? 0, seq: seq ?? 0 },
    seq: Number(text(HEADER_SEQ)),
    primary: text(HEADER_PRIMARY),
    epoch: Number(text(HEADER_EPOCH)),
  };
}

export function ageOfHeaders(headers: PeerAnswer['headers']): number {
  const text = headers[HEADER_AGE];
  if (text === undefined) return 0;
  return text === AGE_UNKNOWN ? Infinity : Number(text);
}

/** The headers with the server that answered, and the greatest age of the answer. */
export function headersOfRead({ served, ageMs }: FileRead, stale: boolean): Record<string, string> {
  if (!stale) return { [HEADER_SERVED]: served };
  return {
    [HEADER_SERVED]: served,
    [HEADER_AGE]: ageMs === Infinity ? AGE_UNKNOWN : String(Math.ceil(ageMs)),
  };
}
