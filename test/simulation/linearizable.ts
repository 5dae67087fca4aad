/**
 * Judges of recorded histories. Both need time that grows with the length of the history and its
 * logarithm only, because the histories are built for it: every value is written once, and the
 * sequence of operations is known.
 */

/** One operation on a register. Times are readings of one clock; a pending one returns at Infinity. */
export interface RegisterOperation {
  readonly kind: 'write' | 'read';
  /** Written at most once in a history. */
  readonly value: string;
  readonly callMs: number;
  readonly returnMs: number;
}

interface Cluster {
  readonly value: string;
  readonly writeCallMs: number;
  /** The earliest return and the latest call of the write and all reads of its value. */
  returnMin: number;
  callMax: number;
}

/**
 * Whether the history of one register is linearizable. [GibbonsKorach] "Testing shared memories",
 * the case of unique writes: the operations on a value form a cluster, and clusters can be put in
 * an order unless two of them have to precede each other.
 *
 * One operation precedes another only if it returned *before* the other was called; at equal times
 * they are concurrent.
 *
 * @param initial the value before the first write
 * @returns null, or what is wrong
 */
export function registerViolation(history: readonly RegisterOperation[], initial: string): string | null {
  const clusters = new Map<string, Cluster>();
  clusters.set(initial, {
    value: initial,
    writeCallMs: -Infinity,
    returnMin: -Infinity,
    callMax: -Infinity,
  });
  for (const { kind, value, callMs, returnMs } of history) {
    if (kind !== 'write') continue;
    if (clusters.has(value)) return `"${value}" is written twice: no history for this judge`;
    clusters.set(value, { value, writeCallMs: callMs, returnMin: returnMs, callMax: callMs });
  }
  for (const { kind, value, callMs, returnMs } of history) {
    if (kind !== 'read' || returnMs === Infinity) continue;
    const cluster = clusters.get(value);
    if (cluster === undefined) return `"${value}" was read and never written`;
    if (returnMs < cluster.writeCallMs) return `"${value}" was read before it was written`;
    cluster.returnMin = Math.min(cluster.returnMin, returnMs);
    cluster.callMax = Math.max(cluster.callMax, callMs);
  }
  // A cluster that begins to end before it has begun for good keeps its value all that time.
  const forward = [...clusters.values()].filter(({ returnMin, callMax }) => returnMin < callMax);
  const backward = [...clusters.values()].filter(
    ({ returnMin, callMax }) => returnMin >= callMax && returnMin !== Infinity,
  );
  forward.sort((a, b) => a.returnMin - b.returnMin);
  for (let index = 1; index < forward.length; index++) {
    const [a, b] = [forward[index - 1] as Cluster, forward[index] as Cluster];
    if (b.returnMin < a.callMax) return `"${a.value}" and "${b.value}" were both read after the other`;
  }
  for (const cluster of backward) {
    // The last forward zone that begins before this cluster is the only one that can hold it.
    let low = 0;
    let high = forward.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((forward[middle] as Cluster).returnMin < cluster.callMax) low = middle + 1;
      else high = middle;
    }
    const zone = forward[low - 1];
    if (zone !== undefined && cluster.returnMin < zone.callMax) {
      return `"${zone.value}" was read before and after "${cluster.value}"`;
    }
  }
  return null;
}

/** One operation on a whole file, with what the sequence of operations says about it. */
export type FileEntry =
  /** `seq` where the client was told so; a pending one returns at Infinity and may have none. */
  | {
      readonly kind: 'change';
      readonly request: string;
      readonly callMs: number;
      readonly returnMs: number;
      readonly seq: number | null;
    }
  | {
      readonly kind: 'read';
      readonly content: string;
      readonly callMs: number;
      readonly returnMs: number;
    };

/**
 * Whether the sequence of committed operations explains the history of a whole file: every change
 * stands where its client was told, once, and every read shows the state after some prefix that is
 * not older than anything that had returned before the read was called, nor younger than anything
 * called before it returned.
 *
 * @param sequence the requests by position; index 0 is position 1
 * @param states what a read may show after each prefix, one text or several; index 0 is before all operations
 * @returns null, or what is wrong
 */
export function sequenceViolation(
  sequence: readonly string[],
  states: readonly (string | readonly string[])[],
  history: readonly FileEntry[],
): string | null {
  const positions = new Map<string, number>();
  for (const [index, request] of sequence.entries()) {
    if (positions.has(request)) return `${request} stands at ${positions.get(request)} and at ${index + 1}`;
    positions.set(request, index + 1);
  }
  const calledMs = new Map<string, number>();
  for (const entry of history) {
    if (entry.kind !== 'change') continue;
    calledMs.set(entry.request, entry.callMs);
    if (entry.seq !== null && positions.get(entry.request) !== entry.seq) {
      return `${entry.request} was acknowledged at ${entry.seq} and stands at ${positions.get(entry.request)}`;
    }
  }
  // Latest call among the first n operations: a read that shows n of them returned after it.
  const calledMaxMs = [-Infinity];
  for (const request of sequence) {
    const previous = calledMaxMs.at(-1) ?? -Infinity;
    calledMaxMs.push(Math.max(previous, calledMs.get(request) ?? -Infinity));
  }
  const byContent = new Map<string, number[]>();
  for (const [seq, shown] of states.entries()) {
    for (const content of typeof shown === 'string' ? [shown] : shown) {
      const seqs = byContent.get(content);
      if (seqs === undefined) byContent.set(content, [seq]);
      else seqs.push(seq);
    }
  }

  // Calls and returns in order of time. At equal times calls first: such operations are concurrent.
  const moments = history.flatMap((entry) => [
    { atMs: entry.callMs, isReturn: false, entry },
    ...(entry.returnMs === Infinity ? [] : [{ atMs: entry.returnMs, isReturn: true, entry }]),
  ]);
  moments.sort((a, b) => a.atMs - b.atMs || Number(a.isReturn) - Number(b.isReturn));
  let returnedSeq = 0;
  const floors = new Map<FileEntry, number>();
  for (const { isReturn, entry } of moments) {
    if (!isReturn) {
      floors.set(entry, returnedSeq);
      continue;
    }
    const floor = floors.get(entry) ?? 0;
    if (entry.kind === 'change') {
      if (entry.seq === null) continue;
      if (entry.seq <= floor) return `${entry.request} at ${entry.seq} was called after ${floor} was known`;
      returnedSeq = Math.max(returnedSeq, entry.seq);
    } else {
      // The smallest prefix that fits binds later operations the least.
      const seq = byContent.get(entry.content)?.find((candidate) => candidate >= floor);
      if (seq === undefined) return `a read called at ${entry.callMs} is older than ${floor}, or never was`;
      if ((calledMaxMs[seq] ?? Infinity) > entry.returnMs) {
        return `a read that returned at ${entry.returnMs} shows what was called later`;
      }
      returnedSeq = Math.max(returnedSeq, seq);
    }
  }
  return null;
}
