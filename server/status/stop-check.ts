import { majority } from '../../base/quorum.ts';
import { type VoterSet, type VotersView, votersMajorities } from '../../lease/voters.ts';
import type { QueryResults, VolumeInfo } from '../../wire/catalog-api.ts';
import type { ServerStatus, StopCheck } from '../../wire/http-api.ts';

export interface VolumeCatalog {
  readonly volume: string;
  readonly members: readonly string[];
}

export interface StopCheckInput {
  readonly server: string;
  readonly servers: readonly ServerStatus[];
  readonly catalogMembers: readonly string[];
  /** Of volumes with a catalog of their own. */
  readonly volumeCatalogs: readonly VolumeCatalog[];
  readonly voters: VotersView;
  readonly volumes: readonly VolumeInfo[];
  /** Files that have a majority only with the server, while those of `missingServers` are missing. */
  readonly needing: QueryResults['files-needing'];
  /** The same while those of `fullServers` are missing, too; null if there are none. */
  readonly needingSpace: QueryResults['files-needing'] | null;
}

/** Other servers that cannot answer for their replicas now: down, failed, or in the recovery wait. */
export function missingServers(server: string, servers: readonly ServerStatus[]): string[] {
  return servers.filter(({ id, state }) => id !== server && state !== 'serving').map(({ id }) => id);
}

/** Other servers that answer for their replicas, but have no space for changes. */
export function fullServers(server: string, servers: readonly ServerStatus[]): string[] {
  return servers
    .filter(({ id, state, diskFull }) => id !== server && state === 'serving' && diskFull === true)
    .map(({ id }) => id);
}

/** Says whether anything becomes unavailable if the server stops now, and what. */
export function stopCheck(input: StopCheckInput): StopCheck {
  const { server, servers, needing } = input;
  const files = { count: needing.files, examples: needing.examples };
  // Stopping a server that is down takes nothing away.
  const reasons = isDown(server, servers)
    ? []
    : [
        ...statusNeeded(input),
        ...namesNeed(input),
        ...namesOfVolumesNeed(input),
        ...leasesNeed(input),
        ...filesNeed(input),
        ...filesNeedSpace(input),
        ...replicasBehind(input),
        ...filesUnderReplicated(input),
        ...policiesNeed(input),
      ];
  return { server, ok: reasons.length === 0, reasons, files };
}

/**
 * Whether a server neither reports its state nor is connected to one that does. A server that is only slow, or that the
 * asked one cannot reach, is not down. Earlier releases do not report their connections, and may have one.
 */
function isDown(server: string, servers: readonly ServerStatus[]): boolean {
  if (servers.some(({ id, reachable }) => id === server && reachable)) return false;
  return servers.every(({ reachable, connected }) => !reachable || connected?.includes(server) === false);
}

function statusNeeded({ server, servers }: StopCheckInput): string[] {
  if (servers.some(({ id, reachable }) => id === server && reachable)) return [];
  const by = servers.filter(({ connected }) => connected?.includes(server)).map(({ id }) => id);
  const although = by.length === 0 ? '' : `, although ${by.join(', ')} can reach it`;
  return [`Server ${server} does not report its state${although}: what it knows to be behind is unknown`];
}

function namesNeed({ server, servers, catalogMembers }: StopCheckInput): string[] {
  if (!catalogMembers.includes(server)) return [];
  const behind = new Set(servers.flatMap(({ catalogBehind = [] }) => catalogBehind));
  const serving = servers.filter(
    ({ id, state, catalogReplica }) => state === 'serving' && catalogReplica === undefined && !behind.has(id),
  );
  const left = tooFewLeft(server, catalogMembers, serving);
  return left === null ? [] : [`Names would be unavailable: ${left}`];
}

function namesOfVolumesNeed({ server, servers, volumeCatalogs }: StopCheckInput): string[] {
  const serving = servers.filter(({ state }) => state === 'serving');
  return volumeCatalogs.flatMap(({ volume, members }) => {
    const left = members.includes(server) ? tooFewLeft(server, members, serving) : null;
    return left === null ? [] : [`Names of the volume ${volume} would be unavailable: ${left}`];
  });
}

