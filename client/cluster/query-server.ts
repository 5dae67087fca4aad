import { TimedHint } from '../../base/timed-hint.ts';
import type { World } from '../../base/world.ts';
import type { Endpoints } from '../transport/endpoints.ts';
import type { Subject } from '../transport/exchange.ts';

/** For this long, queries go to the server that an answer named; then again to this client's own choice. */
const NAMED_MS = 5_000;

/**
 * The server for queries that any catalog member can answer. Clients spread over the servers, so that members with read
 * leases share the work; each answer names the server for further queries.
 */
export class QueryServer implements Subject {
  readonly #endpoints: Endpoints;
  readonly #place: number;
  readonly #named: TimedHint<string>;

  /** @param place random number of this client, which chooses a server */
  constructor(world: Pick<World, 'nowMs'>, endpoints: Endpoints, place: number) {
    this.#endpoints = endpoints;
    this.#place = place;
    this.#named = new TimedHint(world, NAMED_MS);
  }

  get primary(): string | null {
    return this.#named.current ?? this.#endpoints.near(this.#place)?.id ?? null;
  }

  /** Called with the name in each answer. */
  set primary(id: string) {
    this.#named.note(id);
  }
}
