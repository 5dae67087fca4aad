/** What a file's own sequence tells of the mark that the catalog has of it (decisions 0005 and 0056). Pure. */
import type { Epoch } from '../../replica/epoch.ts';
import type { FileAttributes } from '../storage/store.ts';

type Changed = Pick<FileAttributes, 'versionEpoch' | 'versionSeq' | 'seal'>;

/**
 * The last operation of the sequence is a change: then the catalog asks for the size. A change gets its place only after the mark, and who
 * ends the mark puts `settling` behind the last change before.
 *
 * @param orderedSeq the last operation of the sequence
 */
export function endsInChange({ versionSeq, seal }: Changed, orderedSeq: number): boolean {
  return seal === 'open' && versionSeq === orderedSeq;
}

/**
 * Whether a primary that begins now may write at once, by the mark of the one before it. Not where a loss of power may have taken `settling`
 * from behind the change, also if that was before an earlier epoch which then changed nothing: a snapshot may show the contents by now.
 *
 * @param inheritedFrom see `Replica.inheritedFrom`
 */
export function inheritsMark(
  attributes: Changed,
  orderedSeq: number,
  inheritedFrom: Pick<Epoch, 'counter'> | null,
): boolean {
  return endsInChange(attributes, orderedSeq) && inheritedFrom?.counter === attributes.versionEpoch;
}
