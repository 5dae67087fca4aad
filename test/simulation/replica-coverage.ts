/** The events that random runs of replica groups must have: runs without failovers, for example, prove nothing. */
import { REPLICA_MARKS, type ReplicaMark } from '../../replica/outbox.ts';
import type { Counts } from './layer-runs.ts';

/** @returns what the runs lack, as text */
export function coverageMissing(counts: Counts): string[] {
  const { runs = 0 } = counts;
  return DEMANDS.filter(({ name, least }) => runs === 0 || (counts[name] ?? 0) < least * runs).map(
    ({ what }) => what,
  );
}

/** @returns one line per demand: the count, and the least one */
export function coverageTable(counts: Counts): string {
  const { runs = 0 } = counts;
  return DEMANDS.map(({ what, name, least }) => {
    const count = counts[name] ?? 0;
    const mean = runs === 0 ? '-' : perRun(count / runs);
    return `${what.padEnd(66)} ${count.toLocaleString('en').padStart(12)} ${mean.padStart(12)}  at least ${perRun(least)}`;
  }).join('\n');
}

function perRun(value: number): string {
  return `${value >= 1 ? value.toFixed(1) : value.toFixed(4)} a run`;
}

/**
 * Tests in `test/replica/` demand these. Clients here never repeat a request that is so old. A server with an older
 * view gets no lease while one with a newer view votes, so that it does not ask the replicas.
 */
const NOT_HERE: readonly ReplicaMark[] = ['session-expired', 'outside', 'view-conflict'];

/** All other marks occur in every tenth run at least. */
const RARE_MARKS: Partial<Record<ReplicaMark, number>> = {
  // About as many files are created with contents as are created empty.
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
  'caught-up-in-part': 0.01,
  'fetch-failed': 0.05,
  'retained-dropped': 0.05,
};

/** The least mean count per run. */
const LEAST: readonly (readonly [what: string, name: string, least: number])[] = [
  ['changes were acknowledged', 'acknowledged', 60],
  ['reads were answered', 'reads', 60],
  ['reads that backups answered', 'localReads', 20],
  ['of these, within 10 ms of a commit', 'localReadsSoon', 1],
  ['of these, after they waited for a commit', 'localReadsDirty', 0.2],
  ['reads by a majority without a primary', 'agreedReads', 0.2],
  ['flushes', 'flushes', 1],
  ['flushes by a majority without a primary', 'agreedFlushes', 0.02],
  ['unknown outcomes that a retry settled', 'unknownRetried', 0.2],
  ['epochs that began', 'epochs', 2],
  ['crashes', 'crashes', 1],
  ['pauses', 'pauses', 0.5],
  ['cuts of the network', 'cuts', 1],
  ['states that were fetched', 'fetches', 1],
  ['losses of power', 'powerLosses', 1],
  ['operations lost with it that were not synced', 'unsyncedLost', 1],
  ['losses of power at a majority at once', 'majorityPowerLosses', 0.03],
  ['acknowledged operations lost with it, none of them flushed', 'vanished', 0.02],
  ['disks replaced by empty ones', 'wipes', 0.05],
  ['full disks', 'fullDisks', 0.05],
  ['slow disks', 'slowDisks', 0.05],
  ['replicas that began again as damaged', 'damagedStarts', 0.05],
  ['changes of members that were completed', 'viewChanges', 0.5],
  ['of these, by another primary than the one that began', 'viewChangesInherited', 0.02],
  ['replicas that were removed after they had moved away', 'removals', 0.1],
  ['runs in which clocks let two hold the lease at once', 'twoHeldRuns', 0.01],
  ['files that were created with contents', 'created', 0.05],
  ['replicas that refused to be created', 'creationsRefused', 0.05],
  ['replicas that were created and lost with the power', 'creationsLost', 0.003],
];

const DEMANDS = [
  ...LEAST.map(([what, name, least]) => ({ what, name, least })),
  ...REPLICA_MARKS.filter((mark) => !NOT_HERE.includes(mark)).map((mark) => ({
    what: `mark ${mark}`,
    name: mark,
    least: RARE_MARKS[mark] ?? 0.1,
  })),
];
