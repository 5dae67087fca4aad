/** Numbers of catalog replicas: an even one survives no more failures than the odd one below it. */
const CATALOG_REPLICAS = [3, 5, 7];
/** Fewer survive no failure. */
const CATALOG_REPLICAS_MIN = 3;
/** Most without a setting. */
const CATALOG_REPLICAS_AUTO = 5;

export interface CatalogServers {
  /** The setting of the cluster; null: by the number of servers. */
  readonly setting: number | null;
  readonly first: number;
  readonly now: number;
  /** Servers that hold the catalog, or can get it. */
  readonly inCount: number;
  readonly stayingCount: number;
}

/**
 * The wanted number of the catalog's members: the setting, or without one 3, and 5 from five servers on, but not fewer
 * than in the beginning. It grows as servers join, and does not shrink when a server is unreachable for a time. It
 * shrinks when a server is drained that no other can replace, as long as enough remain to survive a failure.
 */
export function catalogReplicasWanted(servers: CatalogServers): number {
  const { setting, first, now, inCount, stayingCount } = servers;
  const most = setting ?? CATALOG_REPLICAS_AUTO;
  const grown = CATALOG_REPLICAS.filter((count) => count <= Math.min(inCount, most));
  const wanted =
    setting === null ? Math.max(first, now, ...grown) : Math.min(setting, Math.max(now, ...grown));
  return stayingCount >= CATALOG_REPLICAS_MIN ? Math.min(wanted, stayingCount) : wanted;
}

/** The number of catalog replicas that a cluster of `inCount` servers is to have. */
export function catalogReplicasGoal(setting: number | null, inCount: number): number {
  if (setting !== null) return setting;
  if (inCount >= CATALOG_REPLICAS_AUTO) return CATALOG_REPLICAS_AUTO;
  return inCount > 1 ? CATALOG_REPLICAS_MIN : 1;
}
