/** A line of prose: of a comment, or of a document outside of blocks of code and tables. */
export interface ProseLine {
  /** Counted from 1. */
  readonly line: number;
  /** As it is in the file. */
  readonly source: string;
  /** Without code and addresses. */
  readonly text: string;
}

export interface Fault {
  readonly line: number;
  readonly what: string;
}

export const LINE_CHARS_MAX = 120;
export const SUBJECT_CHARS_MAX = 60;
export const GLOSSARY_ROWS_MAX = 40;

/**
 * Words that are not used, and the terms of the field that say the same. Each pattern matches whole words, in any case.
 */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/\bwhoever\b/i, 'the subject: the client, the caller, the primary, each server that …'],
  [/\b(?:some|any|no)body\b/i, 'the subject: another client, no server, the caller'],
  [/\b(?:un|new)?born\b|\bborne\b/i, 'created with contents, uncommitted, creating server'],
  [
    /\b(?:is|are|was|were|be|been) told\b(?! apart)|\btelling\b/i,
    'reports, notifies, returns; is notified, learns',
  ],
  [/\bunheard\b|\bwas heard\b|\bhas heard\b|\bis heard\b/i, 'received, learned'],
  [
    /\b(?:nobody|who|which server) leads\b|\bleads? a file\b|\bis led\b/i,
    'is primary, has a primary, without a primary',
  ],
  [/\bhappenings\b/i, 'event'],
  [/\bbelie(?:fs?|ved?)\b/i, 'cached, valid, assumed'],
  [/\bcom(?:es?|ing) back\b/i, 'restarts, reconnects, is available again'],
  [/\bgiv(?:es?|ing) up\b|\bgave up\b/i, 'aborts, releases, stops'],
  [/\bgoes on\b|\bgoing on\b/i, 'continues, is in progress'],
  [/\bin the turn\b/i, 'in the same tick of the event loop'],
  [/\bthere is (?:no )?room\b/i, 'there is (no) free space'],
];

/** A call that declares a test or a group of tests, with a title that is a literal. */
const TITLES = /\b(?:test|describe|it|suite|overTransports|overKernel)\(\s*(['"`])((?:(?!\1)[\s\S])*)\1/g;

/** @returns the comments of TypeScript or JavaScript: whole lines only */
export function commentLines(code: string): ProseLine[] {
  let isOpen = false;
  return code.split('\n').flatMap((source, index) => {
    const trimmed = source.trim();
    const isBegun = trimmed.startsWith('/*');
    const isComment = isOpen || isBegun || trimmed.startsWith('//');
    if (isOpen || isBegun) isOpen = !trimmed.includes('*/');
    return isComment ? [{ line: index + 1, source, text: withoutCode(trimmed) }] : [];
  });
}

/** @returns the titles of tests, where they are literals */
export function titleLines(code: string): ProseLine[] {
  return [...code.matchAll(TITLES)].map((found) => {
    // Without the source: a title is one literal, which may be longer than a line of prose.
    return {
      line: code.slice(0, found.index).split('\n').length,
      source: '',
      text: withoutCode(found[2] ?? ''),
    };
  });
}

/** @returns the prose of a Markdown document */
export function documentLines(text: string): ProseLine[] {
  let isBlock = false;
  return text.split('\n').flatMap((source, index) => {
    const isFence = source.trimStart().startsWith('```');
    if (isFence) isBlock = !isBlock;
    if (isFence || isBlock || source.startsWith('    ') || source.startsWith('<!--')) return [];
    return [{ line: index + 1, source, text: withoutCode(source) }];
  });
}

function withoutCode(text: string): string {
  return text
    .replaceAll(/`[^`]*`/g, '``')
    .replaceAll(/\]\([^)]*\)/g, ']()')
    .replaceAll(/https?:\S+/g, '');
}

/**
 * @returns words that are not used, and lines that are too long; a table's row, or a line that is mostly one address or
 * code, may be longer
 */
export function proseFaults(lines: readonly ProseLine[]): Fault[] {
  return lines.flatMap(({ line, source, text }) => {
    const faults = WORDS.flatMap(([word, instead]) => {
      const found = word.exec(text);
      return found === null ? [] : [{ line, what: `"${found[0]}": write ${instead}` }];
    });
    const isTable = source.trimStart().startsWith('|');
    // A table's row, an address and a command cannot be wrapped.
    if (!isTable && source.length > LINE_CHARS_MAX && text.length > LINE_CHARS_MAX / 2)
      faults.push({ line, what: `${source.length} characters: at most ${LINE_CHARS_MAX}` });
    return faults;
  });
}

/**
 * @param subjects of commits
 * @returns those that are too long, or do not begin with an area
 */
export function subjectFaults(subjects: readonly string[]): string[] {
  return subjects.flatMap((subject) => {
    if (subject.length > SUBJECT_CHARS_MAX) return [`"${subject}": at most ${SUBJECT_CHARS_MAX} characters`];
    return /^[a-z][\w ,./-]*: \S/.test(subject) ? [] : [`"${subject}": begin with the area: "fuse: fence …"`];
  });
}

/**
 * @param glossary a document with a table of words
 * @param text all code and documents, except for the glossary
 * @returns words that have two rows, or that no text uses; and a fault if there are too many
 */
export function glossaryFaults(glossary: string, text: string): string[] {
  const rows = glossary.split('\n').filter((line) => /^\| (?!word |---)/.test(line));
  const words = rows.map((row) => /^\| ([^|]+) \|/.exec(row)?.[1]?.trim() ?? '');
  const used = text.toLowerCase();
  const forms = (word: string): string[] =>
    word
      .split(/[,;/]| or /)
      .map((form) =>
        form
          .replaceAll(/[`*]|\(.*?\)/g, '')
          .trim()
          .toLowerCase(),
      )
      .filter((form) => form !== '');
  return [
    ...(words.length > GLOSSARY_ROWS_MAX ? [`${words.length} rows: at most ${GLOSSARY_ROWS_MAX}`] : []),
    ...words.filter((word, place) => words.indexOf(word) < place).map((word) => `"${word}" has two rows`),
    ...words
      .filter((word) => !forms(word).some((form) => used.includes(form)))
      .map((word) => `"${word}" is not used`),
  ];
}
