/** Histories from a seed: what clients see of a store that executes one operation after the other. */
import type { Prng } from '../../base/prng.ts';
import { perform, storeEmpty } from './brute-force.ts';
import type { Operation } from './operation.ts';

export type HistoryShape = 'object' | 'entry' | 'list' | 'file' | 'directory';
export const SHAPES: readonly HistoryShape[] = ['object', 'entry', 'list', 'file', 'directory'];

export interface DrawOptions {
  readonly prng: Prng;
  readonly count: number;
  readonly clients: number;
  /** The probability that an operation's answer is lost. */
  readonly unknownRate?: number;
  /** Distinguishes one key from another. */
  readonly number?: number;
}

interface Draft {
  readonly operation: Operation;
  /** When it takes effect, between call and return; null if it never does. */
  readonly effectAt: number | null;
}

/** @returns operations in the order of their drawing; each takes effect at a moment between call and return */
export function drawHistory(shape: HistoryShape, options: DrawOptions): Operation[] {
  const { prng, count, clients, unknownRate = 0.2, number = 0 } = options;
  const freeAt = Array.from({ length: clients }, () => 0);
  const key = `${shape}/${number}`;
  const drafts = Array.from({ length: count }, (_, index): Draft => {
    const client = prng.integer(0, clients - 1);
    const call = (freeAt[client] as number) + prng.integer(1, 10);
    const end = call + prng.integer(1, 25);
    freeAt[client] = end;
    const draw = prng.next();
    const status = draw < unknownRate ? 'unknown' : draw < unknownRate * 1.3 ? 'fail' : 'ok';
    const moment = call + prng.next() * (end - call);
    const effectAt =
      status === 'fail' || (status === 'unknown' && prng.chance(0.3))
        ? null
        : status === 'unknown' && prng.chance(0.5)
          ? end + prng.integer(0, 60)
          : moment;
    const common = { client: `c${client}`, key, call, return: status === 'ok' ? end : null, status };
    return { operation: { ...common, ...request(shape, prng, index), output: null } as Operation, effectAt };
  });
  return answered(drafts, key, prng);
}

/** Executes the operations at the moments of their effects, and adds the answers. */
function answered(drafts: readonly Draft[], key: string, prng: Prng): Operation[] {
  let state = storeEmpty(key);
  const answers = new Map<Operation, unknown>();
  const effective = drafts.filter((draft) => draft.effectAt !== null);
  effective.sort((a, b) => (a.effectAt as number) - (b.effectAt as number));
  for (const { operation } of effective) {
    const performed = perform(operation, state);
    state = performed.state;
    const isSilent = ['write', 'append', 'delete'].includes(operation.op) && prng.chance(0.3);
    if (operation.status === 'ok' && !isSilent) answers.set(operation, performed.output);
  }
  return drafts.map(({ operation }) =>
    answers.has(operation) ? ({ ...operation, output: answers.get(operation) } as Operation) : operation,
  );
}

function request(shape: HistoryShape, prng: Prng, index: number): Pick<Operation, 'op' | 'input'> {
  const value = `v${index}`;
  const earlier = `v${prng.integer(Math.max(0, index - 4), index)}`;
  const isRead = prng.chance(0.5);
  switch (shape) {
    case 'object':
      return isRead ? { op: 'read', input: null } : { op: 'write', input: value };
    case 'entry': {
      if (isRead) return { op: 'read', input: null };
      const input = { expect: prng.chance(0.5) ? null : earlier, value };
      return prng.pick([
        { op: 'write', input: value },
        { op: 'cas', input },
        { op: 'delete', input: null },
      ]);
    }
    case 'list':
      return isRead ? { op: 'read', input: null } : { op: 'append', input: value };
    case 'file': {
      const off = prng.integer(0, 6);
      if (isRead)
        return prng.chance(0.3) ? { op: 'size', input: null } : { op: 'pread', input: { off, len: 6 } };
      const data = String.fromCharCode(97 + (index % 26)).repeat(prng.integer(1, 3));
      return prng.pick([
        { op: 'pwrite', input: { off, data } },
        { op: 'fappend', input: { data } },
        { op: 'truncate', input: { size: off } },
        { op: 'punch', input: { from: off, to: off + data.length, grows: prng.chance(0.5) } },
      ]);
    }
    case 'directory': {
      const name = prng.pick(['a', 'b']);
      if (isRead) return { op: 'lookup', input: { name } };
      return prng.pick([
        { op: 'create', input: { name, value } },
        { op: 'replace', input: { name, value } },
        { op: 'unlink', input: { name } },
        { op: 'rename', input: { from: name, to: name === 'a' ? 'b' : 'a', noReplace: prng.chance(0.5) } },
      ]);
    }
  }
}

/** Changes the answer of one operation. @returns null if none has an answer */
export function mutateAnswer(history: readonly Operation[], prng: Prng): Operation[] | null {
  const answers = history.filter(({ status, output }) => status === 'ok' && output !== null);
  if (answers.length === 0) return null;
  const victim = prng.pick(answers);
  const values = history.flatMap(({ op, input }) => {
    if (op === 'write' || op === 'append') return [input];
    return op === 'cas' || op === 'create' || op === 'replace' ? [input.value] : [];
  });
  const output = changedOutput(victim, values, prng);
  return history.map((operation) =>
    operation === victim ? ({ ...operation, output } as Operation) : operation,
  );
}

function changedOutput({ op, output }: Operation, values: readonly string[], prng: Prng): unknown {
  const value = prng.chance(0.2) || values.length === 0 ? null : prng.pick(values);
  switch (op) {
    case 'read': {
      if (!Array.isArray(output)) return value;
      const list = [...(output as readonly string[])];
      const at = prng.integer(0, list.length);
      if (prng.chance(0.5)) list.splice(at, 1);
      else if (value !== null) list.splice(at, 0, value);
      return list;
    }
    case 'write':
    case 'delete':
      return { former: value };
    case 'cas':
    case 'create':
    case 'replace':
    case 'unlink':
    case 'rename':
      return output === false;
    case 'lookup':
      return value;
    case 'pread': {
      const text = output as string;
      const at = prng.integer(0, text.length);
      return `${text.slice(0, at)}${prng.pick(['a', 'b', '\0', ''])}${text.slice(at + 1)}`;
    }
    case 'append':
    case 'pwrite':
    case 'fappend':
    case 'truncate':
    case 'punch':
    case 'size':
      return Math.max(0, (output as number) + prng.pick([-1, 1]));
  }
}
