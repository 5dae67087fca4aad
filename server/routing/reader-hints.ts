import { type ServerId, serverIdCompare } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';

/** After this time another member is tried: one that commands kept too busy may have a read lease by then. */
const VALID_MS = 5_000;

/** For a server without a catalog replica: the member to which it sends queries that any member can answer. */
export class ReaderHints {
  readonly #self: ServerId;
  readonly #world: Pick<World, 'nowMs'>;
  #named: { readonly server: ServerId; readonly untilMs: number } | null = null;

  constructor(self: ServerId, world: Pick<World, 'nowMs'>) {
    this.#self = self;
    this.#world = world;
  }

  /** An answer named the server for further queries. The same one again does not extend its time. */
  note(server: ServerId): void {
    const nowMs = this.#world.nowMs();
    if (this.#named?.server === server && nowMs < this.#named.untilMs) return;
    this.#named = { server, untilMs: nowMs + VALID_MS };
  }

  /** The named server; null if none is, or no longer. */
  get named(): ServerId | null {
    const named = this.#named;
    return named !== null && this.#world.nowMs() < named.untilMs ? named.server : null;
  }

  /**
   * Returns the named server, or one of the members: servers without a replica spread over them.
   * @param usable whether a server is connected, and was not asked for this query yet
   */
  choose(members: readonly ServerId[], usable: (server: ServerId) => boolean): ServerId | null {
    const { named } = this;
    if (named !== null && usable(named)) return named;
    const sorted = members.toSorted(serverIdCompare);
    const start = [...this.#self].reduce((sum, letter) => sum + letter.charCodeAt(0), 0);
    for (let step = 0; step < sorted.length; step++) {
      const member = sorted[(start + step) % sorted.length] as ServerId;
      if (usable(member)) return member;
    }
    return null;
  }
}
