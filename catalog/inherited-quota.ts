import type { InodeRow } from './inode-rows.ts';
import type { Tables } from './tables.ts';

/** @returns the quota against which new entries of a directory count: of one that ends, the next outer one */
export function inheritedQuota({ quotas, walks }: Tables, { quota }: Pick<InodeRow, 'quota'>): number {
  if (walks.row(quota)?.phase !== 'ending') return quota;
  return quotas.row(quota)?.enclosing ?? 0;
}
