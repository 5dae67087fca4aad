import { ServiceError } from '../../base/errors.ts';
import type {
  CommandOf,
  CommandResults,
  CreateWithContentsCommand,
  CreateWithContentsResult,
  FileCreationResult,
} from '../../wire/catalog-api.ts';
import { numberRuns } from '../../wire/reserved-numbers.ts';
import { assertMayGain } from '../flags.ts';
import { inheritedQuota } from '../inherited-quota.ts';
import type { InodeRow } from '../inode-rows.ts';
import { nameCheck, timeCheck } from '../names.ts';
import { assertBytesAllowed, assertInodesAllowed, isOfBytes, quotasOf } from '../quota.ts';
import { KIND_FILE, POLICIES } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { directoryOf } from '../tree.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { inheritAcl } from './acls.ts';
import { MODE_SETGID } from './entries.ts';

/** Lifetime of an unused reservation, longer than clients learn; its stored contents may then be deleted. */
const RESERVED_NS = 15n * 60n * 1_000_000_000n;

/** With this policy a majority suffices for contents that no client has seen. */
const QUORUM = POLICIES.indexOf('quorum');

type NewFile = CreateWithContentsCommand['files'][number];

export function reserveInodes(
  tables: Tables,
  { owner, count, members = [[]], volume: name }: CommandOf<'reserve-inodes'>,
  atNs: string,
): CommandResults['reserve-inodes'] {
  const first = tables.numbers.take(count);
  // A server may not know yet that the volume is gone, or has moved: then the numbers are for none.
  const volume = name === undefined ? 0 : (tables.volumes.byName(name)?.id ?? 0);
  for (const run of numberRuns(first, count, members))
    tables.numbers.reserve({ ...run, owner, atNs, volume, members: run.members.join(',') });
  return { first };
}

export function voidInodes(
  tables: Tables,
  { owner, inodes }: CommandOf<'void-inodes'>,
): CommandResults['void-inodes'] {
  return { voided: inodes.filter((inode) => tables.numbers.takeReserved(owner, inode, null)) };
}

export function forgetReservations(tables: Tables, atNs: string): void {
  tables.numbers.forgetReserved((BigInt(atNs) - RESERVED_NS).toString());
}

export function notReserved(inode: number): ServiceError {
  return new ServiceError('precondition-failed', `Inode ${inode} is not reserved, or not any more`);
}

/** Creates files with stored contents, in order. A refused file writes nothing: all its checks come first. */
export function createFilesWithContents(
  tables: Tables,
  command: CreateWithContentsCommand,
  atNs: string,
): CreateWithContentsResult {
  const creation = new FileCreation(tables, command, atNs);
  const files: Record<string, FileCreationResult> = {};
  for (const file of command.files) {
    try {
      files[file.inode] = creation.create(file);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      files[file.inode] = { code: error.code, message: error.message };
    }
  }
  creation.updateCountersAndDirectories();
  return { atNs, limited: creation.isLimited, files };
}

function sameMembers(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((member) => b.includes(member));
}

class FileCreation {
  readonly #tables: Tables;
  readonly #command: CreateWithContentsCommand;
  readonly #atNs: string;
  readonly #replicas: readonly string[];
  readonly #ownReplicas = new Map<number, readonly string[]>();
  readonly #directories = new Map<number, InodeRow>();
  readonly #changedDirectories = new Set<number>();
  /** Created files by their servers. */
  readonly #created = new Map<string, number>();
  #volume: VolumeRow | null = null;
  #isLimited = false;
  #inodes = 0;
  #bytes = 0;

  constructor(tables: Tables, command: CreateWithContentsCommand, atNs: string) {
    this.#tables = tables;
    this.#command = command;
    this.#atNs = atNs;
    this.#replicas = command.replicas;
    for (const { replicas, inodes } of command.elsewhere ?? [])
      for (const inode of inodes) this.#ownReplicas.set(inode, replicas);
  }

  /** Whether a quota bounds the growth of any of the files. */
  get isLimited(): boolean {
    return this.#isLimited;
  }

