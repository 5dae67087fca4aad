import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import { Containers } from '../../server/storage/container.ts';
import { DirectWrites } from '../../server/storage/direct-writes.ts';
import { diskFileOps } from '../../server/storage/file-ops.ts';
import { systemWorld } from '../../world/system-world.ts';
import { temporaryFolder } from './stores.ts';

const FILES = 400;

/**
 * Goal: a caller that needs a container that is being closed waits for that one alone, however many others are being
 * closed, and however long their disk takes.
 */
test('a container that is being closed is waited for by itself', async () => {
  const folder = temporaryFolder();
  for (let place = 0; place < 256; place++) mkdirSync(join(folder, place.toString(16).padStart(2, '0')));
  const disks = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const stuck: number[] = [];
  const ops = {
    ...diskFileOps,
    async datasync(fd: number): Promise<void> {
      // The disk does not answer for the two files that are closed first.
      if (stuck.length < disks.length) stuck.push(fd);
      await disks[stuck.indexOf(fd)]?.promise;
      await diskFileOps.datasync(fd);
    },
  };
  const containers = new Containers(
    systemWorld.nowMs,
    folder,
    ops,
    new DirectWrites(systemWorld.nowMs),
    (error) => assert.fail(String(error)),
  );
  const write = (file: number): Promise<unknown> =>
    containers.use(file as FileId, true, (container) =>
      container.write([{ position: 0, buffers: [Buffer.from('contents')], byteCount: 8 }]),
    );
  for (let file = 1; file <= FILES; file++) await write(file);
  assert.equal(stuck.length, disks.length, 'Some were closed to stay within the limit');
  const waiting = write(2);
  disks[1]?.resolve();
  await waiting;
  disks[0]?.resolve();
  await write(1);
  await containers.close();
});
