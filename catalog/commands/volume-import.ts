/** A volume's catalog takes over the rows of its volume from the root catalog: model/volumes has the rules. */
import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { EXPORT_END, EXPORT_START, type ExportedRow, type ExportedTable } from '../../wire/volume-moves.ts';
import { chargeOf, isCounted } from '../charges.ts';
import { EXPORTED } from '../exported-tables.ts';
import { KIND_FILE } from '../schema.ts';
import { removed } from '../scopes.ts';
import type { Tables } from '../tables.ts';
import { totalsOf } from '../volume-export.ts';
import type { VolumeRow } from '../volume-tables.ts';

/**
 * Imports rows if those before `after` were the latest: of a repeated page, and of one that another primary sends
 * late, nothing is imported. @returns how far rows are imported
 */
export function catalogImport(
  tables: Tables,
  { number, after, next, tables: parts }: CommandOf<'catalog-import'>,
): CommandResults['catalog-import'] {
  const { own } = tables;
  if (number !== own.number)
    throw new ServiceError('bad-request', `This is catalog ${own.number}, not catalog ${number}`);
  const { name, begun, closed, imported = EXPORT_START } = own.state();
  if (closed) throw removed(name);
  if (begun || after !== imported) return { position: imported };
  for (const { table, rows } of parts) importRows(tables, table, rows);
  own.setImported(next);
  return { position: next };
}

function importRows(tables: Tables, table: ExportedTable, rows: readonly ExportedRow[]): void {
  switch (table) {
    case 'volumes':
      for (const row of rows) importVolume(tables, row);
      return;
    case 'moved_numbers':
      for (const [first, last] of rows)
        tables.moves.putRun(tables.own.number, { first: Number(first), last: Number(last) });
      return;
    case 'timed_sessions':
      for (const [id, usedMs, highest] of rows)
        if (tables.sessions.row(Number(id)) === undefined)
          tables.sessions.insertTimed(Number(id), Number(usedMs), Number(highest));
      return;
    case 'requests':
      importRequests(tables, rows);
      return;
    case 'retention_clock':
      for (const [clockNs] of rows) tables.retentions.setBack(String(clockNs));
      return;
    case 'totals':
      for (const row of rows) assertTotals(volumeOf(tables), row);
      return;
    default:
      tables.rows.insert(table, volumeOf(tables).id, rows);
      if (table === 'inodes') count(tables, rows);
      if (table === 'retentions' || table === 'retained_snapshots') noteRetentions(tables, table, rows);
      if (table === 'planned_members' && rows.length > 0) tables.placements.notePlanned();
  }
}

function noteRetentions(
  tables: Tables,
  table: 'retentions' | 'retained_snapshots',
  rows: readonly ExportedRow[],
): void {
  const { id } = volumeOf(tables);
  const untilColumn = EXPORTED[table].columns.indexOf('until_ns');
  for (const row of rows) tables.volumes.noteRetained(id, String(row[untilColumn]));
}

/** The volume counts its inodes as they are imported. */
function importVolume({ volumes, rows }: Tables, row: ExportedRow): void {
  const { columns } = EXPORTED.volumes;
  const value = (column: string) => row[columns.indexOf(column)] ?? null;
  const id = volumes.insert(String(value('name')), 0, 0, 0, 0);
  rows.set('volumes', id, row);
}

function volumeOf({ volumes, own }: Tables): VolumeRow {
  const [volume] = volumes.all();
  if (volume === undefined)
    throw new ServiceError('bad-request', `Catalog ${own.number} has not imported its volume yet`);
  return volume;
}

/** Outcomes of requests with a key, which are repeated here; other sessions begin anew with each catalog. */
function importRequests({ sessions }: Tables, rows: readonly ExportedRow[]): void {
  for (const [session, number, outcome] of rows) {
    const [id, request] = [Number(session), Number(number)];
    // A session that began after the sessions were exported is of a request for another volume.
    if (sessions.row(id)?.kind === 'timed' && sessions.request(id, request) === undefined)
      sessions.putRequest(id, request, String(outcome));
  }
}

/** Adds the inodes to all counters, once for each. */
function count(tables: Tables, rows: readonly ExportedRow[]): void {
  const { volumes, quotas, placements, inodes } = tables;
  const idColumn = EXPORTED.inodes.columns.indexOf('id');
  const files = new Map<string, number>();
  const named = { inodes: 0, bytes: 0 };
  const trashed = { inodes: 0, bytes: 0 };
  let usedBytes = 0;
  for (const row of rows) {
    const inode = inodes.existing(Number(row[idColumn]));
    if (inode.kind === KIND_FILE) usedBytes += inode.sizeBytes;
    for (const [sum, counts] of [
      [named, isCounted(inode)],
      [trashed, inode.trashed === 1],
    ] as const) {
      if (!counts) continue;
      sum.inodes += 1;
      sum.bytes += chargeOf(inode);
    }
    if (isCounted(inode)) quotas.charge(inode.quota, 1, chargeOf(inode));
    if (inode.replicas === '') continue;
    placements.insert(inode.id, inode.replicas);
    files.set(inode.replicas, (files.get(inode.replicas) ?? 0) + 1);
  }
  for (const [replicas, number] of files) placements.addToCounts(replicas, number);
  const { id } = volumeOf(tables);
  volumes.count(id, rows.length, usedBytes);
  volumes.charge(id, named.inodes, named.bytes);
  volumes.chargeTrash(id, trashed.inodes, trashed.bytes);
}

/** The root catalog has counted its inodes one by one: a row that is missing here, or there, shows. */
function assertTotals(volume: VolumeRow, row: ExportedRow): void {
  const [own, root] = [totalsOf(volume), row].map((totals) => totals.join(' '));
  if (own !== root)
    throw new ServiceError(
      'integrity',
      `The copy of volume "${volume.name}" counts ${own} (inodes, bytes, those with names, those in the trash), and the ` +
        `root catalog ${root}: the move must be ended`,
    );
}

/** @throws ServiceError `busy` while rows are missing */
export function assertImported({ own }: Tables): void {
  if (own.state().imported === EXPORT_END) return;
  throw new ServiceError('busy', `Catalog ${own.number} has not imported all rows of its volume yet`);
}
