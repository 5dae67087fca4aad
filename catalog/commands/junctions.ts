/** Directories of this catalog at which volumes of other catalogs are attached. The root catalog says which are. */
import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { attributesOf } from '../attributes.ts';
import { junctionOf } from '../junction-refusals.ts';
import type { Tables } from '../tables.ts';
import { nodeCreate, removeEmptyDirectory, resolveName } from './entries.ts';

export function junctionCreate(
  tables: Tables,
  command: CommandOf<'junction-create'>,
  atNs: string,
): CommandResults['junction-create'] {
  const { place, catalog, volume, mode, uid, gid } = command;
  if (catalog === tables.own.number)
    throw new ServiceError('precondition-failed', `The volume "${volume}" cannot be attached in itself`);
  const spot = resolveName(tables, place, 'exists');
  if (spot.inode !== undefined) {
    if (junctionOf(spot.inode)?.catalog !== catalog)
      throw new ServiceError('exists', `There is a "${spot.name}" already`);
    // An earlier attempt came as far as this, or another request is still under way.
    tables.junctions.share(spot.inode.id);
    return { attributes: attributesOf(spot.inode) };
  }
  const { id } = nodeCreate(tables, spot, { kind: 'directory', mode, uid, gid }, atNs);
  tables.junctions.insert(id, { catalog, volume });
  return { attributes: attributesOf(tables.inodes.existing(id)) };
}

export function junctionRemove(
  tables: Tables,
  { inode: id, unshared }: CommandOf<'junction-remove'>,
  atNs: string,
): CommandResults['junction-remove'] {
  const inode = tables.inode(id);
  if (inode === undefined) return {};
  if (junctionOf(inode) === null)
    throw new ServiceError('bad-request', `Inode ${id} is no directory at which a volume may be attached`);
  if (unshared === true && tables.junctions.isShared(id)) return {};
  const directory = tables.inodes.existing(inode.parent);
  const name = tables.entries.nameIn(directory.id, id);
  assert(name !== undefined, 'A junction has a name until it is removed');
  removeEmptyDirectory(tables, inode, { directory, name }, atNs);
  tables.junctions.delete(id);
  return {};
}
