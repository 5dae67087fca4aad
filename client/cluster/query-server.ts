import { TimedHint } from '../../base/timed-hint.ts';
import type { World } from '../../base/world.ts';
import { HEADER_PRIMARY } from '../../wire/http-api.ts';
import type { Endpoints } from '../transport/endpoints.ts';
import type { Subject } from '../transport/exchange.ts';
import type { Response } from '../transport/response.ts';
import { QUERIES } from '../transport/zone-policy.ts';
import type { CatalogSubject } from './catalog-subject.ts';

/** For this long, queries go to the server that an answer named; then again to this client's own choice. */
const NAMED_MS = 5_000;

/**
 * The server for queries that any catalog member can answer. Clients spread over the servers, so that members with read
 * leases share the work; each answer names the server for further queries. One of the client's zone is asked first
 * unless it has named another one a moment ago, as a backup does while commands outnumber its queries.
 */
export class QueryServer implements Subject {
  readonly #catalog: Pick<CatalogSubject, 'received'>;
  readonly #endpoints: Endpoints;
  readonly #place: number;
  readonly #named: TimedHint<string>;

  /** @param place random number of this client, which chooses a server */
  constructor(
    world: Pick<World, 'nowMs'>,
    catalog: Pick<CatalogSubject, 'received'>,
    endpoints: Endpoints,
    place: number,
  ) {
    this.#catalog = catalog;
    this.#endpoints = endpoints;
    this.#place = place;
    this.#named = new TimedHint(world, NAMED_MS);
  }

  get primary(): string | null {
    return this.#named.current ?? this.#endpoints.near(this.#place)?.id ?? null;
  }

  get near(): string | null {
    const { zone } = this.#endpoints;
    const named = this.#named.current;
    return named !== null && zone.isNear(named) ? named : zone.first(QUERIES, zone.servers, this.#place);
  }

  /** Called with the name in each answer. */
  set primary(id: string) {
    this.#named.note(id);
  }

  received(headers: Response['headers'], server: string | null): void {
    this.#catalog.received(headers);
    const named = headers[HEADER_PRIMARY];
    const isOther = typeof named === 'string' && named !== '' && named !== server;
    if (server !== null && isOther) this.#endpoints.zone.forwarded(QUERIES, server, NAMED_MS);
  }
}
