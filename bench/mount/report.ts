import type { Goal, Report } from '../lease/report.ts';
import { numberText, summarize } from '../lease/statistics.ts';
import { CLOSE_ROWS, OWN_NAMES, type RowName, type SubjectName } from './names.ts';
import { ROWS, type Row } from './rows.ts';

const GB = 1e9;
/** Uncached sequential reads are to reach this share of what FUSE itself allows. */
const READ_SHARE = 0.6;
/** Cached reads come from the page cache, as those of the local disk do; what is less than this share of them did not. */
const CACHED_SHARE = 0.5;
const METADATA_TIMES = 2;

/** All values of one row. */
export interface Measured {
  readonly name: RowName;
  /** Bytes that each measurement moved; null where that is not what counts. */
  readonly bytes: number | null;
  readonly figures: readonly {
    readonly subject: SubjectName;
    readonly values: readonly number[];
    readonly cpuMs: readonly number[];
  }[];
}

/** @param missing what was not measured and why, in whole sentences */
export function reportOf(
  measured: readonly Measured[],
  subjects: readonly SubjectName[],
  missing: readonly string[],
  quick: boolean,
): Report {
  const rows = measured.flatMap((each) => [rowOf(each, subjects), ...cpuRowOf(each, subjects)]);
  return {
    table: { columns: ['', ...subjects], rows },
    goals: quick ? [] : goalsOf(measured),
    notes: [
      'In parentheses: so many times as good as the local disk in the same row.',
      'flush-behind is kernel with --flush-behind: a close waits for nothing, as with GlusterFS, whose close does not wait by default either.',
      'gluster-waits is GlusterFS with performance.flush-behind off: a close waits until the bricks have what was written, as it does here by default.',
      'CPU is that of all processes of the subject and of the load together.',
      'The three servers, or bricks, of a subject share this machine and its one disk: every byte is written three times.',
      ...missing,
    ],
    figures: [],
    data: measured,
  };
}

function rowOf(each: Measured, subjects: readonly SubjectName[]): string[] {
  const row = ROWS[each.name];
  const disk = medianOf(each, 'disk');
  const cells = subjects.map((subject) => {
    const value = medianOf(each, subject);
    if (value === null) return '–';
    const text = figureText(value);
    return disk === null || subject === 'disk'
      ? text
      : `${text} (${figureText(betterTimes(row, value, disk))})`;
  });
  return [`${row.title}, ${row.unit}`, ...cells];
}

function cpuRowOf(each: Measured, subjects: readonly SubjectName[]): string[][] {
  const { bytes } = each;
  if (bytes === null) return [];
  const cells = subjects.map((subject) => {
    const cpuMs = each.figures.find((one) => one.subject === subject)?.cpuMs ?? [];
    return cpuMs.length === 0 ? '–' : figureText((summarize(cpuMs).median / 1000 / bytes) * GB);
  });
  return [['… CPU, s/GB', ...cells]];
}

function medianOf(each: Measured, subject: SubjectName): number | null {
  const values = each.figures.find((one) => one.subject === subject)?.values ?? [];
  return values.length === 0 ? null : summarize(values).median;
}

function betterTimes(row: Row, value: number, other: number): number {
  return row.less === true ? other / value : value / other;
}

function goalsOf(measured: readonly Measured[]): Goal[] {
  const goals: Goal[] = [];
  const goal = (each: Measured, own: SubjectName, peer: SubjectName, times: number): void => {
    const [value, other] = [medianOf(each, own), medianOf(each, peer)];
    if (value === null || other === null) return;
    const row = ROWS[each.name];
    const reached = betterTimes(row, value, other);
    goals.push({
      what: `${own}: ${row.title}`,
      wanted: `${times} times ${peer} or better`,
      measured: `${figureText(reached)} times`,
      met: reached >= times,
    });
  };
  for (const each of measured) {
    for (const own of OWN_NAMES) {
      goal(each, own, 'gluster', ROWS[each.name].kind === 'metadata' ? METADATA_TIMES : 1);
      if (each.name === 'read-1m-cold' || each.name === 'read-128k-cold')
        goal(each, own, 'bindfs', READ_SHARE);
      if (each.name === 'read-1m-cached') goal(each, own, 'disk', CACHED_SHARE);
    }
    // The same promise on both sides.
    if (!CLOSE_ROWS.includes(each.name)) continue;
    goal(each, 'kernel', 'gluster-waits', METADATA_TIMES);
    goal(each, 'flush-behind', 'gluster', METADATA_TIMES);
  }
  return goals;
}

/** Three figures that count. */
function figureText(value: number): string {
  return numberText(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
