import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { bounded } from '../process/bounded.ts';
import type { Catalogs } from './service-interfaces.ts';

type CatalogList = Pick<Catalogs, 'row' | 'onListChange'>;

/**
 * Waits until the catalog of a new volume serves.
 * @param timeoutMs later it is still created, without another command
 * @throws ServiceError `no-majority` when time is up; `not-found` if it was removed meanwhile
 */
export async function untilCreated(
  world: World,
  list: CatalogList,
  { number, name, members }: ListedCatalog,
  timeoutMs: number,
): Promise<ListedCatalog> {
  const isOver = ({ state }: ListedCatalog): boolean => state !== 'creating';
  const why =
    `Volume "${name}" is listed, and will be created once a majority of ${members.join(', ')} ` +
    'can serve its catalog';
  const row = await whenListed(world, list, number, isOver, timeoutMs, why);
  if (row.state !== 'ready') throw new ServiceError('not-found', `Volume "${name}" was removed`);
  return row;
}

/**
 * Waits until a volume and its catalog are removed.
 * @throws ServiceError `not-empty` if the catalog refuses; `no-majority` when time is up: it is still removed later
 */
export async function untilRemoved(
  world: World,
  list: CatalogList,
  { number, name, since, members }: ListedCatalog,
  timeoutMs: number,
): Promise<void> {
  const isOver = ({ state, refused }: ListedCatalog): boolean =>
    state === 'removed' || (refused?.since ?? 0) >= since;
  const why =
    `Volume "${name}" will be removed, if it is empty, once a majority of ${members.join(', ')} ` +
    'can serve its catalog';
  const { state, refused } = await whenListed(world, list, number, isOver, timeoutMs, why);
  if (state !== 'removed')
    throw new ServiceError('not-empty', refused?.why ?? `Volume "${name}" is not empty`);
}

function whenListed(
  world: World,
  list: CatalogList,
  number: number,
  isOver: (row: ListedCatalog) => boolean,
  timeoutMs: number,
  why: string,
): Promise<ListedCatalog> {
  let unsubscribe = (): void => undefined;
  const row = new Promise<ListedCatalog>((resolve) => {
    const look = (): void => {
      const found = list.row(number as CatalogNumber);
      if (found !== null && isOver(found)) resolve(found);
    };
    unsubscribe = list.onListChange(look);
    look();
  });
  return bounded(world, row, timeoutMs, () => new ServiceError('no-majority', why)).finally(() =>
    unsubscribe(),
  );
}
