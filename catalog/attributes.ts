import { assert } from '../base/assert.ts';
import type {
  Attributes,
  FileSettings,
  NodeKind,
  PlacedFile,
  SnapshotInfo,
  TrashedFile,
  VolumeInfo,
} from '../wire/catalog-api.ts';
import type { Policy } from '../wire/catalog-values.ts';
import { isRestricted } from '../wire/placement-class.ts';
import { type FileClass, placementClassOf } from './file-class.ts';
import { flagNames } from './flags.ts';
import type { InodeRow } from './inode-rows.ts';
import { junctionOf } from './junction-refusals.ts';
import type { PlacedRow } from './placement-tables.ts';
import { KIND_FILE, POLICIES } from './schema.ts';
import type { SnapshotRow } from './snapshot-tables.ts';
import type { TrashRow } from './trash-tables.ts';
import type { ShownRow, Tree } from './tree.ts';
import type { VolumeRow } from './volume-tables.ts';

const KINDS = [null, 'file', 'directory', 'symlink', 'fifo', 'socket', 'character', 'block'] as const;

export function kindName(kind: number): NodeKind {
  const name = KINDS[kind];
  assert(name !== null && name !== undefined, 'An inode has a kind that we know');
  return name;
}

export function policyName(number: number): Policy {
  const name = POLICIES[number];
  assert(name !== undefined, 'A file has a policy that we know');
  return name;
}

export function kindNumber(name: NodeKind): number {
  return KINDS.indexOf(name);
}

export function contentsCompare(epochA: number, seqA: number, epochB: number, seqB: number): number {
  return epochA !== epochB ? epochA - epochB : seqA - seqB;
}

/** Many files share few sets of servers, so their lists are shared. */
const replicaLists = new Map<string, readonly string[]>();
const REPLICA_LISTS_MAX = 10_000;

function replicaList(text: string): readonly string[] {
  let list = replicaLists.get(text);
  if (list === undefined) {
    if (replicaLists.size >= REPLICA_LISTS_MAX) replicaLists.clear();
    list = Object.freeze(text === '' ? [] : text.split(','));
    replicaLists.set(text, list);
  }
  return list;
}

export function attributesOf(row: InodeRow): Attributes {
  const junction = junctionOf(row);
  const newer = contentsCompare(row.modifiedEpoch, row.modifiedSeq, row.contentsEpoch, row.contentsSeq) > 0;
  return {
    inode: row.id,
    volume: row.volumeName,
    kind: kindName(row.kind),
    mode: row.mode,
    uid: row.uid,
    gid: row.gid,
    links: row.links,
    sizeBytes: row.sizeBytes,
    ...(row.holeBytes === 0 ? {} : { holeBytes: row.holeBytes }),
    accessedNs: row.accessedNs,
    modifiedNs: row.modifiedNs,
    changedNs: row.changedNs,
    ...(row.createdNs === null ? {} : { createdNs: row.createdNs }),
    target: row.target,
    device: row.device,
    replicas: replicaList(row.replicas),
    view: row.view,
    ...(row.kind === KIND_FILE ? { policy: policyName(row.policy) } : {}),
    objectBytes: row.objectBytes,
    ...(row.allowed === null ? {} : { allowedBytes: Math.max(row.allowed, row.sizeBytes) }),
    contents: newer
      ? { epoch: row.modifiedEpoch, seq: row.modifiedSeq }
      : { epoch: row.contentsEpoch, seq: row.contentsSeq },
    live: row.live === 1,
    xattrs: row.xattrs,
    ...flagsOf(row),
    ...(row.placement === 0 ? {} : { placement: row.placement }),
    ...(row.quota === 0 ? {} : { quota: row.quota }),
    ...(junction === null ? {} : { junction }),
    ...(row.shared === 1 ? { shared: true } : {}),
  };
}

function flagsOf({ flags, retainNs }: InodeRow): Pick<Attributes, 'flags' | 'retainUntilNs'> {
  if (flags === 0) return {};
  const names = flagNames(flags);
  return {
    ...(names.length === 0 ? {} : { flags: names }),
    ...(retainNs === null ? {} : { retainUntilNs: retainNs }),
  };
}

/** Attributes as a tree shows them: in a snapshot with its number, and the file that has the contents if another. */
export function shownOf({ serial }: Pick<Tree, 'serial'>, row: ShownRow): Attributes {
  const attributes = attributesOf(row);
  if (serial === undefined) return attributes;
  const { source = 0 } = row;
  // The content version tells readers that the contents are the snapshot's.
  const contents = { epoch: row.contentsEpoch, seq: row.contentsSeq };
  return { ...attributes, contents, snapshot: serial, ...(source > 0 && { source }) };
}

export function snapshotInfoOf(
  volume: VolumeRow,
  { name, serial, madeNs, retainNs }: SnapshotRow,
): SnapshotInfo {
  return {
    ...{ volume: volume.name, name, serial, madeNs },
    ...(retainNs === null ? {} : { retainUntilNs: retainNs }),
  };
}

export function volumeInfoOf(row: VolumeRow): VolumeInfo {
  return {
    name: row.name,
    root: row.root,
    replicas: row.replicas,
    policy: policyName(row.policy),
    objectBytes: row.objectBytes,
    inodes: row.inodes,
    usedBytes: row.usedBytes,
    quotaBytes: row.quotaBytes,
    quotaInodes: row.quotaInodes,
    namedBytes: row.namedBytes,
    namedInodes: row.namedInodes,
    trashMs: row.trashMs,
    trashedBytes: row.trashedBytes,
    trashedInodes: row.trashedInodes,
    ...placementClassOf(row),
  };
}

export function trashedFileOf(inode: InodeRow, row: TrashRow): TrashedFile {
  return {
    inode: row.inode,
    path: row.path,
    sizeBytes: inode.sizeBytes,
    modifiedNs: inode.modifiedNs,
    removedNs: row.removedNs,
    ...(row.removedBy === '' ? {} : { removedBy: row.removedBy }),
    keptUntilNs: inode.orphanedNs ?? row.removedNs,
  };
}

/** @param files the file's class */
export function placedFileOf(row: PlacedRow, files: FileClass): PlacedFile {
  const placementClass = placementClassOf(files);
  return {
    inode: row.id,
    members: replicaList(row.replicas),
    view: row.view,
    wanted: row.wanted === 0 ? files.replicas : row.wanted,
    sizeBytes: row.sizeBytes,
    ...(isRestricted(placementClass) ? { class: placementClass } : {}),
  };
}

/** How a file is stored, and whether a quota bounds its growth. @param volume of the file */
export function fileSettingsOf({ policy, objectBytes, quota }: PlacedRow, volume: VolumeRow): FileSettings {
  return {
    volume: volume.name,
    policy: policyName(policy),
    objectBytes,
    // A directory's quota may have no limit of bytes: then its primary asks once and learns that.
    limited: volume.quotaBytes > 0 || quota > 0,
  };
}
