import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { isVolumeName } from '../../wire/access.ts';
import type { Query, TrashedFile } from '../../wire/catalog-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { integerOf } from './input.ts';
import { READ, WRITE } from './roles.ts';

/** Files of one answer by default, and of one command of the catalog that removes them. */
const PAGE_COUNT = 1_000;
const LIMIT_MAX = 10_000;
/** Most files that one request removes: it ends in bounded time, and the client repeats it. */
const REMOVALS_MAX = 20_000;

type Cursor = Extract<Query, { kind: 'trash' }>['after'];

/** `/v1/trash/{volume}`: files that lost their last name and are kept for a while. */
export function trashRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.get('/v1/trash/:volume', READ, async (request) => {
    const { volume, search } = partsOf(request);
    const { path = '/', after, limit } = search;
    const countMax = limit === undefined ? PAGE_COUNT : integerOf(limit, 'limit', 1, LIMIT_MAX);
    const { files, more } = await gateway.queryCatalog({
      kind: 'trash',
      volume,
      path,
      after: cursorOf(after),
      countMax,
    });
    const last = files.at(-1);
    const next = more && last !== undefined ? { next: `${last.inode}${last.path}` } : {};
    return { files: files.map(fileAnswer), more, ...next };
  });

  app.post('/v1/trash/:volume/:file/restore', WRITE, async (request) => {
    const { volume, file, search } = partsOf(request);
    const to = search.to === undefined ? {} : { to: search.to };
    const { attributes, path } = await gateway.durably({ kind: 'trash-restore', volume, inode: file, ...to });
    return { file: attributes.inode, path };
  });

  app.delete('/v1/trash/:volume', WRITE, async (request, reply) => {
    const { volume, search } = partsOf(request);
    const { path = '/' } = search;
    let removed = 0;
    let more = true;
    while (more && removed < REMOVALS_MAX) {
      const answer = await gateway.durably({ kind: 'trash-empty', volume, path, countMax: PAGE_COUNT });
      removed += answer.removed;
      more = answer.removed === PAGE_COUNT;
    }
    return more ? reply.code(202).send({ removed, more }) : reply.code(204).send();
  });

  app.delete('/v1/trash/:volume/:file', WRITE, async (request, reply) => {
    const { volume, file } = partsOf(request);
    await gateway.durably({ kind: 'trash-empty', volume, inode: file, countMax: 1 });
    return reply.code(204).send();
  });
}

function partsOf(request: FastifyRequest) {
  const { volume = '', file } = request.params as Readonly<Record<string, string | undefined>>;
  if (!isVolumeName(volume))
    throw new ServiceError('not-found', `There is no volume ${JSON.stringify(volume)}`);
  const search = request.query as Readonly<Record<string, string | undefined>>;
  return { volume, file: file === undefined ? 0 : integerOf(file, 'file', 1), search };
}

/** Parses a cursor, which is a file's number and path, as in `next`. */
function cursorOf(text: string | undefined): Cursor {
  if (text === undefined) return null;
  const [, number, path] = /^([0-9]{1,16})(\/.*)$/s.exec(text) ?? [];
  if (number === undefined || path === undefined)
    throw new ServiceError('bad-request', '"after" must be the "next" of the previous answer');
  return { inode: integerOf(number, 'after', 1), path };
}

function fileAnswer({ inode, path, sizeBytes, removedBy, ...times }: TrashedFile): Record<string, unknown> {
  return {
    file: inode,
    path,
    size: sizeBytes,
    modified: timeOf(times.modifiedNs),
    removed: timeOf(times.removedNs),
    ...(removedBy === undefined ? {} : { removedBy }),
    keptUntil: timeOf(times.keptUntilNs),
  };
}

function timeOf(nanoseconds: string): string {
  return new Date(Number(BigInt(nanoseconds) / 1_000_000n)).toISOString();
}
