import { stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { baseName, joinPath, parseRemotePath } from '../cluster/remote-path.ts';
import { isSystemError, notFoundFailure, usageFailure } from '../terminal/failure.ts';
import { Progress, printable, printJson, printLine } from '../terminal/output.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { getTree } from '../tree/get-tree.ts';
import { putTree } from '../tree/put-tree.ts';
import { junctionLine, type TreeReport, throwIfAnyFailed, treeReport, treeSummary } from '../tree/report.ts';

interface TreeOptions {
  readonly json?: true;
  readonly replace?: boolean;
}

export async function putDirectory(
  client: ClusterClient,
  local: string,
  targetText: string,
  options: TreeOptions,
  call: CallOptions,
): Promise<void> {
  if (options.replace === false)
    throw usageFailure('Cannot use --no-replace with --recursive, which replaces files that differ');
  const parsed = parseRemotePath(targetText);
  const stats = await stat(local).catch((error: unknown) => {
    if (isSystemError(error) && error.code === 'ENOENT') return null;
    throw error;
  });
  if (stats === null) throw notFoundFailure(`Cannot put "${local}": there is no such directory here`);
  if (!stats.isDirectory()) throw usageFailure(`Cannot put "${local}" with --recursive: it is no directory`);
  const keepsName = parsed.directory && parsed.path !== '/';
  const path = keepsName ? joinPath(parsed.path, basename(resolve(local))) : parsed.path;
  const place = await located(client, { volume: parsed.volume, path }, call);
  await copyAndReport(`${place.volume}:${place.path}`, options, (report, onBytes) =>
    putTree(client, local, place, report, call, onBytes),
  );
}

export async function getDirectory(
  client: ClusterClient,
  sourceText: string,
  localText: string,
  options: TreeOptions,
  call: CallOptions,
): Promise<void> {
  if (localText === '-')
    throw usageFailure(
      'Cannot write a directory to standard output',
      '"leasehold backup" writes it there as an archive',
    );
  const parsed = parseRemotePath(sourceText);
  const source = await located(client, parsed, call);
  const top = await client.resolve(source.volume, source.path, call);
  if (top.kind !== 'directory')
    throw usageFailure(`Cannot get ${source.volume}:${source.path} with --recursive: it is a ${top.kind}`);
  const local = localText.endsWith('/') ? join(localText, baseName(parsed.path)) : localText;
  await copyAndReport(local, options, (report, onBytes) =>
    getTree(client, top, local, report, call, onBytes),
  );
}

/** Copies a tree and prints its report, also if the copy is interrupted. */
async function copyAndReport(
  target: string,
  { json }: TreeOptions,
  copy: (report: TreeReport, onBytes: () => void) => Promise<void>,
): Promise<void> {
  const report = treeReport();
  const progress = new Progress(basename(target), null);
  try {
    await copy(report, () => progress.update(report.bytes));
  } catch (error) {
    progress.end();
    process.stderr.write(
      `leasehold: interrupted: ${treeSummary(report)}; run the same command again to resume\n`,
    );
    throw error;
  } finally {
    progress.end();
  }
  const { skipped, junctions, failed } = report;
  if (json) printJson({ target, ...report });
  else {
    for (const junction of junctions) printLine(junctionLine(junction, 'copied'));
    for (const path of skipped) printLine(`Skipped ${printable(path)}: a special file has no contents`);
    printLine(`${capitalized(treeSummary(report))}, to ${printable(target)}`);
  }
  throwIfAnyFailed(failed, 'copy');
}

function capitalized(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
