import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Command, DirectoryQuota } from '../../wire/catalog-api.ts';
import { type Catalog, main } from './fixture.ts';
import { assertSound } from './soundness.ts';

/** Quotas of directories, and random changes of trees that count against them. */
export const NODE = { mode: 0o644, uid: 0, gid: 0 } as const;
export const ANYTHING = { kind: 'anything' } as const;

export type Limits = { readonly quotaBytes?: number; readonly quotaInodes?: number };

/** A file of this size. */
export function file(catalog: Catalog, path: string, sizeBytes = 0): number {
  const { inode } = catalog.file(path);
  settle(catalog, inode, sizeBytes);
  return inode;
}

export function settle(catalog: Catalog, inode: number, sizeBytes: number, seq = 1): void {
  const one = { inode, sizeBytes, modifiedNs: '7', contents: { epoch: 1, seq } };
  catalog.run({ kind: 'settle', files: [one] });
}

export function quotas(catalog: Catalog): readonly DirectoryQuota[] {
  return catalog.query({ kind: 'directory-quotas', volume: 'main', after: 0, countMax: 100 }).quotas;
}

/** Inodes and bytes by path. */
export function used(catalog: Catalog): Readonly<Record<string, readonly [number, number]>> {
  assertSound(catalog.db);
  const rows = quotas(catalog).map(({ path = 'removed', namedInodes, namedBytes }) => [
    path,
    [namedInodes, namedBytes] as const,
  ]);
  return Object.fromEntries(rows);
}

export function renamed(from: string, to: string, mode: 'replace' | 'exchange' = 'replace'): Command {
  return { kind: 'rename', from: main(from), to: main(to), mode };
}

export function linked(inode: number, path: string): Command {
  return { kind: 'link', inode, place: main(path) };
}

/** A write, which two commands report, or a command. */
export type Step = Command | { readonly kind: 'write'; readonly path: string; readonly size: number };

/** @param seq of the contents that a write leaves */
export function execute(catalog: Catalog, step: Step, seq: number): void {
  if (step.kind !== 'write') {
    catalog.run(step);
    return;
  }
  const { inode } = catalog.at(step.path);
  catalog.run({ kind: 'open-for-write', inode, growTo: step.size });
  settle(catalog, inode, step.size, seq);
}

export function pathIn(folders: readonly string[], names: readonly string[]): fc.Arbitrary<string> {
  return fc
    .tuple(fc.constantFrom(...folders), fc.constantFrom(...names))
    .map(([directory, name]) => `${directory}/${name}`);
}

/** Steps that change a tree, by what they do. @param inode of files, perhaps of none */
export function treeSteps(path: fc.Arbitrary<string>, inode: fc.Arbitrary<number>) {
  const pair = fc.tuple(path, path);
  const fileAt = fc.tuple(inode, path);
  return {
    create: path.map((at): Step => ({ kind: 'create-file', place: main(at), ...NODE, exclusive: true })),
    directory: path.map((at): Step => ({ kind: 'make-directory', place: main(at), ...NODE })),
    write: fc.record({ kind: fc.constant('write' as const), path, size: fc.nat({ max: 3_000 }) }),
    rename: pair.map(([from, to]): Step => renamed(from, to)),
    exchange: pair.map(([from, to]): Step => renamed(from, to, 'exchange')),
    link: fileAt.map(([file, at]): Step => linked(file, at)),
    replace: fileAt.map(
      ([file, at]): Step => ({ kind: 'replace', inode: file, place: main(at), expect: ANYTHING }),
    ),
    orphan: fc.constant<Step>({ kind: 'create-orphan', volume: 'main', ...NODE }),
    unlink: path.map((at): Step => ({ kind: 'unlink', place: main(at) })),
    removal: path.map((at): Step => ({ kind: 'remove-directory', place: main(at) })),
    restore: fileAt.map(([file, to]): Step => ({ kind: 'trash-restore', volume: 'main', inode: file, to })),
    emptying: fc.constant<Step>({ kind: 'trash-empty', volume: 'main', countMax: 1 }),
  };
}

/** Walks: names of files with several names, by what is visited, are counted exactly. */
export function assertNamesCounted({ db }: Pick<Catalog, 'db'>): void {
  const wrong = db
    .prepare(
      `SELECT f.inode, f.names, COUNT(e.name) AS counted FROM quota_walk_files f
       JOIN quota_walks w ON w.directory = f.directory AND w.phase IN ('counting', 'checking')
       LEFT JOIN entries e ON e.inode = f.inode
         AND (SELECT i.quota FROM inodes i WHERE i.id = e.parent) = w.directory
         AND (NOT EXISTS (SELECT 1 FROM quota_walk_directories d WHERE d.inode = e.parent)
           OR w.visiting = e.parent AND e.name <= w.visited)
       GROUP BY f.inode HAVING f.names <> COUNT(e.name)`,
    )
    .all();
  assert.deepEqual(wrong, []);
}

/** Each quota by its tree: what is in the directory, once for each inode, without the trash. */
export function countedByTree({ db }: Pick<Catalog, 'db'>): unknown {
  return db
    .prepare(
      `WITH RECURSIVE below (directory, inode) AS (
         SELECT q.directory, q.directory FROM directory_quotas q JOIN inodes i ON i.id = q.directory
         UNION SELECT b.directory, e.inode FROM below b JOIN entries e ON e.parent = b.inode)
       SELECT b.directory, COUNT(*) AS inodes, SUM((i.kind = 1) * MAX(i.size, COALESCE(i.allowed, 0))) AS bytes
       FROM below b JOIN inodes i ON i.id = b.inode GROUP BY b.directory ORDER BY b.directory`,
    )
    .all();
}
