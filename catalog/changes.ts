import { ServiceError } from '../base/errors.ts';
import type { TreeChange } from '../wire/catalog-api.ts';
import { kindName } from './attributes.ts';
import type { NameChange } from './change-record.ts';
import type { CatalogDatabase } from './schema.ts';
import { Tables } from './tables.ts';
import { directoryOf } from './tree.ts';

/** Deepest directory nesting; guards against cycles. */
const DEPTH_MAX = 4_096;

/**
 * Selects changes in a directory or, `recursive`, below it, with their present paths relative to it. A content change
 * has only its inode, so it is reported only for files of the directory itself. @throws ServiceError `not-found` if
 * the directory was deleted
 */
export function changesBelow(
  db: CatalogDatabase,
  directory: number,
  recursive: boolean,
  changes: readonly NameChange[],
): TreeChange[] {
  const tables = Tables.of(db);
  directoryOf(tables, directory);
  return changes.flatMap((change): TreeChange[] => {
    const path =
      change.kind === 'modified'
        ? tables.entries.nameIn(directory, change.inode)
        : pathBelow(tables, directory, recursive, change.parent, change.name);
    if (path === undefined) return [];
    const inode = tables.inode(change.inode);
    return [{ change: change.kind, path, ...(inode === undefined ? {} : { kind: kindName(inode.kind) }) }];
  });
}

/** @returns the entry's path from the directory; undefined if it is not below it */
function pathBelow(
  tables: Tables,
  directory: number,
  recursive: boolean,
  parent: number,
  name: string,
): string | undefined {
  if (parent === directory) return name;
  if (!recursive) return undefined;
  const names = [name];
  let here = tables.inode(parent);
  for (let depth = 0; here !== undefined && here.id !== directory; depth++) {
    if (depth > DEPTH_MAX) throw new ServiceError('integrity', 'A directory lies in itself');
    // A volume's root is its own parent.
    const above = here.parent === here.id ? undefined : tables.entries.nameIn(here.parent, here.id);
    if (above === undefined) return undefined;
    names.unshift(above);
    here = tables.inode(here.parent);
  }
  return here === undefined ? undefined : names.join('/');
}
