import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { epoch, fileId } from '../conformance/store.ts';
import { FILE_IDS, modelOf, writeUntilKilled } from './crash-writer.ts';
import { mounted } from './mounts.ts';
import { DiskFixture, FOLDER, temporaryFolder } from './stores.ts';

const ROUNDS = Number(process.env.ROUNDS ?? 3);
/** EXT4_IOC_SHUTDOWN with the flag that also drops the file system's own journal. */
const CUT = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))`;

/**
 * Goal: what was synced outlives a loss of power, index and contents alike, on a real file system.
 * Method: a writer on a loop-mounted ext4 is killed, the file system is shut down without writing back what
 * it holds in memory, and mounted again. Nothing simulated lies in between.
 */
test('power is cut under a real file system', { timeout: 120_000 }, async (t) => {
  const parent = temporaryFolder();
  const image = path.join(parent, 'image');
  const folder = path.join(parent, 'mount');
  fs.writeFileSync(image, '');
  fs.truncateSync(image, 192 * 1024 * 1024);
  const made = spawnSync('mkfs.ext4', ['-q', '-F', '-E', 'lazy_itable_init=0,lazy_journal_init=0', image]);
  const mount = made.status === 0 ? mounted(folder, ['-o', 'loop', image]) : null;
  if (mount === null) {
    fs.rmSync(parent, { recursive: true });
    return t.skip('needs root, mkfs.ext4 and loop devices');
  }
  try {
    let rolledBack = 0;
    for (let round = 1; round <= ROUNDS; round++) {
      const before = await writeUntilKilled(folder, 700 + 350 * round);
      const cut = spawnSync('python3', ['-c', CUT, folder], { encoding: 'utf8' });
      if (cut.status !== 0) return t.skip(`cannot shut a file system down here: ${cut.stderr}`);
      mount.unmount();
      assert.ok(mounted(folder, ['-o', 'loop', image]));
      const fixture = await DiskFixture.make({}, folder, { ...FOLDER, bootId: `boot ${round}` });
      const { store } = fixture;
      rolledBack += store.recovery.rolledBack.length;
      for (const id of FILE_IDS) {
        const record = store.record(fileId(id));
        const synced = before.synced.get(id) ?? 0;
        assert.ok(
          record !== null && record.seq >= synced,
          `File ${id} is at ${record?.seq}, ${synced} was synced`,
        );
        assert.deepEqual(record.promised, epoch(1));
        const contents = Buffer.from(await store.read(fileId(id), 0, 1_000_000));
        assert.deepEqual(contents, modelOf(id, record.seq), `File ${id} at ${record.seq}`);
      }
      await fixture.close();
    }
    t.diagnostic(`${rolledBack} files were rolled back`);
  } finally {
    mount.unmount();
    fs.rmSync(parent, { recursive: true });
  }
});
