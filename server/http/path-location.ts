import type { FastifyRequest } from 'fastify';
import type { PathEnd } from '../../wire/junctions.ts';
import { type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { type Location, locationOf, refusedJunction } from '../routing/location.ts';
import { assertVolumeGranted } from '../security/volume-scope.ts';
import { hasWholeBody } from './whole-body.ts';

/**
 * Finds the volumes in which the paths of requests end. The request's credentials must cover each volume that its path
 * enters: its URL names only the first one.
 */
export class PathLocations {
  readonly #gateway: Gateway;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /**
   * Calls `work` with a request's path, and if the catalog refuses the path at a junction, with its location: handlers
   * look for their paths before they change something, so that other paths cost nothing. It is called once only if a
   * part of the request's body is gone by then.
   */
  async at<Result>(
    request: FastifyRequest,
    path: FilePath,
    end: PathEnd,
    work: (located: FilePath) => Promise<Result>,
  ): Promise<Result> {
    try {
      return await work(path);
    } catch (error) {
      if (refusedJunction(error) === null || !hasWholeBody(request)) throw error;
      return work(await this.locate(request, path, end));
    }
  }

  /** Follows a path, and names its end, or the name at its end. */
  async locate(request: FastifyRequest, path: FilePath, end: PathEnd): Promise<FilePath> {
    const last = end === 'name' ? path.names.slice(-1) : [];
    const names = path.names.slice(0, path.names.length - last.length);
    const start = { volume: path.volume, path: volumePath(names) };
    const { location } = await locationOf(
      {
        catalogs: this.#gateway.services.catalogs,
        resolve: (at) => this.#gateway.queryCatalog({ kind: 'resolve', ...at, follow: true }),
        mayEnter: (volume) => assertMayUse(request, volume),
      },
      start,
    );
    if (location === start) return path;
    return { ...path, volume: location.volume, names: [...namesOf(location), ...last] };
  }
}

/** @throws ServiceError `forbidden` if the request's credentials are for other volumes */
export function assertMayUse({ principal }: FastifyRequest, volume: string): void {
  if (principal?.kind === 'client') assertVolumeGranted(principal.grant, volume);
}

function namesOf({ path }: Location): string[] {
  return path.split('/').filter((name) => name !== '');
}
