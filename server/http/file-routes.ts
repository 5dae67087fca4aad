import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { dateOfNs } from '../../base/dates.ts';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { INODE_FLAGS, type InodeFlag, parseInodeFlags } from '../../wire/inode-flags.ts';
import type { WholeFiles } from '../file/whole-files.ts';
import { isClientWaiting } from '../requests/expectation.ts';
import {
  assertChangeable,
  directoryUrl,
  displayPath,
  type FilePath,
  parseFilePath,
  volumePath,
} from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { MetricsRegistry } from '../telemetry/metrics.ts';
import { addVary, setFileHeaders } from './answers.ts';
import { attributesAt, changeUnderConditions, preconditionOf } from './conditional-change.ts';
import { conditionsOf, httpDate } from './conditions.ts';
import { claimedDigests, DigestCheck } from './digests.ts';
import { Directories } from './directories.ts';
import { Downloads } from './download.ts';
import { contentTypeOf, isForm } from './form.ts';
import { storeForm } from './form-uploads.ts';
import { idempotencyKeyOf, type RequestKey } from './idempotency.ts';
import { integerOf } from './input.ts';
import { sendListing } from './listing.ts';
import { PAGE_ENTRIES, sendListingPage, wantsPage } from './listing-page.ts';
import { type NamedFile, NewFiles } from './new-files.ts';
import { PartialWrites } from './partial-write.ts';
import { PathLocations } from './path-location.ts';
import { Relocations } from './relocation.ts';
import { removalOf } from './removal.ts';
import { retentionOf } from './retention-input.ts';
import { READ, WRITE } from './roles.ts';
import { removeTree } from './tree-removal.ts';
import { TusRoutes } from './tus-routes.ts';
import { TusUploads } from './tus-uploads.ts';
import { UPLOAD_IDLE_MS, Uploads } from './upload.ts';
import { Watches } from './watch.ts';

const FILES_PREFIX = '/v1/files/';

/** Most entries for one request with a limit; without one it gets all. */
const LIMIT_MAX = 10_000;

