import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { isVolumeName } from '../../wire/access.ts';
import type { LocatedPath } from '../../wire/junctions.ts';
import { assertChangeable, type FilePath, parseFilePath, volumeOf, volumePath } from '../requests/path.ts';
import { Attachments } from '../routing/attachments.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { Location } from '../routing/location.ts';
import { assertMayUse, PathLocations } from './path-location.ts';
import { ADMIN, READ } from './roles.ts';

const JUNCTIONS_PREFIX = '/v1/junctions/';
const LOCATE_PREFIX = '/v1/locate/';

/** `/v1/junctions/{volume}/{path}`: volumes that are attached in others. `/v1/locate/…`: where a path leads. */
export function junctionRoutes(app: FastifyInstance, gateway: Gateway): void {
  const locations = new PathLocations(gateway);
  const attachments = new Attachments(gateway);

  app.get('/v1/locate', READ, async (request): Promise<LocatedPath> => {
    const path = parseFilePath(request.originalUrl, LOCATE_PREFIX);
    const end = path.search.get('end') === 'name' ? 'name' : 'target';
    const located = await locations.locate(request, path, end);
    return { ...locationOf(located), catalog: gateway.services.catalogs.ofVolume(volumeOf(located)) };
  });

  app.put('/v1/junctions', ADMIN, async (request, reply) => {
    const path = parseFilePath(request.originalUrl, JUNCTIONS_PREFIX);
    assertChangeable(path);
    const volume = volumeIn(path.search);
    assertMayUse(request, volume);
    const attached = await locations.at(request, path, 'name', (at) =>
      attachments.attach(volume, locationOf(at)),
    );
    return reply.code(201).send(attached);
  });

  app.delete('/v1/junctions', ADMIN, async (request, reply) => {
    const { originalUrl: url } = request;
    if (!url.startsWith(JUNCTIONS_PREFIX)) {
      await attachments.detachVolume(volumeIn(new URLSearchParams(url.split('?')[1])));
      return reply.code(204).send();
    }
    const path = parseFilePath(url, JUNCTIONS_PREFIX);
    await locations.at(request, path, 'name', (at) => attachments.detachAt(locationOf(at)));
    return reply.code(204).send();
  });
}

function locationOf({ volume, names }: FilePath): Location {
  return { volume, path: volumePath(names) };
}

function volumeIn(search: URLSearchParams): string {
  const volume: unknown = search.get('volume');
  if (isVolumeName(volume)) return volume;
  throw new ServiceError('bad-request', 'The parameter "volume" names the attached volume');
}
