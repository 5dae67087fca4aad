import { type CatalogNumber, isCatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import { HEADER_CATALOG, HEADER_CATALOG_EPOCH, HEADER_CATALOG_SEQ } from '../../wire/http-api.ts';
import type { Subject } from '../transport/exchange.ts';
import type { ExchangeRequest } from '../transport/request.ts';
import type { Response } from '../transport/response.ts';

/**
 * The catalog that a client's commands are for: its primary, and its position, as answers report them. A client of no
 * volume changes the root catalog, and its queries are about all catalogs.
 */
export class CatalogSubject implements Subject {
  primary: string | null = null;
  readonly number: CatalogNumber;
  isOfVolume: boolean;
  readonly #answeredByAnother: () => void;
  #seq: number | null = null;
  #epoch = 0;

  /**
   * @param number the catalog of the client's volume; null: it is a client of no volume
   * @param answeredByAnother called if a volume's own catalog has answered what the root catalog was asked
   */
  constructor(number: CatalogNumber | null, answeredByAnother: () => void) {
    this.number = number ?? ROOT_CATALOG;
    this.isOfVolume = number !== null;
    this.#answeredByAnother = answeredByAnother;
  }

  /** The operation that the latest answer named; null before the first. */
  get seq(): number | null {
    return this.#seq;
  }

  /** The newest epoch that an answer has named; 0 before the first. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Names in a request the catalog that it is for: without the name, a flush is one of all catalogs. */
  request(request: ExchangeRequest): ExchangeRequest {
    return { ...request, headers: { ...request.headers, [HEADER_CATALOG]: String(this.number) } };
  }

  /** As `request`; a query of a client of no volume is about all catalogs. */
  query(request: ExchangeRequest): ExchangeRequest {
    return this.isOfVolume ? this.request(request) : request;
  }

  /** Positions of other catalogs, which have logs of their own, do not count. */
  received(headers: Response['headers']): void {
    const answering = Number(headers[HEADER_CATALOG] ?? ROOT_CATALOG);
    if (answering !== this.number) {
      if (this.number === ROOT_CATALOG && this.isOfVolume && isCatalogNumber(answering))
        this.#answeredByAnother();
      return;
    }
    const seq = headers[HEADER_CATALOG_SEQ];
    if (seq !== undefined) this.#seq = Number(seq);
    this.#epoch = Math.max(this.#epoch, Number(headers[HEADER_CATALOG_EPOCH] ?? 0));
  }
}
