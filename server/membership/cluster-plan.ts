import type { Logger } from 'pino';
import { type FileId, ROOT_CATALOG, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ClusterServers } from '../../wire/http-api.ts';
import { paramsHash, type ServerConfig, sharedSettings } from '../config/config.ts';
import { ConfigurationError } from '../config/configuration-error.ts';
import type { Machine } from '../process/machine.ts';
import type { PeerTls } from '../security/peer-tls.ts';
import type { DataFolder } from '../storage/data-folder.ts';
import { SERVERS_FILE } from '../storage/set-aside.ts';
import { joinCluster } from './join.ts';
import { type Bootstrap, KnownServers, knownServerOf, readRecordedServers } from './known-servers.ts';

export interface ClusterPlanParts {
  readonly folder: DataFolder;
  readonly world: World;
  readonly log: Logger;
  readonly machine: Pick<Machine, 'assertAddressFree' | 'peerHttp'>;
  readonly tls: PeerTls | null;
}

/** The servers that a server works with, determined at its start. */
export interface ClusterPlan {
  /** The given one; with the cluster's own values if the server joins one. */
  readonly config: ServerConfig;
  readonly bootstrap: Bootstrap;
  readonly known: KnownServers;
}

/**
 * Determines the servers: from the configuration; or, for a server that joins, from the other servers when it first
 * starts at its address, and later from what it recorded.
 * @throws ConfigurationError if the cluster is another one, or refuses this server
 */
export async function planCluster(config: ServerConfig, parts: ClusterPlanParts): Promise<ClusterPlan> {
  const { folder, world, log } = parts;
  const { id: self, cluster } = config;
  const selfUrl = config.urls.get(self) ?? '';
  const file = folder.file(SERVERS_FILE);
  const found = readRecordedServers(file);
  const before = found?.cluster === cluster ? found : null;
  const joins = config.join.length > 0;
  // Others connect to the recorded address; a server that moved has to join again to report its new one.
  const isAddressUnchanged = before?.servers.some(({ id, url }) => id === self && url === selfUrl) === true;
  const remembered = joins && !isAddressUnchanged ? await join(config, selfUrl, parts) : before;
  const bootstrap =
    joins && remembered !== null
      ? bootstrapOf(remembered)
      : { urls: config.urls, catalogMembers: config.catalogMembers };
  const effective = { ...config, catalogMembers: bootstrap.catalogMembers };
  if (joins && remembered !== null) assertSameSettings(config, remembered);
  const shared = { paramsHash: paramsHash(effective), settings: sharedSettings(config) };
  const known = new KnownServers(
    { self, selfUrl, cluster, ...shared, bootstrap, configured: config.urls, file, world, log },
    remembered,
  );
  return { config: effective, bootstrap, known };
}

/**
 * Checks that this server has the settings of the others, without which it could not work with them.
 * @throws ConfigurationError that names each option that differs, with both values
 */
function assertSameSettings(config: ServerConfig, cluster: ClusterServers): void {
  const { catalogMembers } = bootstrapOf(cluster);
  if (paramsHash({ ...config, catalogMembers }) === cluster.paramsHash) return;
  const own = sharedSettings(config);
  // Earlier releases do not send their settings.
  const theirs = cluster.settings ?? {};
  const differences = Object.entries(theirs)
    .filter(([option, value]) => own[option] !== value)
    .map(([option, value]) => `${option} is ${value} there and ${own[option]} here`);
  const what = differences.length > 0 ? differences.join(', ') : Object.keys(own).join(', ');
  throw new ConfigurationError(
    `Cannot join the cluster: ${what}. Start this server with the values of the other servers`,
  );
}

async function join(config: ServerConfig, url: string, parts: ClusterPlanParts): Promise<ClusterServers> {
  const { folder, world, log, machine, tls } = parts;
  const { id: self, cluster, zone } = config;
  // A server that cannot listen exits, and must not be registered.
  await machine.assertAddressFree(config.listen);
  const { servers, registered } = await joinCluster({
    ...{ self, cluster, url, zone, storageId: folder.storageId, join: config.join, world, log },
    channelTo: (url) => machine.peerHttp(null, url, tls),
    accepts: (servers) => assertSameSettings(config, servers),
  });
  if (folder.firstFileId(ROOT_CATALOG) === null)
    folder.setFirstFileId(ROOT_CATALOG, registered.bornAt as FileId);
  const others = servers.servers.filter(({ id }) => id !== self);
  return { ...servers, servers: [...others, knownServerOf(registered)] };
}

function bootstrapOf({ bootstrap }: ClusterServers): Bootstrap {
  return {
    urls: new Map(Object.entries(bootstrap.urls) as [ServerId, string][]),
    catalogMembers: bootstrap.catalogMembers as readonly ServerId[],
  };
}
