import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { RequestId } from '../../replica/operation.ts';
import { type SessionLookup, SessionTable } from '../../replica/sessions.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';

type RecordStore = Pick<FileStore, 'record' | 'attributes'>;

/**
 * The attributes of a replica whose contents can never change again: its sequence proves that a majority has the seal
 * durably. So every later epoch has the seal in its base, and refuses changes; an answer from here stays right. It
 * needs no lease, no primary and no majority.
 * @returns null if there is no such replica here
 */
export function finalAttributes(store: RecordStore, file: FileId): FileAttributes | null {
  if (store.record(file) === null) return null;
  const attributes = store.attributes(file);
  return attributes.seal === 'final' && !attributes.dead ? attributes : null;
}

/** @throws ServiceError `sealed` if the request was not done, and never will be */
export function assertKnownRequest(
  store: RecordStore,
  file: FileId,
  request: RequestId,
): Exclude<SessionLookup, { kind: 'fresh' }> {
  const sessions = store.record(file)?.sessions ?? new Uint8Array(0);
  const answer = SessionTable.decode(sessions).find(request);
  if (answer.kind === 'fresh') {
    throw new ServiceError('sealed', `Cannot change file ${file}: it is sealed`);
  }
  return answer;
}
