/** A TypeScript file, parsed as far as the architecture tests need it. */
export interface Source {
  /**
   * Everything but comments and the contents of string literals and regular expressions, which are replaced by blanks.
   */
  readonly code: string;
  /** The same with comments. */
  readonly codeAndComments: string;
  readonly imports: readonly Import[];
}

export interface Import {
  readonly specifier: string;
  readonly typeOnly: boolean;
}

type Kind = 'code' | 'comment' | 'text';

/** Words after which a slash begins a regular expression, not a division. */
const BEFORE_REGEX = /(?:^|[(,=:[!&|?{};+\-*%<>~^]|\b(?:return|typeof|case|of|in|yield|await))\s*$/;

const IMPORT =
  /\b(import|export)\b(\s+type\b)?[^;'"`()]*?\bfrom\s*(['"])(.*?)\3|\bimport\s*\(?\s*(['"])(.*?)\5/gs;

/** Splits a source into code, comments and string literals. Knows only as much of the grammar as this needs. */
function classify(source: string): Kind[] {
  const kinds: Kind[] = new Array(source.length).fill('code');
  /** For each open `${`, the number of open braces inside it. */
  const templates: number[] = [];
  let at = 0;
  let significant = '';
  const mark = (end: number, kind: Kind): void => {
    kinds.fill(kind, at, end);
    at = end;
  };
  const endOf = (pattern: RegExp, from: number): number => {
    pattern.lastIndex = from;
    const match = pattern.exec(source);
    return match === null ? source.length : match.index + match[0].length;
  };
  const template = (): void => {
    const end = endOf(/(?:[^\\`$]|\\[\s\S]|\$(?!\{))*(?:`|\$\{)/y, at);
    const opens = source.startsWith('${', end - 2);
    mark(end, 'text');
    if (opens) templates.push(0);
    significant = opens ? '(' : ')';
  };
  while (at < source.length) {
    const two = source.slice(at, at + 2);
    const one = source[at] as string;
    if (two === '//') mark(endOf(/$/gm, at), 'comment');
    else if (two === '/*') mark(endOf(/\*\//g, at + 2), 'comment');
    else if (one === "'" || one === '"') {
      mark(endOf(one === "'" ? /'(?:[^\\']|\\[\s\S])*'/y : /"(?:[^\\"]|\\[\s\S])*"/y, at), 'text');
      significant = ')';
    } else if (one === '`') {
      mark(at + 1, 'text');
      template();
    } else if (one === '}' && templates.at(-1) === 0) {
      templates.pop();
      mark(at + 1, 'text');
      template();
    } else if (one === '/' && BEFORE_REGEX.test(significant)) {
      mark(endOf(/\/(?:[^\\/[\n]|\\.|\[(?:[^\\\]\n]|\\.)*\])+\/[a-z]*/y, at), 'text');
      significant = ')';
    } else {
      const open = templates.length - 1;
      if (open >= 0 && one === '{') templates[open] = (templates[open] ?? 0) + 1;
      if (open >= 0 && one === '}') templates[open] = (templates[open] ?? 0) - 1;
      if (one.trim() !== '') significant = (significant + one).slice(-12);
      else if (/\w$/.test(significant)) significant += ' ';
      at += 1;
    }
  }
  return kinds;
}

function blank(source: string, kinds: readonly Kind[], ...hidden: Kind[]): string {
  return [...source.split('')]
    .map((character, index) =>
      character !== '\n' && hidden.includes(kinds[index] as Kind) ? ' ' : character,
    )
    .join('');
}

export function readSource(source: string): Source {
  const kinds = classify(source);
  const uncommented = blank(source, kinds, 'comment');
  const imports: Import[] = [];
  for (const match of uncommented.matchAll(IMPORT)) {
    // Words inside a string literal are no import.
    if (kinds[match.index] !== 'code') continue;
    const specifier = match[4] ?? match[6] ?? '';
    imports.push({ specifier, typeOnly: match[2] !== undefined });
  }
  return {
    code: blank(source, kinds, 'comment', 'text'),
    codeAndComments: blank(source, kinds, 'text'),
    imports,
  };
}

/** @returns the parameter lists of all constructors */
export function constructorParameters(code: string): string[] {
  const found: string[] = [];
  for (const match of code.matchAll(/\bconstructor\s*\(/g)) {
    const start = match.index + match[0].length;
    let depth = 1;
    let end = start;
    for (; end < code.length && depth > 0; end++) {
      if (code[end] === '(') depth += 1;
      if (code[end] === ')') depth -= 1;
    }
    found.push(code.slice(start, end - 1));
  }
  return found;
}
