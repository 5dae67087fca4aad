import type { BigIntStats } from 'node:fs';
import type { Attributes } from '../../wire/catalog-api.ts';

/** Times of local files are set in seconds as a number, which has fewer digits than they have. */
const TIME_TOLERANCE_NS = 1_000n;

/** @returns whether both are files that by size and modification time have the same contents */
export function isSame(local: BigIntStats | null, remote: Attributes | null): boolean {
  if (!local?.isFile() || remote?.kind !== 'file') return false;
  const apartNs = local.mtimeNs - BigInt(remote.modifiedNs);
  return (
    Number(local.size) === remote.sizeBytes && apartNs < TIME_TOLERANCE_NS && apartNs > -TIME_TOLERANCE_NS
  );
}
