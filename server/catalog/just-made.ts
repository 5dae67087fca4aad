import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, Query, QueryResults } from '../../wire/catalog-api.ts';

/** A file that was made and never written to is not collected sooner than this, whether it still has a name or not. */
const JUST_NS = 5_000_000_000n;

/** The catalog's replica of this server, whatever its role. */
interface Replica {
  query(query: Extract<Query, { kind: 'attributes' }>): QueryResults['attributes'];
}

/**
 * What the catalog's replica on this server says of a file that was made a moment ago: who is about to write to it need
 * not ask the catalog's primary. The replica may lag, and what it has applied may not be committed yet. Neither matters:
 * whoever asks has the number from an answer, so the file was committed; a number is given out once; and what is asked
 * for, where the first replicas are and how contents are cut into objects, was decided when the file was made. Where
 * the replicas have moved since, their own views say so. A file whose inode changed longer ago is not answered for: it
 * may be gone.
 *
 * @param nowNs by the wall clock, in nanoseconds
 * @returns null where the replica knows no such file, or there is no replica
 */
export function justMade(replica: Replica | null, file: FileId, nowNs: bigint): Attributes | null {
  if (replica === null) return null;
  try {
    const { attributes } = replica.query({ kind: 'attributes', inode: file });
    const ageNs = nowNs - BigInt(attributes.changedNs);
    return attributes.kind === 'file' && attributes.live && ageNs < JUST_NS ? attributes : null;
  } catch (error) {
    // The catalog's primary says what there is to say about it.
    if (error instanceof ServiceError) return null;
    throw error;
  }
}
