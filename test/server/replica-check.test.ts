import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, catalogOfInode, type FileId, inodesOf, type ServerId } from '../../base/ids.ts';
import { ReplicaCheck } from '../../server/file/replica-check.ts';
import type { PlacedFile, Query, QueryResults } from '../../wire/catalog-api.ts';
import { MemoryStore } from '../storage/memory-store.ts';

const MEMBERS = ['s1', 's2', 's3'] as ServerId[];
const REMOVED = 4 as CatalogNumber;

test('each catalog is asked about its own replicas; a removed one has none', async () => {
  const files = [7, ...[3, 4].map((number) => inodesOf(number as CatalogNumber).first)] as FileId[];
  const [, moved, unnamed] = files;
  const store = new MemoryStore();
  for (const file of files) store.create(file, { number: 2, members: MEMBERS }, 4096);
  const asked: number[][] = [];
  const placed = (inode: number): PlacedFile => ({
    ...{ inode, view: inode === moved ? 1 : 2, members: MEMBERS },
    ...{ wanted: 3, sizeBytes: 0 },
  });
  const answer = async (query: Query): Promise<object> => {
    if (query.kind !== 'placed' && query.kind !== 'paths') throw new Error(`Not expected: ${query.kind}`);
    asked.push(query.inodes);
    if (query.inodes.some((inode) => catalogOfInode(inode) === REMOVED))
      throw new ServiceError('not-found', 'The volume is removed');
    const paths = query.inodes.map((inode) => ({ inode, volume: 'own', path: '/file' }));
    return { files: query.inodes.map(placed), reserved: [], paths };
  };
  const check = new ReplicaCheck({
    ...{ self: MEMBERS[0] as ServerId, store, unsettleable: () => [] },
    conflicts: { current: [], compare: () => false },
    catalogOf: catalogOfInode,
    query: async <Q extends Query>(query: Q) => (await answer(query)) as QueryResults[Q['kind']],
  });
  const { findings, compared } = await check.page(0 as FileId);
  assert.equal(compared, 3);
  assert.deepEqual(
    findings.map(({ file, kind, path }) => ({ file, kind, path })),
    [
      { file: moved, kind: 'catalog-behind', path: 'own:/file' },
      { file: unnamed, kind: 'unnamed', path: null },
    ],
  );
  assert.deepEqual(asked, [...files.map((file) => [file]), [moved]]);
});
