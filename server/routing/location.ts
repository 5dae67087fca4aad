import { isRefusal, type JunctionDetails, ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import { doesServe } from '../../wire/volume-catalogs.ts';
import type { Catalogs } from './service-interfaces.ts';

/** Junctions that one path may cross. */
const CROSSINGS_MAX = 32;

/** A path in a volume, from its root. */
export interface Location {
  readonly volume: string;
  readonly path: string;
}

export type AttachedVolumes = Pick<Catalogs, 'row' | 'refresh'>;

export interface LocationParts<Found = unknown> {
  readonly catalogs: AttachedVolumes;
  /** Resolves a path in the volume's own catalog, which refuses it with `junction` if it leads into another volume. */
  resolve(location: Location): Promise<Found>;
  /** Called with each volume that the path enters. @throws ServiceError if the caller may not use it */
  mayEnter?(volume: string): void;
}

/**
 * Follows a path through junctions into the volume that has its end. A path whose end is missing, or refused for
 * another reason, is returned as far as it was followed, with null: the request for it gets the refusal.
 * @throws ServiceError `not-found` if a junction on it has no volume attached; what `mayEnter` throws
 */
export async function locationOf<Found>(
  parts: LocationParts<Found>,
  start: Location,
): Promise<{ readonly location: Location; readonly found: Found | null }> {
  let location = start;
  for (let crossings = 0; crossings <= CROSSINGS_MAX; crossings++) {
    const { junction, found } = await resolved(parts, location);
    if (junction === null) return { location, found };
    parts.mayEnter?.(junction.volume);
    await assertAttached(parts.catalogs, junction, location);
    location = { volume: junction.volume, path: junction.path };
  }
  const text = `"${start.volume}:${start.path}" leads through more than ${CROSSINGS_MAX} attached volumes`;
  throw new ServiceError('bad-request', text);
}

/** The junction at which a path was refused; null for another failure. */
export function refusedJunction(error: unknown): JunctionDetails | null {
  return error instanceof ServiceError ? (error.details.junction ?? null) : null;
}

async function resolved<Found>(
  { resolve }: LocationParts<Found>,
  location: Location,
): Promise<{ readonly junction: JunctionDetails | null; readonly found: Found | null }> {
  try {
    return { junction: null, found: await resolve(location) };
  } catch (error) {
    const junction = refusedJunction(error);
    if (junction === null && !isRefusal(error)) throw error;
    return { junction, found: null };
  }
}

/** The root catalog alone decides what is attached: no path crosses a junction that its list does not name. */
async function assertAttached(
  catalogs: AttachedVolumes,
  { volume, catalog, inode }: JunctionDetails,
  { volume: parent, path }: Location,
): Promise<void> {
  const isAttached = (): boolean => {
    const row = catalogs.row(catalog as CatalogNumber);
    return row !== null && doesServe(row) && row.attached === inode;
  };
  if (isAttached()) return;
  // This server's list may be outdated.
  await catalogs.refresh();
  if (isAttached()) return;
  const text = `"${parent}:${path}" leads through a junction, but the volume "${volume}" is not attached there`;
  throw new ServiceError('not-found', text);
}
