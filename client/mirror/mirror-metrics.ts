import { writeFileAtomically } from '../transfer/atomic-file.ts';
import type { MirrorState } from './volume-mirror.ts';

const READABLE = 0o644;

/** The state of a mirror in the text format of Prometheus: a time, not an age, so it stays right after its end. */
export function mirrorMetrics(
  { source, target, name }: { readonly source: string; readonly target: string; readonly name: string },
  { copied, pendingBytes, copiedBytes, cycles, failures, foreignChanges }: MirrorState,
): string {
  const labels = `{source="${source}",target="${target}",mirror="${name}"}`;
  const snapshotS = copied === null ? 0 : Number(BigInt(copied.madeNs) / 1_000_000n) / 1_000;
  const rows: readonly (readonly [name: string, type: string, help: string, value: number])[] = [
    [
      'snapshot_timestamp_seconds',
      'gauge',
      'Time of the source that the latest complete copy shows; 0: none',
      snapshotS,
    ],
    ['pending_bytes', 'gauge', 'Contents of the present cycle that are still to be copied', pendingBytes],
    ['copied_bytes_total', 'counter', 'Contents copied by this process', copiedBytes],
    ['cycles_total', 'counter', 'Complete copies made by this process', cycles],
    ['failures_total', 'counter', 'Cycles of this process that failed and were repeated', failures],
    [
      'foreign_changes_total',
      'counter',
      'Cycles before which others had written to the copy',
      foreignChanges,
    ],
  ];
  return rows
    .map(([row, type, help, value]) => {
      const full = `leasehold_mirror_${row}`;
      return `# HELP ${full} ${help}\n# TYPE ${full} ${type}\n${full}${labels} ${value}\n`;
    })
    .join('');
}

/** Replaces the file, so that a collector reads the old metrics or the new ones. */
export async function writeMetrics(path: string, text: string): Promise<void> {
  await writeFileAtomically(path, READABLE, (file) => file.writeFile(text));
}
