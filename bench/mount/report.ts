import type { Goal, Report } from '../lease/report.ts';
import { numberText, summarize } from '../lease/statistics.ts';
import { type Cost, PROGRAMS, sum } from './counts.ts';
import { CLOSE_ROWS, OWN_NAMES, type RowName, type SubjectName } from './names.ts';
import { ROWS, type Row } from './rows.ts';

const GB = 1e9;
/** The goal for uncached sequential reads: this share of what FUSE allows. */
const READ_SHARE = 0.6;
/**
 * Cached reads come from the page cache, as on the local disk; a smaller share of its rate shows that they did not.
 */
const CACHED_SHARE = 0.5;
const METADATA_TIMES = 2;

/** All values of one row. */
export interface Measured {
  readonly name: RowName;
  /** Bytes that each measurement moved; null if bytes are not what counts. */
  readonly bytes: number | null;
  readonly figures: readonly {
    readonly subject: SubjectName;
    readonly values: readonly number[];
    /** By measurement: the number of operations, and their cost. */
    readonly operations: readonly number[];
    readonly costs: readonly Cost[];
  }[];
}

/** @param missing what was not measured and why, in full sentences */
export function reportOf(
  measured: readonly Measured[],
  subjects: readonly SubjectName[],
  missing: readonly string[],
  quick: boolean,
): Report {
  const rows = measured.flatMap((each) => [
    [...rowOf(each, subjects), ...ratioOf(subjects, (subject) => medianOf(each, subject), ROWS[each.name])],
    ...costRowsOf(each, subjects),
  ]);
  return {
    table: { columns: ['', ...subjects, ...(isComparison(subjects) ? [COMPARISON] : [])], rows },
    goals: quick ? [] : goalsOf(measured),
    notes: [
      'In parentheses: how many times as good as the local disk. `flush-behind` is `kernel` with `--flush-behind`: a close waits for ' +
        "nothing, as GlusterFS's by default. `gluster-waits` is GlusterFS with `performance.flush-behind` off: a close waits until " +
        'the bricks have the contents, as here by default.',
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

const COMPARISON = 'leases : ttl';

function isComparison(subjects: readonly SubjectName[]): boolean {
  return subjects.includes('ttl') && subjects.includes('leases');
}

/**
 * @returns the cell that compares the policies: how many times as good, or how many times as much if the row does not
 * say what is good
 */
function ratioOf(
  subjects: readonly SubjectName[],
  median: (subject: SubjectName) => number | null,
  row?: Row,
): string[] {
  if (!isComparison(subjects)) return [];
  const [value, other] = [median('leases'), median('ttl')];
  if (value === null || other === null || other === 0) return ['–'];
  return [figureText(row === undefined ? value / other : betterTimes(row, value, other))];
}

/** CPU per gigabyte if bytes count, then CPU by process and requests, per operation. */
function costRowsOf(each: Measured, subjects: readonly SubjectName[]): string[][] {
  const { bytes } = each;
  const rowOfCosts = (title: string, costIn: (cost: Cost, operations: number) => number | null): string[] => {
    const median = (subject: SubjectName): number | null => {
      const figure = each.figures.find((one) => one.subject === subject);
      const values =
        figure?.costs.map((cost, run) => costIn(cost, figure.operations[run] ?? Number.NaN)) ?? [];
      const known = values.filter((value) => value !== null);
      return known.length === 0 ? null : summarize(known).median;
    };
    const cells = subjects.map((subject) => {
      const value = median(subject);
      return value === null ? '–' : figureText(value);
    });
    return [title, ...cells, ...ratioOf(subjects, median)];
  };
  const cpu = (title: string, isCounted: (name: string) => boolean): string[] =>
    rowOfCosts(title, ({ cpuMs }, operations) => {
      const counted = Object.entries(cpuMs).filter(([name]) => isCounted(name));
      return counted.length === 0 ? null : sum(Object.fromEntries(counted)) / operations;
    });
  const perGb =
    bytes === null ? [] : [rowOfCosts('… CPU, s/GB', ({ cpuMs }) => (sum(cpuMs) / 1000 / bytes) * GB)];
  return [
    ...perGb,
    cpu('… CPU, ms per operation', () => true),
    ...processesOf(each).map((process) => cpu(`… … ${process}`, (name) => name === process)),
    rowOfCosts('… requests per operation', ({ requests }, operations) =>
      requests === null ? null : sum(requests) / operations,
    ),
  ];
}

/** The mount first, then servers, the load last. */
function processesOf({ figures }: Measured): string[] {
  const names = figures.flatMap(({ costs }) => costs.flatMap(({ cpuMs }) => Object.keys(cpuMs)));
  return [...new Set(names.filter((name) => name !== PROGRAMS)), PROGRAMS];
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
    // Only subjects with the same guarantees are compared.
    if (!CLOSE_ROWS.includes(each.name)) continue;
    goal(each, 'kernel', 'gluster-waits', METADATA_TIMES);
    goal(each, 'flush-behind', 'gluster', METADATA_TIMES);
  }
  return goals;
}

/** @returns the value with three significant digits */
function figureText(value: number): string {
  return numberText(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
