import type { Workload } from '../workload.ts';
import { files } from './files.ts';
import { moves } from './moves.ts';
import { mutexes } from './mutexes.ts';
import { names } from './names.ts';
import { sealedFiles } from './sealed-files.ts';

/** All workloads; a run has those that its options name. */
export const WORKLOADS: readonly Workload[] = [files, names, moves, mutexes, sealedFiles];
