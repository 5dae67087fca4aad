import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import type { Gateway } from '../gateway.ts';
import type { MetricsRegistry } from '../metrics.ts';
import { setFileHeaders } from './answers.ts';
import {
  type Conditions,
  checkIfMatch,
  conditionsOf,
  etagOf,
  httpDate,
  matchesIfNoneMatch,
} from './conditions.ts';
import { Downloads } from './download.ts';
import { integerOf } from './input.ts';
import { sendListing } from './listing.ts';
import { directoryUrl, displayPath, type FilePath, parseFilePath, volumePath } from './path.ts';
import { READ, WRITE } from './roles.ts';
import { UPLOAD_IDLE_MS, Uploads } from './upload.ts';

export const FILES_PREFIX = '/v1/files/';

const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;
/** Entries that a client may ask for at once; without a limit it gets all. */
const LIMIT_MAX = 10_000;

type Expectation = Extract<Command, { kind: 'replace' }>['expect'];

/**
 * Files by path: `/v1/files/{volume}/{path}`. The application routes every such URL here undecoded,
 * as `/v1/files`; the path is in `originalUrl`, as the client sent it.
 */
export function fileRoutes(app: FastifyInstance, gateway: Gateway, metrics: MetricsRegistry): void {
  const uploads = new Uploads(gateway);
  const downloads = new Downloads(gateway);
  metrics.observe('gauge', 'leasehold_uploads', 'Uploads that are going on', () => uploads.active);
  metrics.observe('gauge', 'leasehold_downloads', 'Downloads that are going on', () => downloads.active);

  // A body comes back byte for byte, so nobody parses it: the handlers read the request itself.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.addHook('onSend', async (request) => {
    // A body that is refused half-way is read to its end, so that the client comes to read the answer.
    if (!request.raw.complete) request.raw.resume();
  });

  app.route({
    method: ['GET', 'HEAD'],
    url: '/v1/files',
    ...READ,
    handler: async (request, reply) => {
      const path = pathOf(request);
      const { attributes } = await gateway.query({
        kind: 'resolve',
        volume: path.volume,
        path: volumePath(path.names),
        follow: true,
      });
      if (attributes.kind === 'directory') return getDirectory(request, reply, path, attributes);
      if (path.directory) throw new ServiceError('not-directory', `${displayPath(path)} is no directory`);
      if (attributes.kind !== 'file') {
        throw new ServiceError(
          'bad-request',
          `${displayPath(path)} is a ${attributes.kind}, without contents`,
        );
      }
      return downloads.send(request, reply, attributes);
    },
  });

  app.put('/v1/files', WRITE, async (request, reply) => {
    const path = pathOf(request);
    if (path.directory) return putDirectory(request, reply, path);
    return putFile(request, reply, path);
  });

  app.delete('/v1/files', WRITE, async (request, reply) => {
    const path = pathOf(request);
    const place = { volume: path.volume, path: volumePath(path.names) };
    if (path.directory) {
      await gateway.command({ kind: 'remove-directory', place });
      return reply.code(204).send();
    }
    const conditions = conditionsOf(request.headers);
    if (conditions.ifMatch !== undefined || conditions.ifNoneMatch !== undefined) {
      checkConditions(conditions, await currentOf(path, conditions), path);
    }
    const { inode } = await gateway.command({ kind: 'unlink', place });
    setFileHeaders(reply, gateway, inode as FileId, null);
    return reply.code(204).send();
  });

  async function getDirectory(
    request: FastifyRequest,
    reply: FastifyReply,
    path: FilePath,
    attributes: Attributes,
  ): Promise<FastifyReply> {
    if (!path.directory) {
      const search = path.search.size > 0 ? `?${path.search}` : '';
      return reply.redirect(`${directoryUrl(FILES_PREFIX, path)}${search}`, 308);
    }
    if (request.method === 'HEAD') return reply.type('application/json; charset=utf-8').send();
    const limit = path.search.get('limit');
    const count = limit === null ? null : integerOf(limit, 'limit', 1, LIMIT_MAX);
    return sendListing(reply, gateway, attributes, path.search.get('after') ?? '', count);
  }

  async function putDirectory(
    request: FastifyRequest,
    reply: FastifyReply,
    path: FilePath,
  ): Promise<FastifyReply> {
    const existing = await currentOf(path, null, true);
    if (existing !== null && existing.kind !== 'directory') {
      throw new ServiceError('exists', `${displayPath(path)} is a ${existing.kind}`);
    }
    const { 'content-length': length = '0', 'transfer-encoding': encoding } = request.headers;
    if (Number(length) > 0 || encoding !== undefined) {
      const why = 'a path that ends in "/" is a directory, which holds names only';
      throw new ServiceError('bad-request', `Cannot store contents at ${displayPath(path)}: ${why}`);
    }
    if (existing !== null) return reply.code(204).send();
    const parent = await parentOf(path);
    const created = await makeDirectory(path, parent);
    return reply.code(created ? 201 : 204).send();
  }

  /**
   * The upload goes to a file without a name; one command of the catalog gives it the name. Readers see
   * the old file or the new one, whole, and whoever breaks off has changed nothing.
   */
  async function putFile(
    request: FastifyRequest,
    reply: FastifyReply,
    path: FilePath,
  ): Promise<FastifyReply> {
    if (request.headers['content-range'] !== undefined) {
      throw new ServiceError('bad-request', 'A part of a file cannot be put: an upload is the whole file');
    }
    if (path.names.length === 0)
      throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    const conditions = conditionsOf(request.headers);
    const [current, parent] = await Promise.all([
      // A link at the end is followed here as it is by the command that gives the name.
      currentOf(path, conditions, true),
      parentOf(path),
    ]);
    if (current?.kind === 'directory') {
      throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    }
    checkConditions(conditions, current, path);
    const orphan = await gateway.command({
      kind: 'create-orphan',
      volume: path.volume,
      mode: FILE_MODE,
      uid: parent.uid,
      gid: parent.gid,
    });
    const { inode } = orphan.attributes;
    request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
    const state = await uploads
      .store(orphan.attributes, request.raw)
      .finally(() => request.raw.setTimeout(0));
    const { attributes, replaced } = await gateway.command({
      kind: 'replace',
      place: { volume: path.volume, path: volumePath(path.names) },
      inode,
      expect: expectationOf(conditions, current),
    });
    await gateway.flushCatalog();
    setFileHeaders(reply, gateway, inode as FileId, state);
    reply.header('etag', etagOf(inode, state.contents));
    reply.header('last-modified', httpDate(attributes.modifiedNs));
    return reply.code(replaced === null ? 201 : 204).send();
  }

  /** What has the name now; null where nothing has. With `follow`, what a link leads to. */
  async function currentOf(
    path: FilePath,
    conditions: Conditions | null,
    follow = false,
  ): Promise<Attributes | null> {
    const query = { kind: 'resolve', volume: path.volume, path: volumePath(path.names), follow } as const;
    const needsTag = conditions?.ifMatch !== undefined || conditions?.ifNoneMatch !== undefined;
    try {
      // Only an entity tag is worth asking a live file's primary for.
      const { attributes } = await (needsTag ? gateway.query(query) : gateway.queryCatalog(query));
      return attributes;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not-found') return null;
      throw error;
    }
  }

  /** The directory that `path` lies in; with `?parents=true` it is made where it is missing. */
  async function parentOf(path: FilePath): Promise<Attributes> {
    const parent = { ...path, names: path.names.slice(0, -1) };
    const found = await currentOf(parent, null, true);
    if (found !== null) {
      if (found.kind === 'directory') return found;
      throw new ServiceError('not-directory', `${displayPath(parent)} is no directory`);
    }
    if (parent.names.length === 0) throw new ServiceError('not-found', `There is no volume "${path.volume}"`);
    if (path.search.get('parents') !== 'true') {
      const remedy = 'make it first, or ask for it with "?parents=true"';
      throw new ServiceError('not-found', `The directory ${displayPath(parent)} does not exist: ${remedy}`);
    }
    await makeDirectory(parent, await parentOf(parent));
    const made = await currentOf(parent, null, true);
    if (made === null)
      throw new ServiceError('not-found', `The directory ${displayPath(parent)} was removed`);
    return made;
  }

  /** @returns false where another request made it in the same moment */
  async function makeDirectory(path: FilePath, parent: Attributes): Promise<boolean> {
    try {
      await gateway.command({
        kind: 'make-directory',
        place: { volume: path.volume, path: volumePath(path.names) },
        mode: DIRECTORY_MODE,
        uid: parent.uid,
        gid: parent.gid,
      });
      return true;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'exists') return false;
      throw error;
    }
  }
}

function pathOf(request: FastifyRequest): FilePath {
  const url = request.originalUrl;
  if (!url.startsWith(FILES_PREFIX))
    throw new ServiceError('not-found', 'A path under /v1/files/ names a volume');
  return parseFilePath(url, FILES_PREFIX);
}

function checkConditions(conditions: Conditions, current: Attributes | null, path: FilePath): void {
  const etag =
    current === null ? null : current.kind === 'file' ? etagOf(current.inode, current.contents) : '';
  checkIfMatch(conditions, etag, displayPath(path));
  if (matchesIfNoneMatch(conditions, etag)) {
    throw new ServiceError('precondition-failed', `If-None-Match: ${displayPath(path)} exists`);
  }
}

/** What must still be there when the upload gets its name, so that the check at its beginning stays true. */
function expectationOf(conditions: Conditions, current: Attributes | null): Expectation {
  if (conditions.ifMatch === undefined && conditions.ifNoneMatch === undefined) return { kind: 'anything' };
  return current === null ? { kind: 'nothing' } : { kind: 'inode', inode: current.inode };
}
