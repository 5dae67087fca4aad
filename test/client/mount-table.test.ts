import assert from 'node:assert/strict';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  canonical,
  findMount,
  type MountHolder,
  mountAt,
  stillMounted,
  usersOf,
} from '../../client/mounts/mount-table.ts';

const TABLE = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
88 22 0:51 / /mnt/a\\040b rw,nosuid,nodev - fuse leasehold:main rw,user_id=0
90 22 0:52 / /mnt/two rw - tmpfs tmpfs rw
91 90 0:53 / /mnt/two rw shared:3 master:4 - fuse.other other rw
`;

test('a mount is found by its directory, with blanks in it and under another mount', () => {
  assert.deepEqual(findMount(TABLE, '/mnt/a b'), {
    directory: '/mnt/a b',
    device: '0:51',
    options: 'rw,nosuid,nodev',
    type: 'fuse',
    source: 'leasehold:main',
  });
  assert.equal(findMount(TABLE, '/mnt/two')?.type, 'fuse.other');
  assert.equal(findMount(TABLE, '/mnt'), null);
});

test('the real table and the real processes', { skip: process.platform !== 'linux' }, async () => {
  assert.equal((await mountAt('/proc'))?.type, 'proc');
  const users = await usersOf(process.cwd());
  assert.ok(users.some(({ pid }) => pid === process.pid));
});

test('a directory is resolved without symbolic links on the way, and without accessing it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-table-'));
  try {
    await symlink(folder, join(folder, 'link'));
    const real = await canonical(join(folder, 'link', 'not-there'));
    assert.equal(real, join(await canonical(folder), 'not-there'));
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a file system that reuses the number of an unmounted one is not mistaken for it', () => {
  const held = (namespace: string, directory: string): MountHolder => {
    return { namespace, directory, isHere: namespace === 'mnt:[1]', processes: [] };
  };
  const [mount, copy] = [held('mnt:[1]', '/mnt'), held('mnt:[2]', '/mnt')];
  assert.deepEqual(stillMounted([copy], [mount, copy]), [copy]);
  assert.deepEqual(stillMounted([held('mnt:[2]', '/proc')], [mount, copy]), []);
  assert.deepEqual(stillMounted([held('mnt:[3]', '/mnt')], [mount, copy]), []);
});
