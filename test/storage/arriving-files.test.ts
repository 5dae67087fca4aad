/**
 * Goal: the remains of a file that was not created are removed as soon as the disk permits, and nothing is removed of a
 * file that exists or is created after all.
 * Method: commits that the test executes, or refuses as a full disk does.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import { UnfinishedPreserves } from '../../server/storage/unfinished-preserves.ts';
import { fileId } from '../conformance/store.ts';

const [LENDER, FILE] = [fileId(1), fileId(9)];
const FULL = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' });

function started() {
  const said: string[] = [];
  const commits: { readonly carryOut: () => void; readonly refuse: () => void }[] = [];
  const arriving = new UnfinishedPreserves(
    {
      commit: (work) =>
        new Promise((resolve, reject) => {
          const carryOut = (): void => {
            work();
            resolve();
          };
          commits.push({ carryOut, refuse: () => reject(FULL) });
        }),
      file: () => null,
      lent: {
        delete(file: FileId) {
          said.push(`deleted ${file}`);
          return false;
        },
      },
    },
    async (lender, borrower) => void said.push(`${lender} has back what ${borrower} borrowed`),
  );
  return { arriving, commits, said };
}

test('is taken back at once, or when it is tried again', async () => {
  const { arriving, commits, said } = started();
  arriving.begin(FILE, LENDER);
  const failed = assert.rejects(arriving.undo(FILE), FULL);
  commits.shift()?.refuse();
  await failed;
  assert.ok(arriving.has(FILE));
  const again = [arriving.undoIfFailed(FILE), arriving.undoIfFailed(FILE)];
  for (const { carryOut } of commits.splice(0)) carryOut();
  await Promise.all(again);
  assert.equal(arriving.has(FILE), false);
  assert.deepEqual(said, ['deleted 9', 'deleted 9', '1 has back what 9 borrowed']);
});

test('is left to an attempt that has begun meanwhile', async () => {
  const { arriving, commits, said } = started();
  arriving.begin(FILE, LENDER);
  const failed = assert.rejects(arriving.undo(FILE), FULL);
  commits.shift()?.refuse();
  await failed;
  const late = arriving.undoIfFailed(FILE);
  arriving.begin(FILE, LENDER);
  commits.shift()?.carryOut();
  await late;
  assert.ok(arriving.has(FILE), 'It is about to be here');
  await arriving.undoIfFailed(FILE);
  arriving.end(FILE);
  assert.deepEqual([arriving.has(FILE), commits, said], [false, [], []]);
});
