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

/**
 * Demanded in `test/replica/`. Clients here never ask again for what is so old; and whoever goes by an older view is
 * refused the lease by somebody who knows a newer one, so that it does not come to ask the replicas.
 */
const NOT_HERE: readonly ReplicaMark[] = ['session-expired', 'outside', 'view-conflict'];

/** All other marks are reached in every tenth run at least. */
const RARE_MARKS: Partial<Record<ReplicaMark, number>> = {
  // About as many files are borne as are made and led.
  made: 0.05,
  begun: 0.05,
  resumed: 0.05,
  'given-up': 0.002,
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
  perRunOf('holes that were made', 2, 'punches'),
  perRunOf('reads that showed holes after that', 2, 'holeReads'),
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
  perRunOf('reads where a majority agreed, and nobody led', 0.2, 'agreedReads'),
  perRunOf('flushes', 1, 'flushes'),
  perRunOf('flushes where a majority agreed, and nobody led', 0.02, 'agreedFlushes'),
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
  perRunOf('objects that rotted', 0.5, 'rotted'),
  perRunOf('of these, on all disks at once', 0.02, 'rottedEverywhere'),
  perRunOf('of these, on all disks but one', 0.02, 'rottedButOne'),
  perRunOf('reads that brought the bytes from another replica', 0.1, 'mendedReads'),
  perRunOf('reads that failed because nobody in reach had them', 0.1, 'integrityReads'),
  perRunOf('of these, because nobody had them', 0.02, 'lostReads'),
  perRunOf('changes of a part of a damaged object, after it was mended', 0.02, 'mendedApplies'),
  perRunOf('changes of a part of a damaged object that nobody had whole', 0.01, 'integrityApplies'),
  perRunOf('replicas that began anew as damaged', 0.01, 'damagedStarts'),
  perRunOf('damaged objects that came with another state', 0.01, 'damagedReplaced'),
  perRunOf('damaged objects found at the source of a fetch', 0.05, 'damagedSources'),
  perRunOf('fetches that failed because nobody in reach had an object', 0.003, 'integrityFetches'),
  perRunOf('objects that nobody had, taken over as lost', 0.002, 'lostTakenOver'),
  perRunOf('damaged objects found by a scrubber', 0.01, 'scrubbed'),
  perRunOf('objects of what snapshots show that rotted', 0.05, 'rottedPreserved'),
  perRunOf('of these, mended by another server', 0.02, 'mendedPreserved'),
  perRunOf('files that were borne', 0.05, 'borne'),
  perRunOf('replicas that refused a birth', 0.05, 'birthsRefused'),
  perRunOf('replicas that were borne, and gone with the power', 0.003, 'birthsForgotten'),
  perRunOf('files that were sealed', 0.05, 'seals'),
  perRunOf('finally', 0.05, 'finals'),
  perRunOf('by another primary than the one that began', 0.02, 'finalsInherited'),
  perRunOf('reads of files that were sealed finally', 2, 'finalReads'),
  perRunOf('of these, that nothing else would have allowed', 1, 'finalReadsAlone'),
  perRunOf('changes of before a seal, asked again after it', 0.02, 'sealedRetries'),
  perRunOf('changes that a seal refused', 2, 'sealedRefusals'),
  perRunOf('losses of power between the two seals', 0.02, 'sealPowerLosses'),
  perRunOf('of these, of all machines', 0.005, 'sealAllPowerLosses'),
  perRunOf('crashes of primaries between the two seals', 0.02, 'sealCrashes'),
  perRunOf('snapshots that were acknowledged', 0.3, 'snapshots'),
  perRunOf('contents that were preserved for them', 0.15, 'preserved'),
  perRunOf('reads of what is preserved', 5, 'preservedReads'),
  perRunOf('of these, at servers that had to fetch it', 0.5, 'preservedFetches'),
  perRunOf('reads of snapshots under which the file moved on', 0.2, 'movedOn'),
  perRunOf('losses of power of all machines when there were snapshots', 0.002, 'snapshotPowerLosses'),
  perRunOf('snapshots without a file that was borne after them', 0.005, 'snapshotsBefore'),
  perRunOf('snapshots that show a file as it was borne', 0.003, 'snapshotsOfBorne'),
  perRunOf('other files of the volume that were borne', 1, 'siblings'),
  perRunOf('of these, stored before a snapshot and named after it', 0.03, 'straddled'),
  perRunOf('names that went to other files', 0.3, 'namesMoved'),
  perRunOf('names that were removed', 0.3, 'namesRemoved'),
  perRunOf('reads of such files in snapshots', 3, 'siblingReads'),
  perRunOf('replicas of such files that were collected', 0.3, 'siblingsCollected'),
  ...REPLICA_MARKS.filter((mark) => !NOT_HERE.includes(mark)).map((mark) =>
    perRunOf(`mark ${mark}`, RARE_MARKS[mark] ?? 0.1, mark),
  ),
];
