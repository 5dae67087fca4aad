import { LruMap } from './bounded-map.ts';
import type { CatalogNumber } from './ids.ts';

/** Inodes enter another volume when a directory is split off, and leave it again if that is ended. */
const KNOWN_MS = 10_000;

export interface InodeVolumesParts {
  nowMs(): number;
  /** The catalog that has the inode, as far as this server knows: another one once its volume was split off. */
  catalogOf(inode: number): CatalogNumber;
  /** Asks the catalog. @throws ServiceError `not-found` if there is no such inode */
  ask(inode: number): Promise<string>;
}

interface Known {
  readonly volume: string;
  readonly catalog: CatalogNumber;
  readonly untilMs: number;
}

/** The volumes of inodes, as they were at most ten seconds ago, and after the last move to another catalog. */
export class InodeVolumes {
  readonly #parts: InodeVolumesParts;
  readonly #known: LruMap<number, Known>;

  /** @param countMax inodes whose volume is kept */
  constructor(parts: InodeVolumesParts, countMax: number) {
    this.#parts = parts;
    this.#known = new LruMap(countMax);
  }

  async of(inode: number): Promise<string> {
    const { nowMs, catalogOf, ask } = this.#parts;
    const catalog = catalogOf(inode);
    const known = this.#known.get(inode);
    if (known !== undefined && known.catalog === catalog && nowMs() < known.untilMs) return known.volume;
    const volume = await ask(inode);
    this.#known.set(inode, { volume, catalog, untilMs: nowMs() + KNOWN_MS });
    return volume;
  }
}
