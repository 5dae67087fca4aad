import type { FileId } from '../../base/ids.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { AcknowledgedRequest } from '../../wire/http-api.ts';
import type { FileStore } from '../storage/store.ts';

/**
 * Whether contents that are flushed lack a change that was acknowledged. The results of requests are a part of the replicated state:
 * what a loss of power of all servers has taken from the contents it has taken from them, too, however many epochs have begun since.
 * A session that was forgotten, because many others followed it, tells nothing.
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
