/** Zones of nodes and servers. A volume can be reached from every zone; its replicas may be bound to some. */
import type { QueryResults } from '../../wire/catalog-api.ts';
import { classFits, isZone, type PlacementClass } from '../../wire/placement-class.ts';
import { CallFailure, invalid } from './call-failure.ts';
import type { Cluster } from './cluster-access.ts';
import type { CreateVolumeRequest, Topology } from './messages.ts';
import type { Settings } from './parameters.ts';

type Server = QueryResults['servers']['servers'][number];

/** @returns the key of zones in topologies, as node labels have it */
export function zoneKey(driverName: string): string {
  return `${driverName}/zone`;
}

export function topologyOf(driverName: string, zone: string): Topology {
  return { segments: { [zoneKey(driverName)]: zone } };
}

/** @returns the zone of a topology; null if it names none @throws CallFailure for one that is no zone */
function zoneOf(driverName: string, { segments }: Topology): string | null {
  const zone = segments[zoneKey(driverName)];
  if (zone === undefined) return null;
  if (!isZone(zone)) throw invalid(`Cannot use the topology ${zoneKey(driverName)}="${zone}": it is no zone`);
  return zone;
}

async function servers(cluster: Cluster): Promise<readonly Server[]> {
  const answer = await cluster.use(null, (client) => client.query({ kind: 'servers', counts: false }));
  return answer.servers.filter(({ state }) => state === 'in');
}

/**
 * @returns the zones of a new volume's replicas: those of its settings, else those that the orchestrator asks for, if
 * the settings say so; empty: any
 * @throws CallFailure `RESOURCE_EXHAUSTED` if no server is in them
 */
export async function placedZones(
  cluster: Cluster,
  driverName: string,
  settings: Settings,
  requirement: CreateVolumeRequest['accessibilityRequirements'],
): Promise<readonly string[]> {
  if (requirement === null || settings.topology === 'none' || settings.zones.length > 0)
    return settings.zones;
  const zonesIn = (topologies: readonly Topology[]): string[] => [
    ...new Set(topologies.flatMap((one) => zoneOf(driverName, one) ?? [])),
  ];
  const present = new Set((await servers(cluster)).map(({ zone }) => zone));
  // The first preferred one is that of the node on which the pod will run.
  const [preferred] = zonesIn(requirement.preferred).filter((zone) => present.has(zone));
  const requisite = zonesIn(requirement.requisite);
  const zones = preferred === undefined ? requisite.filter((zone) => present.has(zone)) : [preferred];
  if (zones.length > 0 || requisite.length === 0) return zones.sort();
  throw new CallFailure(
    'RESOURCE_EXHAUSTED',
    `No server is in the zones ${requisite.join(', ')}: use the parameter topology=none, or add servers there`,
  );
}

/** @returns from where a volume may be used; none: from everywhere */
export function accessOf(driverName: string, { topology }: Settings, zones: readonly string[]): Topology[] {
  return topology === 'required' ? zones.map((zone) => topologyOf(driverName, zone)) : [];
}

/** Free bytes for new volumes: each byte takes space on as many servers as there are replicas. */
export async function capacityIn(
  cluster: Cluster,
  driverName: string,
  settings: Settings,
  topology: Topology | null,
): Promise<number> {
  const zone = topology === null || settings.topology === 'none' ? null : zoneOf(driverName, topology);
  const placement: PlacementClass = {
    labels: [...settings.labels],
    zones: zone === null || settings.zones.length > 0 ? [...settings.zones] : [zone],
  };
  const fitting = (await servers(cluster)).filter((server) => classFits(placement, server));
  if (fitting.length < settings.replicas) return 0;
  return bytesFor(
    fitting.map(({ freeBytes }) => freeBytes),
    settings.replicas,
  );
}

/**
 * @returns how many bytes fit with `replicas` copies, each on another server: the most such that all servers together,
 * each counted with at most that much, have space for all copies
 */
export function bytesFor(free: readonly number[], replicas: number): number {
  const sorted = [...free].sort((a, b) => b - a);
  let restBytes = sorted.reduce((sum, bytes) => sum + bytes, 0);
  for (let large = 0; large < replicas && large < sorted.length; large++) {
    const bytes = Math.floor(restBytes / (replicas - large));
    // The largest server takes one copy of everything, and the others share the rest of the copies.
    if ((sorted[large] ?? 0) <= bytes) return bytes;
    restBytes -= sorted[large] ?? 0;
  }
  return 0;
}
