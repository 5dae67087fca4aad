import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Containers } from './container.ts';
import type { IndexDatabase } from './index-database.ts';
import type { ObjectRow } from './index-rows.ts';
import { readObjectRow } from './object-rows.ts';

const READS_MAX = 16;

export interface RecoveryReport {
  /** Files with operations that were not known to be synced. */
  readonly filesChecked: number;
  /** Those of them that went back to an earlier state, because contents of a later one are missing. */
  readonly rolledBack: readonly FileId[];
}

/**
 * After a loss of power the index may refer to contents that never reached the disk: the kernel writes both back in any
 * order. So every object written since the oldest generation is read, and if one is torn, its file goes back to the
 * newest state without torn objects. All of these states have what was synced; see FORMAT.md, "Loss of power".
 */
export async function recoverFromPowerLoss(
  index: IndexDatabase,
  containers: Containers,
): Promise<RecoveryReport> {
  const files = index.generations.files();
  const rolledBack: FileId[] = [];
  for (const file of files) {
    if (await recoverFile(index, containers, file)) rolledBack.push(file);
    await containers.flush(file);
  }
  await index.generations.deleteAll(index, files);
  // These removals are part of every state now.
  index.removals.reloadAll();
  await index.flush();
  return { filesChecked: files.length, rolledBack };
}

/** Restores earlier states until every object written since the oldest is whole. @returns whether any was restored */
async function recoverFile(index: IndexDatabase, containers: Containers, file: FileId): Promise<boolean> {
  const generations = index.generations.all(file);
  const oldest = generations.at(-1);
  if (oldest === undefined) return false;
  const { installed, seq } = oldest.state.record;
  const knownWhole = new Set<string>();
  let rolledBack = false;
  for (const generation of generations) {
    const rows = index.objectsSince(file, installed.counter, seq);
    const { objectBytes } = oldest.state.attributes;
    if (await areWhole(containers, file, rows, objectBytes, knownWhole)) break;
    await index.commit(() => index.generations.rollBack(file, generation));
    index.removals.reload(file);
    rolledBack = true;
  }
  return rolledBack;
}

async function areWhole(
  containers: Containers,
  file: FileId,
  rows: readonly ObjectRow[],
  objectBytes: number,
  knownWhole: Set<string>,
): Promise<boolean> {
  for (let at = 0; at < rows.length; at += READS_MAX) {
    const some = rows.slice(at, at + READS_MAX).filter((row) => !knownWhole.has(rowKey(row)));
    const outcomes = await Promise.all(some.map((row) => isWhole(containers, file, row, objectBytes)));
    if (outcomes.includes(false)) return false;
    for (const row of some) knownWhole.add(rowKey(row));
  }
  return true;
}

async function isWhole(
  containers: Containers,
  file: FileId,
  row: ObjectRow,
  objectBytes: number,
): Promise<boolean> {
  try {
    const bytes = await containers.use(file, false, (container) =>
      readObjectRow(container, file, row, objectBytes),
    );
    return bytes !== null;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'integrity') return false;
    throw error;
  }
}

function rowKey(row: ObjectRow): string {
  return `${row.slot}/${row.length}/${row.crc32}`;
}