  create(file: NewFile): FileCreationResult {
    const { inode: id, name, uid, sizeBytes } = file;
    nameCheck(name);
    const directory = this.#directory(file.parent);
    const volume = this.#volumeOf(directory);
    assertMayGain(this.#tables, directory);
    if (this.#tables.entries.has(directory.id, name))
      throw new ServiceError('exists', `There is a "${name}" already`);
    const accessedNs = timeCheck(file.accessedNs ?? this.#atNs);
    const modifiedNs = timeCheck(file.modifiedNs ?? this.#atNs);
    const changedNs = timeCheck(file.changedNs ?? this.#atNs);
    const quota = inheritedQuota(this.#tables, directory);
    const quotas = quotasOf(this.#tables, volume, quota);
    const isLimited = quotas.some(isOfBytes);
    this.#isLimited ||= isLimited;
    assertInodesAllowed(quotas);
    assertBytesAllowed(quotas, sizeBytes, 0);
    const members = this.#ownReplicas.get(id) ?? this.#replicas;
    this.#assertMembers(id, members);
    const replicas = members.join(',');
    if (!this.#tables.numbers.takeReserved(this.#command.owner, id, volume.id)) throw notReserved(id);

    const { mode, storeAcl } = inheritAcl(this.#tables, directory, { mode: file.mode, kind: KIND_FILE });
    const gid = (directory.mode & MODE_SETGID) !== 0 ? directory.gid : file.gid;
    this.#tables.inodes.insertWithContents({
      ...{ id, volume: volume.id, mode, uid, gid, sizeBytes, accessedNs, modifiedNs, changedNs },
      createdNs: this.#atNs,
      replicas,
      objectBytes: volume.objectBytes,
      contentsEpoch: file.contents.epoch,
      contentsSeq: file.contents.seq,
      policy: volume.policy,
      allowed: isLimited ? sizeBytes : null,
      placement: directory.placement,
      quota,
    });
    storeAcl(id);
    // At once, because the next file may be in another directory with a quota.
    this.#tables.quotas.charge(quota, 1, sizeBytes);
    this.#tables.entries.insert(directory.id, name, id);
    this.#changedDirectories.add(directory.id);
    this.#created.set(replicas, (this.#created.get(replicas) ?? 0) + 1);
    this.#inodes++;
    this.#bytes += sizeBytes;
    const xattrs = directory.xattrs === 0 ? 0 : this.#tables.xattrs.count(id);
    return mode === file.mode && gid === file.gid && xattrs === 0 ? null : { mode, gid, xattrs };
  }

  updateCountersAndDirectories(): void {
    if (this.#volume === null || this.#inodes === 0) return;
    this.#tables.volumes.count(this.#volume.id, this.#inodes, this.#bytes);
    this.#tables.volumes.charge(this.#volume.id, this.#inodes, this.#bytes);
    for (const [replicas, files] of this.#created) this.#tables.placements.addToCounts(replicas, files);
    for (const id of this.#changedDirectories) this.#tables.inodes.touchDirectory(id, 0, this.#atNs);
  }

  /** Refuses contents at other servers than the number is reserved for: a file has one member set per view. */
  #assertMembers(inode: number, replicas: readonly string[]): void {
    const members = this.#tables.numbers.reservedMembers(inode) ?? [];
    if (members.length === 0 || sameMembers(members, replicas)) return;
    throw new ServiceError(
      'precondition-failed',
      `Inode ${inode} is reserved for servers ${members.join()}, and not for ${replicas.join()}`,
    );
  }

  #directory(id: number): InodeRow {
    const known = this.#directories.get(id);
    if (known !== undefined) return known;
    const directory = directoryOf(this.#tables, id);
    this.#directories.set(id, directory);
    return directory;
  }

  /** @returns the volume, including what this command created so far */
  #volumeOf(directory: InodeRow): VolumeRow {
    this.#volume ??= this.#tables.volumes.row(directory.volume);
    const { id, name, objectBytes, policy, namedBytes, namedInodes } = this.#volume;
    if (directory.volume !== id)
      throw new ServiceError('cross-volume', `Directory ${directory.id} is not of volume "${name}"`);
    if (objectBytes !== this.#command.objectBytes || policy !== QUORUM)
      throw new ServiceError('precondition-failed', `Files of volume "${name}" are stored otherwise`);
    return {
      ...this.#volume,
      namedBytes: namedBytes + this.#bytes,
      namedInodes: namedInodes + this.#inodes,
    };
  }
}
