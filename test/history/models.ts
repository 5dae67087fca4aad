/**
 * What one key does if its operations come one after the other. A state is represented by a number of its model; equal
 * states have equal numbers, so that configurations are compared cheaply.
 */
import { assert } from '../../base/assert.ts';
import { keyModel, type Operation } from './operation.ts';

/** The result of `apply` if the operation is not possible in this state. */
export const IMPOSSIBLE = -1;

export interface Model {
  readonly initial: number;
  /**
   * @returns the state after the operation, or `IMPOSSIBLE` if its output contradicts `state`, or if its outcome is
   * unknown and it would have no effect
   */
  apply(state: number, operation: Operation): number;
  /** Whether the operation, with its output, leaves each state unchanged. */
  observes(operation: Operation): boolean;
  /** Drops operations with an unknown outcome that cannot explain any answer. */
  relevant(operations: readonly Operation[]): readonly Operation[];
  /** A state in a few words. */
  describe(state: number): string;
}

/** @returns a model for one key, and for it alone: models number the states that they have had */
export function modelOf(key: string): Model {
  switch (keyModel(key)) {
    case 'register':
      return new RegisterModel();
    case 'list':
      return new ListModel();
    case 'file':
      return new FileModel();
    case 'directory':
      return new DirectoryModel();
  }
}

const isKnown = (operation: Operation): boolean => operation.status === 'ok';

/** One value or none: write, read, compare and set, delete. */
class RegisterModel implements Model {
  readonly #numbers = new Map<string | null, number>([[null, 0]]);
  readonly #values: (string | null)[] = [null];
  readonly initial = 0;

  #numberOf(value: string | null): number {
    const known = this.#numbers.get(value);
    if (known !== undefined) return known;
    const number = this.#values.push(value) - 1;
    this.#numbers.set(value, number);
    return number;
  }

  apply(state: number, operation: Operation): number {
    const value = this.#values[state] as string | null;
    const known = isKnown(operation);
    switch (operation.op) {
      case 'read':
        return operation.output === value ? state : IMPOSSIBLE;
      case 'write':
        if (known && operation.output !== null && operation.output.former !== value) return IMPOSSIBLE;
        return this.#numberOf(operation.input);
      case 'cas': {
        const matches = value === operation.input.expect;
        if (known && operation.output !== matches) return IMPOSSIBLE;
        if (matches) return this.#numberOf(operation.input.value);
        return known ? state : IMPOSSIBLE;
      }
      case 'delete':
        if (known && operation.output !== null && operation.output.former !== value) return IMPOSSIBLE;
        return !known && value === null ? IMPOSSIBLE : 0;
      default:
        return misplaced(operation);
    }
  }

  observes(operation: Operation): boolean {
    if (operation.op === 'read') return true;
    if (!isKnown(operation)) return false;
    if (operation.op === 'cas') return operation.output === false;
    return operation.op === 'delete' && operation.output?.former === null;
  }

  /** A value that no answer has, and that may never have been written, only explains why a comparison failed. */
  relevant(operations: readonly Operation[]): readonly Operation[] {
    if (operations.some(({ op, output }) => op === 'cas' && output === false)) return operations;
    const seen = new Set<unknown>();
    for (const operation of operations) {
      if (operation.op === 'cas') seen.add(operation.input.expect);
      else if (operation.op === 'read' && isKnown(operation)) seen.add(operation.output);
      else if (operation.op === 'write' || operation.op === 'delete') seen.add(operation.output?.former);
    }
    return operations.filter((operation) => {
      if (isKnown(operation)) return true;
      if (operation.op === 'write') return seen.has(operation.input);
      return operation.op !== 'cas' || seen.has(operation.input.value);
    });
  }

  describe(state: number): string {
    return JSON.stringify(this.#values[state]);
  }
}

interface ListNode {
  readonly number: number;
  readonly parent: ListNode | null;
  readonly value: string;
  readonly length: number;
  readonly next: Map<string, ListNode>;
}

/** A list of values. Lists with a common prefix share it, as branches of one tree. */
class ListModel implements Model {
  readonly #nodes: ListNode[] = [{ number: 0, parent: null, value: '', length: 0, next: new Map() }];
  readonly initial = 0;
  readonly #reads = new Map<Operation, number>();
  /** The longest list that a read returned. */
  #longest: ListNode = this.#nodes[0] as ListNode;
  readonly #beginnings = new Set<number>([0]);

