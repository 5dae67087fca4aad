import type { FileId } from '../../base/ids.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { AcknowledgedRequest } from '../../wire/http-api.ts';
import type { FileStore } from '../storage/store.ts';

/**
 * Whether flushed contents lack an acknowledged change. The results of requests are part of the replicated state: a
 * loss of power of all servers that took a change took its result, too, however many epochs have begun since. An
 * evicted session gives no answer.
 */
export function isAnyLost(
  store: Pick<FileStore, 'record'>,
  file: FileId,
  requests: readonly AcknowledgedRequest[],
): boolean {
  if (requests.length === 0) return false;
  const table = SessionTable.decode(store.record(file)?.sessions ?? new Uint8Array(0));
  return requests.some((request) => table.find(request).kind === 'fresh');
}
