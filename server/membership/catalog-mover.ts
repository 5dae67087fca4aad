import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { sameServers, type View } from '../../replica/view.ts';
import type { CatalogServers } from '../process/catalog-replicas.ts';
import { MoveRetries } from './move-retries.ts';
import { type ServerCondition, wantedMembers } from './wanted-members.ts';

export interface CatalogMoverParts {
  readonly world: Pick<World, 'nowMs'>;
  readonly log: Logger;
  /** Its members are chosen by the number, so that catalogs spread over all servers. */
  readonly catalog: CatalogNumber;
  catalogMembersWanted(servers: Omit<CatalogServers, 'first'>): number;
  catalogMembers(): readonly ServerId[];
  changeCatalogMembers(members: readonly ServerId[]): Promise<View>;
  /** @returns the version of catalog commands that the server knows; null if it is not connected */
  commandsVersion(server: ServerId): number | null;
}

/** Moves a catalog away from servers that leave, and to the wanted number of servers if possible. */
export class CatalogMover {
  readonly #parts: CatalogMoverParts;
  readonly #retries: MoveRetries;

  constructor(parts: CatalogMoverParts) {
    this.#parts = parts;
    this.#retries = new MoveRetries(parts.world);
  }

  /**
   * @param setting the wanted number of members; null: by the number of servers
   * @returns whether the catalog was where it is wanted
   */
  async move(servers: readonly ServerCondition[], setting: number | null): Promise<boolean> {
    const { catalog, catalogMembers, catalogMembersWanted, changeCatalogMembers, log } = this.#parts;
    const members = catalogMembers();
    // A server of an earlier release would copy the whole database, and refuse it. A member stays during its upgrade.
    const conditions = servers.filter(({ id }) => members.includes(id) || this.#knowsCommands(id));
    const inCount = conditions.filter(
      ({ id, state, toBeReplaced, reachable, registered }) =>
        state === 'in' && !toBeReplaced && (members.includes(id) || (reachable && registered)),
    ).length;
    const leaving = new Set(conditions.flatMap(({ id, state }) => (state === 'in' ? [] : [id])));
    // A member may not have registered yet.
    const known = new Set([...members, ...conditions.map(({ id }) => id)]);
    const stayingCount = [...known].filter((id) => !leaving.has(id)).length;
    const count = catalogMembersWanted({ setting, now: members.length, inCount, stayingCount });
    const wanted = wantedMembers({ inode: catalog, members }, conditions, count);
    if (sameServers(wanted, members)) return true;
    if (this.#retries.isPaused(catalog)) return false;
    try {
      const view = await changeCatalogMembers(wanted);
      this.#retries.succeeded(catalog);
      log.info({ catalog, view: view.number, members: view.members }, 'moved the catalog');
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#retries.failed(catalog);
      log.info({ catalog, members: wanted, reason: error.message }, 'the catalog is not moved yet');
    }
    return false;
  }

  #knowsCommands(server: ServerId): boolean {
    return (this.#parts.commandsVersion(server) ?? 0) >= COMMANDS_VERSION;
  }

  reset(): void {
    this.#retries.clear();
  }
}
