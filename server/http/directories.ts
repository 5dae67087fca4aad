import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes, NewXattrs } from '../../wire/catalog-api.ts';
import { displayPath, type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { attributesAt } from './conditional-change.ts';

const DIRECTORY_MODE = 0o755;
const CREATE_ATTEMPTS = 2;

/** Finds directories, and creates missing ones on request. */
export class Directories {
  readonly #gateway: Gateway;
  readonly #xattrs: { readonly xattrs?: NewXattrs };

  /** @param xattrs of directories that are created for what is in them */
  constructor(gateway: Gateway, xattrs: NewXattrs = []) {
    this.#gateway = gateway;
    this.#xattrs = xattrs.length === 0 ? {} : { xattrs };
  }

  async put(request: FastifyRequest, reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    const exists = await this.#exists(path);
    const { 'content-length': length = '0', 'transfer-encoding': encoding } = request.headers;
    if (Number(length) > 0 || encoding !== undefined) {
      const why =
        'a path that ends in "/" is a directory and has no contents; remove the "/" to store a file';
      throw new ServiceError('bad-request', `Cannot store contents at ${displayPath(path)}: ${why}`);
    }
    const created = !exists && (await this.#create(path));
    return reply.code(created ? 201 : 204).send();
  }

  async #create(path: FilePath): Promise<boolean> {
    for (let attempts = 0; attempts < CREATE_ATTEMPTS; attempts++) {
      if (await this.#makeDirectory(path, await this.parentOf(path))) return true;
      // A loss of power may have taken the directory of the other request.
      if (await this.#exists(path)) return false;
    }
    throw new ServiceError('exists', `${displayPath(path)} is a dangling symbolic link`);
  }

  /** Whether the directory exists. If so, it is made durable: this may be the retry of a request without an answer. */
  async #exists(path: FilePath): Promise<boolean> {
    const find = () => attributesAt(this.#gateway, path, { follow: true, live: false });
    const existing = await this.#gateway.findDurably(path.volume, find);
    if (existing !== null && existing.kind !== 'directory')
      throw new ServiceError('exists', `${displayPath(path)} is a ${existing.kind}`);
    return existing !== null;
  }

  /** Returns the directory of `path`; with `?parents=true` it creates a missing one. */
  async parentOf(path: FilePath): Promise<Attributes> {
    const parent = { ...path, names: path.names.slice(0, -1) };
    const found = await attributesAt(this.#gateway, parent, { follow: true, live: false });
    if (found !== null) {
      if (found.kind === 'directory') return found;
      throw new ServiceError('not-directory', `${displayPath(parent)} is not a directory`);
    }
    if (parent.names.length === 0) throw new ServiceError('not-found', `There is no volume "${path.volume}"`);
    if (path.search.get('parents') !== 'true') {
      const remedy = 'create it first, or add "?parents=true"';
      throw new ServiceError('not-found', `The directory ${displayPath(parent)} does not exist: ${remedy}`);
    }
    await this.#makeDirectory(parent, await this.parentOf(parent));
    const created = await attributesAt(this.#gateway, parent, { follow: true, live: false });
    if (created === null)
      throw new ServiceError('not-found', `The directory ${displayPath(parent)} was removed`);
    return created;
  }

  async #makeDirectory(path: FilePath, parent: Attributes): Promise<boolean> {
    try {
      await this.#gateway.durably({
        kind: 'make-directory',
        place: { volume: path.volume, path: volumePath(path.names) },
        mode: DIRECTORY_MODE,
        uid: parent.uid,
        gid: parent.gid,
        ...this.#xattrs,
      });
      return true;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'exists') return false;
      throw error;
    }
  }
}
