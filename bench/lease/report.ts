import type { Chart } from './chart.ts';

/** A goal, and whether this run reached it. */
export interface Goal {
  readonly what: string;
  readonly wanted: string;
  readonly measured: string;
  readonly met: boolean;
}

export interface Table {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export interface Figure {
  /** The name of the file, without its extension. */
  readonly name: string;
  readonly chart: Chart;
}

/** The results of a section. */
export interface Report {
  readonly table: Table;
  readonly goals: readonly Goal[];
  /** Full sentences that a reader of the figures needs. */
  readonly notes: readonly string[];
  readonly figures: readonly Figure[];
  /** All single values, for further computation. */
  readonly data: unknown;
}

/** @returns a table as text: the first column to the left, numbers to the right */
export function tableText({ columns, rows }: Table): string {
  const widths = columns.map((column, place) =>
    Math.max(column.length, ...rows.map((row) => (row[place] ?? '').length)),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, place) => (place === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[place] ?? 0)))
      .join('  ')
      .trimEnd();
  return [line(columns), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n');
}

export function goalText(goal: Goal): string {
  return `${goal.met ? 'met    ' : 'NOT MET'}  ${goal.what}: wanted ${goal.wanted}, measured ${goal.measured}`;
}

/** @returns a report as text, without its title */
export function reportText(report: Report): string {
  const parts = [tableText(report.table)];
  if (report.notes.length > 0) parts.push(report.notes.join('\n'));
  if (report.goals.length > 0) parts.push(report.goals.map(goalText).join('\n'));
  return parts.join('\n\n');
}