/** Files by path, `/v1/files/{volume}/{path}`. Every such URL is routed as `/v1/files`; `originalUrl` has the path. */
export function fileRoutes(
  app: FastifyInstance,
  gateway: Gateway,
  metrics: MetricsRegistry,
  wholeFiles: WholeFiles | null,
): void {
  const uploads = new Uploads(gateway);
  const downloads = new Downloads(gateway);
  const watches = new Watches(gateway);
  const directories = new Directories(gateway);
  const parts = new PartialWrites(gateway);
  const files = new NewFiles(gateway, { uploads, directories, wholeFiles });
  const tus = new TusRoutes(new TusUploads(gateway, files));
  const locations = new PathLocations(gateway);
  const relocations = new Relocations({ gateway, files, directories, locations });
  metrics.observe('gauge', 'leasehold_uploads', 'Uploads in progress', () => uploads.active);
  metrics.observe('gauge', 'leasehold_downloads', 'Downloads in progress', () => downloads.active);

  // A body is stored byte for byte: there is no parser, and the handlers read the request.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.addHook('onSend', async (request) => {
    // A refused body is read to its end, so that the client reads the answer.
    if (!request.raw.complete) request.raw.resume();
  });

  tus.register(app);
  app.options('/v1/files', READ, async (_request, reply) => tus.options(reply));

  app.route({
    method: ['GET', 'HEAD'],
    url: '/v1/files',
    ...READ,
    handler: async (request, reply) => {
      const path = pathOf(request);
      const { attributes } = await locations.at(request, path, 'target', ({ volume, names }) =>
        gateway.query({ kind: 'resolve', volume, path: volumePath(names), follow: true }),
      );
      if (attributes.kind === 'directory') return getDirectory(request, reply, path, attributes);
      if (path.directory) throw new ServiceError('not-directory', `${displayPath(path)} is not a directory`);
      if (attributes.kind !== 'file') {
        throw new ServiceError(
          'bad-request',
          `${displayPath(path)} is a ${attributes.kind} and has no contents`,
        );
      }
      return downloads.send(request, reply, attributes);
    },
  });

  app.put('/v1/files', WRITE, async (request, reply) => {
    return locations.at(request, changedPathOf(request), 'target', (path) => {
      if (path.directory) return directories.put(request, reply, path);
      if (request.headers['content-range'] !== undefined) return parts.write(request, reply, path);
      return putFile(request, reply, path);
    });
  });

  app.patch('/v1/files', WRITE, async (request, reply) => {
    const path = changedPathOf(request);
    if (path.directory) throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    return locations.at(request, path, 'target', (located) => parts.write(request, reply, located));
  });

  app.post('/v1/files', WRITE, async (request, reply) => {
    const path = pathOf(request);
    const atTarget = (work: (located: FilePath) => Promise<FastifyReply>): Promise<FastifyReply> =>
      locations.at(request, path, 'target', work);
    if (request.headers['tus-resumable'] !== undefined)
      return atTarget((located) => tus.create(request, reply, located));
    if (isForm(contentTypeOf(request.raw)))
      return atTarget((located) => postForm(request, reply, located, directoryUrl(FILES_PREFIX, path)));
    if (path.search.has('set-flags') || path.search.has('clear-flags'))
      return atTarget((located) => setFlags(reply, located));
    if (path.search.has('retain')) return atTarget((located) => retain(reply, located));
    const moveTo = path.search.get('move-to');
    const copyTo = path.search.get('copy-to');
    if (copyTo === null) assertChangeable(path);
    if (moveTo !== null && copyTo === null) return relocations.move(request, reply, path, moveTo);
    if (copyTo !== null && moveTo === null) return relocations.copy(request, reply, path, copyTo);
    throw new ServiceError(
      'bad-request',
      'The POST has no operation: add "?copy-to=PATH" or "?move-to=PATH", or send a form to a directory',
    );
  });

  app.delete('/v1/files', WRITE, async (request, reply) => {
    return locations.at(request, changedPathOf(request), 'name', (path) => remove(request, reply, path));
  });

  async function remove(request: FastifyRequest, reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    const place = { volume: path.volume, path: volumePath(path.names) };
    const removal = removalOf(request, path.search);
    if (path.directory) {
      if (path.search.get('recursive') === 'true') {
        const removed = await removeTree(gateway, path, removal);
        return removed.more ? reply.code(202).send(removed) : reply.code(204).send();
      }
      await gateway.durably({ kind: 'remove-directory', place });
      return reply.code(204).send();
    }
    const precondition = preconditionOf(conditionsOf(request.headers), path);
    const { inode } = await changeUnderConditions(gateway, path, precondition, false, (expect) =>
      gateway.durably({ kind: 'unlink', place, expect, ...removal }),
    );
    setFileHeaders(reply, gateway, inode as FileId, null);
    return reply.code(204).send();
  }

  async function setFlags(reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    assertChangeable(path);
    const set = flagsOf(path, 'set-flags');
    const clear = flagsOf(path, 'clear-flags');
    const { volume } = path;
    const query = { kind: 'resolve', volume, path: volumePath(path.names), follow: true } as const;
    const { inode } = (await gateway.queryCatalog(query)).attributes;
    const { attributes } = await gateway.command({ kind: 'set-flags', inode, set, clear });
    return reply.send({ inode, flags: attributes.flags ?? [] });
  }

  async function retain(reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    assertChangeable(path);
    const wanted = retentionOf(path.search.get('retain') ?? '');
    const { volume } = path;
    const query = { kind: 'resolve', volume, path: volumePath(path.names), follow: true } as const;
    const { inode } = (await gateway.queryCatalog(query)).attributes;
    const { attributes } = await gateway.command({ kind: 'retain', inode, retain: wanted });
    return reply.send({ inode, retainUntil: dateOfNs(attributes.retainUntilNs ?? '0') });
  }

  async function postForm(
    request: FastifyRequest,
    reply: FastifyReply,
    path: FilePath,
    url: string,
  ): Promise<FastifyReply> {
    const directory = await attributesAt(gateway, path, { follow: true, live: false });
    if (directory === null) throw new ServiceError('not-found', `${displayPath(path)} does not exist`);
    if (!path.directory || directory.kind !== 'directory') {
      throw new ServiceError('not-directory', 'Forms are sent to a directory, whose path ends in "/"');
    }
    return storeForm(request, reply, files, path, url);
  }

  async function storeFile(
    request: FastifyRequest,
    path: FilePath,
    key: RequestKey | null,
  ): Promise<NamedFile> {
    const precondition = preconditionOf(conditionsOf(request.headers), path);
    const check = new DigestCheck(claimedDigests(request.headers));
    const lengthBytes = Number(request.headers['content-length'] ?? 0);
    const announcedBytes = isClientWaiting(request.raw) ? lengthBytes : null;
    request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
    const file = await files
      .receive(path, precondition, request.raw, check, { announcedBytes, lengthBytes })
      .finally(() => request.raw.setTimeout(0));
    return files.name(path, file, precondition, key, removalOf(request, path.search));
  }

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
    const { search } = path;
    if (search.has('watch') && request.method === 'GET' && attributes.snapshot === undefined)
      return watches.watch(request, reply, attributes, search.get('recursive') === 'true');
    const isPage = wantsPage(request.headers.accept);
    addVary(reply, 'accept');
    if (request.method === 'HEAD') {
      return reply.type(`${isPage ? 'text/html' : 'application/json'}; charset=utf-8`).send();
    }
    const limit = path.search.get('limit');
    const count = limit === null ? null : integerOf(limit, 'limit', 1, LIMIT_MAX);
    const after = path.search.get('after') ?? '';
    if (!isPage) return sendListing(reply, gateway, attributes, after, count);
    return sendListingPage(reply, gateway, path, attributes, after, count ?? PAGE_ENTRIES);
  }

  async function putFile(
    request: FastifyRequest,
    reply: FastifyReply,
    path: FilePath,
  ): Promise<FastifyReply> {
    const key = idempotencyKeyOf(request);
    const known = key === null ? null : await files.findResult(path.volume, key);
    const { attributes, etag, created, creator } = known ?? (await storeFile(request, path, key));
    const file = attributes.inode as FileId;
    const isOrderedByCreator = creator !== null && gateway.router.knownPrimary(file).primary === null;
    const { epoch } = attributes.contents;
    setFileHeaders(reply, gateway, file, isOrderedByCreator ? { primary: creator, epoch } : null);
    reply.header('etag', etag).header('last-modified', httpDate(attributes.modifiedNs));
    return reply.code(created ? 201 : 204).send();
  }
}

function flagsOf({ search }: FilePath, name: string): InodeFlag[] {
  const flags = INODE_FLAGS.map((flag) => `"${flag}"`).join(', ');
  return parseInodeFlags(
    search.get(name) ?? '',
    () => new ServiceError('bad-request', `Unknown flag in "${name}": the flags are ${flags}`),
  );
}

function changedPathOf(request: FastifyRequest): FilePath {
  const path = pathOf(request);
  assertChangeable(path);
  return path;
}

function pathOf(request: FastifyRequest): FilePath {
  return parseFilePath(request.originalUrl, FILES_PREFIX);
}
