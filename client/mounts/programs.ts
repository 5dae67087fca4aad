import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { isSystemError } from '../terminal/failure.ts';

/** The program that starts servers and mounts, since `client/` imports neither. */
export const LAUNCHER = fileURLToPath(new URL('../../bin/leasehold.js', import.meta.url));

export function programVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { readonly version: string }).version;
}

const TAIL_LINES = 3;
const CAUSE_LINES = 30;

/** @returns the last lines of a log, for the end of a message; empty if there are none */
export async function logTail(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (isSystemError(error) && error.code === 'ENOENT') return '';
    throw error;
  });
  const lines = text.trimEnd().split('\n').slice(-CAUSE_LINES);
  // A refusal or the head of a stack names the cause; else the newest lines must do.
  const cause = lines.findLast((line) => /^(leasehold: |[A-Za-z]*Error\b.*:)/.test(line));
  const tail = (cause === undefined ? lines.slice(-TAIL_LINES) : [cause]).map(readableLine).join('\n  ');
  return tail === '' ? '' : `; the end of its log:\n  ${tail}`;
}

function readableLine(line: string): string {
  try {
    const entry = JSON.parse(line) as {
      readonly msg?: unknown;
      readonly err?: { readonly message?: unknown };
    };
    const error = entry.err?.message === undefined ? '' : `: ${String(entry.err.message)}`;
    return typeof entry.msg === 'string' ? entry.msg + error : line;
  } catch (error) {
    if (error instanceof SyntaxError) return line;
    throw error;
  }
}
