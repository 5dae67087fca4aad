/** The result of a run as text, and whether the run passes. */
import { onlyReadsAreWrong, operationsByKey } from '../history/checker.ts';
import { verdictText } from '../history/report.ts';
import { LAST } from './load.ts';
import type { RunResult } from './run.ts';

type Judged = Pick<
  RunResult,
  'verdict' | 'recorder' | 'faults' | 'deaths' | 'untold' | 'catalogFailovers' | 'snapshots' | 'ofSnapshots'
>;

/**
 * The share of reads at all servers that backups must answer. The reads include names, which only the catalog's
 * primary answers, and times without a lease: a run without faults has ten times as many.
 */
const LOCAL_SHARE_MIN = 0.01;

/** @returns what is missing or wrong; the run passes if there is nothing */
export function runFaults(result: Judged): readonly string[] {
  const { verdict, recorder, faults, deaths, untold, catalogFailovers, snapshots, ofSnapshots } = result;
  const wrong: string[] = [];
  for (const { key } of verdict.violations) {
    const ofKey = operationsByKey(recorder.operations).get(key) ?? [];
    const readsOnly = onlyReadsAreWrong(ofKey, ({ client }) => client.startsWith(LAST));
    wrong.push(`${key} is not linearizable: ${readsOnly ? 'reads alone are wrong' : 'WRITES are wrong'}`);
  }
  for (const key of verdict.undecided) wrong.push(`${key} is undecided`);
  for (const { id, how, log } of deaths) wrong.push(`${id} ended by itself (${how}):\n${log}`);
  for (const one of untold) wrong.push(`not in time: ${one}`);
  wrong.push(...ofSnapshots);
  if (snapshots.snapshots === 0) wrong.push('no snapshot was made');
  for (const code of ['internal', 'integrity', 'storage']) {
    const count = recorder.problems.get(code) ?? 0;
    // Only a full disk excuses storage errors.
    if (count > 0 && !(code === 'storage' && faults.has('disk-full'))) wrong.push(`${count} times "${code}"`);
  }
  // A run in which nothing happened proves nothing.
  if (faults.size === 0) wrong.push('no fault was made');
  const local = recorder.served.get('local') ?? 0;
  const reads = [...recorder.served.values()].reduce((sum, count) => sum + count, 0);
  if (recorder.tellsServed && local < LOCAL_SHARE_MIN * reads) {
    wrong.push(`only ${local} of ${reads} reads were local`);
  }
  if (recorder.failovers + catalogFailovers === 0) wrong.push('no primary was ever replaced');
  for (const op of [
    'read',
    'write',
    'cas',
    'delete',
    'append',
    'pwrite',
    'pread',
    'fappend',
    'truncate',
    'size',
  ]) {
    if (!recorder.counts.has(`${op} ok`)) wrong.push(`no ${op} succeeded`);
  }
  return wrong;
}

export function runText(result: RunResult): string {
  const { verdict, recorder, faults, skipped, catalogFailovers, checkMs, snapshots } = result;
  const { failovers, served, counts, problems } = recorder;
  return [
    `operations   ${countsText(counts)}`,
    `reads        ${countsText(served)}`,
    `errors       ${countsText(problems)}`,
    `faults       ${countsText(faults)}`,
    ...skipped.map((reason) => `skipped      ${reason}`),
    `snapshots    ${snapshotsText(snapshots)}`,
    `failovers    ${failovers} of files, ${catalogFailovers} of the catalog`,
    `checked in   ${Math.round(checkMs)} ms`,
    verdictText(verdict),
  ].join('\n');
}

function countsText(counts: ReadonlyMap<string, number>): string {
  if (counts.size === 0) return 'none';
  const sorted = [...counts].sort(([a], [b]) => a.localeCompare(b));
  return sorted.map(([name, count]) => `${name} ${count}`).join(', ');
}

function snapshotsText(counts: RunResult['snapshots']): string {
  return `${counts.snapshots} made, ${counts.snapshotsRemoved} removed, ${counts.snapshotReads} times read, ${counts.filesBorne} files borne meanwhile`;
}