/** @returns how many members a catalog would have left, and needs; null if they suffice */
function tooFewLeft(
  server: string,
  members: readonly string[],
  serving: readonly ServerStatus[],
): string | null {
  const left = serving.filter(({ id }) => id !== server && members.includes(id)).length;
  const needed = majority(members.length);
  if (left >= needed) return null;
  return `${left} of the catalog's ${members.length} servers would be left, and ${needed} are needed`;
}

function leasesNeed({ server, servers, voters }: StopCheckInput): string[] {
  const silent = servers
    .filter(({ namedLeases }) => (namedLeases?.recoveringMs ?? 0) > 0)
    .map(({ id }) => id);
  const missing = new Set([server, ...missingServers(server, servers), ...silent]);
  // A removed server is not among the servers.
  const present = new Set<string>(servers.map(({ id }) => id).filter((id) => !missing.has(id)));
  const needsIt = (set: VoterSet): boolean =>
    set.servers.some((voter) => voter === server) && !votersMajorities(set, (voter) => present.has(voter));
  const { members, joint } = voters;
  if (!needsIt(members) && (joint === undefined || !needsIt(joint))) return [];
  return ['Named leases would be unavailable: some would lack a majority of their voters'];
}

function filesNeed({ server, servers, needing }: StopCheckInput): string[] {
  const reasons: string[] = [];
  if (needing.files > 0) {
    const missing = missingServers(server, servers);
    const why =
      missing.length === 0
        ? ''
        : ` while ${missing.join(', ')} ${missing.length === 1 ? 'is' : 'are'} missing`;
    const examples = examplesText(needing.examples);
    reasons.push(`${filesText(needing.files)} would lack a majority of their servers${why}${examples}`);
  }
  if (needing.planned > 0)
    reasons.push(
      `${filesText(needing.planned)} ${needing.planned === 1 ? 'is' : 'are'} being moved to this server`,
    );
  return reasons;
}

function filesNeedSpace({ server, servers, needing, needingSpace }: StopCheckInput): string[] {
  if (needingSpace === null || needingSpace.files === 0) return [];
  const { files, examples } = needingSpace;
  // Then they are the same files, which lack a majority anyway.
  if (files === needing.files && examples.join() === needing.examples.join()) return [];
  const full = fullServers(server, servers);
  const which = full.length === 1 ? `the disk of ${full.join()} is` : `the disks of ${full.join(', ')} are`;
  return [`${filesText(files)} could not be changed, because ${which} full${examplesText(examples)}`];
}

function replicasBehind({ server, servers }: StopCheckInput): string[] {
  const others = servers.map(({ id }) => id).filter((id) => id !== server);
  return others.flatMap((id) => {
    // Several servers may know the same replica.
    const count = Math.max(0, ...servers.map(({ behind }) => behind?.[id] ?? 0));
    const replicas = count === 1 ? '1 replica is' : `${count} replicas are`;
    if (count > 0) return [`${replicas} behind on server ${id}: wait until they have caught up`];
    const by = servers.filter(({ uncompared }) => uncompared?.includes(id)).map((one) => one.id);
    if (by.length === 0) return [];
    return [`Server ${id} has just connected, and ${by.join(', ')} must compare its replicas first: wait`];
  });
}

/** For servers of earlier releases, which do not report `behind`, and for those that cannot reach one that serves. */
function filesUnderReplicated({ server, servers }: StopCheckInput): string[] {
  const isComplete = missingServers(server, servers).length === 0;
  return servers.flatMap(({ id, behind, lag, underReplicated }) => {
    if (behind !== undefined) return [];
    const count = (isComplete ? underReplicated.length : 0) + (lag?.files ?? 0);
    return count === 0
      ? []
      : [`Server ${id} reports ${filesText(count)} with replicas that are unreachable or behind`];
  });
}

function policiesNeed({ server, servers, volumes }: StopCheckInput): string[] {
  const holdsFiles = servers.some(({ id, replicas }) => id === server && replicas > 0);
  const names = volumes.filter(({ policy }) => policy === 'all').map(({ name }) => name);
  if (!holdsFiles || names.length === 0) return [];
  const which = names.length === 1 ? `volume ${names.join()}` : `volumes ${names.join(', ')}`;
  return [`Files of ${which} with a replica here could not be changed: their policy is "all"`];
}

function examplesText(files: readonly number[]): string {
  return files.length === 0 ? '' : ` (for example ${files.join(', ')})`;
}

function filesText(count: number): string {
  return count === 1 ? '1 file' : `${count} files`;
}
