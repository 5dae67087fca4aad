import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import { CatalogHolder, type CatalogReplica } from '../../server/catalog/catalog-holder.ts';

const [S1, S2, S3, S4] = ['s1', 's2', 's3', 's4'] as [ServerId, ServerId, ServerId, ServerId];

/** The holder of s4, which was not in the first configuration; `known` is what other servers reported. */
function holderOf(known: View, replica: { readonly view: View; isLost: boolean } | null): CatalogHolder {
  return new CatalogHolder({
    self: S4,
    knownView: () => known,
    notMember: () => undefined,
    open: async (): Promise<CatalogReplica> => {
      assert.ok(replica !== null, 'There is none');
      return {
        service: {} as never,
        view: () => replica.view,
        isLost: () => replica.isLost,
        isReplaced: () => false,
      };
    },
  });
}

test('a member that joined later and lost its disk lacks its replica until the contents are there', async () => {
  const joined: View = { number: 3, members: [S1, S2, S4] };
  const replica = { view: joined, isLost: true };
  const holder = holderOf(joined, replica);
  assert.equal(holder.lacksReplica, true, 'It has none yet, and others say that it is a member');
  await holder.openReplica();
  assert.equal(holder.lacksReplica, true, 'It is empty, and counts for no majority');
  replica.isLost = false;
  assert.equal(holder.lacksReplica, false);
});

test('a server that is no member lacks no replica', async () => {
  const without: View = { number: 4, members: [S1, S2, S3] };
  assert.equal(holderOf(without, null).lacksReplica, false);
  // A replica that was left over from an earlier view.
  const left = holderOf(without, { view: { number: 3, members: [S1, S2, S4] }, isLost: true });
  await left.openReplica();
  assert.equal(left.lacksReplica, false);
});
