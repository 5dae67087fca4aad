import { ServiceError } from '../../base/errors.ts';
import type { PathEnd } from '../../wire/junctions.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ClusterClient } from './cluster-client.ts';
import type { RemotePlace } from './remote-path.ts';

/**
 * Follows a path of the command line through attached volumes to the volume that has its end: a client's commands are
 * for the catalog of one volume. Other fields of `place` stay.
 */
export async function located<Place extends RemotePlace>(
  client: Pick<ClusterClient, 'locate'>,
  place: Place,
  call?: CallOptions,
  end: PathEnd = 'target',
): Promise<Place> {
  try {
    const { volume, path } = await client.locate(place, end, call);
    return { ...place, volume, path };
  } catch (error) {
    // A server of an earlier release, in whose cluster nothing is attached; or a junction that leads nowhere, which
    // refuses the next request.
    if (error instanceof ServiceError && error.code === 'not-found') return place;
    throw error;
  }
}
