import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { Gateway } from '../gateway.ts';
import { currentOf } from './conditional-change.ts';
import { displayPath, type FilePath, volumePath } from './path.ts';
import type { Removal } from './removal.ts';

/** Names that one request removes at the most: it ends in bounded time, and is sent again. */
const NAMES_MAX = 10_000;
/** Names that are listed at once, and commands under way at the same time: the catalog makes a batch of them. */
const PAGE_COUNT = 200;
/** Directories in each other; paths are not longer. */
const DEPTH_MAX = 4_096;

export interface TreeRemoval {
  readonly removed: number;
  /** There is something left: the same request goes on. */
  readonly more: boolean;
}

/**
 * Removes a directory with all that is in it, from its leaves on. It is no single step: readers see parts of it. Whoever breaks off,
 * or is broken off by the bound, asks again, and nothing that was removed comes back.
 */
export async function removeTree(gateway: Gateway, path: FilePath, removal: Removal): Promise<TreeRemoval> {
  const root = await currentOf(gateway, path, { follow: false, live: false });
  if (root === null) throw new ServiceError('not-found', `There is no ${displayPath(path)}`);
  if (root.kind !== 'directory')
    throw new ServiceError('not-directory', `${displayPath(path)} is no directory`);
  const budget = { left: NAMES_MAX };
  const epoch = gateway.catalogEpoch;
  const place = { volume: path.volume, path: volumePath(path.names) };
  await removeInside(gateway, root, removal, budget, 1);
  // The root of a volume stays; it is empty now.
  const removesItself = path.names.length > 0 && budget.left > 0;
  if (removesItself) {
    // The catalog removes only an empty directory, and the removal survives a loss of power: so do all removals before it.
    await gateway.durably({ kind: 'remove-directory', place });
    return { removed: NAMES_MAX - budget.left + 1, more: false };
  }
  await gateway.flushCatalog();
  // What was removed in an earlier epoch may be there again after a loss of power.
  return { removed: NAMES_MAX - budget.left, more: budget.left === 0 || gateway.catalogEpoch !== epoch };
}

async function removeInside(
  gateway: Gateway,
  directory: Attributes,
  removal: Removal,
  budget: { left: number },
  depth: number,
): Promise<void> {
  if (depth > DEPTH_MAX)
    throw new ServiceError('bad-request', `More than ${DEPTH_MAX} directories in each other`);
  const parent = directory.inode;
  for (;;) {
    // Always from the beginning: what was listed before is gone.
    const countMax = Math.min(PAGE_COUNT, budget.left);
    if (countMax === 0) return;
    const { entries } = await gateway.queryCatalog({ kind: 'list', inode: parent, after: '', countMax });
    if (entries.length === 0) return;
    const directories = entries.filter(({ attributes }) => attributes.kind === 'directory');
    const others = entries.filter(({ attributes }) => attributes.kind !== 'directory');
    await Promise.all(
      others.map(({ name }) =>
        unlessGone(gateway.command({ kind: 'unlink', place: { parent, name }, ...removal })),
      ),
    );
    budget.left -= others.length;
    for (const { name, attributes } of directories) {
      await removeInside(gateway, attributes, removal, budget, depth + 1);
      if (budget.left === 0) return;
      await unlessGone(gateway.command({ kind: 'remove-directory', place: { parent, name } }));
      budget.left--;
    }
  }
}

/** Somebody else removed it, or put something into it, in the same moment: the next look tells. */
async function unlessGone(change: Promise<unknown>): Promise<void> {
  try {
    await change;
  } catch (error) {
    const passes =
      error instanceof ServiceError && (error.code === 'not-found' || error.code === 'not-empty');
    if (!passes) throw error;
  }
}
