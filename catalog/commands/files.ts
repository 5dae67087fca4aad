import { ServiceError } from '../../base/errors.ts';
import { type CommandOf, type CommandResults, type LiveMark, UPLOAD_NOTE } from '../../wire/catalog-api.ts';
import { attributesOf, contentsCompare } from '../attributes.ts';
import { charge, chargeOf } from '../charges.ts';
import { isAppendOnly, isImmutable, protectedError } from '../flags.ts';
import { timeCheck } from '../names.ts';
import { allowedOfNew, allowGrowth, quotaOfVolume } from '../quota.ts';
import { KIND_DIRECTORY, KIND_FILE } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { inodeOf, volumeOf } from '../tree.ts';
import { notFilled } from './clones.ts';
import { forgetReservations, notReserved } from './create-with-contents.ts';
import { nodeCreate, resolveName } from './entries.ts';
import { collectOrphan, preserveIfShown } from './snapshots.ts';

/** Creates a file, or returns the existing one. Follows a final symbolic link, as open(2), unless `exclusive`. */
export function createFile(
  tables: Tables,
  command: CommandOf<'create-file'>,
  atNs: string,
  replicas: readonly string[],
): CommandResults['create-file'] {
  const { mode, uid, gid, umask, exclusive, reserved, times } = command;
  const spot = resolveName(tables, command.place, exclusive ? 'exists' : 'is-directory', !exclusive);
  if (spot.inode !== undefined) {
    // An earlier create with contents, whose answer was lost, created it.
    if (spot.inode.id === reserved?.inode) return { attributes: attributesOf(spot.inode), created: false };
    if (exclusive) throw new ServiceError('exists', `There is a "${spot.name}" already`);
    if (spot.inode.kind === KIND_DIRECTORY) {
      throw new ServiceError('is-directory', `"${spot.name}" is a directory`);
    }
    return { attributes: attributesOf(spot.inode), created: false };
  }
  const { volume } = spot.directory;
  if (reserved !== undefined && !tables.numbers.takeReserved(reserved.owner, reserved.inode, volume))
    throw notReserved(reserved.inode);
  const number = reserved === undefined ? {} : { id: reserved.inode };
  const node = { kind: 'file', mode, uid, gid, umask, replicas, ...number } as const;
  const inode = nodeCreate(tables, spot, node, atNs);
  if (times === undefined) return { attributes: attributesOf(inode), created: true };
  tables.inodes.setAccessed(inode.id, timeCheck(times.accessedNs));
  tables.inodes.setModified(inode.id, timeCheck(times.modifiedNs), 0, 0);
  tables.inodes.setChanged(inode.id, timeCheck(times.changedNs));
  return { attributes: attributesOf(tables.inodes.existing(inode.id)), created: true };
}

/** Creates an unlinked file for an upload. Unless `replace` links it, it is collected; its age is from `untilNs`. */
export function createOrphan(
  tables: Tables,
  command: CommandOf<'create-orphan'>,
  atNs: string,
  replicas: readonly string[],
): CommandResults['create-orphan'] {
  const volume = volumeOf(tables, command.volume);
  const id = tables.inodes.insert({
    volume: volume.id,
    kind: KIND_FILE,
    mode: command.mode,
    uid: command.uid,
    gid: command.gid,
    links: 0,
    sizeBytes: 0,
    atNs,
    target: '',
    device: 0,
    replicas: replicas.join(','),
    view: 1,
    objectBytes: volume.objectBytes,
    live: 1,
    parent: null,
    orphanedNs: command.untilNs === undefined ? atNs : timeCheck(command.untilNs),
    policy: volume.policy,
    // It counts against quotas of directories once it has a name.
    allowed: allowedOfNew([quotaOfVolume(volume)]),
    placement: command.placement ?? 0,
  });
  if (command.note !== undefined) tables.xattrs.put(id, UPLOAD_NOTE, Buffer.from(command.note, 'base64'));
  return { attributes: attributesOf(tables.inodes.existing(id)) };
}

/** Counts the age of an orphan from `untilNs`, or now, so that an unfinished upload or open file is collected later. */
export function keepOrphan(
  tables: Tables,
  command: CommandOf<'keep-orphan'>,
  atNs: string,
): CommandResults['keep-orphan'] {
  const inode = inodeOf(tables, command.inode);
  // A linked file needs no keeping; one in the trash is usually kept longer.
  if (inode.orphanedNs === null) return {};
  const untilNs = command.untilNs === undefined ? atNs : timeCheck(command.untilNs);
  if (inode.trashed === 1 && BigInt(untilNs) <= BigInt(inode.orphanedNs)) return {};
  tables.inodes.setOrphaned(inode.id, untilNs);
  return {};
}

