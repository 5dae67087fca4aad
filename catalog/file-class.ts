import { ServiceError } from '../base/errors.ts';
import { classText, isRestricted, type PlacementClass } from '../wire/placement-class.ts';
import { splitList } from './lists.ts';

/** Servers and number of replicas of files, as in the tables: lists are separated by commas, empty for any server. */
export interface FileClass {
  readonly labels: string;
  readonly zones: string;
  readonly replicas: number;
}

/** Empty fields are absent: earlier releases, which store the same results, do not know them. */
export function placementClassOf({ labels, zones }: Omit<FileClass, 'replicas'>): PlacementClass {
  return {
    ...(labels === '' ? {} : { labels: splitList(labels) }),
    ...(zones === '' ? {} : { zones: splitList(zones) }),
  };
}

/** @throws ServiceError `no-space` if a new file has no servers, because none is allowed for it */
export function assertPlaced(volume: string, files: FileClass, replicas: readonly string[]): void {
  const required = placementClassOf(files);
  if (replicas.length > 0 || !isRestricted(required)) return;
  throw new ServiceError(
    'no-space',
    `Cannot place a file of volume "${volume}": there is no server ${classText(required)}`,
  );
}
