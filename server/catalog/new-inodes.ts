import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, Query, QueryResults } from '../../wire/catalog-api.ts';

/** A file that was created and never written is not collected earlier than this, even if it is unlinked. */
const RECENT_NS = 5_000_000_000n;

interface Replica {
  query(query: Extract<Query, { kind: 'attributes' }>): QueryResults['attributes'];
}

/**
 * Attributes of a recently created file from the catalog's replica on this server, which saves its writer a request to
 * the catalog's primary. The replica may lag, or have applied operations that are not committed. Neither matters: the
 * caller has the number from an answer, so the file was committed; a number is assigned once; and the first replicas
 * and the object size were decided at the creation. If the replicas have moved since, their own views say so. For a
 * file whose inode changed longer ago, null is returned: it may have been deleted.
 * @param nowNs wall clock, in nanoseconds
 * @returns null if there is no replica, or it does not have such a file
 */
export function recentAttributes(replica: Replica | null, file: FileId, nowNs: bigint): Attributes | null {
  if (replica === null) return null;
  try {
    const { attributes } = replica.query({ kind: 'attributes', inode: file });
    const ageNs = nowNs - BigInt(attributes.changedNs);
    return attributes.kind === 'file' && attributes.live && ageNs < RECENT_NS ? attributes : null;
  } catch (error) {
    // The catalog's primary reports the error.
    if (error instanceof ServiceError) return null;
    throw error;
  }
}
