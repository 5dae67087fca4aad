/**
 * Quotas that begin or end at directories with entries. Their trees are walked in slices, while they change:
 *
 * - `counting`: entries are visited, each directory before its entries, and what counted against the next outer quota
 *   counts against the new one then. What is created in a directory that was visited has the new quota, and what is
 *   created elsewhere is visited later. A rename that would leave a part unvisited visits first (`countAhead`).
 * - `checking`: files that had several names when they were visited must have all of them in the directory; their names
 *   that were visited are counted, also as they change (`QuotaWalkTables.nameChanged`). Else the quota is refused.
 * - `ending`: nothing new counts against the quota (`inheritedQuota`), and what does is found by an index.
 *
 * Counts of the outer quotas include both, so a slice changes the count of one row. Limits begin when all is counted:
 * before that, what they refuse would depend on the order of the visits.
 */
import { assert } from '../../base/assert.ts';
import type { CommandOf, CommandResults } from '../../wire/catalog-api.ts';
import { chargeOf, isCounted } from '../charges.ts';
import { NESTED_QUOTAS_MAX } from '../directory-quota-tables.ts';
import type { EntryRow, InodeRow } from '../inode-rows.ts';
import type { QuotaLimits, QuotaWalk } from '../quota-walk-tables.ts';
import { KIND_DIRECTORY } from '../schema.ts';
import type { Tables } from '../tables.ts';
import { directoryPath, isBelow, pathTo } from '../walk.ts';

/** The directory has its quota already, which counts it alone. */
export function beginCount(tables: Tables, { id, volume }: InodeRow, limits: QuotaLimits): void {
  tables.walks.put({
    ...{ directory: id, volume, phase: 'counting', visiting: 0, visited: '', why: '' },
    ...limits,
  });
  tables.walks.addDirectory(id, id);
}

/** What counts against the quota gets the next outer one from now on. @param why it is refused; empty: it is not */
export function beginEnd(tables: Tables, { id, volume }: Pick<InodeRow, 'id' | 'volume'>, why = ''): void {
  tables.walks.put({
    ...{ directory: id, volume, phase: 'ending', visiting: 0, visited: '', why },
    ...{ quotaBytes: 0, quotaInodes: 0 },
  });
  // It limits nothing from now on.
  tables.quotas.setLimits(id, { quotaBytes: 0, quotaInodes: 0 });
}

/** Continues the first walk by a slice. */
export function walkQuotas(
  tables: Tables,
  { countMax }: CommandOf<'walk-quotas'>,
): CommandResults['walk-quotas'] {
  const walk = tables.walks.next();
  if (walk === undefined) return { more: false };
  continueWalk(tables, walk, countMax);
  return { more: tables.walks.next() !== undefined };
}

function continueWalk(tables: Tables, walk: QuotaWalk, countMax: number): void {
  switch (walk.phase) {
    case 'counting':
      new Visit(tables, walk).entries(countMax);
      return;
    case 'checking':
      check(tables, walk, countMax);
      return;
    default:
      end(tables, walk, countMax);
      return;
  }
}

/** What is visited together: its count is added once. */
class Visit {
  readonly #tables: Tables;
  readonly #walk: QuotaWalk;
  readonly #outer: number;
  #inodes = 0;
  #bytes = 0;
  /** Why the quota is refused; null if it is not. */
  #why: string | null = null;

  constructor(tables: Tables, walk: QuotaWalk) {
    this.#tables = tables;
    this.#walk = walk;
    this.#outer = outerOf(tables, walk);
  }

