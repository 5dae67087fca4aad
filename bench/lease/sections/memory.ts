import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { LeaseAlgorithm } from '../../../lease/parameters.ts';
import { killAtEnd } from '../cleanup.ts';
import type { MemoryHostOptions, MemoryOrder, MemoryReport, Parcel } from '../memory-orders.ts';
import type { Report } from '../report.ts';
import type { Bench, Section } from '../section.ts';
import { numberText } from '../statistics.ts';

const PROGRAM = fileURLToPath(new URL('../memory-host.ts', import.meta.url));
const MEMBERS = ['s1', 's2', 's3'];
const MEASURED = 's1';
/** A server of the second process, which has all others. */
const OTHER = 's2';
/** So long that no lease is renewed while cells are created: the cells are idle. */
const TIMES = { leaseMs: 3_600_000, clockSkewMaxMs: 500 };
const START_MS = 1_700_000_000_000;
/** The number of cells that negotiate at the same time: the memory of a negotiation is released after it. */
const STEP = 2_000;
/** Until then memory grows for compiled code and a young heap, and not for cells. */
const WARM_UP = 10_000;
const GOAL_BYTES = 100;

type Stepped = Extract<MemoryReport, { kind: 'stepped' }>;
type Measured = Extract<MemoryReport, { kind: 'measured' }>;

export const memory: Section = {
  title: 'Memory of idle cells with a lease, in one process',
  run,
};

/** Memory of one cell, in bytes. */
interface Figures {
  readonly role: string;
  readonly cells: number;
  readonly liveBytes: number;
  readonly rssBytes: number;
}

async function run(bench: Bench): Promise<Report> {
  const { algorithm } = bench.tuning;
  const count = bench.quick ? 20_000 : 1_000_000;
  bench.progress(`${numberText(count)} cells, all held by the measured process`);
  const holder = await measureCells('holder and acceptor', MEASURED, count, algorithm);
  bench.progress(`${numberText(count)} cells, all held by another`);
  const acceptor = await measureCells('acceptor only', OTHER, count, algorithm);
  const rows = [holder, acceptor];
  return {
    table: {
      columns: ['role', 'cells', 'heap + buffers, B/cell', 'RSS, B/cell'],
      rows: rows.map((row) => [
        row.role,
        numberText(row.cells),
        numberText(row.liveBytes, 1),
        numberText(row.rssBytes, 1),
      ]),
    },
    goals: (
      [
        ['heap and buffers', holder.liveBytes],
        ['resident memory', holder.rssBytes],
      ] as const
    ).map(([what, bytes]) => ({
      what: `${what} of an idle cell that its server holds and votes on`,
      wanted: `at most ${GOAL_BYTES} B`,
      measured: `${numberText(bytes, 1)} B`,
      met: bytes <= GOAL_BYTES,
    })),
    notes: [
      `After collecting garbage as under memory pressure, less what the process took when it had ${numberText(WARM_UP)} cells. Three hosts vote on each cell, the other two ` +
        'in a second process. What a server keeps beside its lease host, as the set of what it wants, is not in it.',
    ],
    figures: [
      {
        name: 'lease-memory',
        chart: {
          kind: 'bars',
          title: `Memory of each of ${numberText(count)} idle cells`,
          categories: rows.map((row) => row.role),
          y: { label: 'bytes per cell', scale: 'linear' },
          series: [
            {
              name: 'heap and buffers',
              points: rows.map((row, place) => ({ x: place, y: Math.max(0, row.liveBytes) })),
            },
            {
              name: 'resident',
              points: rows.map((row, place) => ({ x: place, y: Math.max(0, row.rssBytes) })),
            },
          ],
          references: [{ label: 'goal', y: GOAL_BYTES }],
        },
      },
    ],
    data: rows,
  };
}

/** @param holder the server that acquires all cells */
async function measureCells(
  role: string,
  holder: string,
  count: number,
  algorithm: LeaseAlgorithm,
): Promise<Figures> {
  using measured = new HostProcess([MEASURED], algorithm);
  using others = new HostProcess(
    MEMBERS.filter((member) => member !== MEASURED),
    algorithm,
  );
  // After the recovery wait.
  let nowMs = START_MS + TIMES.leaseMs + 2 * TIMES.clockSkewMaxMs + 1;
  let before: Measured | null = null;
  for (let opened = 0; opened < count + WARM_UP; opened += STEP) {
    const open = { host: holder, first: opened + 1, count: STEP };
    nowMs = await acquire(measured, others, open, opened + STEP, nowMs);
    if (opened + STEP === WARM_UP) before = await measured.measure();
  }
  const after = await measured.measure();
  if (before === null || after.cells - before.cells !== count)
    throw new Error(`${after.cells} cells were kept, ${count + WARM_UP} wanted`);
  return {
    role,
    cells: count,
    liveBytes: (after.liveBytes - before.liveBytes) / count,
    rssBytes: (after.rssBytes - before.rssBytes) / count,
  };
}

/**
 * Opens cells and carries frames between the two processes until `wanted` cells are held and no frame is pending. The
 * clock advances only when all hosts wait for it.
 *
 * @returns the clock at the end
 * @throws Error if no host waits and too few cells are held
 */
async function acquire(
  measured: HostProcess,
  others: HostProcess,
  open: Extract<MemoryOrder, { kind: 'step' }>['open'],
  wanted: number,
  startMs: number,
): Promise<number> {
  let nowMs = startMs;
  let opening = open;
  let parcels: readonly Parcel[] = [];
  for (;;) {
    const order: MemoryOrder = { kind: 'step', nowMs, open: opening, parcels };
    const answers = await Promise.all([measured.step(order), others.step(order)]);
    opening = null;
    parcels = answers.flatMap((answer) => answer.parcels);
    if (parcels.length > 0) continue;
    if (answers.reduce((sum, answer) => sum + answer.held, 0) >= wanted) return nowMs;
    const wakes = answers.map((answer) => answer.wakeMs).filter((atMs) => atMs !== null);
    if (wakes.length === 0) throw new Error('Cells are neither held nor waiting for anything');
    nowMs = Math.max(nowMs, Math.min(...wakes));
  }
}

/** Lease hosts in a process of their own, with one order at a time. */
class HostProcess implements Disposable {
  readonly #child: ChildProcess;
  readonly #kill: () => void;

  constructor(hosts: readonly string[], algorithm: LeaseAlgorithm) {
    const options: MemoryHostOptions = { hosts, members: MEMBERS, ...TIMES, algorithm, startMs: START_MS };
    this.#child = fork(PROGRAM, [JSON.stringify(options)], {
      execArgv: ['--expose-gc'],
      serialization: 'advanced',
    });
    this.#kill = killAtEnd(this.#child);
  }

  async step(order: MemoryOrder): Promise<Stepped> {
    return (await this.#ask(order)) as Stepped;
  }

  async measure(): Promise<Measured> {
    return (await this.#ask({ kind: 'measure' })) as Measured;
  }

  [Symbol.dispose](): void {
    this.#kill();
  }

  async #ask(order: MemoryOrder): Promise<MemoryReport> {
    const gone = Promise.withResolvers<never>();
    const onExit = (): void => gone.reject(new Error('A process with lease hosts has ended early'));
    this.#child.once('exit', onExit);
    try {
      this.#child.send(order);
      const [report] = (await Promise.race([once(this.#child, 'message'), gone.promise])) as [MemoryReport];
      return report;
    } finally {
      this.#child.off('exit', onExit);
    }
  }
}
