import type { AttachedAt } from '../../wire/junctions.ts';
import {
  CommandFailure,
  EXIT_PRECONDITION,
  generalFailure,
  isOfOneFile,
  isSystemError,
  systemReason,
} from '../terminal/failure.ts';
import { printable } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';

export interface TreeReport {
  files: number;
  bytes: number;
  links: number;
  directories: number;
  /** Skipped: they were there with the same size and time. */
  same: number;
  /** Of `files`, those that were resumed, and how many bytes were there. */
  continued: number;
  continuedBytes: number;
  readonly skipped: string[];
  /** The tree ends there. */
  readonly junctions: AttachedAt[];
  readonly failed: { readonly path: string; readonly why: string }[];
}

export function treeReport(): TreeReport {
  return {
    ...{ files: 0, bytes: 0, links: 0, directories: 0, same: 0, continued: 0, continuedBytes: 0 },
    skipped: [],
    junctions: [],
    failed: [],
  };
}

/** Runs `step`. If it fails for a reason of `path` alone, reports that and returns null; throws other errors. */
export async function tryOrReport<Value>(
  report: TreeReport,
  path: string,
  step: () => Promise<Value>,
): Promise<Value | null> {
  try {
    return await step();
  } catch (error) {
    const isLocal = isSystemError(error) && error.path !== undefined;
    const isRefusal =
      isOfOneFile(error) || (error instanceof CommandFailure && error.exit === EXIT_PRECONDITION);
    if (!isLocal && !isRefusal) throw error;
    report.failed.push({ path, why: isLocal ? systemReason(error) : error.message });
    return null;
  }
}

/** Prints what could not be copied, each with its reason. @throws CommandFailure if there is something */
export function throwIfAnyFailed(failed: TreeReport['failed'], verb: 'copy' | 'restore'): void {
  for (const { path, why } of failed)
    process.stderr.write(`leasehold: Cannot ${verb} "${printable(path)}": ${why}\n`);
  if (failed.length === 0) return;
  const count = failed.length === 1 ? 'One item was' : `${failed.length} items were`;
  const done = verb === 'copy' ? 'copied' : 'restored';
  throw generalFailure(
    `${count} not ${done}, for the reasons above`,
    'fix the causes, and run the same command again',
  );
}

/** @returns what a command says of a directory at which a tree ends */
export function junctionLine(
  { path, volume }: AttachedAt,
  done: 'copied' | 'archived' | 'in the snapshot',
): string {
  return `Volume ${volume} is attached at ${printable(path)}: what it has is not ${done}`;
}

export function treeSummary(report: TreeReport): string {
  const { files, bytes, links, same, continued, continuedBytes } = report;
  const parts = [`copied ${counted(files, 'file')} (${formatBytes(bytes)})`];
  if (links > 0) parts.push(counted(links, 'link'));
  if (continued > 0) parts.push(`resumed ${continued} of them after ${formatBytes(continuedBytes)}`);
  if (same > 0) parts.push(`skipped ${counted(same, 'file')} that ${same === 1 ? 'was' : 'were'} the same`);
  return parts.join(', ');
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