  #child(parent: ListNode, value: string): ListNode {
    const known = parent.next.get(value);
    if (known !== undefined) return known;
    const child = { number: this.#nodes.length, parent, value, length: parent.length + 1, next: new Map() };
    this.#nodes.push(child);
    parent.next.set(value, child);
    return child;
  }

  apply(state: number, operation: Operation): number {
    const node = this.#nodes[state] as ListNode;
    switch (operation.op) {
      case 'read':
        return this.#stateRead(operation) === state ? state : IMPOSSIBLE;
      case 'append':
        if (isKnown(operation) && operation.output !== null && operation.output !== node.length) {
          return IMPOSSIBLE;
        }
        return this.#appended(node, operation.input);
      default:
        return misplaced(operation);
    }
  }

  /** A list that a read returned was complete at that time: before, only its prefixes are possible. */
  #appended(node: ListNode, value: string): number {
    const child = this.#child(node, value);
    const isBefore = child.length <= this.#longest.length;
    return isBefore && !this.#beginnings.has(child.number) ? IMPOSSIBLE : child.number;
  }

  #stateRead(operation: Operation): number {
    const known = this.#reads.get(operation);
    if (known !== undefined) return known;
    let node = this.#nodes[0] as ListNode;
    for (const value of operation.output as readonly string[]) node = this.#child(node, value);
    this.#reads.set(operation, node.number);
    return node.number;
  }

  observes(operation: Operation): boolean {
    return operation.op === 'read';
  }

  /**
   * A value in no list that a read returned can only come after all values of these lists. It explains nothing, unless
   * an append with a known position is in none of them either.
   */
  relevant(operations: readonly Operation[]): readonly Operation[] {
    const seen = new Set<string>();
    this.#longest = this.#nodes[0] as ListNode;
    for (const operation of operations) {
      if (operation.op !== 'read' || !isKnown(operation)) continue;
      for (const value of operation.output as readonly string[]) seen.add(value);
      const read = this.#nodes[this.#stateRead(operation)] as ListNode;
      if (read.length > this.#longest.length) this.#longest = read;
    }
    this.#beginnings.clear();
    for (let node: ListNode | null = this.#longest; node !== null; node = node.parent) {
      this.#beginnings.add(node.number);
    }
    const needed = operations.some(
      (operation) =>
        operation.op === 'append' &&
        isKnown(operation) &&
        operation.output !== null &&
        !seen.has(operation.input),
    );
    if (needed) return operations;
    return operations.filter(
      (operation) => isKnown(operation) || operation.op !== 'append' || seen.has(operation.input),
    );
  }

  describe(state: number): string {
    const values: string[] = [];
    for (let node = this.#nodes[state] as ListNode; node.parent !== null; node = node.parent) {
      values.unshift(node.value);
    }
    return `${values.length} values${values.length > 0 ? `, the last ${values.slice(-5).join(' ')}` : ''}`;
  }
}

/** Bytes with a size: holes are zeros, and so are bytes that a truncation removed once the file grows again. */
class FileModel implements Model {
  readonly #numbers = new Map<string, number>([['', 0]]);
  readonly #contents: string[] = [''];
  readonly initial = 0;

