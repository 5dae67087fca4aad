import type { ChangesPosition, SnapshotChanges } from '../../wire/catalog-api.ts';
import { CHANGES_MAX } from '../../wire/request-limits.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { CallOptions } from '../transport/exchange.ts';

/** Pages of the differences of two snapshots; with `directory`, of the names in a new directory. */
export async function* changePages(
  client: ClusterClient,
  range: { readonly volume: string; readonly from: number; readonly to: number },
  directory: number | null,
  call: CallOptions,
): AsyncGenerator<SnapshotChanges, void, undefined> {
  const scope = directory === null ? {} : { directory };
  for (let after: ChangesPosition | null = null; ; ) {
    const page: SnapshotChanges = await client.query(
      { kind: 'snapshot-changes', ...range, after, countMax: CHANGES_MAX, ...scope },
      call,
    );
    yield page;
    if (page.next === null) return;
    after = page.next;
  }
}

/** @returns whether two snapshots show the same, except for access times */
export async function isSame(
  client: ClusterClient,
  range: { readonly volume: string; readonly from: number; readonly to: number },
  call: CallOptions,
): Promise<boolean> {
  for await (const { inodes, names } of changePages(client, range, null, call))
    if (inodes.length > 0 || names.length > 0) return false;
  return true;
}
