/**
 * Small histories as text, for tests: a line for each operation, its two times and then the operation.
 *
 *     1 2 a write x
 *     3 4 b read -> x
 *     3 ? c append y            unknown
 *     3 ! c append y            failed
 *
 * Values are words; `-` is none, `[x y]` a list, `~` in bytes a zero.
 */
import type { Operation } from './operation.ts';

export function historyOf(key: string, text: string): Operation[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .map((line) => operationOf(key, line));
}

function operationOf(key: string, line: string): Operation {
  const [left = '', answer = null] = line.split(' -> ');
  const [call = '', end = '', client = '', op = '', ...rest] = left.trim().split(/\s+/);
  const status = end === '?' ? 'unknown' : end === '!' ? 'fail' : 'ok';
  const common = { client, key, call: Number(call), return: status === 'ok' ? Number(end) : null, status };
  const [first = '', second = ''] = rest;
  const fact = { ...common, op, input: inputOf(op, first, second), output: outputOf(op, answer) };
  // A wrong line fails the test that has it.
  return fact as Operation;
}

const word = (text: string): string | null => (text === '-' ? null : text);
const bytes = (text: string): string => text.replaceAll('~', '\0');

function inputOf(op: string, first: string, second: string): unknown {
  switch (op) {
    case 'write':
    case 'append':
      return first;
    case 'cas':
      return { expect: word(first), value: second };
    case 'pwrite':
      return { off: Number(first), data: bytes(second) };
    case 'pread':
      return { off: Number(first), len: Number(second) };
    case 'fappend':
      return { data: bytes(first) };
    case 'truncate':
      return { size: Number(first) };
    case 'punch':
      return { from: Number(first), to: Number(second), grows: false };
    case 'lookup':
    case 'unlink':
      return { name: first };
    case 'create':
    case 'replace':
      return { name: first, value: second };
    case 'rename':
      return { from: first, to: second };
    default:
      return null;
  }
}

function outputOf(op: string, answer: string | null): unknown {
  if (answer === null) return null;
  switch (op) {
    case 'read':
      return answer.startsWith('[') ? answer.slice(1, -1).split(' ').filter(Boolean) : word(answer);
    case 'write':
    case 'delete':
      return { former: word(answer) };
    case 'cas':
    case 'create':
    case 'replace':
    case 'unlink':
    case 'rename':
      return answer === 'true';
    case 'lookup':
      return word(answer);
    case 'pread':
      return bytes(answer === '-' ? '' : answer);
    default:
      return Number(answer);
  }
}
