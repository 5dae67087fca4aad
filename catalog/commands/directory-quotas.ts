/**
 * Quotas of directories. Each inode counts against the innermost one around it, named by its `quota`, and against those
 * that this one is in. All names of a file, and all entries of a directory without a quota of its own, count against
 * the same; so what cannot get another quota in one step does not leave its directory's.
 */
import { ServiceError } from '../../base/errors.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { chargeOf } from '../charges.ts';
import { NESTED_QUOTAS_MAX } from '../directory-quota-tables.ts';
import { inheritedQuota } from '../inherited-quota.ts';
import type { InodeRow } from '../inode-rows.ts';
import { junctionOf } from '../junction-refusals.ts';
import { assertBytesAllowed, assertInodesAllowed, directoryQuotas } from '../quota.ts';
import { KIND_DIRECTORY } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { directoryOf } from '../tree.ts';
import { directoryPath, type ResolvedName } from '../walk.ts';
import { beginCount, beginEnd, countAhead, countBetween, countEntryAhead, isInWalk } from './quota-walks.ts';

/** Sets or changes the quota of a directory, or ends it. With entries, its walk follows (`quota-walks.ts`). */
export function setQuota(
  tables: Tables,
  { inode: id, quota: wanted, ...options }: CommandOf<'set-quota'>,
): CommandResults['set-quota'] {
  const directory = directoryOf(tables, id);
  const walks = options.walks === true;
  const row = tables.quotas.row(id);
  if (wanted === null) {
    if (tables.walks.row(id)?.phase === 'refused') tables.walks.delete(id);
    else endQuota(tables, directory, walks);
    return {};
  }
  const walk = tables.walks.row(id);
  const before = walk ?? row;
  const { quotaBytes = before?.quotaBytes ?? 0, quotaInodes = before?.quotaInodes ?? 0 } = wanted;
  if (row === undefined) beginQuota(tables, directory, walks);
  if (row === undefined && tables.entries.hasChildren(id))
    beginCount(tables, directory, { quotaBytes, quotaInodes });
  else if (row === undefined || walk === undefined) {
    tables.walks.forgetRefusal(id);
    tables.quotas.setLimits(id, { quotaBytes, quotaInodes });
  } else if (walk.phase === 'counting' || walk.phase === 'checking')
    tables.walks.put({ ...walk, quotaBytes, quotaInodes });
  return {};
}

function beginQuota(tables: Tables, directory: InodeRow, walks: boolean): void {
  const { id, volume, volumeName } = directory;
  const enclosing = inheritedQuota(tables, directory);
  if (directory.parent === id)
    throw new ServiceError(
      'bad-request',
      `"${volumeName}:/" is the root of a volume: set the quota of the volume`,
    );
  const name = nameOf(tables, directory);
  if (junctionOf(directory) !== null)
    throw new ServiceError('bad-request', `A volume is attached at ${name}: set the quota of that volume`);
  if (!walks && tables.entries.hasChildren(id))
    throw new ServiceError(
      'precondition-failed',
      `${name} has entries, which do not count against its quota: create an empty directory, set its quota, and move ` +
        'them there',
    );
  assertDepth(tables.quotas.chain(enclosing).length + 1);
  // The directory itself is all that it has; what it is in counts it already.
  const limits = { quotaBytes: 0, quotaInodes: 0 };
  tables.quotas.insert({ directory: id, volume, enclosing, ...limits, namedInodes: 1, namedBytes: 0 });
  // One that ends counts it until it is found by its quota.
  if (directory.quota !== enclosing) tables.quotas.add(directory.quota, -1, 0);
  tables.inodes.setQuota(id, id);
}

function endQuota(tables: Tables, directory: InodeRow, walks: boolean): void {
  const { id } = directory;
  const row = tables.quotas.row(id);
  if (row === undefined)
    throw new ServiceError('not-found', `${nameOf(tables, directory)} has no quota of its own`);
  const others = row.namedInodes - 1;
  if (tables.walks.row(id) !== undefined || (walks && others > 0)) {
    beginEnd(tables, directory);
    return;
  }
  if (others > 0)
    throw new ServiceError(
      'precondition-failed',
      `${others} files and directories count against the quota of ${nameOf(tables, directory)}, perhaps in the trash: ` +
        'remove them first, or set its limits to none',
    );
  tables.quotas.delete(id);
  tables.inodes.setQuota(id, row.enclosing);
}

function nameOf(tables: Tables, { id, volumeName }: InodeRow): string {
  return `"${volumeName}:${directoryPath(tables, id) ?? ''}"`;
}

function assertDepth(depth: number): void {
  if (depth <= NESTED_QUOTAS_MAX) return;
  throw new ServiceError(
    'too-large',
    `At most ${NESTED_QUOTAS_MAX} directories with a quota are in each other`,
  );
}

/**
 * An inode with one name, or a directory without entries or with a quota, is about to be an entry of `target`: moves
 * what it counts to the quotas there.
 * @param freed what no longer counts there then
 * @param from the directory that it was in; absent: the trash
 * @throws ServiceError `quota-exceeded`; `cross-volume` if it cannot get other quotas in one step
 */
