import type { ExportedTable } from '../wire/volume-moves.ts';

/** How rows of a table are exported. */
export interface TableShape {
  /** Without the volume, which has another id in another catalog. */
  readonly columns: readonly string[];
  /** Columns in whose order rows are read. */
  readonly key: readonly string[];
  /**
   * `number`: by numbers of inodes, the first column of the key. `volume`: by the volume's id. `session`: of all
   * volumes, because sessions do not name one. `own`: by the number of the catalog to which the volume moves.
   */
  readonly by: 'number' | 'volume' | 'session' | 'own';
  /** Whether the table names the volume. */
  readonly namesVolume: boolean;
}

function shape(
  by: TableShape['by'],
  columns: string,
  key: string,
  namesVolume: 'names the volume' | 'names no volume' = 'names no volume',
): TableShape {
  const words = (text: string) => text.split(/,\s*/);
  return { by, columns: words(columns), key: words(key), namesVolume: namesVolume === 'names the volume' };
}

export type ShapedTable = Exclude<ExportedTable, 'totals' | 'retention_clock'>;

export function isShaped(table: ExportedTable): table is ShapedTable {
  return table !== 'totals' && table !== 'retention_clock';
}

/**
 * The rows that move with a volume. Others stay: of servers, sessions with a known start, deletions, and numbers that
 * are reserved without a volume. Placements and their counts follow from the inodes.
 */
export const EXPORTED: Readonly<Record<ShapedTable, TableShape>> = {
  volumes: shape(
    'volume',
    `name, root, replicas, object_bytes, policy, quota_bytes, quota_inodes, trash_ms, serial, kept, labels, zones`,
    'name',
  ),
  snapshots: shape('volume', 'serial, name, made_ns', 'serial', 'names the volume'),
  retained_snapshots: shape('volume', 'serial, until_ns', 'serial', 'names the volume'),
  sweeps: shape('volume', 'serial', 'serial', 'names the volume'),
  moved_numbers: shape('own', 'first, last', 'first'),
  reserved: shape('number', 'first, last, owner, at_ns, members', 'first', 'names the volume'),
  timed_sessions: shape('session', 'id, used_ms, highest', 'id'),
  requests: shape('session', 'session, number, outcome', 'session, number'),
  // Before the inodes, which count in their trash.
  trash: shape('number', 'inode, path, removed_ns, removed_by', 'inode', 'names the volume'),
  directory_classes: shape('number', 'directory, labels, zones, replicas', 'directory', 'names the volume'),
  // Before the inodes, which count against them.
  directory_quotas: shape(
    'number',
    'directory, enclosing, quota_bytes, quota_inodes',
    'directory',
    'names the volume',
  ),
  junctions: shape('number', 'inode, catalog, volume, shared', 'inode'),
  inodes: shape(
    'number',
    `id, kind, mode, uid, gid, links, size, accessed_ns, modified_ns, changed_ns, target, device, replicas, view, object_bytes,
     contents_epoch, contents_seq, modified_epoch, modified_seq, live, mark_epoch, mark_turn, parent, orphaned_ns, wanted, policy, allowed,
     since, preserving, holes, created_ns, flags, placement, quota`,
    'id',
    'names the volume',
  ),
  retentions: shape('number', 'inode, until_ns', 'inode'),
  xattrs: shape('number', 'inode, name, value, since', 'inode, name'),
  entries: shape('number', 'parent, name, inode, since', 'parent, name'),
  planned_members: shape('number', 'inode, server, view, epoch, turn', 'inode, server'),
  past_inodes: shape(
    'number',
    `id, until, since, kind, mode, uid, gid, links, size, accessed_ns, modified_ns, changed_ns, target, device, object_bytes,
     contents_epoch, contents_seq, modified_epoch, modified_seq, parent, policy, source, holes, created_ns, flags`,
    'id, until',
    'names the volume',
  ),
  past_entries: shape(
    'number',
    'parent, name, until, since, inode',
    'parent, name, until',
    'names the volume',
  ),
  past_xattrs: shape('number', 'inode, name, until, since, value', 'inode, name, until', 'names the volume'),
};

/** Whether the column is of 64-bit integers, which a JavaScript number would round: they are exported as texts. */
export function isTime(column: string): boolean {
  return column.endsWith('_ns');
}

/** Whether the column is of bytes, which are exported in base64. */
export function isBytes(column: string): boolean {
  return column === 'value';
}
