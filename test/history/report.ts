/** Verdicts as text. */
import type { HistoryVerdict, Violation } from './checker.ts';
import type { Operation } from './operation.ts';

const VALUE_CHARACTERS_MAX = 100;

export function verdictText(verdict: HistoryVerdict): string {
  const { operations, keys, violations, undecided } = verdict;
  const lines = [`${operations} operations on ${keys} keys`];
  for (const violation of violations) lines.push(violationText(violation));
  for (const key of undecided) lines.push(`${key}: undecided, the search became too long`);
  const isGood = violations.length === 0 && undecided.length === 0;
  lines.push(isGood ? 'linearizable' : violations.length > 0 ? 'NOT linearizable' : 'undecided');
  return lines.join('\n');
}

/** Where and why one key's history is wrong; times are relative to the call of the failed operation. */
export function violationText({ key, failed, window, before }: Violation): string {
  const lines = [
    `${key} is not linearizable: nothing explains the answer to the operation marked *`,
    `  called at ${failed.call} ns; the state was then ${before.map(withoutZeros).join(' or ')}`,
  ];
  for (const operation of window) {
    lines.push(`  ${operation === failed ? '*' : ' '} ${operationText(operation, failed.call)}`);
  }
  return lines.join('\n');
}

function operationText(operation: Operation, zeroNs: number): string {
  const { client, op, status, input, output, server, how } = operation;
  const ms = (ns: number | null): string =>
    ns === null ? '…' : `${(ns - zeroNs) / 1e6 < 0 ? '' : '+'}${((ns - zeroNs) / 1e6).toFixed(3)}`;
  const times = `[${ms(operation.call)} ms, ${ms(operation.return)} ms]`;
  const place = server === undefined ? '' : ` by ${server} (${how})`;
  return `${times} ${client}: ${op}(${shorten(input)}) → ${status === 'ok' ? shorten(output) : status}${place}`;
}

function shorten(value: unknown): string {
  if (value === null || value === undefined) return '';
  const text = withoutZeros(JSON.stringify(value));
  // The end of a list says more than its beginning.
  return text.length <= VALUE_CHARACTERS_MAX ? text : `…${text.slice(-VALUE_CHARACTERS_MAX)}`;
}

/** Replaces runs of zeros by their length. */
function withoutZeros(text: string): string {
  return text.replaceAll(/(?:\\u0000){4,}/g, (zeros) => `<${zeros.length / '\\u0000'.length} zeros>`);
}
