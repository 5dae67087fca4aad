import type { QueryRequest, QueryResults } from '../../wire/catalog-api.ts';
import type { ServerStatus } from '../../wire/http-api.ts';
import { Access } from './access.ts';
import { Endpoint, type EndpointEvents } from './endpoint.ts';
import { isLoopback } from './loopback.ts';
import { postRequest } from './request.ts';
import { readJson } from './response.ts';
import type { ServerRequest } from './server-channel.ts';

const ID_TIMEOUT_MS = 1_000;
/** The catalog may have to elect a primary first. */
const LIST_TIMEOUT_MS = 5_000;
const ASKED_SERVERS_MAX = 3;
const FOUND_MAX = 16;

type Listed = QueryResults['servers']['servers'][number];

export interface FoundServers {
  /** All servers of the catalog's list; null if no server answered. */
  readonly listed: readonly Pick<Listed, 'id' | 'zone'>[] | null;
  /** New servers, with their ids. The caller closes them. */
  readonly joined: readonly Endpoint[];
  /** Discovered servers that are no longer part of the cluster, or reachable at the address that was given. */
  readonly left: readonly Endpoint[];
  /** Some listed servers did not prove their identity: they are too busy, or their address means another host here. */
  readonly unproven: boolean;
}

/**
 * Finds servers that joined the cluster after this client was configured. The catalog lists the addresses at which
 * servers reach each other, which may be useless here (containers, tunnels, another cluster behind the same loopback
 * address). So an address is used only if the server there reports the expected id, and if the catalog that it asks
 * knows that id with the same store: a store's identity is drawn at random once, so no two clusters share one.
 * @returns empty lists if no server answers
 */
export async function findServers(
  known: readonly Endpoint[],
  preferred: Endpoint,
  events: EndpointEvents,
  signal: AbortSignal,
  access: Access = Access.NONE,
): Promise<FoundServers> {
  const others = known.filter((endpoint) => endpoint !== preferred);
  const reporters = [preferred, ...others]
    .filter(({ isUnreachable }) => !isUnreachable)
    .slice(0, ASKED_SERVERS_MAX);
  for (const reporter of reporters) {
    const list = await askServers(reporter, signal);
    if (list === null) continue;
    const left = known.filter((endpoint) => !endpoint.given && hasLeft(endpoint, list, known));
    const freeCount = FOUND_MAX - known.filter(({ given }) => !given).length + left.length;
    const candidates = list
      .flatMap((listed) => candidateOf(listed, reporter, known, events, access) ?? [])
      .slice(0, Math.max(0, freeCount));
    const proven = await Promise.all(candidates.map((candidate) => isProven(candidate, signal)));
    const failed = candidates.filter((_, index) => proven[index] !== true);
    await Promise.all(failed.map(({ endpoint }) => endpoint.close()));
    const joined = candidates.filter((_, index) => proven[index] === true).map(({ endpoint }) => endpoint);
    return { listed: list, joined, left, unproven: failed.length > 0 };
  }
  return { listed: null, joined: [], left: [], unproven: false };
}

/** @returns the id that the server reports; null if it does not */
export async function askId(endpoint: Endpoint, signal: AbortSignal): Promise<string | null> {
  const status = await ask<ServerStatus>(
    endpoint,
    { method: 'GET', path: '/v1/status/self' },
    ID_TIMEOUT_MS,
    signal,
  );
  return typeof status?.id === 'string' ? status.id : null;
}

async function askServers(endpoint: Endpoint, signal: AbortSignal): Promise<readonly Listed[] | null> {
  const body: QueryRequest = { query: { kind: 'servers', counts: false } };
  const query = postRequest('', '/v1/catalog/queries', body);
  const listed = await ask<QueryResults['servers']>(endpoint, query, LIST_TIMEOUT_MS, signal);
  return Array.isArray(listed?.servers) ? listed.servers.filter(isListed) : null;
}

/** Sends a request to one server. @returns null without a good answer: the next search sends it again */
async function ask<Value>(
  endpoint: Endpoint,
  request: Omit<ServerRequest, 'signal'>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Partial<Value> | null> {
  try {
    const limited = AbortSignal.any([signal, endpoint.world.timeout(timeoutMs)]);
    const response = await endpoint.stream({ ...request, signal: limited });
    if (response.statusCode === 200) return await readJson<Partial<Value>>(response);
    await response.body.bytes();
    return null;
  } catch {
    return null;
  }
}

/** Whether an element of the list is well-formed: a malformed list must not end a process that never asked for it. */
function isListed(value: unknown): value is Listed {
  if (typeof value !== 'object' || value === null) return false;
  const { id, url, state, storageId } = value as Record<string, unknown>;
  return [id, url, state, storageId].every((text) => typeof text === 'string');
}

interface Candidate {
  readonly listed: Listed;
  readonly endpoint: Endpoint;
}

/** @returns null if the server is known, about to leave, or its address is useless to this client */
function candidateOf(
  listed: Listed,
  reporter: Endpoint,
  known: readonly Endpoint[],
  events: EndpointEvents,
  access: Access,
): Candidate | null {
  if (listed.state !== 'in' || listed.storageId === '') return null;
  if (known.some(({ id, isUnreachable }) => id === listed.id && !isUnreachable)) return null;
  const address = addressReportedBy(listed.url, reporter.url);
  if (address === null || known.some(({ url }) => url === address)) return null;
  if (!access.allows(new URL(address))) return null;
  return { listed, endpoint: new Endpoint(reporter.world, address, false, events, access) };
}

async function isProven({ listed, endpoint }: Candidate, signal: AbortSignal): Promise<boolean> {
  const id = await askId(endpoint, signal);
  if (id !== listed.id) return false;
  const list = await askServers(endpoint, signal);
  const same = list?.some((server) => server.id === id && server.storageId === listed.storageId) === true;
  if (same) endpoint.id = id;
  return same;
}

function hasLeft(found: Endpoint, list: readonly Listed[], known: readonly Endpoint[]): boolean {
  const listed = list.find(({ id }) => id === found.id);
  if (listed === undefined || listed.state === 'out') return true;
  return known.some(({ given, id, isUnreachable }) => given && id === found.id && !isUnreachable);
}

/** @returns base URL to try for an address that the server at `reporterUrl` reported; null if it is useless here */
export function addressReportedBy(reported: string, reporterUrl: string): string | null {
  const address = URL.parse(reported);
  const reporter = URL.parse(reporterUrl);
  if (address === null || reporter === null || !/^https?:$/.test(address.protocol)) return null;
  if (isUnspecified(address.hostname)) return null;
  // It means the reporting server's own host, which is another one.
  if (isLoopback(address.hostname) && !isLoopback(reporter.hostname)) return null;
  return new URL(`${reporter.protocol}//${address.host}`).origin;
}

function isUnspecified(hostname: string): boolean {
  return hostname === '0.0.0.0' || hostname === '[::]';
}
