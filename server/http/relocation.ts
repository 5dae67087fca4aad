import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { Gateway } from '../gateway.ts';
import { setFileHeaders } from './answers.ts';
import { changeUnder, currentOf } from './conditional-change.ts';
import { type Conditions, checkUnchanged, conditionsOf, httpDate, standingOf } from './conditions.ts';
import type { Directories } from './directories.ts';
import { idempotencyKeyOf, KeyedCommands } from './idempotency.ts';
import type { NamedFile, NewFiles } from './new-files.ts';
import { directoryUrl, displayPath, type FilePath, fileUrl, parseTarget, volumePath } from './path.ts';
import { removalOf } from './removal.ts';

/** A source that is written more often than this while it is copied is too restless. */
const COPIES_MAX = 3;
const NO_CONDITIONS: Conditions = {
  ifMatch: undefined,
  ifNoneMatch: undefined,
  ifModifiedSince: undefined,
  ifUnmodifiedSince: undefined,
  ifRange: undefined,
};

/**
 * `POST` of a path with `?move-to=` or `?copy-to=`. The conditions of the request are the source's; `?overwrite=false` is
 * that of the target.
 */
export class Relocations {
  readonly #gateway: Gateway;
  readonly #files: NewFiles;
  readonly #directories: Directories;

  constructor(gateway: Gateway, files: NewFiles, directories: Directories) {
    this.#gateway = gateway;
    this.#files = files;
    this.#directories = directories;
  }

  /** A move is one command of the catalog: at every moment the file has one of its names. */
  async move(
    request: FastifyRequest,
    reply: FastifyReply,
    from: FilePath,
    text: string,
  ): Promise<FastifyReply> {
    const to = parseTarget(text, from, 'move-to');
    const mode = overwrites(from) ? 'replace' : 'no-replace';
    const commands = await KeyedCommands.of(this.#gateway, idempotencyKeyOf(request));
    if (commands.result === null) {
      await this.#directories.parentOf(to);
      await this.#assertKind(from);
      const places = { from: placeOf(from), to: placeOf(to) };
      const removal = removalOf(request, from.search);
      await changeUnder(this.#gateway, from, conditionsOf(request.headers), false, (expect) =>
        this.#gateway.command({ kind: 'rename', ...places, mode, expect, ...removal }, commands.next()),
      );
      await this.#gateway.flushCatalog();
    }
    return reply
      .code(204)
      .header('location', from.directory ? directoryUrl(FILES, to) : fileUrl(FILES, to))
      .send();
  }

  /** A copy appears as an upload does: whole, in one step. Its bytes go from server to server. */
  async copy(
    request: FastifyRequest,
    reply: FastifyReply,
    from: FilePath,
    text: string,
  ): Promise<FastifyReply> {
    const to = parseTarget(text, from, 'copy-to');
    const key = idempotencyKeyOf(request);
    const named =
      (key === null ? null : await this.#files.recall(key)) ?? (await this.#copied(request, from, to, key));
    const { attributes, etag, created } = named;
    setFileHeaders(reply, this.#gateway, attributes.inode as FileId, null);
    reply.header('etag', etag).header('last-modified', httpDate(attributes.modifiedNs));
    return reply
      .code(created ? 201 : 204)
      .header('location', fileUrl(FILES, to))
      .send();
  }

  async #copied(
    request: FastifyRequest,
    from: FilePath,
    to: FilePath,
    key: number | null,
  ): Promise<NamedFile> {
    const conditions = overwrites(from) ? NO_CONDITIONS : { ...NO_CONDITIONS, ifNoneMatch: '*' };
    for (let attempt = 1; ; attempt++) {
      const source = await this.#sourceOf(request, from);
      const file = await this.#files.begin(to, conditions);
      try {
        const state = await this.#files.copy(file, source.inode as FileId);
        return await this.#files.name(to, state, conditions, key, removalOf(request, from.search));
      } catch (error) {
        const isRestless = error instanceof ServiceError && error.code === 'busy';
        if (!isRestless || attempt === COPIES_MAX) throw error;
      }
    }
  }

  async #sourceOf(request: FastifyRequest, from: FilePath): Promise<Attributes> {
    const source = await currentOf(this.#gateway, from, { follow: true, live: true });
    checkUnchanged(conditionsOf(request.headers), standingOf(source), displayPath(from));
    if (source === null) throw new ServiceError('not-found', `There is no ${displayPath(from)}`);
    if (source.kind === 'directory' || from.directory) {
      throw new ServiceError('is-directory', `Cannot copy ${displayPath(from)}: files are copied one by one`);
    }
    if (source.kind === 'file') return source;
    throw new ServiceError('bad-request', `${displayPath(from)} is a ${source.kind}, without contents`);
  }

  /** A slash says that a directory is meant; without it anything else moves, a link as a link. */
  async #assertKind(from: FilePath): Promise<void> {
    const current = await currentOf(this.#gateway, from, { follow: false, live: false });
    if (current === null) return;
    const isDirectory = current.kind === 'directory';
    if (isDirectory && !from.directory) {
      throw new ServiceError('is-directory', `${displayPath(from)} is a directory: its path ends in "/"`);
    }
    if (!isDirectory && from.directory) {
      throw new ServiceError('not-directory', `${displayPath(from)} is no directory`);
    }
  }
}

const FILES = '/v1/files/';

function placeOf(path: FilePath): { readonly volume: string; readonly path: string } {
  return { volume: path.volume, path: volumePath(path.names) };
}

/** @throws ServiceError `bad-request` */
function overwrites(path: FilePath): boolean {
  const text = path.search.get('overwrite') ?? 'true';
  if (text === 'true' || text === 'false') return text === 'true';
  throw new ServiceError('bad-request', '"overwrite" is true or false');
}
