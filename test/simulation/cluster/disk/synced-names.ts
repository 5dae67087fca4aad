import path from 'node:path';
import type { Prng } from '../../../../base/prng.ts';
import { inodeAt, realFiles } from './real-files.ts';
import type { Loss } from './synced-bytes.ts';

/** SQLite creates and removes these without calls that the disk follows. */
const OF_DATABASE = /\.db\b/;

/** By name: the inode. */
type Names = Map<string, number>;

/** One atomic step of a file system: it is on the disk completely, or not at all. */
type Change = readonly (readonly [name: string, inode: number | null])[];

/** The synced names in each directory, and the changes since. */
export class SyncedNames {
  readonly #synced = new Map<number, Names>();
  readonly #changes = new Map<number, Change[]>();

  /** All names in a directory are synced. */
  synced(directory: string): void {
    const inode = inodeAt(directory);
    if (inode === null) return;
    const followed: Names = new Map(this.#synced.get(inode));
    for (const change of this.#changes.get(inode) ?? []) play(followed, change);
    this.#synced.set(inode, namesIn(directory, followed));
    this.#changes.delete(inode);
  }

  /** Runs a change of names, in one step for those of one directory. */
  follow<Value>(paths: readonly string[], change: () => Value): Value {
    const before = paths.map(inodeAt);
    try {
      return change();
    } finally {
      const byDirectory = new Map<number, [string, number | null][]>();
      paths.forEach((file, index) => {
        const after = inodeAt(file);
        if (after === before[index]) return;
        const directory = inodeAt(path.dirname(file)) ?? 0;
        const changes = byDirectory.get(directory) ?? [];
        changes.push([path.basename(file), after]);
        byDirectory.set(directory, changes);
      });
      for (const [directory, changes] of byDirectory) {
        const all = this.#changes.get(directory) ?? [];
        all.push(changes);
        this.#changes.set(directory, all);
      }
    }
  }

  /** A file has another inode under the same names. */
  renumber(inode: number, fresh: number): void {
    for (const names of this.#synced.values())
      for (const [name, known] of names) if (known === inode) names.set(name, fresh);
    for (const [directory, changes] of this.#changes) {
      const renumbered = changes.map((change) =>
        change.map(([name, known]) => [name, known === inode ? fresh : known] as const),
      );
      this.#changes.set(directory, renumbered);
    }
  }

  /**
   * @returns the names in a directory after a loss of power: the first of the changes since its sync, up to a random
   * one; changes that only SQLite knows are left or lost one by one
   */
  afterLoss(directory: string, loss: Loss, random: Prng): Names {
    const inode = inodeAt(directory) as number;
    const names: Names = new Map(this.#synced.get(inode));
    const all: Names = new Map(names);
    const changes = this.#changes.get(inode) ?? [];
    const kept = loss === 'all' ? 0 : random.integer(0, changes.length);
    changes.forEach((change, index) => {
      play(all, change);
      if (index < kept) play(names, change);
    });
    const now = namesIn(directory);
    for (const name of [...new Set([...all.keys(), ...now.keys()])].sort()) {
      const current = now.get(name) ?? null;
      if ((all.get(name) ?? null) === current) continue;
      if (loss === 'some' && random.chance(0.5)) play(names, [[name, current]]);
    }
    return names;
  }
}

function play(names: Names, change: Change): void {
  for (const [name, inode] of change) {
    if (inode === null) names.delete(name);
    else names.set(name, inode);
  }
}

/** @param followed names whose inodes are known */
function namesIn(directory: string, followed: Names = new Map()): Names {
  const names = (realFiles.readdirSync(directory) as string[]).sort();
  const inodeOf = (name: string): number =>
    (OF_DATABASE.test(name) ? undefined : followed.get(name)) ??
    (inodeAt(path.join(directory, name)) as number);
  return new Map(names.map((name) => [name, inodeOf(name)]));
}
