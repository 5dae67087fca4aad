/** Prints a run as a story: operations, faults and what was read, with virtual times. */
import { type Operation, READS } from '../../history/operation.ts';
import type { RunReport } from './cluster-run.ts';

/** The number of operations in a story if no violation names a file or a directory. */
const LAST_OPERATIONS = 40;

type Sentence = (input: never, output: never) => string;

const quoted = (value: unknown): string => withoutZeros(JSON.stringify(value));
const ZEROS_MIN = 4;

/** @returns the text with runs of zero bytes replaced by their length */
export function withoutZeros(text: string): string {
  return text.replaceAll(/(?:\\u0000)+/g, (zeros) => {
    const count = zeros.length / '\\u0000'.length;
    return count < ZEROS_MIN ? zeros : `{${count} zeros}`;
  });
}

/** The text of each kind of operation on its key; the output is null if the outcome is unknown. */
const SENTENCES: Readonly<Partial<Record<Operation['op'], Sentence>>> = {
  pread: ({ off, len }: { off: number; len: number }) => `reads ${len} bytes at ${off}`,
  size: () => 'asks for the size',
  pwrite: ({ off, data }: { off: number; data: string }) => `writes ${quoted(data)} at ${off}`,
  fappend: ({ data }: { data: string }) => `appends ${quoted(data)}`,
  truncate: ({ size }: { size: number }) => `truncates to ${size} bytes`,
  lookup: ({ name }: { name: string }) => `looks up ${name}`,
  create: ({ name, value }: { name: string; value: string }) => `creates ${name} as ${value}`,
  unlink: ({ name }: { name: string }) => `unlinks ${name}`,
  rename: ({ from, to, noReplace }: { from: string; to: string; noReplace?: boolean }) =>
    `renames ${from} to ${to}${noReplace === true ? ', which must be free' : ''}`,
};

/** @returns one sentence */
export function operationText({ client, op, key, input, output, status, return: end }: Operation): string {
  const does = SENTENCES[op]?.(input as never, output as never) ?? `${op} ${quoted(input)}`;
  const outcome =
    status === 'unknown' || end === null
      ? 'and does not learn the outcome'
      : `until ${seconds(end / 1e6)}: ${outputText(op, output)}`;
  return `${client} ${does} (${key}), ${outcome}`;
}

function outputText(op: Operation['op'], output: Operation['output']): string {
  if (output !== null) return quoted(output);
  return READS.has(op) ? 'nothing' : 'done';
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(3)} s`;

/** @returns the story of a run that violates a rule, in order of virtual time */
export function storyOf(report: RunReport): string {
  const { history, incidents, violations, beganMs, servers } = report;
  const keys = new Set(
    history.map(({ key }) => key).filter((key) => violations.some((text) => text.includes(key))),
  );
  const told = keys.size > 0 ? history.filter(({ key }) => keys.has(key)) : history.slice(-LAST_OPERATIONS);
  const lines = [
    ...incidents.map(({ atMs, text }) => ({ atMs, text })),
    ...told.map((operation) => ({ atMs: operation.call / 1e6, text: operationText(operation) })),
  ].sort((a, b) => a.atMs - b.atMs);
  const head = `${servers} servers run; programs begin at ${seconds(beganMs)}.`;
  return [
    head,
    ...lines.map(({ atMs, text }) => `${seconds(atMs).padStart(12)}  ${withoutZeros(text)}`),
  ].join('\n');
}