  /** Visits the next entries, at most `countMax`. */
  entries(countMax: number): void {
    const { walks, entries, inodes } = this.#tables;
    const { directory: top } = this.#walk;
    let { visiting, visited } = this.#walk;
    let isEnd = false;
    for (let left = countMax; left > 0 && this.#why === null; ) {
      if (visiting === 0) {
        const next = walks.nextDirectory(top);
        isEnd = next === undefined;
        if (next === undefined) break;
        [visiting, visited] = [next, ''];
      }
      // It may be removed, or have left the tree, or have a quota of its own.
      const isCounted = inodes.row(visiting)?.quota === top;
      const children = isCounted ? entries.children(visiting, visited, left) : [];
      for (const child of children) this.#entry(visiting, child);
      visited = children.at(-1)?.entryName ?? visited;
      if (children.length < left) {
        walks.deleteDirectory(top, visiting);
        [visiting, visited] = [0, ''];
      }
      left -= Math.max(1, children.length);
    }
    this.#store();
    if (this.#why !== null) beginEnd(this.#tables, { ...this.#walk, id: top }, this.#why);
    else if (isEnd) walks.put({ ...this.#walk, phase: 'checking', visiting: 0, visited: '' });
    else walks.put({ ...this.#walk, visiting, visited });
  }

  /** Counts an entry of the tree before it is visited. */
  ahead(inode: InodeRow): void {
    this.#count(inode);
    this.#store();
    if (this.#why !== null) beginEnd(this.#tables, { ...this.#walk, id: this.#walk.directory }, this.#why);
  }

  #entry(parent: number, child: EntryRow): void {
    const { walks, inodes } = this.#tables;
    const { directory } = this.#walk;
    // Both names may be among the entries that were read together.
    const inode = child.kind !== KIND_DIRECTORY && child.links > 1 ? inodes.existing(child.id) : child;
    this.#count(inode);
    if (child.kind !== KIND_DIRECTORY && walks.isShared(directory, child.id))
      walks.addShared(directory, { inode: child.id, names: 1, parent, name: child.entryName });
  }

  #count(inode: InodeRow): void {
    const { walks, quotas, inodes } = this.#tables;
    const { directory } = this.#walk;
    const isDirectory = inode.kind === KIND_DIRECTORY;
    const own = isDirectory ? quotas.row(inode.id) : undefined;
    if ((own === undefined ? inode.quota : own.enclosing) !== this.#outer) return;
    if (own !== undefined) {
      const depth = quotas.chain(directory).length + quotas.height(inode.id);
      if (depth > NESTED_QUOTAS_MAX) {
        const path = directoryPath(this.#tables, inode.id);
        this.#why = `at most ${NESTED_QUOTAS_MAX} directories with a quota are in each other, as many as at "${inode.volumeName}:${path}" already`;
        return;
      }
      quotas.setEnclosing(inode.id, directory);
      this.#inodes += own.namedInodes;
      this.#bytes += own.namedBytes;
      return;
    }
    inodes.setQuota(inode.id, directory);
    this.#inodes += 1;
    this.#bytes += chargeOf(inode);
    if (isDirectory) walks.addDirectory(directory, inode.id);
    else if (inode.links > 1) walks.addShared(directory, { inode: inode.id, names: 0, parent: 0, name: '' });
  }

  #store(): void {
    this.#tables.quotas.add(this.#walk.directory, this.#inodes, this.#bytes);
    [this.#inodes, this.#bytes] = [0, 0];
  }
}

/** The quota that the tree counts against until it is visited. While it is walked, its directory stays in it. */
function outerOf({ quotas }: Tables, { directory }: QuotaWalk): number {
  const row = quotas.row(directory);
  assert(row !== undefined, 'The quota of a directory that is walked exists');
  return row.enclosing;
}

/** All that is in the directory is counted: files with several names must have them there. */
function check(tables: Tables, walk: QuotaWalk, countMax: number): void {
  const { walks, quotas, inodes } = tables;
  const { directory, quotaBytes, quotaInodes } = walk;
  const files = walks.shared(directory, countMax);
  for (const { inode: id, names, parent, name } of files) {
    const inode = tables.inode(id);
    if (inode?.quota === directory && inode.links > names) {
      if (names > 0) {
        beginEnd(tables, { ...walk, id: directory }, hasOtherNames(tables, inode, parent, name));
        return;
      }
      // Its names in the directory are gone.
      inodes.setQuota(id, outerOf(tables, walk));
      quotas.add(directory, -1, -chargeOf(inode));
    }
    walks.deleteShared(id);
  }
  if (files.length === countMax) return;
  quotas.setLimits(directory, { quotaBytes, quotaInodes });
  walks.delete(directory);
}

function hasOtherNames(tables: Tables, { id, volumeName }: InodeRow, parent: number, name: string): string {
  const directory = tables.inode(parent);
  const isThere = directory !== undefined && tables.child(parent, name)?.id === id;
  const path = isThere ? pathTo(tables, directory, name) : null;
  const what = path === null ? `file ${id}` : `"${volumeName}:${path}"`;
  return `${what} has names inside and outside of it (hard links): remove one of them`;
}

/** What counts against the quota gets the next outer one; then the quota is deleted. */
function end(tables: Tables, walk: QuotaWalk, countMax: number): void {
  const { walks, quotas, inodes } = tables;
  const { directory, why } = walk;
  // Without a row, the directory was removed, and only orphans that do not count name it.
  const outer = quotas.row(directory)?.enclosing ?? 0;
  let left = countMax - walks.deleteLists(directory, countMax);
  const sum = { inodes: 0, bytes: 0 };
  const found = left === 0 ? [] : inodes.againstQuota(directory, left);
  for (const id of found) {
    const inode = inodes.existing(id);
    inodes.setQuota(id, outer);
    if (!isCounted(inode)) continue;
    sum.inodes += 1;
    sum.bytes += chargeOf(inode);
  }
  left -= found.length;
  const nested = left === 0 ? [] : quotas.enclosedBy(directory, left);
  for (const row of nested) {
    quotas.setEnclosing(row.directory, outer);
    sum.inodes += row.namedInodes;
    sum.bytes += row.namedBytes;
  }
  left -= nested.length;
  quotas.add(directory, -sum.inodes, -sum.bytes);
  if (left === 0) return;
  quotas.delete(directory);
  if (inodes.exists(directory)) inodes.setQuota(directory, outer);
  if (why === '') walks.delete(directory);
  else walks.put({ ...walk, phase: 'refused' });
}

/**
 * The walk that is counting a directory, if one of two quotas is the new one and the other one the next outer one.
 */
export function countBetween(tables: Tables, a: number, b: number): QuotaWalk | undefined {
  if (a === b || tables.walks.isEmpty) return undefined;
  const walk = [a, b]
    .map((quota) => tables.walks.row(quota))
    .find((one) => one !== undefined && isCount(one));
  if (walk === undefined) return undefined;
  const outer = outerOf(tables, walk);
  return outer === a || outer === b ? walk : undefined;
}

function isCount({ phase }: QuotaWalk): boolean {
  return phase === 'counting' || phase === 'checking';
}

export function isInWalk(tables: Tables, { directory: top }: QuotaWalk, directory: InodeRow): boolean {
  return isBelow(tables, directory, tables.inodes.existing(top));
}

/** Counts a directory of the tree, and those that it is in, before they are visited. */
export function countAhead(tables: Tables, walk: QuotaWalk, directory: InodeRow): void {
  const above: InodeRow[] = [];
  for (let here = directory; here.quota !== walk.directory; here = tables.inodes.existing(here.parent))
    above.unshift(here);
  for (const one of above) new Visit(tables, walk).ahead(one);
}

/** Counts an entry of the tree before it is visited. */
export function countEntryAhead(tables: Tables, walk: QuotaWalk, inode: InodeRow): void {
  new Visit(tables, walk).ahead(inode);
}
