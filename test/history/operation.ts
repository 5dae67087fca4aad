/** An operation of a client, as one line of a history has it. `docs/history-format.md` describes the format. */

/**
 * Who answered a read: the primary that was asked, a backup from its own state, or a server that asked the primary.
 */
export type Served = 'primary' | 'local' | 'redirected';

/** `unknown`: it may take effect at any time after its call, or never. `fail`: it certainly had no effect. */
export type Status = 'ok' | 'unknown' | 'fail';

interface Common {
  readonly client: string;
  /** The key of the operation. The part before the first slash is its kind; see `keyModel`. */
  readonly key: string;
  /** Nanoseconds of a monotonic clock, right before the request was first sent. */
  readonly call: number;
  /** The same clock, right after the answer; null if there was none. */
  readonly return: number | null;
  readonly status: Status;
  /** Of reads: the server that was asked and gave the answer. */
  readonly server?: string;
  readonly how?: Served;
}

/** The value before a change, if the answer has it. */
export interface Former {
  readonly former: string | null;
}

/** Inputs and outputs by `op`. Outputs count only if the status is `ok`; null if the answer had none. */
export type Operation = Common &
  (
    | { readonly op: 'read'; readonly input: null; readonly output: string | null | readonly string[] }
    | { readonly op: 'write'; readonly input: string; readonly output: Former | null }
    | {
        readonly op: 'cas';
        readonly input: { readonly expect: string | null; readonly value: string };
        readonly output: boolean | null;
      }
    | { readonly op: 'delete'; readonly input: null; readonly output: Former | null }
    | { readonly op: 'append'; readonly input: string; readonly output: number | null }
    | {
        readonly op: 'pwrite';
        readonly input: { readonly off: number; readonly data: string };
        readonly output: number | null;
      }
    | {
        readonly op: 'pread';
        readonly input: { readonly off: number; readonly len: number };
        readonly output: string | null;
      }
    | { readonly op: 'fappend'; readonly input: { readonly data: string }; readonly output: number | null }
    | {
        readonly op: 'truncate';
        readonly input: { readonly size: number };
        readonly output: number | null;
      }
    | {
        readonly op: 'punch';
        readonly input: { readonly from: number; readonly to: number; readonly grows: boolean };
        readonly output: number | null;
      }
    | { readonly op: 'size'; readonly input: null; readonly output: number | null }
    | {
        readonly op: 'lookup';
        readonly input: { readonly name: string };
        readonly output: string | null;
      }
    | {
        readonly op: 'create' | 'replace';
        readonly input: { readonly name: string; readonly value: string };
        readonly output: boolean | null;
      }
    | { readonly op: 'unlink'; readonly input: { readonly name: string }; readonly output: boolean | null }
    | {
        readonly op: 'rename';
        readonly input: { readonly from: string; readonly to: string; readonly noReplace?: boolean };
        readonly output: boolean | null;
      }
  );

export type OperationKind = Operation['op'];

export const READS: ReadonlySet<OperationKind> = new Set(['read', 'pread', 'size', 'lookup']);

/** A line that is no operation, or operations that are no history. */
export class HistoryError extends Error {
  override readonly name = 'HistoryError';
}

/** Operations by the model of their keys. */
const KINDS: Readonly<Record<'register' | 'list' | 'file' | 'directory', readonly OperationKind[]>> = {
  register: ['read', 'write', 'cas', 'delete'],
  list: ['read', 'append'],
  file: ['pwrite', 'pread', 'fappend', 'truncate', 'punch', 'size'],
  directory: ['lookup', 'create', 'replace', 'unlink', 'rename'],
};

const MODELS: Readonly<Record<string, keyof typeof KINDS>> = {
  object: 'register',
  entry: 'register',
  list: 'list',
  file: 'file',
  directory: 'directory',
};

/** @returns the sequential model of a key @throws HistoryError if its prefix names none */
export function keyModel(key: string): keyof typeof KINDS {
  const [prefix = ''] = key.split('/', 1);
  const model = Object.hasOwn(MODELS, prefix) ? MODELS[prefix] : undefined;
  if (model === undefined) {
    throw new HistoryError(
      `The key "${key}" begins with none of ${Object.keys(MODELS).join('/, ')}/: what it is cannot be told`,
    );
  }
  return model;
}