export function moveCharge(
  tables: Tables,
  moved: InodeRow,
  target: InodeRow,
  freed = { inodes: 0, bytes: 0 },
  from?: InodeRow,
): void {
  const own = moved.kind === KIND_DIRECTORY ? tables.quotas.row(moved.id) : undefined;
  const before = own === undefined ? moved.quota : own.enclosing;
  const after = inheritedQuota(tables, target);
  if (inheritedQuota(tables, { quota: before }) === after) return;
  if (own === undefined && from !== undefined && isCountedAlike(tables, moved, from, target)) return;
  if (moved.links > 1 && moved.kind !== KIND_DIRECTORY)
    throw new ServiceError(
      'cross-volume',
      `Inode ${moved.id} has ${moved.links} names (hard links), and another quota of a directory counts there: copy it`,
    );
  if (own === undefined && moved.kind === KIND_DIRECTORY && tables.entries.hasChildren(moved.id))
    throw new ServiceError(
      'cross-volume',
      `Directory ${moved.id} has entries, and another quota of a directory counts there: copy it`,
    );
  const left = tables.quotas.chain(before);
  const reached = tables.quotas.chain(after);
  if (own !== undefined) assertDepth(reached.length + tables.quotas.height(moved.id));
  const isIn = ({ directory }: { readonly directory: number }, rows: typeof left) =>
    rows.some((row) => row.directory === directory);
  const entered = reached.filter((row) => !isIn(row, left));
  const inodes = own?.namedInodes ?? 1;
  const bytes = own?.namedBytes ?? chargeOf(moved);
  const quotas = directoryQuotas(tables, tables.volumes.row(target.volume), entered);
  assertInodesAllowed(quotas, inodes, freed.inodes);
  assertBytesAllowed(quotas, bytes, freed.bytes);
  // First those that it enters: no quota that both have in common ends in between.
  tables.quotas.charge(after, inodes, bytes);
  tables.quotas.charge(before, -inodes, -bytes);
  if (own === undefined) tables.inodes.setQuota(moved.id, after);
  else tables.quotas.setEnclosing(moved.id, after);
}

/**
 * Whether a move between parts of a tree that is being counted is none between quotas: visits first what else would be
 * visited too late. @returns whether the moved inode needs no other quota then
 */
function isCountedAlike(tables: Tables, moved: InodeRow, from: InodeRow, target: InodeRow): boolean {
  const walk = countBetween(tables, moved.quota, target.quota);
  if (walk === undefined) return false;
  if (target.quota === walk.directory) {
    if (!isInWalk(tables, walk, from)) return false;
    countEntryAhead(tables, walk, moved);
    return true;
  }
  if (isInWalk(tables, walk, target)) {
    countAhead(tables, walk, target);
    return true;
  }
  // Whether a file with several names stays in the tree is known at the end of the walk.
  return tables.walks.isShared(walk.directory, moved.id) && !isInWalk(tables, walk, from);
}

/** Whether a file may get a name in a directory: all its names count against the same quota. */
export function countsAlike(tables: Tables, file: InodeRow, directory: InodeRow): boolean {
  if (inheritedQuota(tables, file) === inheritedQuota(tables, directory)) return true;
  const walk = countBetween(tables, file.quota, directory.quota);
  const isInside = walk?.directory === file.quota && !tables.walks.isShared(walk.directory, file.id);
  if (walk === undefined || !isInside || !isInWalk(tables, walk, directory)) return false;
  countAhead(tables, walk, directory);
  return true;
}

/**
 * Before an exchange of entries: both count against the same quota, also if not all of it is visited yet.
 * @throws ServiceError `cross-volume`
 */
export function assertSameQuota(tables: Tables, from: ResolvedEntry, to: ResolvedEntry): void {
  const [a, b] = [from, to].map(({ directory }) => inheritedQuota(tables, directory));
  const between = countBetween(tables, from.directory.quota, to.directory.quota);
  if (between !== undefined)
    for (const { directory } of [from, to])
      if (isInWalk(tables, between, directory)) countAhead(tables, between, directory);
  const isSame =
    a === b ||
    (between !== undefined && [from, to].every(({ directory }) => isInWalk(tables, between, directory)));
  if (!isSame)
    throw new ServiceError(
      'cross-volume',
      `Cannot exchange "${from.name}" and "${to.name}": different quotas of directories count there`,
    );
  const walk = between ?? tables.walks.row(from.directory.quota);
  if (walk?.phase === 'counting') for (const { inode } of [from, to]) countEntryAhead(tables, walk, inode);
}

type ResolvedEntry = ResolvedName & { readonly inode: InodeRow };

/** What becomes another volume's with its directory counts no longer against `outer`, the quota that this one is in. */
export function leaveQuota(tables: Tables, inode: InodeRow, outer: number): void {
  replaceQuota(tables, inode, outer, 0);
}

/** The reverse of `leaveQuota`. */
export function returnToQuota(tables: Tables, inode: InodeRow, outer: number): void {
  replaceQuota(tables, inode, 0, outer);
}

/** Unless the inode counts against a quota inside. */
function replaceQuota(tables: Tables, inode: InodeRow, from: number, to: number): void {
  const own = inode.kind === KIND_DIRECTORY ? tables.quotas.row(inode.id) : undefined;
  if (from === to || (own === undefined ? inode.quota : own.enclosing) !== from) return;
  const [inodes, bytes] = own === undefined ? [1, chargeOf(inode)] : [own.namedInodes, own.namedBytes];
  tables.quotas.charge(to, inodes, bytes);
  tables.quotas.charge(from, -inodes, -bytes);
  if (own === undefined) tables.inodes.setQuota(inode.id, to);
  else tables.quotas.setEnclosing(inode.id, to);
}
