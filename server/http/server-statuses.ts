import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { ServerStatus } from '../../wire/http-api.ts';
import type { Gateway } from '../routing/gateway.ts';

/** A server that takes longer is reported as unreachable. */
const PEER_STATUS_MS = 1000;

/** The state of each server, as it reports it. */
export function serverStatuses(gateway: Gateway): Promise<ServerStatus[]> {
  const { urls, known } = gateway.services.status;
  return Promise.all(
    [...urls].map(async ([id, url]) => {
      const untilMs = known.maintenanceUntilMs(id);
      const labels = known.labelsOf(id);
      const answer = await statusOf(gateway, id, url);
      return {
        ...answer,
        ...(labels.length === 0 ? {} : { labels }),
        ...(untilMs === null ? {} : { maintenanceUntil: new Date(untilMs).toISOString() }),
      };
    }),
  );
}

async function statusOf({ services, peers }: Gateway, id: ServerId, url: string): Promise<ServerStatus> {
  const { status } = services;
  if (id === status.id) return status.self();
  try {
    const request = { method: 'GET', path: '/v1/status/self' } as const;
    const { bytes } = await peers.exchange(id, request, PEER_STATUS_MS);
    return JSON.parse(Buffer.from(bytes).toString('utf8')) as ServerStatus;
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    return { ...unreachableStatus(id, url), membership: status.known.stateOf(id) };
  }
}

function unreachableStatus(id: ServerId, url: string): ServerStatus {
  return {
    id,
    url,
    reachable: false,
    state: 'unreachable',
    recoveringMs: 0,
    primaries: 0,
    backups: 0,
    replicas: 0,
    underReplicated: [],
    freeBytes: 0,
    totalBytes: 0,
    pid: 0,
    uptimeMs: 0,
    clockOffsets: {},
  };
}
