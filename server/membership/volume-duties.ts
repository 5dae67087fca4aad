import type { Logger } from 'pino';
import type { CatalogNumber, ServerId } from '../../base/ids.ts';
import { CATALOG_MEMBERS } from '../../catalog/commands/volume-catalogs.ts';
import type { View } from '../../replica/view.ts';
import { catalogReplicasWanted } from '../process/catalog-replicas.ts';
import { Placement } from '../process/placement.ts';
import type { CatalogDuties } from './catalog-upkeep.ts';

/** There may be many such catalogs, and each server registers with all of them. */
const REGISTRATION_MS = 300_000;
const SPACE_STEP = 0.05;
/** Servers report their free space twice as often. */
const REBALANCE_MS = 2 * REGISTRATION_MS;

export interface VolumeDutiesParts {
  readonly catalog: CatalogNumber;
  readonly log: Logger;
  isConnected(server: ServerId): boolean;
  /** Changes the members of the catalog, at its primary. */
  changeMembers(members: readonly ServerId[]): Promise<View>;
}

/**
 * The upkeep of a volume's catalog, besides its files. The catalog gets addresses, zones, labels and states of servers
 * from the root catalog; a server itself reports only its disk. Its list of servers is for its own decisions: no server
 * follows it.
 */
export function volumeDuties(parts: VolumeDutiesParts): CatalogDuties {
  const { catalog, log } = parts;
  // The catalog begins with the list of the root catalog: it has all servers.
  const placement = new Placement({ configured: [], isConnected: (server) => parts.isConnected(server) });
  return {
    registration: {
      zone: null,
      labels: null,
      periodMs: REGISTRATION_MS,
      spaceStep: SPACE_STEP,
      listed: () => undefined,
      confirmed: () => undefined,
      removed: () => undefined,
      // The root catalog refuses an earlier disk, too, and decides: its entry was flushed before this catalog's.
      replaced: () => {
        log.warn({ catalog }, 'the catalog of a volume has seen a later data folder of this server');
        return 'retry';
      },
    },
    candidates: (servers) => placement.candidates(servers),
    membersWanted: (servers) => catalogReplicasWanted({ ...servers, setting: CATALOG_MEMBERS, first: 1 }),
    changeMembers: (members) => parts.changeMembers(members),
    rebalancePeriodMs: REBALANCE_MS,
    partToBalance: (own) => own,
    announce: () => undefined,
  };
}
