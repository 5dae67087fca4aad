import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { nameCheck } from '../../catalog/names.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import {
  directoryUrl,
  displayPath,
  type FilePath,
  fileUrl,
  parseTarget,
  volumePath,
} from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { setFileHeaders } from './answers.ts';
import { attributesAt, changeUnderConditions, preconditionOf } from './conditional-change.ts';
import { checkUnchanged, conditionsOf, currentVersionOf, httpDate, NO_CONDITIONS } from './conditions.ts';
import type { Directories } from './directories.ts';
import { copyFile } from './file-copy.ts';
import { idempotencyKeyOf, KeyedCommands, type RequestKey } from './idempotency.ts';
import type { NamedFile, NewFiles } from './new-files.ts';
import type { PathLocations } from './path-location.ts';
import { removalOf } from './removal.ts';
import { TreeCopier } from './tree-copy.ts';

export interface RelocationParts {
  readonly gateway: Gateway;
  readonly files: NewFiles;
  readonly directories: Directories;
  readonly locations: PathLocations;
}

/** `POST` with `?move-to=` or `?copy-to=`. Conditions are about the source, `?overwrite=false` about the target. */
export class Relocations {
  readonly #gateway: Gateway;
  readonly #files: NewFiles;
  readonly #directories: Directories;
  readonly #locations: PathLocations;

  constructor({ gateway, files, directories, locations }: RelocationParts) {
    this.#gateway = gateway;
    this.#files = files;
    this.#directories = directories;
    this.#locations = locations;
  }

  /** Renames a file or directory by one command of the catalog: at every moment it has exactly one of the names. */
  move(request: FastifyRequest, reply: FastifyReply, path: FilePath, text: string): Promise<FastifyReply> {
    const target = parseTarget(text, path, 'move-to');
    return this.#locations.at(request, path, 'name', (from) =>
      this.#locations.at(request, target, 'name', (to) => this.#move(request, reply, from, to)),
    );
  }

  /** Copies a file or, with a slash at the end, a directory with all its entries. */
  copy(request: FastifyRequest, reply: FastifyReply, path: FilePath, text: string): Promise<FastifyReply> {
    const target = parseTarget(text, path, 'copy-to');
    return this.#locations.at(request, path, 'target', (from) =>
      this.#locations.at(request, target, 'target', (to) => this.#copy(request, reply, from, to)),
    );
  }

  async #move(
    request: FastifyRequest,
    reply: FastifyReply,
    from: FilePath,
    to: FilePath,
  ): Promise<FastifyReply> {
    const mode = overwrites(from) ? 'replace' : 'no-replace';
    const commands = await KeyedCommands.load(this.#gateway, from.volume, idempotencyKeyOf(request));
    if (commands.result === null) {
      await this.#directories.parentOf(to);
      await this.#assertKind(from);
      const places = { from: placeOf(from), to: placeOf(to) };
      const removal = removalOf(request, from.search);
      await changeUnderConditions(
        this.#gateway,
        from,
        preconditionOf(conditionsOf(request.headers), from),
        false,
        (expect) => commands.durably({ kind: 'rename', ...places, mode, expect, ...removal }),
      );
    }
    return reply
      .code(204)
      .header('location', from.directory ? directoryUrl(FILES, to) : fileUrl(FILES, to))
      .send();
  }

  async #copy(
    request: FastifyRequest,
    reply: FastifyReply,
    from: FilePath,
    to: FilePath,
  ): Promise<FastifyReply> {
    if (from.directory) return this.#copyTree(request, reply, from, to);
    const key = idempotencyKeyOf(request);
    const named =
      (key === null ? null : await this.#files.findResult(to.volume, key)) ??
      (await this.#copyFile(request, from, to, key));
    const { attributes, etag, created } = named;
    setFileHeaders(reply, this.#gateway, attributes.inode as FileId, null);
    reply.header('etag', etag).header('last-modified', httpDate(attributes.modifiedNs));
    return reply
      .code(created ? 201 : 204)
      .header('location', fileUrl(FILES, to))
      .send();
  }

  async #copyFile(
    request: FastifyRequest,
    from: FilePath,
    to: FilePath,
    key: RequestKey | null,
  ): Promise<NamedFile> {
    const conditions = overwrites(from) ? NO_CONDITIONS : { ...NO_CONDITIONS, ifNoneMatch: '*' };
    const removal = removalOf(request, from.search);
    return copyFile(this.#files, () => this.#sourceOf(request, from), to, {
      precondition: preconditionOf(conditions, to),
      removal,
      key,
    });
  }

  async #copyTree(
    request: FastifyRequest,
    reply: FastifyReply,
    from: FilePath,
    to: FilePath,
  ): Promise<FastifyReply> {
    const after = (from.search.get('after') ?? '').split('/').filter((name) => name !== '');
    for (const name of after) nameCheck(name);
    const parts = { gateway: this.#gateway, files: this.#files, directories: this.#directories };
    const removal = removalOf(request, from.search);
    const options = { overwrite: overwrites(from), resume: flagOf(from, 'resume', false), after, removal };
    const copied = await new TreeCopier(parts, options).copy(from, to);
    return reply
      .code(copied.more ? 202 : 200)
      .header('location', directoryUrl(FILES, to))
      .send(copied);
  }

  async #sourceOf(request: FastifyRequest, from: FilePath): Promise<Attributes> {
    const source = await attributesAt(this.#gateway, from, { follow: true, live: true });
    checkUnchanged(conditionsOf(request.headers), currentVersionOf(source), displayPath(from));
    if (source === null) throw new ServiceError('not-found', `There is no ${displayPath(from)}`);
    if (source.kind === 'directory') {
      throw new ServiceError('is-directory', `${displayPath(from)} is a directory: add "/" to the path`);
    }
    if (source.kind === 'file') return source;
    throw new ServiceError('bad-request', `${displayPath(from)} is a ${source.kind}, without contents`);
  }

  /** @throws ServiceError unless a path that ends in a slash is a directory, and any other path is none */
  async #assertKind(from: FilePath): Promise<void> {
    const current = await attributesAt(this.#gateway, from, { follow: false, live: false });
    if (current === null) return;
    const isDirectory = current.kind === 'directory';
    if (isDirectory && !from.directory) {
      throw new ServiceError('is-directory', `${displayPath(from)} is a directory: add "/" to the path`);
    }
    if (!isDirectory && from.directory) {
      throw new ServiceError('not-directory', `${displayPath(from)} is not a directory: remove the "/"`);
    }
  }
}

const FILES = '/v1/files/';

function placeOf(path: FilePath): { readonly volume: string; readonly path: string } {
  return { volume: path.volume, path: volumePath(path.names) };
}

function overwrites(path: FilePath): boolean {
  return flagOf(path, 'overwrite', true);
}

function flagOf(path: FilePath, name: string, otherwise: boolean): boolean {
  const text = path.search.get(name) ?? String(otherwise);
  if (text === 'true' || text === 'false') return text === 'true';
  throw new ServiceError('bad-request', `"${name}" must be true or false`);
}