/** A file's primary reports that it will change the file: marks it live, and allows it to grow if a quota permits. */
export function openForWrite(
  tables: Tables,
  command: CommandOf<'open-for-write'>,
  atNs: string,
): CommandResults['open-for-write'] {
  const inode = inodeOf(tables, command.inode);
  if (inode.kind === KIND_DIRECTORY)
    throw new ServiceError('is-directory', `Inode ${inode.id} is a directory`);
  if (inode.kind !== KIND_FILE) throw new ServiceError('bad-request', `Inode ${inode.id} is no file`);
  if (inode.shared === 1) throw notFilled(inode);
  // A primary of an earlier release would overwrite an append-only file.
  if (isImmutable(tables, inode) || (isAppendOnly(inode) && command.restricts !== true))
    throw protectedError(tables, inode);
  const preserve = preserveIfShown(tables, inode, command, atNs);
  if (preserve !== null) return { attributes: attributesOf(inode), preserve };
  const current = { epoch: inode.markEpoch, turn: inode.markTurn };
  const mark = command.mark ?? current;
  // A late mark of an earlier primary does not replace a later one's.
  const next = markCompare(mark, current) >= 0 ? mark : current;
  // Before the mark: a file that may not grow is not marked either.
  const allowed = allowGrowth(tables, inode, command.growTo ?? null);
  tables.inodes.markLive(inode.id, next.epoch, next.turn);
  return { attributes: attributesOf({ ...inode, live: 1, allowed }) };
}

/** Stores sizes and times that primaries report. Skips deleted files: a primary may learn of that later. */
export function settle(tables: Tables, command: CommandOf<'settle'>): CommandResults['settle'] {
  let settled = 0;
  for (const file of command.files) {
    const { epoch, seq } = file.contents;
    const modifiedNs = timeCheck(file.modifiedNs);
    const inode = tables.inode(file.inode);
    if (inode === undefined || inode.kind !== KIND_FILE || inode.shared === 1) continue;
    // Sent before a newer mark, arrived after it: must not end that mark.
    if (
      file.mark !== undefined &&
      markCompare(file.mark, { epoch: inode.markEpoch, turn: inode.markTurn }) < 0
    ) {
      continue;
    }
    // Late, from an earlier primary: the catalog has newer contents.
    if (contentsCompare(epoch, seq, inode.contentsEpoch, inode.contentsSeq) < 0) continue;
    // A set time holds until contents arrive that are newer than those it was set on.
    const takesTime = contentsCompare(epoch, seq, inode.modifiedEpoch, inode.modifiedSeq) > 0;
    // The time was set on newer contents than these, so the primary still knows better.
    const live = contentsCompare(epoch, seq, inode.modifiedEpoch, inode.modifiedSeq) < 0 ? inode.live : 0;
    const changes = contentsCompare(epoch, seq, inode.contentsEpoch, inode.contentsSeq) > 0;
    // The file was written without a mark, as after a power loss: what its snapshots show is lost.
    if (changes && tables.snapshots.showsContents(inode.id)) tables.snapshots.setContentsSource(inode.id, -1);
    const changedNs = changes && BigInt(modifiedNs) > BigInt(inode.changedNs) ? modifiedNs : inode.changedNs;
    // The growth allowance ends with the mark: the primary requests it again.
    const allowed = live === 1 || inode.allowed === null ? inode.allowed : file.sizeBytes;
    tables.inodes.settle(
      inode.id,
      file.sizeBytes,
      // Older primaries count no holes: 0, so that a copy takes no data for a hole.
      Math.min(file.holeBytes ?? 0, file.sizeBytes),
      takesTime ? modifiedNs : inode.modifiedNs,
      changedNs,
      epoch,
      seq,
      live,
      allowed,
    );
    if (changes && inode.orphanedNs === null) tables.inodes.noteModified(inode.id);
    charge(tables, inode, 0, chargeOf({ ...inode, sizeBytes: file.sizeBytes, allowed }) - chargeOf(inode));
    if (file.sizeBytes !== inode.sizeBytes) {
      tables.volumes.count(inode.volume, 0, file.sizeBytes - inode.sizeBytes);
    }
    settled += 1;
  }
  return { settled };
}

/**
 * Deletes orphans from before `beforeNs` that no snapshot shows, at most `countMax`; forgets expired reservations, and
 * deletes trimmed rows of logs.
 */
export function collect(
  tables: Tables,
  command: CommandOf<'collect'>,
  atNs: string,
): CommandResults['collect'] {
  forgetReservations(tables, atNs);
  if (tables.deletions.isWritten) tables.deletions.sweep();
  const orphans = tables.inodeLists.orphansBefore(timeCheck(command.beforeNs), command.countMax);
  const inodes = orphans.filter((orphan) => collectOrphan(tables, orphan));
  return { inodes: inodes.map((orphan) => orphan.id) };
}

/** Whether `collect` would delete anything, at once or at a later time. */
export function hasGarbage({ inodeLists, numbers, deletions }: Tables): boolean {
  return inodeLists.hasOrphans() || numbers.hasReserved() || deletions.hasTrimmedRows();
}

function markCompare(a: LiveMark, b: LiveMark): number {
  return a.epoch - b.epoch || a.turn - b.turn;
}
