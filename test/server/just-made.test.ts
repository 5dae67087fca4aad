import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { recentAttributes } from '../../server/catalog/new-inodes.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { FILE, requestOf, SmallCluster, type SmallServer } from './small-cluster.ts';

const NOW_NS = 10_000_000_000n;
const made = {
  inode: FILE,
  kind: 'file',
  live: true,
  view: 1,
  replicas: ['a', 'b', 'c'],
  objectBytes: 131_072,
  changedNs: '9000000000',
} as unknown as Attributes;
const replica = (attributes: Attributes) => ({ query: () => ({ attributes }) });

test('a replica of the catalog reports a file that was just created, and no other', () => {
  assert.equal(recentAttributes(replica(made), FILE, NOW_NS), made);
  assert.equal(recentAttributes(null, FILE, NOW_NS), null);
  assert.equal(
    recentAttributes(replica({ ...made, changedNs: '4000000000' }), FILE, NOW_NS),
    null,
    'created long ago',
  );
  assert.equal(
    recentAttributes(replica({ ...made, live: false }), FILE, NOW_NS),
    null,
    'its primary has settled it',
  );
  assert.equal(recentAttributes(replica({ ...made, kind: 'directory' }), FILE, NOW_NS), null);
});

test('if the replica does not know the file, or cannot be read, the primary is asked', () => {
  const refusing = {
    query: () => {
      throw new ServiceError('not-found', 'There is no inode 7');
    },
  };
  assert.equal(recentAttributes(refusing, FILE, NOW_NS), null);
  const broken = {
    query: () => {
      throw new TypeError('broken');
    },
  };
  assert.throws(() => recentAttributes(broken, FILE, NOW_NS), TypeError);
});

for (const [known, asked] of [
  ['a, b, c', 0],
  ['b, c', 1],
] as const) {
  test(`a file whose replicas are reported as ${known}: its first write at a asks the catalog ${asked} times`, async (t) => {
    let questions = 0;
    const replicas = known.split(', ');
    const cluster = new SmallCluster(['a', 'b', 'c'], {
      recentAttributes: () => ({ ...made, replicas }),
      attributes: async () => {
        questions++;
        return made;
      },
    });
    t.after(() => cluster.close());
    await cluster.ready();
    const [a] = cluster.servers as [SmallServer];
    const written = await a.files.write(FILE, requestOf(1), 0, Uint8Array.of(1, 2, 3));
    assert.deepEqual([written.sizeBytes, written.primary, questions], [3, 'a', asked]);
    assert.deepEqual(cluster.fatal, []);
  });
}
