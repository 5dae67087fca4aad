import type { Workload } from '../workload.ts';
import { appendLogs } from './append-logs.ts';
import { archives } from './archives.ts';
import { attachments } from './attachments.ts';
import { clones } from './clones.ts';
import { editedFiles } from './edited-files.ts';
import { fileLocks } from './file-locks.ts';
import { files } from './files.ts';
import { membership } from './membership.ts';
import { moves } from './moves.ts';
import { namedLeases } from './named-leases.ts';
import { names } from './names.ts';
import { quotas } from './quotas.ts';
import { sealedFiles } from './sealed-files.ts';
import { sharedLogs } from './shared-logs.ts';
import { smallFiles } from './small-files.ts';
import { snapshots } from './snapshots.ts';
import { syncedFiles } from './synced-files.ts';
import { volumeLives } from './volume-lives.ts';
import { volumeMoves } from './volume-moves.ts';
import { volumeSplits } from './volume-splits.ts';

/** Workloads in which programs use mounts in all ways. */
export const MOUNT_WORKLOADS: readonly Workload[] = [
  ...[appendLogs, editedFiles, fileLocks, sharedLogs, smallFiles, syncedFiles],
];

export const BASIC_WORKLOADS: readonly Workload[] = [files, names, moves, sealedFiles];

/** Workloads of whole servers and volumes. */
export const OF_WHOLES: readonly Workload[] = [...[membership, namedLeases, snapshots, quotas, volumeLives]];

/** The workloads from which seeds draw. */
export const WORKLOADS: readonly Workload[] = [...BASIC_WORKLOADS, ...MOUNT_WORKLOADS, ...OF_WHOLES];

/** All workloads; the last ones only in runs that name them. */
export const NAMED_WORKLOADS: readonly Workload[] = [
  ...[...WORKLOADS, archives, attachments, clones, volumeMoves, volumeSplits],
];
