import { createWriteStream, type WriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { type Operation, operationFormat, type Served } from '../history/operation.ts';

/** One reading of the clock that all calls and returns are taken from. */
const START_NS = process.hrtime.bigint();

/** @returns nanoseconds since this process began to record */
export function nowNs(): number {
  return Number(process.hrtime.bigint() - START_NS);
}

/** Who ordered a key's operations, as an answer said. */
export interface Primary {
  readonly primary: string;
  readonly epoch: number;
}

/** Writes a history down as it happens, and counts. */
export class Recorder {
  readonly operations: Operation[] = [];
  /** By operation and status: `read ok`. */
  readonly counts = new Map<string, number>();
  readonly served = new Map<Served, number>();
  /** Errors of servers, by code. */
  readonly problems = new Map<string, number>();
  /** Servers say of reads who answered them, so that it is known whether any was local. */
  tellsServed = false;
  /** A file's primary was another than before. */
  failovers = 0;
  readonly #out: WriteStream;
  readonly #primaries = new Map<string, Primary>();

  constructor(file: string) {
    this.#out = createWriteStream(file);
  }

  record(operation: Operation): void {
    this.operations.push(operation);
    this.#out.write(`${operationFormat(operation)}\n`);
    countUp(this.counts, `${operation.op} ${operation.status}`);
    if (operation.how !== undefined && operation.status === 'ok') countUp(this.served, operation.how);
  }

  /** Told of every answer about a file. */
  answeredBy(file: string, now: Primary): void {
    const before = this.#primaries.get(file);
    // Answers may overtake each other.
    if (before !== undefined && now.epoch <= before.epoch) return;
    if (before !== undefined && before.primary !== now.primary) this.failovers++;
    this.#primaries.set(file, now);
  }

  /** @returns who was heard of last as the primary of a file */
  primaryOf(file: string): string | null {
    return this.#primaries.get(file)?.primary ?? null;
  }

  problem(code: string): void {
    countUp(this.problems, code);
  }

  async close(): Promise<void> {
    this.#out.end();
    await finished(this.#out);
  }
}

export function countUp<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
