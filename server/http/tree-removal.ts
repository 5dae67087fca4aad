import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { displayPath, type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { attributesAt } from './conditional-change.ts';
import type { Removal } from './removal.ts';

/** Most names that one request removes: it ends in bounded time, and the client repeats it. */
const NAMES_MAX = 10_000;
/** Entries listed at a time, and concurrent commands, which the catalog executes in batches. */
const PAGE_COUNT = 200;
const DEPTH_MAX = 4_096;

export interface TreeRemoval {
  readonly removed: number;
  /** Something is left: repeat the request. */
  readonly more: boolean;
}

/**
 * Removes a directory and everything in it, deepest first. It is not atomic: readers see parts of it. After an early
 * end the client repeats the request; what was removed stays removed.
 */
export async function removeTree(gateway: Gateway, path: FilePath, removal: Removal): Promise<TreeRemoval> {
  const root = await attributesAt(gateway, path, { follow: false, live: false });
  if (root === null) throw new ServiceError('not-found', `There is no ${displayPath(path)}`);
  if (root.kind !== 'directory')
    throw new ServiceError('not-directory', `${displayPath(path)} is not a directory`);
  const budget = { remaining: NAMES_MAX };
  const catalog = gateway.ofInode(root.inode);
  const { epoch } = catalog;
  const place = { volume: path.volume, path: volumePath(path.names) };
  await removeInside(gateway, root, removal, budget, 1);
  // The root directory of a volume is not removed.
  const removesItself = path.names.length > 0 && budget.remaining > 0;
  if (removesItself) {
    // Only an empty directory can be removed, and durably: so are all removals before it.
    await gateway.durably({ kind: 'remove-directory', place });
    return { removed: NAMES_MAX - budget.remaining + 1, more: false };
  }
  await catalog.flush();
  // A loss of power may have undone the removals of an earlier epoch.
  return {
    removed: NAMES_MAX - budget.remaining,
    more: budget.remaining === 0 || catalog.epoch !== epoch,
  };
}

async function removeInside(
  gateway: Gateway,
  directory: Attributes,
  removal: Removal,
  budget: { remaining: number },
  depth: number,
): Promise<void> {
  if (depth > DEPTH_MAX)
    throw new ServiceError('bad-request', `Directories are nested deeper than ${DEPTH_MAX}`);
  const parent = directory.inode;
  for (;;) {
    // Always from the start: the entries listed before were removed.
    const countMax = Math.min(PAGE_COUNT, budget.remaining);
    if (countMax === 0) return;
    const { entries } = await gateway.queryCatalog({ kind: 'list', inode: parent, after: '', countMax });
    if (entries.length === 0) return;
    const directories = entries.filter(({ attributes }) => attributes.kind === 'directory');
    const others = entries.filter(({ attributes }) => attributes.kind !== 'directory');
    await Promise.all(
      others.map(({ name }) =>
        ignoreConcurrent(gateway.command({ kind: 'unlink', place: { parent, name }, ...removal })),
      ),
    );
    budget.remaining -= others.length;
    for (const { name, attributes } of directories) {
      await removeInside(gateway, attributes, removal, budget, depth + 1);
      if (budget.remaining === 0) return;
      await ignoreConcurrent(gateway.command({ kind: 'remove-directory', place: { parent, name } }));
      budget.remaining--;
    }
  }
}

/** Ignores that another client removed the entry, or created something in it: the next listing shows that. */
async function ignoreConcurrent(change: Promise<unknown>): Promise<void> {
  try {
    await change;
  } catch (error) {
    const passes =
      error instanceof ServiceError && (error.code === 'not-found' || error.code === 'not-empty');
    if (!passes) throw error;
  }
}
