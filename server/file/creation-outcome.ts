import type { ErrorCode } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type {
  Attributes,
  ContentVersion,
  CreateWithContentsResult,
  FileCreationResult,
  VolumeInfo,
} from '../../wire/catalog-api.ts';
import type { FileWithContents as NewFile, NewFileOutcome } from '../../wire/new-files.ts';

/** The contents of a file that was created with them: its first operation writes all of them. */
export const CREATED_WITH_CONTENTS: ContentVersion = { epoch: 1, seq: 1 };

export function refused(code: ErrorCode, message: string): NewFileOutcome {
  return { kind: 'refused', code, message };
}

/** The outcome of a file that had its directory entry before, and whose contents are stored now. */
export function outcomeWithEntry(
  birth: NewFile,
  volume: VolumeInfo,
  members: readonly ServerId[],
): NewFileOutcome {
  const result = { atNs: birth.changedNs ?? '0', limited: false, files: { [birth.inode]: null } };
  return outcomeOf(birth, result, volume, members);
}

export function outcomeOf(
  birth: NewFile,
  result: CreateWithContentsResult,
  volume: VolumeInfo,
  members: readonly ServerId[],
): NewFileOutcome {
  const born = result.files[birth.inode];
  if (born === undefined) return { kind: 'not-created' };
  if (born !== null && 'code' in born) {
    // Its number is void, or the volume's settings changed: the client may still create it in two steps.
    return born.code === 'precondition-failed' ? { kind: 'not-created' } : refused(born.code, born.message);
  }
  const attributes = attributesOf(birth, born, result, volume, members);
  return { kind: 'created', attributes, namedNs: result.atNs };
}

function attributesOf(
  { inode, mode, uid, gid, contents, accessedNs, modifiedNs, changedNs }: NewFile,
  born: Exclude<FileCreationResult, { readonly code: ErrorCode }>,
  { atNs, limited }: CreateWithContentsResult,
  volume: VolumeInfo,
  members: readonly ServerId[],
): Attributes {
  const sizeBytes = contents.length;
  return {
    ...{ inode, volume: volume.name, kind: 'file', mode, uid, gid, links: 1, sizeBytes },
    accessedNs: accessedNs ?? atNs,
    modifiedNs: modifiedNs ?? atNs,
    changedNs: changedNs ?? atNs,
    ...{
      target: '',
      device: 0,
      replicas: members,
      view: 1,
      policy: 'quorum',
      objectBytes: volume.objectBytes,
    },
    ...(limited ? { allowedBytes: sizeBytes } : {}),
    ...{ contents: CREATED_WITH_CONTENTS, live: false, xattrs: 0 },
    ...born,
  };
}
