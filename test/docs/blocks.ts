/**
 * The blocks of code of a document for users, and how each of them is tested. A comment that readers do not see may
 * precede a block:
 *
 * - `<!-- background until: TEXT -->`: it runs until the end of the document, and is ready once it has printed TEXT,
 * - `<!-- after Ctrl-C -->`: first the block in the background is ended, as the document tells the reader,
 * - `<!-- exit code N -->`: it ends with N and not with 0,
 * - `<!-- run by FILE -->`: that file of the project contains each of its lines,
 * - `<!-- run by FILE; here from WORD until: TEXT -->`: the same, and the part from WORD on runs in the background as
 *   above.
 *
 * All other blocks of the language `sh` are run, and one of the language `text` is what the block before it prints,
 * except for numbers and spaces; `…` is the rest of a line, or any lines.
 */
export type Proof =
  | { readonly kind: 'run'; readonly exitCode: number; readonly afterStop: boolean }
  | { readonly kind: 'background'; readonly until: string; readonly runBy?: { file: string; from: string } }
  | { readonly kind: 'run-by'; readonly file: string }
  | { readonly kind: 'output' };

export interface Block {
  /** Number of the line in the document that opens it, from 1. */
  readonly line: number;
  readonly code: string;
  readonly proof: Proof;
}

/** @throws Error if nothing says how a block is tested */
export function blocksOf(document: string): Block[] {
  const lines = document.split('\n');
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length; at++) {
    const opened = /^( *)```(\w*)$/.exec(lines[at] ?? '');
    if (opened === null) continue;
    const [, indent = '', language = ''] = opened;
    const end = lines.indexOf(`${indent}\`\`\``, at + 1);
    if (end < 0) throw new Error(`The block in line ${at + 1} has no end`);
    const code = lines.slice(at + 1, end).map((line) => line.slice(indent.length));
    const said = /^ *<!-- (.*) -->$/.exec(lines[at - 1] ?? '')?.[1] ?? '';
    blocks.push({ line: at + 1, code: code.join('\n'), proof: proofOf(language, said, at + 1) });
    at = end;
  }
  return blocks;
}

function proofOf(language: string, said: string, line: number): Proof {
  const [, part = '', from = '', printed = ''] =
    /^run by (\S+); here from (\S+) until: (.+)$/.exec(said) ?? [];
  if (part !== '') return { kind: 'background', until: printed, runBy: { file: part, from } };
  const runBy = /^run by (\S+)$/.exec(said)?.[1];
  if (runBy !== undefined) return { kind: 'run-by', file: runBy };
  if (language === 'text' && said === '') return { kind: 'output' };
  if (language !== 'sh') throw new Error(`No test runs the block in line ${line}`);
  const until = /^background until: (.+)$/.exec(said)?.[1];
  if (until !== undefined) return { kind: 'background', until };
  const exitCode = /^exit code (\d+)$/.exec(said)?.[1];
  const afterStop = said === 'after Ctrl-C';
  if (said !== '' && exitCode === undefined && !afterStop) throw new Error(`Line ${line} says: ${said}`);
  return { kind: 'run', exitCode: Number(exitCode ?? 0), afterStop };
}

/** @returns the first line of `shown` that is not in `printed`, in the same order; null if all are */
export function notPrinted(shown: string, printed: string): string | null {
  const rest = printed.split('\n').map(plain);
  for (const line of shown.split('\n')) {
    const [start = '', cut] = plain(line).split('…');
    if (start === '' && cut !== undefined) continue;
    const at = rest.findIndex((other) => (cut === undefined ? other === start : other.startsWith(start)));
    if (at < 0) return line;
    rest.splice(0, at + 1);
  }
  return null;
}

/** A line without what differs from run to run: numbers, their units, widths of columns. */
function plain(line: string): string {
  return line
    .replace(/[\d.,]*\d/g, 'N')
    .replace(/\bN (h|min) N (min|s)\b/g, 'N s')
    .replace(/\bN (ms|s|B|KiB|MiB|GiB|TiB)\b/g, 'N')
    .replace(/\s+/g, ' ')
    .trim();
}
