import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import { InodeCatalogs } from '../../base/inode-catalogs.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { CallOptions } from '../../client/transport/exchange.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import type { Attachment, Attachments } from '../attachments.ts';
import type { Junction } from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import { CatalogAvailability } from './catalog-availability.ts';

/**
 * Finds out where volumes are attached. The root catalog's list says it; servers know the list, so it needs neither the
 * root catalog nor, once a volume is known, the catalog of the volume.
 */
export class ClusterAttachments implements Attachments {
  readonly ageMaxMs: number;
  readonly #client: ClusterClient;
  /** By volume: one that cannot be reached does not shorten the requests about others. */
  readonly #reaches = new Map<string, CatalogAvailability>();
  #catalogs = InodeCatalogs.NONE_MOVED;

  /** @param client of no volume */
  constructor(client: ClusterClient, ageMaxMs: number) {
    this.#client = client;
    this.ageMaxMs = ageMaxMs;
  }

  async find({ catalog, volume }: Junction, inode: number): Promise<Attachment | null> {
    const info = await this.#infoOf(volume);
    if (info === null || (info.catalog ?? ROOT_CATALOG) !== catalog) return null;
    // The server that answered may not have the newest list yet.
    if (info.attached !== inode && !(await this.#isListedAt(catalog, inode))) return null;
    // A volume that moved from the root catalog has kept its numbers.
    if (this.catalogOf(info.root) !== catalog) await this.#list();
    if (this.catalogOf(info.root) !== catalog)
      throw new ErrnoError('EIO', `Inode ${info.root} of "${volume}" is not one of its catalog`);
    return { catalog: catalog as CatalogNumber, volume, root: info.root };
  }

  async findByNumber(inode: number, root: number): ReturnType<Attachments['findByNumber']> {
    const rows = await this.#list();
    const catalog = this.catalogOf(inode);
    const volume = rows.get(catalog)?.name;
    const junctions = this.#junctionsAbove(rows, catalog, this.catalogOf(root));
    if (volume === undefined || junctions === null || junctions.length === 0) return null;
    const info = await this.#infoOf(volume);
    if (info === null || this.catalogOf(info.root) !== catalog) return null;
    return { attachment: { catalog, volume, root: info.root }, junctions };
  }

  /** From a catalog's volume up to one in the catalog `top`; null if it is not attached below that. */
  #junctionsAbove(
    rows: ReadonlyMap<number, ListedCatalog>,
    from: CatalogNumber,
    top: CatalogNumber,
  ): readonly number[] | null {
    const junctions: number[] = [];
    for (let catalog = from; catalog !== top; ) {
      const row = rows.get(catalog);
      if (row?.attached === undefined || row.state === 'removed' || junctions.length > rows.size) return null;
      junctions.push(row.attached);
      catalog = this.catalogOf(row.attached);
    }
    return junctions;
  }

  catalogOf(inode: number): CatalogNumber {
    return this.#catalogs.catalogOf(inode);
  }

  async refresh(): Promise<void> {
    await this.#list();
  }

  async stop(): Promise<void> {
    for (const reach of this.#reaches.values()) reach.close();
    await this.#client.close();
  }

  async #infoOf(volume: string): Promise<VolumeInfo | null> {
    try {
      return await this.#reachOf(volume).request((limits) => this.#query(volume, limits));
    } catch (error) {
      // It was removed as a lost one.
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    }
  }

  async #query(volume: string, limits: CallOptions): Promise<VolumeInfo> {
    return (await this.#client.query({ kind: 'volume', name: volume }, limits)).volume;
  }

  /** The root catalog's list. Learns which numbers have moved: they stay with their catalog. */
  async #list(): Promise<ReadonlyMap<number, ListedCatalog>> {
    const { catalogs, moved = [] } = await this.#client.query({ kind: 'catalogs' });
    this.#catalogs = new InodeCatalogs(moved);
    return new Map(catalogs.map((row) => [row.number, row]));
  }

  async #isListedAt(catalog: number, inode: number): Promise<boolean> {
    try {
      const row = (await this.#list()).get(catalog);
      return row !== undefined && row.state !== 'removed' && row.attached === inode;
    } catch (error) {
      // Credentials for some volumes do not show the list: such a mount waits until the servers have the newest.
      if (error instanceof ServiceError && error.code === 'forbidden') return false;
      throw error;
    }
  }

  #reachOf(volume: string): CatalogAvailability {
    const known = this.#reaches.get(volume);
    if (known !== undefined) return known;
    const reach = new CatalogAvailability(this.#client.world, () => this.#query(volume, {}));
    this.#reaches.set(volume, reach);
    return reach;
  }
}
