import { ServiceError } from '../base/errors.ts';
import type { Junction } from '../wire/catalog-api.ts';
import type { InodeRow } from './inode-rows.ts';

type Directory = Pick<InodeRow, 'id' | 'junction'>;

/** @returns what may be attached at the inode; null if it is no junction */
export function junctionOf({ junction }: Pick<InodeRow, 'junction'>): Junction | null {
  return junction === null ? null : (JSON.parse(junction) as Junction);
}

/** Checks before a directory gains an entry. @throws ServiceError `cross-volume` if another volume has its entries */
export function assertNoJunction(directory: Directory): void {
  const junction = junctionOf(directory);
  if (junction === null) return;
  const { volume } = junction;
  throw new ServiceError(
    'cross-volume',
    `Directory ${directory.id} is where the volume "${volume}" is attached: this volume has nothing in it`,
  );
}

/** Checks before a directory is removed or replaced. @throws ServiceError `attached` if it is a junction */
export function assertNotAttached(directory: Directory, name: string): void {
  const junction = junctionOf(directory);
  if (junction === null) return;
  throw new ServiceError(
    'attached',
    `The volume "${junction.volume}" is attached at "${name}": detach it first (leasehold volume detach VOLUME:/PATH)`,
  );
}

/** @param names behind the junction: the rest of the path */
export function leadsThrough(junction: Directory, path: string, names: readonly string[]): ServiceError {
  const { catalog, volume } = junctionOf(junction) as Junction;
  // Of a symbolic link: where the rest leads depends on the links of the other volume.
  if (names.includes('..'))
    return new ServiceError(
      'bad-request',
      `A symbolic link on "${path}" leads into the volume "${volume}" and out again`,
    );
  const rest = `/${names.join('/')}`;
  return new ServiceError(
    'junction',
    `"${path}" leads into the volume "${volume}": see "${volume}:${rest}"`,
    {
      junction: { volume, catalog, inode: junction.id, path: rest },
    },
  );
}
