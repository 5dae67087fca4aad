import type { BigIntStats } from 'node:fs';
import type { Attributes } from '../../wire/catalog-api.ts';

/** Node sets local file times in floating-point seconds, which loses digits. */
const TIME_TOLERANCE_NS = 1_000n;

/** @returns whether both are files with the same size and modification time, and so the same contents */
export function isSame(local: BigIntStats | null, remote: Attributes | null): boolean {
  if (!local?.isFile() || remote?.kind !== 'file') return false;
  const apartNs = local.mtimeNs - BigInt(remote.modifiedNs);
  return (
    Number(local.size) === remote.sizeBytes && apartNs < TIME_TOLERANCE_NS && apartNs > -TIME_TOLERANCE_NS
  );
}
