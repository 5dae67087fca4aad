import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import type { VolumeSettings } from '../../wire/catalog-values.ts';
import { volumeInfoOf } from '../attributes.ts';
import { EMPTY_DIRECTORY } from '../inode-tables.ts';
import { joinList } from '../lists.ts';
import { POLICIES } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';
import type { VolumeRow } from '../volume-tables.ts';
import { beginRemoval, refuseTakenName, removeLost } from './volume-catalogs.ts';

export function volumeCreate(
  tables: Tables,
  command: CommandOf<'volume-create'>,
  atNs: string,
): CommandResults['volume-create'] {
  refuseTakenName(tables, command.name);
  return { volume: volumeInfoOf(createVolume(tables, command.name, command, atNs)) };
}

/** @param rootInode number of the root directory; absent: the next one */
export function createVolume(
  tables: Tables,
  name: string,
  settings: VolumeSettings,
  atNs: string,
  rootInode?: number,
): VolumeRow {
  const policy = POLICIES.indexOf(settings.policy ?? 'quorum');
  const id = tables.volumes.insert(name, 0, settings.replicas, settings.objectBytes, policy);
  const root = tables.inodes.insert({
    ...(rootInode === undefined ? {} : { id: rootInode }),
    ...EMPTY_DIRECTORY,
    volume: id,
    mode: settings.mode ?? 0o755,
    uid: settings.uid ?? 0,
    gid: settings.gid ?? 0,
    atNs,
    parent: 'self',
  });
  tables.volumes.setRoot(id, root);
  const { quotaBytes = 0, quotaInodes = 0, trashMs = 0, replicas } = settings;
  const [labels, zones] = [joinList(settings.labels), joinList(settings.zones)];
  if (quotaBytes > 0 || quotaInodes > 0 || trashMs > 0 || labels !== '' || zones !== '')
    tables.volumes.set(id, { replicas, policy, quotaBytes, quotaInodes, trashMs, labels, zones });
  return tables.volumes.row(id);
}

/** Changes a volume's settings. The steward moves existing files' replicas later, file by file. */
export function volumeSet(tables: Tables, command: CommandOf<'volume-set'>): CommandResults['volume-set'] {
  const volume = volumeOf(tables, command.name);
  const policy = command.policy === undefined ? volume.policy : POLICIES.indexOf(command.policy);
  tables.volumes.set(volume.id, {
    replicas: command.replicas ?? volume.replicas,
    policy,
    quotaBytes: command.quotaBytes ?? volume.quotaBytes,
    quotaInodes: command.quotaInodes ?? volume.quotaInodes,
    trashMs: command.trashMs ?? volume.trashMs,
    labels: command.labels === undefined ? volume.labels : joinList(command.labels),
    zones: command.zones === undefined ? volume.zones : joinList(command.zones),
  });
  return { volume: volumeInfoOf(tables.volumes.row(volume.id)) };
}

export function volumeRemove(
  tables: Tables,
  command: CommandOf<'volume-remove'>,
): CommandResults['volume-remove'] {
  const listed = tables.catalogs.byName(command.name);
  if (listed?.moving !== undefined)
    throw new ServiceError(
      'precondition-failed',
      `Volume "${command.name}" moves to a catalog of its own: end the move first`,
    );
  if (listed !== undefined)
    return { catalog: command.lost ? removeLost(tables, listed) : beginRemoval(tables, listed) };
  if (command.lost)
    throw new ServiceError('bad-request', `There is no volume "${command.name}" with a catalog of its own`);
  const volume = volumeOf(tables, command.name);
  if (tables.moves.sources().includes(volume.id))
    throw new ServiceError('busy', `A directory of "${command.name}" becomes a volume: end the split first`);
  const why = notEmpty(tables, volume);
  if (why !== null) throw new ServiceError('not-empty', why);
  deleteVolume(tables, volume);
  return {};
}

/** @returns why a volume cannot be removed, or null; orphans do not count */
export function notEmpty(tables: Tables, { id, name, root, trashedInodes }: VolumeRow): string | null {
  if (tables.entries.hasChildren(root)) return `Volume "${name}" is not empty`;
  if (trashedInodes > 0) {
    const files = trashedInodes === 1 ? '1 file' : `${trashedInodes} files`;
    return `The trash of volume "${name}" has ${files}: empty it first`;
  }
  const [first, ...others] = tables.snapshots.all(id);
  if (first === undefined) return null;
  return `Volume "${name}" has ${others.length + 1} snapshots, the first of them "${first.name}": remove them before`;
}

/** Deletes an empty volume with its orphans. Servers remove replicas as of all deleted files. */
export function deleteVolume(tables: Tables, { id, root }: VolumeRow): void {
  tables.sweeps.forgetVolume(id);
  for (const orphan of tables.inodeLists.orphansOfVolume(id)) tables.inodes.delete(orphan);
  tables.inodes.delete(tables.inodes.existing(root));
  tables.volumes.delete(id);
}
