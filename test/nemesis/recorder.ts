import { createWriteStream, type WriteStream } from 'node:fs';
import { finished } from 'node:stream/promises';
import { type Operation, operationFormat, type Served } from '../history/operation.ts';

/** The start of the clock of all calls and returns. */
const START_NS = process.hrtime.bigint();

/** @returns nanoseconds since this process began to record */
export function nowNs(): number {
  return Number(process.hrtime.bigint() - START_NS);
}

/** The primary of a file and its epoch, as an answer reports them. */
export interface Primary {
  readonly primary: string;
  readonly epoch: number;
}

/** Writes a history to a file as it happens, and counts. */
export class Recorder {
  readonly operations: Operation[] = [];
  /** By operation and status: `read ok`. */
  readonly counts = new Map<string, number>();
  readonly served = new Map<Served, number>();
  /** Errors of servers, by code. */
  readonly problems = new Map<string, number>();
  /** Whether servers report who answered a read, so that it is known which reads were local. */
  tellsServed = false;
  /** How often a file's primary changed. */
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

  /** Notes the primary in an answer about a file. Call it for each answer. */
  answeredBy(file: string, now: Primary): void {
    const before = this.#primaries.get(file);
    // Answers may arrive in any order.
    if (before !== undefined && now.epoch <= before.epoch) return;
    if (before !== undefined && before.primary !== now.primary) this.failovers++;
    this.#primaries.set(file, now);
  }

  /** @returns the last primary of a file that an answer reported */
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
