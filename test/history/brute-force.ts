/** The definition of linearizability: tries all orders of all subsets. For histories of a handful of operations. */
import type { Operation } from './operation.ts';

export type StoreState = string | null | readonly string[];

export interface Performed {
  readonly state: StoreState;
  readonly output: unknown;
}

/**
 * @returns whether some order of all operations that certainly happened, and any of the others, explains all answers
 */
export function isLinearizable(operations: readonly Operation[]): boolean {
  const counted = operations.filter(({ status }) => status !== 'fail');
  return extend(counted, storeEmpty(counted[0]?.key ?? 'object/'));
}

function extend(left: readonly Operation[], state: StoreState): boolean {
  if (left.every(({ status }) => status !== 'ok')) return true;
  return left.some((operation, index) => {
    const isLate = left.some(
      ({ status, return: end }) => status === 'ok' && (end as number) < operation.call,
    );
    if (isLate) return false;
    const next = perform(operation, state);
    return isAnswer(operation, next.output) && extend(left.toSpliced(index, 1), next.state);
  });
}

function isAnswer({ op, status, output }: Operation, expected: unknown): boolean {
  if (status !== 'ok' || JSON.stringify(output) === JSON.stringify(expected)) return true;
  // The answer to a change may be null; that of a read or comparison is always there.
  return output === null && !['read', 'pread', 'size', 'cas', 'lookup'].includes(op);
}

/** @returns the state of a key with this name before the first operation */
export function storeEmpty(key: string): StoreState {
  return /^(list|directory)\//.test(key) ? [] : key.startsWith('file/') ? '' : null;
}

/** Executes one operation at a time, as a sequential store does. */
export function perform(operation: Operation, state: StoreState): Performed {
  const bytes = typeof state === 'string' ? state : '';
  const list = Array.isArray(state) ? (state as readonly string[]) : [];
  switch (operation.op) {
    case 'read':
      return { state, output: state };
    case 'write':
      return { state: operation.input, output: { former: state } };
    case 'delete':
      return { state: null, output: { former: state } };
    case 'cas': {
      const did = state === operation.input.expect;
      return { state: did ? operation.input.value : state, output: did };
    }
    case 'append':
      return { state: [...list, operation.input], output: list.length };
    case 'fappend':
      return { state: bytes + operation.input.data, output: bytes.length };
    case 'pwrite': {
      const changed = [...bytes];
      while (changed.length < operation.input.off) changed.push('\0');
      changed.splice(operation.input.off, operation.input.data.length, ...operation.input.data);
      return { state: changed.join(''), output: changed.length };
    }
    case 'truncate': {
      const { size } = operation.input;
      const changed = [...bytes].slice(0, size);
      while (changed.length < size) changed.push('\0');
      return { state: changed.join(''), output: size };
    }
    case 'punch': {
      const { from, to, grows } = operation.input;
      const changed = [...bytes];
      while (grows && changed.length < to) changed.push('\0');
      for (let at = from; at < Math.min(to, changed.length); at++) changed[at] = '\0';
      return { state: changed.join(''), output: changed.length };
    }
    case 'pread':
      return {
        state,
        output: bytes.substring(operation.input.off, operation.input.off + operation.input.len),
      };
    case 'size':
      return { state, output: bytes.length };
    case 'lookup':
      return { state, output: fileAt(list, operation.input.name) };
    case 'create': {
      const { name, value } = operation.input;
      const isFree = fileAt(list, name) === null;
      return { state: isFree ? named(list, name, value) : state, output: isFree };
    }
    case 'replace':
      return { state: named(list, operation.input.name, operation.input.value), output: true };
    case 'unlink': {
      const { name } = operation.input;
      return { state: named(list, name, null), output: fileAt(list, name) !== null };
    }
    case 'rename': {
      const { from, to, noReplace = false } = operation.input;
      const value = fileAt(list, from);
      if (value === null || (noReplace && fileAt(list, to) !== null)) return { state, output: false };
      return { state: named(named(list, from, null), to, value), output: true };
    }
  }
}

/** A directory is a sorted list of `name=value`. @returns null if the name does not exist */
function fileAt(directory: readonly string[], name: string): string | null {
  return directory.find((entry) => entry.startsWith(`${name}=`))?.slice(name.length + 1) ?? null;
}

/** @returns the directory with `name` set to `value`; null removes the name */
function named(directory: readonly string[], name: string, value: string | null): readonly string[] {
  const others = directory.filter((entry) => !entry.startsWith(`${name}=`));
  return (value === null ? others : [...others, `${name}=${value}`]).sort();
}
