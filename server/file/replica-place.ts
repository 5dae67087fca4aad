import { type FileId, isFileId, isServerId, type ServerId } from '../../base/ids.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { jsonOf } from '../../wire/json.ts';

export const REPLICA_PLACE_CALL = 'replica-place';

export interface RemoteReplica {
  readonly epoch: number;
  /** Including servers that are to become members. */
  readonly voters: readonly ServerId[];
}

export function encodePlaceRequest(file: FileId): Uint8Array {
  return Buffer.from(JSON.stringify(file));
}

/** Answers `REPLICA_PLACE_CALL`: epoch and voters of this server's replica, as JSON; null if it has none. */
export function serveReplicaPlace(
  payload: Uint8Array,
  record: (file: FileId) => ReplicaRecord | null,
): Uint8Array {
  const file = jsonOf(payload, 'A place is');
  if (typeof file !== 'number' || !isFileId(file))
    throw new MalformedError("The file number is missing in a call for a replica's place");
  const found = record(file);
  const place = found === null ? null : { epoch: found.installed.counter, voters: viewVoters(found.view) };
  return Buffer.from(JSON.stringify(place satisfies RemoteReplica | null));
}

/** @returns null if that server has no replica of the file @throws MalformedError */
export function decodePlace(payload: Uint8Array): RemoteReplica | null {
  const place = jsonOf(payload, 'A place is');
  if (place === null) return null;
  const { epoch, voters } = place as { readonly epoch?: unknown; readonly voters?: unknown };
  const areServers =
    Array.isArray(voters) && voters.every((one) => typeof one === 'string' && isServerId(one));
  if (!Number.isSafeInteger(epoch) || !areServers)
    throw new MalformedError('A replica place lacks one of its two fields');
  return { epoch: epoch as number, voters };
}

/**
 * Whether another replica proves that a server's replica is left over: a later epoch began without that server. Its
 * base has all that earlier epochs committed (`Reset`), so a change that made the server a voter was never committed,
 * and never will be: a majority has promised the later epoch.
 */
export function isOutdatedBy(
  server: ServerId,
  { installed, promised }: ReplicaRecord,
  there: RemoteReplica,
): boolean {
  if (there.epoch <= installed.counter || there.voters.includes(server)) return false;
  // A replica that promised the other's epoch, or a later one, is becoming a member by a change in progress.
  return promised.server === server || promised.counter < there.epoch;
}
