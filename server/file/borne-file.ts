import { FIRST_COUNTER } from '../../replica/birth.ts';
import type { ReplicaRecord } from '../../replica/record.ts';
import { SessionTable } from '../../replica/sessions.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { FILE_CANDIDATES_FROM, type ReplicaDriver } from '../replica-driver.ts';
import type { FileAttributes, FileStore } from '../storage/store.ts';

/**
 * By these a file is borne (docs/design/mount.md, "Create with contents"): whoever leads it next knows by the last one that no mark of the catalog stands. Nobody can write no
 * bytes, so an empty file is cut to none.
 */
export function birthOperations(contents: Uint8Array, modifiedNs: bigint): readonly FileOperation[] {
  const whole: FileOperation =
    contents.length === 0
      ? { kind: 'truncate', sizeBytes: 0, modifiedNs }
      : { kind: 'write', offset: 0, bytes: contents, modifiedNs };
  return [whole, { kind: 'settling' }];
}

/** Operations of a birth. */
export const BIRTH_LENGTH = birthOperations(new Uint8Array(0), 0n).length;
/** Contents were written by the first of them. */
const WRITTEN_SEQ = 1;

/**
 * Whether nobody led the file before the epoch that is led from here, for it was borne: this is the first epoch that a candidate chose, and the one
 * before is that of the birth. Who leads what he has made does so in an epoch with the same number, but what he orders there has the names of requests.
 * To be asked before anything is ordered; later it is not known.
 */
export function wasBorneOnly(driver: ReplicaDriver, store: Pick<FileStore, 'attributes'>): boolean {
  const { epoch, inheritedFrom, subject, file } = driver;
  if (inheritedFrom?.counter !== FIRST_COUNTER || epoch.counter !== FILE_CANDIDATES_FROM) return false;
  return isBirthAlone(subject.record(), store.attributes(file));
}

/** Whether a replica holds what a birth stores, and nothing that came behind it. */
export function isBirthAlone(
  { seq, sessions }: Pick<ReplicaRecord, 'seq' | 'sessions'>,
  { versionEpoch, versionSeq }: Pick<FileAttributes, 'versionEpoch' | 'versionSeq'>,
): boolean {
  const isWritten = versionEpoch === FIRST_COUNTER && versionSeq === WRITTEN_SEQ;
  return seq === BIRTH_LENGTH && isWritten && SessionTable.decode(sessions).isEmpty;
}
