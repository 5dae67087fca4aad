import { type FileId, isFileId, isServerId, type ServerId } from '../../base/ids.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';

/** The call by which a server asks another in which epoch, and by which view, its replica of a file is. */
export const REPLICA_PLACE_CALL = 'replica-place';

/** What a server says of its replica of a file. */
export interface ReplicaPlace {
  /** Counter of the epoch that is installed. */
  readonly epoch: number;
  /** Those who vote, also those that are to become members. */
  readonly voters: readonly ServerId[];
}

export function encodePlaceRequest(file: FileId): Uint8Array {
  return Buffer.from(JSON.stringify(file));
}

/**
 * Answers the call.
 *
 * @throws MalformedError
 */
export function servePlace(payload: Uint8Array, record: (file: FileId) => ReplicaRecord | null): Uint8Array {
  const file = parsed(payload);
  if (typeof file !== 'number' || !isFileId(file))
    throw new MalformedError('A place is asked for of no file');
  const found = record(file);
  const place = found === null ? null : { epoch: found.installed.counter, voters: viewVoters(found.view) };
  return Buffer.from(JSON.stringify(place satisfies ReplicaPlace | null));
}

/**
 * @returns null where that server has no replica of the file
 * @throws MalformedError
 */
export function decodePlace(payload: Uint8Array): ReplicaPlace | null {
  const place = parsed(payload);
  if (place === null) return null;
  const { epoch, voters } = place as { readonly epoch?: unknown; readonly voters?: unknown };
  const areServers =
    Array.isArray(voters) && voters.every((one) => typeof one === 'string' && isServerId(one));
  if (!Number.isSafeInteger(epoch) || !areServers) throw new MalformedError('A place has not its two fields');
  return { epoch: epoch as number, voters };
}

/**
 * Whether another replica shows that a server's replica is left over: a later epoch began without that server. The base of an epoch has
 * all that earlier epochs committed (`Reset`), so a change of members by which the server would vote was never
 * committed, and never will be: a majority has promised the later epoch.
 */
export function isOutdatedBy(
  server: ServerId,
  { installed, promised }: ReplicaRecord,
  there: ReplicaPlace,
): boolean {
  if (there.epoch <= installed.counter || there.voters.includes(server)) return false;
  // A replica that promised the other's epoch, or a later one, learns by a change of members that is under way.
  return promised.server === server || promised.counter < there.epoch;
}

function parsed(payload: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(payload.buffer, payload.byteOffset, payload.length).toString('utf8'));
  } catch (cause) {
    throw new MalformedError('A place is not JSON', { cause });
  }
}
