import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { holdersOf, mountAt } from '../../../client/mounts/mount-table.ts';
import { untilNumbered, withDeviceNumber } from '../../../fuse/kernel/device-number.ts';
import { kernelTransportObstacle } from '../../../fuse/kernel/kernel-mount.ts';
import { mountDevice, unmountDirectory } from '../../../fuse/kernel/mount-programs.ts';

/** Goal: a mount gets the device number that it asks for, or is removed again, whatever else is mounted meanwhile. */

const skip = kernelTransportObstacle() ?? false;

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-device-'));
  t.after(() => rmdirSync(folder));
  return folder;
}

function mountEmpty(folder: string): void {
  execFileSync('mount', ['-i', '-t', 'ramfs', 'none', folder]);
}

function mountNumbered(number: number, folder: string, before = async () => {}): Promise<void> {
  return untilNumbered(() =>
    withDeviceNumber(number, folder, async () => {
      await before();
      mountEmpty(folder);
    }),
  );
}

function freeNumber(): number {
  return 1_000 + Math.floor(Math.random() * 2_000);
}

test('mounts that ask for neighboring numbers at the same time get them', { skip }, async (t) => {
  const first = freeNumber();
  const folders = [0, 1, 2, 3].map(() => folderFor(t));
  try {
    await Promise.all(folders.map((folder, index) => mountNumbered(first + index, folder)));
    const devices = folders.map(async (folder) => (await mountAt(folder))?.device);
    assert.deepEqual(
      await Promise.all(devices),
      folders.map((_, index) => `0:${first + index}`),
    );
  } finally {
    for (const folder of folders)
      if ((await mountAt(folder)) !== null) execFileSync('umount', ['-i', folder]);
  }
});

test('a mount that got another number is removed, and repeated', { skip }, async (t) => {
  const [folder, other] = [folderFor(t), folderFor(t)];
  const number = freeNumber();
  let missed = 0;
  await untilNumbered(
    () =>
      withDeviceNumber(number, folder, async () => {
        if (missed === 0) mountEmpty(other);
        mountEmpty(folder);
      }),
    () => {
      if (missed++ === 0) execFileSync('umount', ['-i', other]);
    },
  );
  assert.ok(missed > 0);
  assert.equal((await mountAt(folder))?.device, `0:${number}`);
  execFileSync('umount', ['-i', folder]);
  assert.equal(await mountAt(folder), null, 'It was mounted once');
});

test('the numbers are held without copies of volumes, which could not end', { skip }, async (t) => {
  const [folder, volume] = [folderFor(t), folderFor(t)];
  const fd = openSync('/dev/fuse', 'r+');
  await mountDevice(fd, volume, 'leasehold:main', []);
  const device = (await mountAt(volume))?.device ?? '';
  try {
    await mountNumbered(freeNumber(), folder, async () =>
      assert.deepEqual(
        (await holdersOf(device)).map(({ directory, isHere }) => ({ directory, isHere })),
        [{ directory: volume, isHere: true }],
      ),
    );
    execFileSync('umount', ['-i', folder]);
  } finally {
    closeSync(fd);
    await unmountDirectory(volume, true);
  }
});
