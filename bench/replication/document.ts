import type { Goal, Report, Table } from '../lease/report.ts';

const BEGIN = '<!-- written by npm run bench:replication -->';
const END = '<!-- end of what npm run bench:replication wrote -->';

/** One section of the benchmark as a document has it. */
export interface Chapter {
  readonly name: string;
  readonly title: string;
  readonly report: Report;
}

/**
 * Puts chapters into a document: a chapter that is there already is replaced, those that were not measured stay.
 *
 * @param text of the document; where it has no place for them yet, one is made at its end
 * @param machine what was measured on, in one line
 */
export function documentWith(text: string, machine: string, chapters: readonly Chapter[]): string {
  const begin = text.indexOf(BEGIN);
  const end = text.indexOf(END);
  if (begin < 0 !== end < 0 || end < begin) throw new Error('The marks of what is written are not in order');
  const before = begin < 0 ? `${text.trimEnd()}\n\n` : text.slice(0, begin);
  const behind = begin < 0 ? '\n' : text.slice(end + END.length);
  const there = begin < 0 ? new Map<string, string>() : chaptersIn(text.slice(begin + BEGIN.length, end));
  for (const chapter of chapters) there.set(chapter.title, chapterText(chapter, machine));
  return `${before}${BEGIN}\n\n${[...there.values()].join('\n')}\n${END}${behind}`;
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

function chapterText({ name, title, report }: Chapter, machine: string): string {
  const parts = [`### ${title}`, `\`npm run bench:replication -- ${name}\` on ${machine}.`];
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
