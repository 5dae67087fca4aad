/**
 * Goal: a file of a clone is read where its contents are when the read begins, and nowhere else.
 * Method: `SharedReads` with a catalog of one file, which is shared until it gets contents of its own.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import { SharedFile, SharedReads, sharedState } from '../../server/routing/shared-reads.ts';
import type { Attributes } from '../../wire/catalog-api.ts';

const FILE = 9 as FileId;
const OWN = { epoch: 1, seq: 1 };
const ATTRIBUTES = {
  ...{ inode: FILE, sizeBytes: 5, holeBytes: 2, modifiedNs: '7', contents: OWN, shared: true },
} as unknown as Attributes;

/** The contents of a snapshot, in file 4 until that changes, then in file 5. */
class Place {
  isShared = true;
  isLost = false;
  current = 4;
  queries = 0;
  /** The original changes after the catalog has answered. */
  changes = false;
  readonly reads = new SharedReads(async () => {
    this.queries++;
    const source = this.isShared ? this.current : FILE;
    if (this.changes) this.current = 5;
    return { source, contents: this.isShared ? { epoch: 3, seq: 8 } : OWN };
  });

  read(asOf?: { readonly epoch: number; readonly seq: number }): Promise<string> {
    return this.reads.use(
      FILE,
      { asOf },
      async () => {
        if (this.isShared) throw new SharedFile(ATTRIBUTES);
        return 'own';
      },
      async ({ source, asOf: version }, { inode }) => {
        if (this.isLost || (this.isShared && source !== this.current))
          throw new ServiceError('precondition-failed', 'It has changed');
        return `${inode} in ${source} as of ${version.epoch}.${version.seq}`;
      },
    );
  }
}

test('each read asks where the contents are, until the file has its own', async () => {
  const place = new Place();
  assert.equal(await place.read(), '9 in 4 as of 3.8');
  assert.equal(await place.read(OWN), '9 in 4 as of 3.8');
  assert.equal(place.queries, 2, 'No place is remembered');
  place.current = 5;
  assert.equal(await place.read(), '9 in 5 as of 3.8');
  place.isShared = false;
  assert.equal(await place.read(), 'own');
  assert.equal(place.queries, 3);
});

test('contents that move during a read are read where they are then', async () => {
  const place = new Place();
  place.changes = true;
  assert.equal(await place.read(), '9 in 5 as of 3.8');
  assert.equal(place.queries, 2);
});

test('another version than that of the file is refused, and contents that are lost are an error', async () => {
  const place = new Place();
  await assert.rejects(place.read({ epoch: 3, seq: 8 }), { code: 'precondition-failed' });
  assert.equal(place.queries, 0);
  place.isLost = true;
  await assert.rejects(place.read(), { code: 'integrity' });
});

test('the state is that of the file', () => {
  assert.deepEqual(sharedState(ATTRIBUTES, 's2'), {
    ...{
      file: 9,
      sizeBytes: 5,
      holeBytes: 2,
      modifiedNs: '7',
      contents: OWN,
      seq: 1,
      epoch: 1,
      primary: 's2',
    },
  });
});
