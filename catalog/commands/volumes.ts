import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { volumeInfoOf } from '../attributes.ts';
import { KIND_DIRECTORY, POLICIES } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { volumeOf } from '../tree.ts';

export function volumeCreate(
  tables: Tables,
  command: CommandOf<'volume-create'>,
  atNs: string,
): CommandResults['volume-create'] {
  if (tables.volumes.byName(command.name) !== undefined) {
    throw new ServiceError('exists', `There is a volume "${command.name}" already`);
  }
  const policy = POLICIES.indexOf(command.policy ?? 'quorum');
  const id = tables.volumes.insert(command.name, 0, command.replicas, command.objectBytes, policy);
  const root = tables.inodes.insert({
    volume: id,
    kind: KIND_DIRECTORY,
    mode: command.mode ?? 0o755,
    uid: command.uid ?? 0,
    gid: command.gid ?? 0,
    links: 2,
    sizeBytes: 0,
    atNs,
    target: '',
    device: 0,
    replicas: '',
    view: 0,
    objectBytes: 0,
    live: 0,
    parent: 'self',
    orphanedNs: null,
    policy: 0,
    allowed: null,
  });
  tables.volumes.setRoot(id, root);
  const { quotaBytes = 0, quotaInodes = 0, replicas } = command;
  const trashMs = command.trashMs ?? 0;
  if (quotaBytes > 0 || quotaInodes > 0 || trashMs > 0)
    tables.volumes.set(id, { replicas, policy, quotaBytes, quotaInodes, trashMs });
  return { volume: volumeInfoOf(tables.volumes.row(id)) };
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
  });
  return { volume: volumeInfoOf(tables.volumes.row(volume.id)) };
}

/** Removes an empty volume; orphans do not count, and are deleted. Servers remove replicas as of all deleted files. */
export function volumeRemove(
  tables: Tables,
  command: CommandOf<'volume-remove'>,
): CommandResults['volume-remove'] {
  const volume = volumeOf(tables, command.name);
  if (tables.entries.hasChildren(volume.root)) {
    throw new ServiceError('not-empty', `Volume "${command.name}" is not empty`);
  }
  if (volume.trashedInodes > 0) {
    const files = volume.trashedInodes === 1 ? '1 file' : `${volume.trashedInodes} files`;
    throw new ServiceError('not-empty', `The trash of volume "${command.name}" has ${files}: empty it first`);
  }
  const snapshots = tables.snapshots.all(volume.id);
  if (snapshots.length > 0) {
    const [first] = snapshots;
    throw new ServiceError(
      'not-empty',
      `Volume "${command.name}" has ${snapshots.length} snapshots, the first of them "${first?.name}": remove them before`,
    );
  }
  tables.sweeps.forgetVolume(volume.id);
  for (const orphan of tables.inodeLists.orphansOfVolume(volume.id)) tables.inodes.delete(orphan);
  tables.inodes.delete(tables.inodes.existing(volume.root));
  tables.volumes.delete(volume.id);
  return {};
}
