import type { FastifyInstance, FastifyRequest } from 'fastify';
import { dateOfNs } from '../../base/dates.ts';
import { ServiceError } from '../../base/errors.ts';
import { isVolumeName } from '../../wire/access.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { retentionOf } from './retention-input.ts';
import { ADMIN, READ } from './roles.ts';

const NAME_FORM = '1 to 63 characters a-z, 0-9, ".", "_" and "-", the first one a letter or digit';

/** `/v1/snapshots/{volume}`: the snapshots that are read as `{volume}@{name}`. */
export function snapshotRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.get('/v1/snapshots/:volume', READ, async (request) => {
    const { volume } = partsOf(request);
    const { snapshots } = await gateway.queryCatalog({ kind: 'snapshots', volume });
    return { snapshots: snapshots.map(snapshotAnswer) };
  });

  app.put('/v1/snapshots/:volume/:name', ADMIN, async (request, reply) => {
    const { volume, name } = partsOf(request);
    const { retain } = request.query as { readonly retain?: string };
    const wanted = retain === undefined ? {} : { retain: retentionOf(retain) };
    const { snapshot } = await gateway.command({ kind: 'snapshot-create', volume, name, ...wanted });
    return reply.code(201).send(snapshotAnswer(snapshot));
  });

  app.post('/v1/snapshots/:volume/:name', ADMIN, async (request) => {
    const { volume, name } = partsOf(request);
    const { retain = '' } = request.query as { readonly retain?: string };
    const wanted = retentionOf(retain);
    const { snapshot } = await gateway.command({ kind: 'snapshot-retain', volume, name, retain: wanted });
    return snapshotAnswer(snapshot);
  });

  app.delete('/v1/snapshots/:volume/:name', ADMIN, async (request, reply) => {
    const { volume, name } = partsOf(request);
    await gateway.command({ kind: 'snapshot-remove', volume, name });
    return reply.code(204).send();
  });
}

function partsOf(request: FastifyRequest): { readonly volume: string; readonly name: string } {
  const { volume, name = 'none' } = request.params as Readonly<Record<string, string | undefined>>;
  if (!isVolumeName(volume))
    throw new ServiceError('not-found', `There is no volume ${JSON.stringify(volume)}`);
  if (!isVolumeName(name))
    throw new ServiceError(
      'bad-request',
      `Invalid snapshot name ${JSON.stringify(name)}: write ${NAME_FORM}`,
    );
  return { volume, name };
}

function snapshotAnswer(snapshot: SnapshotInfo): Readonly<Record<string, unknown>> {
  const { volume, name, serial, madeNs, retainUntilNs } = snapshot;
  const made = new Date(Number(BigInt(madeNs) / 1_000_000n)).toISOString();
  const retained = retainUntilNs === undefined ? {} : { retainUntil: dateOfNs(retainUntilNs) };
  return { snapshot: `${volume}@${name}`, volume, name, serial, made, ...retained };
}
