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
  readonly #world: World;
  readonly #endpoints: Endpoints;
  readonly #place: number;
  #named: { readonly id: string; readonly untilMs: number } | null = null;

  /** @param place random number of this client, which chooses a server */
  constructor(world: World, endpoints: Endpoints, place: number) {
    this.#world = world;
    this.#endpoints = endpoints;
    this.#place = place;
  }

  get primary(): string | null {
    const named = this.#named;
    if (named !== null && this.#world.nowMs() < named.untilMs) return named.id;
    return this.#endpoints.near(this.#place)?.id ?? null;
  }

  /** The same server again does not extend its time: another member may have a read lease by then. */
  set primary(id: string | null) {
    const nowMs = this.#world.nowMs();
    if (id !== null && this.#named?.id === id && nowMs < this.#named.untilMs) return;
    this.#named = id === null ? null : { id, untilMs: nowMs + NAMED_MS };
  }
}
