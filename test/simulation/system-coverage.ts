/**
 * What random runs of the system have to have gone through before they prove anything: a campaign without failovers,
 * or without reads at backups right after a commit, finds nothing and is green.
 */
import { REPLICA_MARKS, type ReplicaMark } from '../../replica/outbox.ts';
import type { RunReport } from './system-run.ts';

/** Everything that runs were, added up. */
export class SystemCoverage {
  runs = 0;
  readonly #counts = new Map<string, number>();

  add({ counts, marks }: Pick<RunReport, 'counts' | 'marks'>): void {
    this.runs++;
    for (const [name, count] of Object.entries(counts)) this.#add(name, count);
    for (const [mark, count] of marks) this.#add(mark, count);
  }

  /** What another thread has added up. */
  addAll(runs: number, counts: Readonly<Record<string, number>>): void {
    this.runs += runs;
    for (const [name, count] of Object.entries(counts)) this.#add(name, count);
  }

  #add(name: string, count: number): void {
    this.#counts.set(name, this.count(name) + count);
  }

  count(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  /** @returns how often everything was counted */
  counts(): Record<string, number> {
    return Object.fromEntries(this.#counts);
  }

  /** @returns what the runs lack, in words; nothing if they were worth it */
  missing(): string[] {
    return DEMANDS.filter(({ of, leastOf, least }) => {
      const base = leastOf === 'run' ? this.runs : this.count(leastOf);
      return !(base > 0 && of.reduce((sum, name) => sum + this.count(name), 0) >= least * base);
    }).map(({ what }) => what);
  }

  /** One line per demand: what there was, and what there has to be. */
  table(): string {
    return DEMANDS.map(({ what, of, leastOf, least }) => {
      const count = of.reduce((sum, name) => sum + this.count(name), 0);
      const base = leastOf === 'run' ? this.runs : this.count(leastOf);
      const [share, wanted] = leastOf === 'run' ? [perRun, perRun(least)] : [percent, percent(least)];
      const found = base === 0 ? '-' : share(count / base);
      return `${what.padEnd(66)} ${count.toLocaleString('en').padStart(12)} ${found.padStart(12)}  at least ${wanted}`;
    }).join('\n');
  }
}

function perRun(value: number): string {
  return `${value >= 1 ? value.toFixed(1) : value.toFixed(4)} a run`;
}

function percent(value: number): string {
  return `${(value * 100).toFixed(1)} %`;
}

interface Demand {
  readonly what: string;
  /** Counts that are added up. */
  readonly of: readonly string[];
  /** A share of this count, or a mean for each run. */
  readonly leastOf: string;
  readonly least: number;
}

function perRunOf(what: string, least: number, ...of: readonly string[]): Demand {
  return { what, of, leastOf: 'run', least };
}

/** Clients here never ask again for what is so old; demanded in `test/replica/`. */
const NOT_HERE: readonly ReplicaMark[] = ['session-expired'];

/** All other marks are reached in every tenth run at least. */
const RARE_MARKS: Partial<Record<ReplicaMark, number>> = {
  outside: 0.0005,
  'reset-abandoned': 0.01,
  deposed: 0.01,
  'trusted-again': 0.01,
  'guard-lapsed': 0.05,
  distrusted: 0.05,
  'storage-failed': 0.02,
  'base-fetched': 0.05,
  'caught-up': 0.05,
  'fetch-failed': 0.05,
  'retained-dropped': 0.05,
};

const DEMANDS: readonly Demand[] = [
  perRunOf('changes were acknowledged', 60, 'acknowledged'),
  perRunOf('reads were answered', 60, 'reads'),
  { what: 'reads that backups answered', of: ['localReads'], leastOf: 'reads', least: 0.2 },
  {
    what: 'of these, within 10 ms of a commit',
    of: ['localReadsSoon'],
    leastOf: 'localReads',
    least: 0.05,
  },
  {
    what: 'of these, after waiting for a commit',
    of: ['localReadsDirty'],
    leastOf: 'localReads',
    least: 0.01,
  },
  perRunOf('flushes', 1, 'flushes'),
  perRunOf('outcomes that were unknown, and asked again', 0.2, 'unknownRetried'),
  perRunOf('failovers', 2, 'epochs'),
  perRunOf('crashes', 1, 'crashes'),
  perRunOf('pauses', 0.5, 'pauses'),
  perRunOf('cuts of the network', 1, 'cuts'),
  perRunOf('states that were fetched', 1, 'fetches'),
  perRunOf('losses of power', 1, 'powerLosses'),
  perRunOf('operations lost with it that were not synced', 1, 'unsyncedLost'),
  perRunOf('losses of power at a majority at once', 0.03, 'majorityPowerLosses'),
  perRunOf('acknowledged operations gone after that, none of them flushed', 0.02, 'vanished'),
  perRunOf('disks replaced by empty ones', 0.05, 'wipes'),
  perRunOf('full disks', 0.05, 'fullDisks'),
  perRunOf('slow disks', 0.05, 'slowDisks'),
  perRunOf('changes of members that were completed', 0.5, 'viewChanges'),
  perRunOf('of these, by another primary than the one that began', 0.02, 'viewChangesInherited'),
  perRunOf('replicas that were removed after they had moved away', 0.1, 'removals'),
  perRunOf('runs in which clocks let two hold the lease at once', 0.01, 'twoHeldRuns'),
  ...REPLICA_MARKS.filter((mark) => !NOT_HERE.includes(mark)).map((mark) =>
    perRunOf(`mark ${mark}`, RARE_MARKS[mark] ?? 0.1, mark),
  ),
];
