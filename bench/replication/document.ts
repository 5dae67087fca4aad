import type { Goal, Report, Table } from '../lease/report.ts';

/** One section of the benchmark in a document. */
export interface Chapter {
  readonly name: string;
  readonly title: string;
  readonly report: Report;
}

/**
 * Puts chapters into a document: replaces those that it has, keeps those that were not measured.
 *
 * @param text of the document; without a place for the chapters, one is created at its end
 * @param machine the machine of the measurement, in one line
 * @param program the name of its npm script: each program has a place of its own in the document
 */
export function documentWith(
  text: string,
  machine: string,
  chapters: readonly Chapter[],
  program = 'bench:replication',
): string {
  const [beginMark, endMark] = [
    `<!-- written by npm run ${program} -->`,
    `<!-- end of what npm run ${program} wrote -->`,
  ];
  const begin = text.indexOf(beginMark);
  const end = text.indexOf(endMark);
  if (begin < 0 !== end < 0 || end < begin) throw new Error('The marks of what is written are not in order');
  const before = begin < 0 ? `${text.trimEnd()}\n\n` : text.slice(0, begin);
  const behind = begin < 0 ? '\n' : text.slice(end + endMark.length);
  const there = begin < 0 ? new Map<string, string>() : chaptersIn(text.slice(begin + beginMark.length, end));
  for (const chapter of chapters) there.set(chapter.title, chapterText(chapter, machine, program));
  return `${before}${beginMark}\n\n${[...there.values()].join('\n')}\n${endMark}${behind}`;
}

/** @returns chapters by their titles, which begin with three number signs */
function chaptersIn(text: string): Map<string, string> {
  const chapters = new Map<string, string>();
  for (const part of text.split(/^(?=### )/m)) {
    const title = /^### (.*)$/m.exec(part)?.[1];
    if (title !== undefined) chapters.set(title, `${part.trim()}\n`);
  }
  return chapters;
}

function chapterText({ name, title, report }: Chapter, machine: string, program: string): string {
  const section = name === '' ? '' : ` -- ${name}`;
  const parts = [`### ${title}`, `\`npm run ${program}${section}\` on ${machine}.`];
  parts.push(tableMarkdown(report.table));
  if (report.notes.length > 0) parts.push(report.notes.join('\n'));
  if (report.goals.length > 0) parts.push(report.goals.map(goalMarkdown).join('\n'));
  return `${parts.join('\n\n')}\n`;
}

function goalMarkdown({ what, wanted, measured, met }: Goal): string {
  return `- ${met ? 'met' : '**not met**'}: ${what}: wanted ${wanted}, measured ${measured}`;
}

/** Numbers to the right, all but the first column. */
function tableMarkdown({ columns, rows }: Table): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = columns.map((_, place) => (place === 0 ? '---' : '---:'));
  return [line(columns), line(rule), ...rows.map(line)].join('\n');
}
