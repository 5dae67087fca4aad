import assert from 'node:assert/strict';
import fs from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { BALLAST, ballastKeep, ballastRelease } from '../../server/storage/ballast.ts';
import { temporaryFolder } from './stores.ts';

const MIB = 2 ** 20;
/** The unit in which stat(2) counts blocks. */
const BLOCK_BYTES = 512;

function folderOf(t: { after(work: () => void): void }): string {
  const folder = temporaryFolder();
  t.after(() => fs.rmSync(folder, { recursive: true }));
  return folder;
}

test('a ballast takes blocks of the disk, and is released once', async (t) => {
  const folder = folderOf(t);
  await ballastKeep(folder);
  const { blocks, ino } = fs.statSync(join(folder, BALLAST));
  assert.ok(blocks * BLOCK_BYTES >= 4 * MIB, 'A hole reserves nothing');
  await ballastKeep(folder);
  assert.equal(fs.statSync(join(folder, BALLAST)).ino, ino, 'It is not written again');
  assert.equal(ballastRelease(folder), true);
  assert.equal(ballastRelease(folder), false);
  assert.deepEqual(fs.readdirSync(folder), []);
});

test('a disk that has no space for a ballast keeps no part of it', async (t) => {
  const folder = folderOf(t);
  for (const code of ['ENOSPC', 'EDQUOT', 'EIO']) {
    const { mock } = t.mock.method(fs.promises, 'writeFile', async (file: string) => {
      fs.writeFileSync(file, 'a part of it');
      throw Object.assign(new Error(code), { code });
    });
    const keeping = ballastKeep(folder);
    if (code === 'EIO') await assert.rejects(keeping, { code });
    else await keeping;
    mock.restore();
    assert.deepEqual(fs.readdirSync(folder), [], code);
  }
});
