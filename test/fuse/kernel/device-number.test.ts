import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readdirSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { holdersOf, mountAt } from '../../../client/mounts/mount-table.ts';
import { DeviceNumberMissed, untilNumbered, withDeviceNumber } from '../../../fuse/kernel/device-number.ts';
import { kernelTransportObstacle } from '../../../fuse/kernel/kernel-mount.ts';
import { mountDevice, unmountDirectory } from '../../../fuse/kernel/mount-programs.ts';

/** Goal: a mount gets the device number that it asks for, or is removed again, whatever else is mounted meanwhile. */

const skip = kernelTransportObstacle() ?? false;

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-device-'));
  t.after(async () => {
    while ((await mountAt(folder)) !== null) execFileSync('umount', ['-i', '-c', '-l', folder]);
    rmdirSync(folder);
  });
  return folder;
}

function mountEmpty(folder: string): void {
  execFileSync('mount', ['-i', '-t', 'ramfs', 'none', folder]);
}

/** Mounts a volume without a program that answers. @param before is called when the number is free */
async function mountNumbered(
  t: TestContext,
  number: number,
  folder: string,
  before: (attempt: number) => void = () => undefined,
): Promise<void> {
  let attempt = 0;
  await untilNumbered(async () => {
    const fd = openSync('/dev/fuse', 'r+');
    t.after(() => closeSync(fd));
    await withDeviceNumber(number, folder, (mountsBefore) => {
      before(++attempt);
      return mountDevice(fd, folder, 'leasehold: a\\b', [], mountsBefore);
    });
  });
}

function freeNumber(): number {
  return 1_000 + Math.floor(Math.random() * 2_000);
}

async function deviceOf(folder: string): Promise<string | undefined> {
  return (await mountAt(folder))?.device;
}

test('mounts that ask for neighboring numbers at the same time get them', { skip }, async (t) => {
  const first = freeNumber();
  const folders = [0, 1, 2, 3].map(() => folderFor(t));
  await Promise.all(folders.map((folder, index) => mountNumbered(t, first + index, folder)));
  assert.deepEqual(
    await Promise.all(folders.map(deviceOf)),
    folders.map((_, index) => `0:${first + index}`),
  );
  assert.deepEqual(
    readdirSync(tmpdir()).filter((name) => name.startsWith('leasehold-numbers-')),
    [],
  );
});

test('a mount gets its number after others that came before it and stay', { skip }, async (t) => {
  const [folder, ...others] = [folderFor(t), folderFor(t), folderFor(t)];
  const number = freeNumber();
  await mountNumbered(t, number, folder, (attempt) => {
    if (attempt === 1) others.forEach(mountEmpty);
  });
  assert.equal(await deviceOf(folder), `0:${number}`);
  for (const other of others) assert.match((await deviceOf(other)) ?? '', /^0:/);
  await unmountDirectory(folder, true);
  assert.equal(await mountAt(folder), null, 'It was mounted once');
});

test('the numbers are held without copies of volumes, which could not end', { skip }, async (t) => {
  const [folder, volume] = [folderFor(t), folderFor(t)];
  const fd = openSync('/dev/fuse', 'r+');
  await mountDevice(fd, volume, 'leasehold:main', []);
  const device = (await mountAt(volume))?.device ?? '';
  try {
    await withDeviceNumber(freeNumber(), folder, async () => {
      assert.deepEqual(
        (await holdersOf(device)).map(({ directory, isHere }) => ({ directory, isHere })),
        [{ directory: volume, isHere: true }],
      );
      mountEmpty(folder);
    }).catch((error) => assert.ok(error instanceof DeviceNumberMissed, error));
  } finally {
    closeSync(fd);
    await unmountDirectory(volume, true);
  }
});
