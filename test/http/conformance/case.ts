import assert from 'node:assert/strict';
import type { ErrorCode } from '../../../base/errors.ts';
import { type Answer, ask, problemIn } from '../ask.ts';

/**
 * One request and its expected answer. `{name}` in a path or a header is what an earlier case of the group has stored
 * under that name.
 */
export interface Case {
  readonly method: string;
  /** Below `/v1/files/main/`, unless it begins with a slash. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly status: number;
  /** Of the problem document. */
  readonly code?: ErrorCode;
  /** Headers of the answer; null: not there. */
  readonly has?: Readonly<Record<string, string | RegExp | null>>;
  readonly text?: string | RegExp;
  /** Stores headers of the answer, under these names. */
  readonly keep?: Readonly<Record<string, string>>;
}

export interface Group {
  readonly name: string;
  readonly cases: readonly Case[];
}

export type Kept = Map<string, string>;

/** @returns the text with each `{name}` replaced */
function filled(text: string, kept: Kept): string {
  return text.replace(/\{([a-z][A-Za-z0-9]*)\}/g, (_, name: string) => {
    const value = kept.get(name);
    assert.ok(value !== undefined, `Nothing was stored as "${name}"`);
    return value;
  });
}

/**
 * Asks a server, and compares the answer with the case.
 * @returns the codes of problems in the answers
 */
export async function play(base: string, row: Case, kept: Kept): Promise<ErrorCode | null> {
  const named = filled(row.path, kept);
  const path = named.startsWith('/') ? named : `/v1/files/main/${named}`;
  const headers = Object.fromEntries(
    Object.entries(row.headers ?? {}).map(([name, value]) => [name, filled(value, kept)]),
  );
  const answer = await ask(base, row.method, path, {
    headers,
    ...(row.body === undefined ? {} : { body: row.body }),
  });
  compare(row, answer, kept);
  for (const [name, header] of Object.entries(row.keep ?? {})) {
    const value = answer.headers[header];
    assert.ok(typeof value === 'string', `The answer has ${header}`);
    kept.set(name, value);
  }
  return row.code ?? null;
}

function compare(row: Case, answer: Answer, kept: Kept): void {
  assert.equal(answer.status, row.status, answer.text.slice(0, 500));
  if (row.code !== undefined) {
    assert.equal(answer.headers['content-type'], 'application/problem+json');
    const problem = problemIn(answer);
    assert.equal(problem.code, row.code);
    assert.equal(problem.type, `urn:leasehold:problem:${row.code}`);
    assert.equal(problem.status, row.status);
    assert.ok(problem.detail.length > 10 && problem.title.length > 5, 'A problem says what is wrong');
  } else if (row.method !== 'HEAD') assert.ok(row.status < 400, 'A refusal has a code');
  for (const [name, wanted] of Object.entries(row.has ?? {})) {
    const found = answer.headers[name];
    if (wanted === null) assert.equal(found, undefined, name);
    else if (typeof wanted === 'string') assert.equal(String(found), filled(wanted, kept), name);
    else assert.match(String(found), wanted, name);
  }
  if (typeof row.text === 'string') assert.equal(answer.text, row.text);
  else if (row.text !== undefined) assert.match(answer.text, row.text);
}

/** How an error message names a case. */
export function titleOf({ method, path, headers = {} }: Case): string {
  const said = Object.entries(headers).map(([name, value]) => `${name}: ${value.slice(0, 60)}`);
  return [`${method} ${path.slice(0, 60)}`, ...said].join(', ');
}
