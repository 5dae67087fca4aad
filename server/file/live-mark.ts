/** What a file's own sequence says about its live mark in the catalog (decisions 0005 and 0056). Pure. */
import type { Epoch } from '../../replica/epoch.ts';
import type { FileAttributes } from '../storage/store.ts';

type Changed = Pick<FileAttributes, 'versionEpoch' | 'versionSeq' | 'seal'>;

/**
 * Whether the file's last operation changes contents: then the catalog has a live mark, and asks for the size. A change
 * is ordered only after the mark is set, and a primary that ends the mark first orders a `settling`.
 */
export function endsInChange({ versionSeq, seal }: Changed, orderedSeq: number): boolean {
  return seal === 'open' && versionSeq === orderedSeq;
}

/**
 * Whether a new primary may write before it sets a live mark in the catalog, because its predecessor's is still set. It
 * may not if a loss of power may have taken the `settling` after the last change, even before an epoch that changed
 * nothing: a snapshot may show the contents by now.
 * @param inheritedFrom see `Replica.inheritedFrom`
 */
export function inheritsMark(
  attributes: Changed,
  orderedSeq: number,
  inheritedFrom: Pick<Epoch, 'counter'> | null,
): boolean {
  return endsInChange(attributes, orderedSeq) && inheritedFrom?.counter === attributes.versionEpoch;
}
