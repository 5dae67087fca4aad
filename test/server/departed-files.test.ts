/** Files that were removed from a server because they moved: known over restarts, until they are removed for good. */
import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import { DepartedFiles } from '../../server/file/departed-files.ts';

const VIEW: View = { number: 3, members: ['b', 'c'] as ServerId[] };

test('a departed file is known after a restart, until it is forgotten', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'departed-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'departed');
  const first = await DepartedFiles.open(path);
  await Promise.all([first.add(7 as FileId, VIEW), first.add(9 as FileId, { ...VIEW, number: 5 })]);
  assert.equal(first.view(8 as FileId), null);

  // A crash in the middle of a line: it was never reported as stored.
  appendFileSync(path, '{"file":11,"vi');
  const second = await DepartedFiles.open(path);
  assert.deepEqual(second.files(), [7, 9]);
  assert.deepEqual(second.view(7 as FileId), VIEW);
  await second.add(12 as FileId, VIEW);
  await second.forget([7 as FileId]);

  const third = await DepartedFiles.open(path);
  assert.deepEqual(third.files(), [9, 12]);
  assert.equal(third.view(9 as FileId)?.number, 5);
});