/** @returns one line, without its end */
export function operationFormat(operation: Operation): string {
  const { client, op, key, call, return: end, status, input, output, server, how } = operation;
  return JSON.stringify({ client, op, key, call, return: end, status, input, output, server, how });
}

/**
 * @param line one line of a history
 * @throws HistoryError that describes the mistake
 */
export function operationParse(line: string): Operation {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new HistoryError('It is not JSON', { cause });
  }
  if (!isObject(value)) throw new HistoryError('It is no object');
  const { client, op, key, call, status, output } = value;
  const end = value.return;
  if (typeof client !== 'string') throw new HistoryError('"client" is no text');
  if (typeof key !== 'string') throw new HistoryError('"key" is no text');
  if (!KINDS[keyModel(key)].includes(op as OperationKind)) {
    throw new HistoryError(`"${String(op)}" is nothing that can be done to "${key}"`);
  }
  if (!Number.isSafeInteger(call)) throw new HistoryError('"call" is no integer');
  if (status !== 'ok' && status !== 'unknown' && status !== 'fail') {
    throw new HistoryError(`The status "${String(status)}" is none of ok, unknown, fail`);
  }
  if (end !== null && !(Number.isSafeInteger(end) && (end as number) >= (call as number))) {
    throw new HistoryError('"return" is neither null nor an integer that is not before "call"');
  }
  if (status === 'ok' && end === null) throw new HistoryError('An operation that is ok has returned');
  if (!isInput(op as OperationKind, value.input)) throw new HistoryError(`"input" does not fit a ${op}`);
  if (status === 'ok' && !isOutput(keyModel(key), op as OperationKind, output)) {
    throw new HistoryError(`"output" does not fit a ${op}`);
  }
  // Each field has been checked above.
  return value as unknown as Operation;
}

/**
 * @param text lines, the last perhaps without an end; empty ones are skipped
 * @throws HistoryError that names the line
 */
export function historyParse(text: string): Operation[] {
  return text.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    try {
      return [operationParse(line)];
    } catch (error) {
      if (!(error instanceof HistoryError)) throw error;
      throw new HistoryError(`Line ${index + 1}: ${error.message}`, { cause: error });
    }
  });
}

function isInput(op: OperationKind, input: unknown): boolean {
  switch (op) {
    case 'read':
    case 'delete':
    case 'size':
      return input === null;
    case 'write':
    case 'append':
      return typeof input === 'string';
    case 'cas':
      return isObject(input) && isValue(input.expect) && typeof input.value === 'string';
    case 'pwrite':
      return isObject(input) && isCount(input.off) && typeof input.data === 'string';
    case 'pread':
      return isObject(input) && isCount(input.off) && isCount(input.len);
    case 'fappend':
      return isObject(input) && typeof input.data === 'string';
    case 'truncate':
      return isObject(input) && isCount(input.size);
    case 'punch':
      return isObject(input) && isCount(input.from) && isCount(input.to) && typeof input.grows === 'boolean';
    case 'lookup':
    case 'unlink':
      return isObject(input) && typeof input.name === 'string';
    case 'create':
    case 'replace':
      return isObject(input) && typeof input.name === 'string' && typeof input.value === 'string';
    case 'rename':
      return isObject(input) && typeof input.from === 'string' && typeof input.to === 'string';
  }
}

function isOutput(model: keyof typeof KINDS, op: OperationKind, output: unknown): boolean {
  switch (op) {
    case 'read':
      return model === 'list'
        ? Array.isArray(output) && output.every((one) => typeof one === 'string')
        : isValue(output);
    case 'write':
    case 'delete':
      return output === null || (isObject(output) && isValue(output.former));
    case 'cas':
      return typeof output === 'boolean';
    case 'pread':
      return typeof output === 'string';
    case 'size':
      return isCount(output);
    case 'append':
    case 'pwrite':
    case 'fappend':
    case 'truncate':
    case 'punch':
      return output === null || isCount(output);
    case 'lookup':
      return isValue(output);
    case 'create':
    case 'replace':
    case 'unlink':
    case 'rename':
      return typeof output === 'boolean';
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isValue(value: unknown): value is string | null {
  return value === null || typeof value === 'string';
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
