import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Command, CommandOf, ServerInfo } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';

const RETRY_MS = 500;

export interface DeparturesParts {
  readonly catalog: CatalogNumber;
  readonly world: Pick<World, 'soon'>;
  readonly driver: Pick<ReplicaDriver, 'futureMembers' | 'changeMembers'>;
  /** The view that is applied. */
  view(): View;
  servers(): readonly ServerInfo[];
}

/**
 * Servers that leave the cluster do not become members of the catalog. The root catalog removes a server that is no
 * member of it, and of which each volume's catalog has confirmed the same after it followed that the server leaves.
 */
export class Departures {
  readonly #parts: DeparturesParts;

  constructor(parts: DeparturesParts) {
    this.#parts = parts;
  }

  /**
   * Call in the tick in which the change of members begins, while no batch is executed.
   * @throws ServiceError `precondition-failed` if one of them is removed, or would join and leaves the cluster
   */
  assertMayBeMembers(members: readonly ServerId[]): void {
    const states = new Map(this.#parts.servers().map(({ id, state }) => [id, state]));
    const out = members.find((id) => states.get(id) === 'out');
    if (out !== undefined)
      throw new ServiceError('precondition-failed', `Server ${out} was removed from the cluster`);
    if (this.#parts.catalog === ROOT_CATALOG) return;
    const present = viewVoters(this.#parts.view());
    const leaving = members.find((id) => !present.includes(id) && states.get(id) !== 'in');
    if (leaving === undefined) return;
    const why = `Server ${leaving} leaves, or is not known yet: it takes no catalog`;
    throw new ServiceError('precondition-failed', why);
  }

  /** The error for a command that lets a server go which is, or becomes, a member; else null. */
  refusal(command: Command): ServiceError | null {
    switch (command.kind) {
      case 'server-remove':
        return command.dead ? null : this.#removalRefusal(command.id);
      case 'follow-servers':
        return this.#followRefusal(command);
      default:
        return null;
    }
  }

  #removalRefusal(id: string): ServiceError | null {
    if (this.#isJoining(id)) this.#withdrawMove();
    else if (!this.#isMember(id)) return null;
    return new ServiceError(
      'precondition-failed',
      `Server ${id} has a catalog replica, or will get one: drain it first, and wait until the catalog has moved`,
    );
  }

  /** A member that leaves is not confirmed as left; so none may become a member after the catalog has followed that. */
  #followRefusal({ servers }: CommandOf<'follow-servers'>): ServiceError | null {
    const leaving = servers.find(({ id, state }) => state !== 'in' && this.#isJoining(id));
    if (leaving === undefined) return null;
    this.#withdrawMove();
    const why = `The catalog is moving to server ${leaving.id}, which leaves: retry later`;
    return new ServiceError('busy', why, { retryAfterMs: RETRY_MS });
  }

  #isMember(id: string): boolean {
    return (viewVoters(this.#parts.view()) as readonly string[]).includes(id);
  }

  #isJoining(id: string): boolean {
    return !this.#isMember(id) && (this.#parts.driver.futureMembers as readonly string[]).includes(id);
  }

  /**
   * Ends a move whose new members have not caught up, which may take for ever: the members stay. A later stage is not
   * ended: the move is complete soon.
   */
  #withdrawMove(): void {
    const { world, driver, view } = this.#parts;
    // Not while a batch is being executed.
    world.soon(() => void driver.changeMembers(viewVoters(view())).catch(() => undefined));
  }
}
