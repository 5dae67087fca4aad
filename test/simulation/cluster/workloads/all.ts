import type { Workload } from '../workload.ts';
import { appendLogs } from './append-logs.ts';
import { editedFiles } from './edited-files.ts';
import { exclusiveNames } from './exclusive-names.ts';
import { fileLocks } from './file-locks.ts';
import { files } from './files.ts';
import { moves } from './moves.ts';
import { mutexes } from './mutexes.ts';
import { names } from './names.ts';
import { sealedFiles } from './sealed-files.ts';
import { smallFiles } from './small-files.ts';
import { syncedFiles } from './synced-files.ts';

/** All workloads; a run has those that its options name. */
export const WORKLOADS: readonly Workload[] = [
  ...[files, names, moves, mutexes, sealedFiles],
  ...[appendLogs, editedFiles, exclusiveNames, fileLocks, smallFiles, syncedFiles],
];
