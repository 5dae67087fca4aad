import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { ask } from '../http/ask.ts';

export const EXAMPLES = fileURLToPath(new URL('../../docs/examples/leases/', import.meta.url));

/** Fencing tokens by the names of leases. */
export type Tokens = Readonly<Record<string, number>>;

/** A line that an example prints. Moments are of the wall clock, in milliseconds. */
export interface Report {
  readonly event: 'acquired' | 'released' | 'lost' | 'refused' | 'stopped';
  readonly at: number;
  readonly tokens?: Tokens;
  /** Of the end of a hold: until when the example relied on its leases. */
  readonly until?: number;
  /** Of an acquisition: the server that granted it. */
  readonly server?: string;
}

/** A process of an example. */
export class Example {
  readonly owner: string;
  readonly reports: Report[] = [];
  readonly #child: ChildProcess;
  #stderr = '';

  constructor(owner: string, command: string, argv: readonly string[], cwd: string) {
    this.owner = owner;
    this.#child = spawn(command, argv, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    const { stdout, stderr } = this.#child;
    assert.ok(stdout !== null && stderr !== null);
    createInterface(stdout).on('line', (line) => this.reports.push(JSON.parse(line) as Report));
    stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr += text;
    });
  }

  count(event: Report['event']): number {
    return this.reports.filter((report) => report.event === event).length;
  }

  /** @returns the last acquisition @throws Error with the error output if the process has ended */
  get hold(): Report | undefined {
    this.assertRuns();
    return this.reports.findLast(({ event }) => event === 'acquired');
  }

  assertRuns(): void {
    const { exitCode, signalCode } = this.#child;
    assert.ok(exitCode === null && signalCode === null, `${this.owner} has ended: ${this.#stderr}`);
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal);
  }

  /** Ends it in good order. @throws Error if it had failed */
  async stop(): Promise<void> {
    const { exitCode, signalCode } = this.#child;
    const closed = exitCode === null && signalCode === null ? once(this.#child, 'close') : null;
    this.#child.kill('SIGTERM');
    await closed;
    // A JVM ends with 143 after its orderly end by SIGTERM.
    const code = this.#child.exitCode;
    assert.ok(code === 0 || code === 143, `${this.owner}: exit code ${code}: ${this.#stderr}`);
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

/** A request to the resource of the examples. */
export interface Act {
  readonly sender: string;
  readonly method: 'GET' | 'PUT' | 'POST';
  readonly tokens: Tokens;
  readonly value: number;
  readonly accepted: boolean;
}

export async function historyOf(resource: string): Promise<Act[]> {
  return JSON.parse((await ask(resource, 'GET', '/history')).text) as Act[];
}

/** @returns what an act belongs to: all acts with the same tokens are one hold */
const holdOf = ({ tokens }: Pick<Act, 'tokens'>): string => JSON.stringify(tokens);

/**
 * The acts that the resource accepted are in the order of tokens, for each lease, and no hold acts between two acts of
 * another one with a common lease. Each write is the successor of the value before it: none came between its read and
 * itself.
 *
 * @returns how many holds the history has
 */
export function assertSerial(history: readonly Act[]): number {
  const accepted = history.filter((act) => act.accepted);
  const last = new Map(accepted.map((act, place) => [holdOf(act), place]));
  /** By lease: the hold that acted last. */
  const acting = new Map<string, Act>();
  let value = 0;
  for (const [place, act] of accepted.entries()) {
    for (const [name, token] of Object.entries(act.tokens)) {
      const before = acting.get(name);
      acting.set(name, act);
      if (before === undefined || holdOf(before) === holdOf(act)) continue;
      assert.ok((before.tokens[name] as number) < token, `${name}: ${token} acted after a larger token`);
      const isOver = (last.get(holdOf(before)) as number) < place;
      assert.ok(isOver, `${before.sender} acted within the hold of ${act.sender}: ${holdOf(act)}`);
    }
    if (act.method === 'PUT') assert.equal(act.value, value + 1, `A write of ${act.sender} was lost`);
    value = act.method === 'POST' ? value : act.value;
  }
  return last.size;
}

/**
 * No two examples relied on one lease at the same time, by their own clocks, and tokens rise.
 *
 * @returns how many holds were compared
 */
export function assertExclusive(examples: readonly Example[]): number {
  const byName = new Map<string, { owner: string; token: number; from: number; until: number }[]>();
  for (const { owner, reports } of examples) {
    for (const [place, { event, at, tokens = {} }] of reports.entries()) {
      if (event !== 'acquired') continue;
      const until = reports[place + 1]?.until ?? Number.POSITIVE_INFINITY;
      for (const [name, token] of Object.entries(tokens))
        byName.set(name, [...(byName.get(name) ?? []), { owner, token, from: at, until }]);
    }
  }
  let compared = 0;
  for (const [name, holds] of byName) {
    const inOrder = holds.toSorted((a, b) => a.token - b.token);
    for (const [place, hold] of inOrder.entries()) {
      const next = inOrder[place + 1];
      if (next === undefined) continue;
      compared++;
      assert.ok(hold.token < next.token, `${name}: two holders have the token ${next.token}`);
      assert.ok(
        hold.until <= next.from,
        `${name}: ${hold.owner} relied on it ${hold.until - next.from} ms into the hold of ${next.owner}`,
      );
    }
  }
  return compared;
}
