import { FIRST_COUNTER } from '../../replica/create-with-contents.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { FILE_CANDIDATES_FROM, type ReplicaDriver } from '../drivers/replica-driver.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';

/**
 * The operations that create a file with contents (docs/design/mount.md, "Create with contents"). The last one shows
 * the next primary that the file has no live mark. A write needs bytes, so an empty file is truncated to 0.
 */
export function creationOperations(contents: Uint8Array, modifiedNs: bigint): readonly FileOperation[] {
  const whole: FileOperation =
    contents.length === 0
      ? { kind: 'truncate', sizeBytes: 0, modifiedNs }
      : { kind: 'write', offset: 0, bytes: contents, modifiedNs };
  return [whole, { kind: 'settling' }];
}

export const CREATION_OPERATIONS = creationOperations(new Uint8Array(0), 0n).length;
const WRITTEN_SEQ = 1;

/**
 * Whether the file has had no primary before this epoch, because it was created with contents: the epoch is the first
 * that a candidate chose, after that of the creation. A creating server's own epoch has the same counter, but its
 * operations are of numbered requests. To be called before this epoch orders anything.
 */
export function hadNoPrimary(driver: ReplicaDriver, store: Pick<FileStore, 'attributes'>): boolean {
  const { epoch, inheritedFrom, subject, file } = driver;
  if (inheritedFrom?.counter !== FIRST_COUNTER || epoch.counter !== FILE_CANDIDATES_FROM) return false;
  return isUnchangedSinceCreation(subject.record(), store.attributes(file));
}

/** Whether a replica holds what the creation stored, and no later operation. */
export function isUnchangedSinceCreation(
  { seq, sessions }: Pick<ReplicaRecord, 'seq' | 'sessions'>,
  { versionEpoch, versionSeq }: Pick<FileAttributes, 'versionEpoch' | 'versionSeq'>,
): boolean {
  const isWritten = versionEpoch === FIRST_COUNTER && versionSeq === WRITTEN_SEQ;
  return seq === CREATION_OPERATIONS && isWritten && SessionTable.decode(sessions).isEmpty;
}
