import { type CatalogNumber, catalogOfInode } from '../base/ids.ts';
import type { VolumeInfo } from './catalog-api.ts';

/**
 * The catalog that has a volume, as an answer says: a volume that has moved keeps its root directory's number.
 * @param catalog absent in answers of earlier releases, which move no volume
 */
export function catalogOf({ root, catalog }: Pick<VolumeInfo, 'root' | 'catalog'>): CatalogNumber {
  return catalog ?? catalogOfInode(root);
}
