import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import { Batches } from '../process/batches.ts';

/**
 * `Batches` about files, of one catalog each: a catalog without a primary delays only requests about its own files.
 * While a volume moves to another catalog, requests about its files are refused; those that shared a request with them
 * are sent again.
 */
export class CatalogBatches<Item extends { readonly inode: number }, Result> {
  readonly #catalogOf: (inode: number) => CatalogNumber;
  readonly #itemsMax: number;
  readonly #send: (items: readonly Item[]) => Promise<readonly Result[]>;
  readonly #catalogs = new Map<CatalogNumber, Batches<Item, Result>>();

  constructor(
    catalogOf: (inode: number) => CatalogNumber,
    itemsMax: number,
    send: (items: readonly Item[]) => Promise<readonly Result[]>,
  ) {
    this.#catalogOf = catalogOf;
    this.#itemsMax = itemsMax;
    this.#send = send;
  }

  add(item: Item): Promise<Result> {
    const catalog = this.#catalogOf(item.inode);
    let batches = this.#catalogs.get(catalog);
    if (batches === undefined) {
      batches = new Batches(this.#itemsMax, (items) => this.#sendAll(items));
      this.#catalogs.set(catalog, batches);
    }
    return batches.add(item);
  }

  /** Sends the items in as few requests as succeed, if some are of a volume that moves. */
  async #sendAll(items: readonly Item[]): Promise<readonly PromiseSettledResult<Result>[]> {
    try {
      const results = await this.#send(items);
      return items.map((_, place) => ({ status: 'fulfilled', value: results[place] as Result }));
    } catch (reason) {
      if (items.length === 1 || !isOfVolumeThatMoves(reason))
        return items.map(() => ({ status: 'rejected', reason }));
      const half = items.length >> 1;
      return [...(await this.#sendAll(items.slice(0, half))), ...(await this.#sendAll(items.slice(half)))];
    }
  }
}

/** Also of an unknown outcome: what is sent in batches may be repeated. */
function isOfVolumeThatMoves(error: unknown): boolean {
  if (!(error instanceof ServiceError)) return false;
  const { code, details, cause } = error;
  return (
    code === 'moving' || details.elsewhere === true || (code === 'unknown' && isOfVolumeThatMoves(cause))
  );
}
