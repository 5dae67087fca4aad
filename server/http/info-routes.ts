import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { viewVoters } from '../../replica/view.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { FileInfo, FileState } from '../../wire/http-api.ts';
import { parseFilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { attributesWithState } from '../routing/live-attributes.ts';
import type { FileLeaseStatus } from '../routing/service-interfaces.ts';
import { setFileHeaders } from './answers.ts';
import { etagOf } from './conditions.ts';
import { PathLocations } from './path-location.ts';
import { READ } from './roles.ts';

const INFO_PREFIX = '/v1/info/';

type Replica = FileInfo['replicas'][number];

const NO_LAG = { lagOperations: 0, lagBytes: 0 };
const UNKNOWN_LAG = { lagOperations: 0, lagBytes: null };

/** `GET /v1/info/{volume}/{path}`: the servers that hold a file. It opens the file, so that there is a primary. */
export function infoRoutes(app: FastifyInstance, gateway: Gateway): void {
  const locations = new PathLocations(gateway);
  app.get('/v1/info', READ, async (request, reply): Promise<FileInfo> => {
    const [path, attributes] = await locations.at(
      request,
      parseFilePath(request.originalUrl, INFO_PREFIX),
      'target',
      async (at) => {
        const query = {
          kind: 'resolve',
          volume: at.volume,
          path: volumePath(at.names),
          follow: true,
        } as const;
        return [at, (await gateway.queryCatalog(query)).attributes] as const;
      },
    );
    const file = attributes.inode as FileId;
    // In a snapshot, another file may have the contents: its replicas are reported.
    const holder = (attributes.source ?? file) as FileId;
    const primary = attributes.kind === 'file' ? await queryPrimary(holder) : null;
    const merged =
      primary === null || attributes.snapshot !== undefined
        ? attributes
        : attributesWithState(attributes, primary.state);
    if (attributes.kind === 'file') setFileHeaders(reply, gateway, file, primary?.state ?? null);
    const leaseStatus = primary?.leaseStatus ?? null;
    return {
      file,
      volume: path.volume,
      path: volumePath(path.names),
      attributes: merged,
      size: merged.sizeBytes,
      etag: attributes.kind === 'file' ? etagOf(file, merged.contents) : '',
      view: leaseStatus?.view ?? { number: attributes.view, members: attributes.replicas },
      primary: primary?.state.primary ?? null,
      epoch: primary?.state.epoch ?? gateway.router.knownPrimary(file).epoch,
      lease: leaseStatus?.lease ?? { holder: null, remainingMs: 0 },
      replicas:
        leaseStatus === null ? replicasUnknown(attributes) : replicasOf(leaseStatus, primary?.state.seq ?? 0),
    };
  });

  /** Null if no majority of the file's servers is reachable: the answer reports that. */
  async function queryPrimary(
    holder: FileId,
  ): Promise<{ readonly leaseStatus: FileLeaseStatus; readonly state: FileState } | null> {
    try {
      return {
        leaseStatus: await gateway.files.leaseStatus(holder),
        state: await gateway.files.state(holder),
      };
    } catch (error) {
      if (error instanceof ServiceError && error.remedy === 'retry') return null;
      throw error;
    }
  }

  function replicasOf(leaseStatus: FileLeaseStatus, seq: number): readonly Replica[] {
    const learners = leaseStatus.replicas
      .filter(({ role }) => role === 'learner')
      .map(({ server }) => server);
    return [...viewVoters(leaseStatus.view), ...learners].map((server): Replica => {
      const status = leaseStatus.replicas.find((replica) => replica.server === server);
      if (status !== undefined) {
        const { role, state, lagOperations, lagBytes } = status;
        const reachable = state !== 'unreachable';
        return { server, role, state, version: status.seq, reachable, lagOperations, lagBytes };
      }
      return server === leaseStatus.primary
        ? { server, role: 'primary', state: 'current', version: seq, reachable: true, ...NO_LAG }
        : { server, role: 'backup', state: 'unreachable', version: 0, reachable: false, ...UNKNOWN_LAG };
    });
  }

  function replicasUnknown(attributes: Attributes): readonly Replica[] {
    const { status } = gateway.services;
    return attributes.replicas.map((server): Replica => {
      const connected = [...status.urls.keys()].some((id) => id === server && status.isConnected(id));
      const reachable = server === status.id || connected;
      const state = reachable ? 'catching-up' : 'unreachable';
      return { server, role: 'backup', state, version: 0, reachable, ...UNKNOWN_LAG };
    });
  }
}
