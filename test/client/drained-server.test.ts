/** Goal: a drained server is empty only if all catalogs say so, and it is a member of none. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whatIsLeft } from '../../client/commands/server.ts';

type Given = Parameters<typeof whatIsLeft>;

function leftOf(
  replicas: number,
  unavailable: readonly string[],
  root: readonly string[],
  own: readonly string[],
) {
  const status = { catalog: { members: root }, catalogs: [{ name: 'own', members: own }] };
  return whatIsLeft({ id: 's4', replicas } as Given[0], status as unknown as Given[1], unavailable);
}

test('what a drained server still has is named, the files first', () => {
  const [here, elsewhere] = [['s3', 's4'], ['s1']];
  assert.equal(leftOf(2, ['own'], here, here), '2 files left');
  assert.equal(leftOf(0, ['own'], here, here), 'unknown files of own, whose catalogs do not answer,');
  assert.equal(leftOf(0, [], here, here), 'only the catalogs of own remain');
  assert.equal(leftOf(0, [], here, elsewhere), 'only the catalog remains');
  assert.equal(leftOf(0, [], elsewhere, elsewhere), null);
});
