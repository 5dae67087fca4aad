import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { CAPABILITY_FILES_MAX, type CapabilityAnswer } from '../../wire/http-api.ts';
import { modeOf } from '../security/authorization.ts';
import type { Capabilities } from '../security/capabilities.ts';
import type { VolumeScope } from '../security/volume-scope.ts';
import { READ } from './roles.ts';

/** `POST /v1/catalog/capabilities`: what a client shows to any server for access to the contents of files. */
export function capabilityRoutes(app: FastifyInstance, capabilities: Capabilities, scope: VolumeScope): void {
  app.post('/v1/catalog/capabilities', READ, async (request): Promise<CapabilityAnswer> => {
    const files = filesOf(request.body);
    const { principal } = request;
    // A server, or a client without authentication, needs no capability.
    if (principal?.kind !== 'client') return { capabilities: [] };
    const { grant } = principal;
    const given = files.map(async (file) => {
      const volume = await scope.volumeOf(file);
      scope.checkVolume(grant, volume);
      return { file, capability: capabilities.issue({ file, volume, mode: modeOf(grant), to: grant.name }) };
    });
    return { capabilities: await Promise.all(given) };
  });
}

function filesOf(body: unknown): number[] {
  const { files } = (body ?? {}) as { readonly files?: unknown };
  const isList = Array.isArray(files) && files.length > 0 && files.length <= CAPABILITY_FILES_MAX;
  if (!isList || !files.every((file) => Number.isSafeInteger(file) && file > 0)) {
    throw new ServiceError(
      'bad-request',
      `"files" is a list of 1 to ${CAPABILITY_FILES_MAX} numbers of files`,
    );
  }
  return files as number[];
}
