import assert from 'node:assert/strict';
import { test } from 'node:test';
import { attributesWithState } from '../../server/routing/live-attributes.ts';
import type { FileState } from '../../wire/http-api.ts';
import { Catalog } from '../catalog/fixture.ts';

test('a live file has the holes that its primary counts', () => {
  const attributes = { ...new Catalog().file('/a'), sizeBytes: 500, holeBytes: 500 };
  const contents = { epoch: 1, seq: 2 };
  const written: FileState = {
    ...{ file: attributes.inode, sizeBytes: 600, modifiedNs: '1', contents, seq: 2, primary: 'a', epoch: 1 },
  };
  assert.equal('holeBytes' in attributesWithState(attributes, written), false, 'Filled, or not counted');
  assert.equal(attributesWithState(attributes, { ...written, holeBytes: 70 }).holeBytes, 70);
});
