/**
 * Goal: new files are encoded with what their client says of its session, and as servers of earlier releases read them
 * if it says nothing.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  decodeNewFiles,
  encodeNewFiles,
  type FileWithContents,
  type NewFilesRequest,
} from '../../wire/new-files.ts';

const REQUEST: NewFilesRequest = {
  ...{ session: 1, number: 2, owner: 3 },
  newFiles: [
    {
      ...{
        parent: 5,
        name: 'new',
        inode: 77,
        mode: 0o644,
        uid: 0,
        gid: 0,
        contents: Uint8Array.from([1, 2, 3]),
      },
      ...{ accessedNs: '1', modifiedNs: null, changedNs: null },
    },
  ],
};

test('a session and a fence follow at the end, if there are any', () => {
  const owner = { client: 7, forgets: [5] };
  const fenced = { ...owner, under: 9, fence: [{ inode: 5, generation: 4 }] };
  for (const cache of [owner, { ...owner, under: 9 }, fenced])
    assert.deepEqual(decodeNewFiles(encodeNewFiles({ ...REQUEST, cache })), { ...REQUEST, cache });
  const [without, with_] = [owner, fenced].map((cache) => encodeNewFiles({ ...REQUEST, cache }));
  assert.ok(without !== undefined && with_ !== undefined);
  assert.deepEqual(with_.subarray(0, without.length), without);
  for (const cut of [without.length + 1, with_.length - 1])
    assert.throws(() => decodeNewFiles(with_.subarray(0, cut)), { name: 'MalformedError' });
});

test('empty named files are encoded together with new ones, and an invalid mode is refused', () => {
  const [plain] = REQUEST.newFiles as [FileWithContents];
  const named: FileWithContents = { ...plain, inode: 78, hasEntry: true, mode: 0o7777 };
  assert.deepEqual(decodeNewFiles(encodeNewFiles({ ...REQUEST, newFiles: [plain, named] })).newFiles, [
    plain,
    named,
  ]);
  const encoded = encodeNewFiles({ ...REQUEST, newFiles: [{ ...plain, mode: 0o10000 }] });
  assert.throws(() => decodeNewFiles(encoded), { name: 'MalformedError' });
});
