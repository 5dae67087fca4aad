import { type ServerId, serverIdCompare } from '../../base/ids.ts';
import { TimedHint } from '../../base/timed-hint.ts';
import type { World } from '../../base/world.ts';

/** After this time another member is tried: one that commands kept too busy may have a read lease by then. */
const VALID_MS = 5_000;

/** For a server without a catalog replica: the member to which it sends queries that any member can answer. */
export class ReaderHints {
  readonly #self: ServerId;
  readonly #named: TimedHint<ServerId>;

  constructor(self: ServerId, world: Pick<World, 'nowMs'>) {
    this.#self = self;
    this.#named = new TimedHint(world, VALID_MS);
  }

  /** An answer named the server for further queries. */
  note(server: ServerId): void {
    this.#named.note(server);
  }

  /** The named server; null if none is, or no longer. */
  get named(): ServerId | null {
    return this.#named.current;
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