  #numberOf(contents: string): number {
    const known = this.#numbers.get(contents);
    if (known !== undefined) return known;
    const number = this.#contents.push(contents) - 1;
    this.#numbers.set(contents, number);
    return number;
  }

  apply(state: number, operation: Operation): number {
    const contents = this.#contents[state] as string;
    switch (operation.op) {
      case 'pread': {
        const { off, len } = operation.input;
        return contents.slice(off, off + len) === operation.output ? state : IMPOSSIBLE;
      }
      case 'size':
        return contents.length === operation.output ? state : IMPOSSIBLE;
      case 'pwrite': {
        const { off, data } = operation.input;
        const before = contents.slice(0, off).padEnd(off, '\0');
        return this.#resized(operation, before + data + contents.slice(off + data.length));
      }
      case 'fappend':
        if (isKnown(operation) && operation.output !== null && operation.output !== contents.length) {
          return IMPOSSIBLE;
        }
        return this.#numberOf(contents + operation.input.data);
      case 'truncate': {
        const { size } = operation.input;
        return this.#resized(operation, contents.slice(0, size).padEnd(size, '\0'));
      }
      case 'punch': {
        const { from, to, grows } = operation.input;
        const whole = grows ? contents.padEnd(to, '\0') : contents;
        const hole = '\0'.repeat(Math.max(0, Math.min(to, whole.length) - from));
        return this.#resized(operation, whole.slice(0, from) + hole + whole.slice(Math.max(from, to)));
      }
      default:
        return misplaced(operation);
    }
  }

  /** The answer to a change has the size after it. */
  #resized(operation: Operation, contents: string): number {
    if (isKnown(operation) && operation.output !== null && operation.output !== contents.length) {
      return IMPOSSIBLE;
    }
    return this.#numberOf(contents);
  }

  observes(operation: Operation): boolean {
    return operation.op === 'pread' || operation.op === 'size';
  }

  relevant(operations: readonly Operation[]): readonly Operation[] {
    return operations;
  }

  describe(state: number): string {
    const contents = this.#contents[state] as string;
    return `${contents.length} bytes ${JSON.stringify(contents)}`;
  }
}

/**
 * Names and their files: `link`, `open(O_CREAT | O_EXCL)`, `rename`, `unlink`, `stat` as in POSIX. A refusal
 * (`EEXIST`, `ENOENT`) is the output `false`. All names of a directory have one state, as a rename changes two of
 * them.
 */
class DirectoryModel implements Model {
  readonly #numbers = new Map<string, number>([['', 0]]);
  readonly #states: ReadonlyMap<string, string>[] = [new Map()];
  readonly initial = 0;

  #numberOf(names: ReadonlyMap<string, string>): number {
    const key = [...names]
      .map((entry) => entry.join('='))
      .sort()
      .join(' ');
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const number = this.#states.push(names) - 1;
    this.#numbers.set(key, number);
    return number;
  }

  apply(state: number, operation: Operation): number {
    const names = this.#states[state] as ReadonlyMap<string, string>;
    switch (operation.op) {
      case 'lookup':
        return operation.output === (names.get(operation.input.name) ?? null) ? state : IMPOSSIBLE;
      case 'create': {
        const { name, value } = operation.input;
        return this.#change(state, operation, !names.has(name), (changed) => changed.set(name, value));
      }
      case 'replace': {
        const { name, value } = operation.input;
        return this.#change(state, operation, true, (changed) => changed.set(name, value));
      }
      case 'unlink': {
        const { name } = operation.input;
        return this.#change(state, operation, names.has(name), (changed) => changed.delete(name));
      }
      case 'rename': {
        const { from, to, noReplace = false } = operation.input;
        const value = names.get(from);
        const succeeds = value !== undefined && !(noReplace && names.has(to));
        return this.#change(state, operation, succeeds, (changed) => {
          changed.delete(from);
          if (value !== undefined) changed.set(to, value);
        });
      }
      default:
        return misplaced(operation);
    }
  }

  /**
   * @param succeeds whether the operation is possible in this state; otherwise it changes nothing, and its output is
   * `false`
   */
  #change(
    state: number,
    operation: Operation,
    succeeds: boolean,
    change: (names: Map<string, string>) => void,
  ): number {
    if (isKnown(operation) && operation.output !== succeeds) return IMPOSSIBLE;
    if (!succeeds) return isKnown(operation) ? state : IMPOSSIBLE;
    const names = new Map(this.#states[state]);
    change(names);
    return this.#numberOf(names);
  }

  observes(operation: Operation): boolean {
    return operation.op === 'lookup' || (isKnown(operation) && operation.output === false);
  }

  relevant(operations: readonly Operation[]): readonly Operation[] {
    return operations;
  }

  describe(state: number): string {
    const names = this.#states[state] as ReadonlyMap<string, string>;
    return `{${[...names].map(([name, value]) => `${name}: ${value}`).join(', ')}}`;
  }
}

function misplaced({ op, key }: Operation): never {
  assert(false, `A ${op} is not possible on ${key}`);
}
