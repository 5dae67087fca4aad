import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Attributes } from '../../fuse/backend.ts';
import { KnownContents } from '../../fuse/contents/known-contents.ts';
import { WRITTEN_BYTES_LEAST, WrittenPages } from '../../fuse/contents/written-pages.ts';
import { sectorCount } from '../../fuse/transport/stat.ts';
import { systemWorld } from '../../world/system-world.ts';

const VERSION = { epoch: 1, seq: 5 };
const NEXT = { epoch: 1, seq: 6 };
const SPARSE: Attributes = {
  ...{
    inode: 7,
    kind: 'file',
    mode: 0o644,
    uid: 0,
    gid: 0,
    links: 1,
    target: '',
    device: 0,
    replicas: ['a'],
  },
  ...{ accessedNs: '1', modifiedNs: '1', changedNs: '1', contents: VERSION, live: false },
  ...{ sizeBytes: 51_200, holeBytes: 51_200 },
};
const CLEAN = { dirty: false, dirtyEnd: 0 };

function knownOf(attributes: Attributes): KnownContents {
  const pages = new WrittenPages(WRITTEN_BYTES_LEAST).of(attributes.inode, attributes.contents);
  const source = { changed: () => undefined, withoutOutdated: async () => undefined };
  return new KnownContents(systemWorld, attributes, pages, source);
}

test('a file has blocks as soon as bytes of it are being written', async () => {
  const known = knownOf(SPARSE);
  assert.equal(sectorCount(await known.present(SPARSE, CLEAN)), 0);
  known.writing();
  assert.equal(sectorCount(await known.present(SPARSE, { dirty: true, dirtyEnd: 10 })), 1);
});

test('after a change the holes are unknown until the cluster has answered', async () => {
  const known = knownOf(SPARSE);
  known.changed({ sizeBytes: 51_200, modifiedNs: '2', contents: NEXT, before: VERSION });
  assert.equal(known.areHolesUnknown, true);
  assert.equal(sectorCount(await known.present(SPARSE, CLEAN)), 100);
  assert.equal(known.applyOwnWrites(SPARSE), null, 'Attributes from before are not valid');
  const asked = { ...SPARSE, contents: NEXT, holeBytes: 1_024 };
  assert.equal(sectorCount(await known.present(asked, CLEAN)), 98);
  assert.equal(known.areHolesUnknown, false);
});

test('after a change of a file without holes they are unknown only if the change may leave one', () => {
  const { holeBytes: _, ...dense } = SPARSE;
  const known = knownOf(dense);
  const change = { sizeBytes: 60_000, modifiedNs: '2', contents: NEXT, before: VERSION };
  known.changed(change);
  assert.deepEqual([known.areHolesUnknown, known.applyOwnWrites(dense)?.sizeBytes], [false, 60_000]);
  known.leavingHole();
  assert.deepEqual([known.areHolesUnknown, known.applyOwnWrites(dense)], [true, null]);
});
