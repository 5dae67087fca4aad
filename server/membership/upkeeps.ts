import { type CatalogNumber, type FileId, ROOT_CATALOG } from '../../base/ids.ts';
import type { WrongCounter } from '../../catalog/recount.ts';
import type { Moving } from '../../wire/http-api.ts';
import { doesServe } from '../../wire/volume-catalogs.ts';
import type { RemovedCatalogs } from '../file/removed-catalogs.ts';
import type { Unsettleable } from '../file/reservation-sweep.ts';
import { movingOfAll } from '../status/moving-of-all.ts';
import type { CatalogUpkeep } from './catalog-upkeep.ts';
import type { KnownCatalogs } from './known-catalogs.ts';

export interface UpkeepsParts {
  readonly known: Pick<KnownCatalogs, 'list' | 'inodeCatalogs' | 'onChange'>;
  readonly removed: Pick<RemovedCatalogs, 'wake' | 'close'>;
  /** @param confirmed to be called when the root catalog has registered this server's disk */
  root(confirmed: () => void): CatalogUpkeep;
  ofVolume(catalog: CatalogNumber): CatalogUpkeep;
}

/**
 * The upkeep of all catalogs on this server. That of the root catalog is always there; that of a volume's catalog is,
 * on members and other servers alike, while the list of catalogs says that the catalog serves: any server may have
 * replicas of its files.
 *
 * A server registers with volumes' catalogs only after the root catalog has its present disk, durably: so an earlier
 * disk of the server, which the root catalog refuses, never registers with them again.
 */
export class Upkeeps {
  readonly root: CatalogUpkeep;
  readonly #parts: UpkeepsParts;
  readonly #ofVolumes = new Map<CatalogNumber, CatalogUpkeep>();
  readonly #unsubscribe: () => void;
  #isConfirmed = false;

  constructor(parts: UpkeepsParts) {
    this.#parts = parts;
    this.root = parts.root(() => this.#confirmed());
    this.#unsubscribe = parts.known.onChange(() => this.#listChanged());
  }

  start(): void {
    this.root.start();
    this.#listChanged();
  }

  async close(): Promise<void> {
    this.#unsubscribe();
    for (const upkeep of this.#all()) upkeep.close();
    await this.#parts.removed.close();
  }

  /** The upkeep of the catalog; null if it does not serve, as far as this server knows. */
  of(catalog: CatalogNumber): CatalogUpkeep | null {
    return catalog === ROOT_CATALOG ? this.root : (this.#ofVolumes.get(catalog) ?? null);
  }

  /** A replica was created here, or its view changed. */
  placed(file: FileId): void {
    // The upkeep of a catalog begins with a comparison of all replicas.
    this.of(this.#parts.known.inodeCatalogs.catalogOf(file))?.placed(file);
  }

  /** Whether the root catalog has this server and its disk. */
  get registered(): boolean {
    return this.root.registered;
  }

  /** Catalogs of volumes that do not have this server and its disk yet, and so place no files here. */
  unregistered(): readonly CatalogNumber[] {
    return [...this.#ofVolumes].flatMap(([number, { registered }]) => (registered ? [] : [number]));
  }

  /** What moves at the order of this server, for all catalogs of which it is primary; null if there is none. */
  moving(): Moving | null {
    return movingOfAll(this.#all().flatMap((upkeep) => upkeep.moving() ?? []));
  }

  /** Counters of catalogs that this server, as their primary, found wrong. */
  wrongCounters(): readonly WrongCounter[] {
    return this.#all().flatMap(({ wrongCounters }) => wrongCounters);
  }

  /** Volumes and directories that lack servers for their files, by the catalogs of which this server is primary. */
  get shortages(): readonly string[] {
    return this.#all().flatMap(({ shortages }) => shortages);
  }

  unsettleable(): readonly Unsettleable[] {
    return this.#all().flatMap(({ unsettleable }) => unsettleable);
  }

  #all(): readonly CatalogUpkeep[] {
    return [this.root, ...this.#ofVolumes.values()];
  }

  #confirmed(): void {
    this.#isConfirmed = true;
    for (const upkeep of this.#ofVolumes.values()) upkeep.start();
  }

  #listChanged(): void {
    const { known, removed, ofVolume } = this.#parts;
    const serving = new Set(known.list.catalogs.flatMap((row) => (doesServe(row) ? [row.number] : [])));
    for (const [number, upkeep] of this.#ofVolumes) {
      if (serving.has(number)) continue;
      upkeep.close();
      this.#ofVolumes.delete(number);
    }
    for (const number of serving) {
      if (this.#ofVolumes.has(number)) continue;
      const upkeep = ofVolume(number);
      this.#ofVolumes.set(number, upkeep);
      if (this.#isConfirmed) upkeep.start();
    }
    removed.wake();
  }
}
