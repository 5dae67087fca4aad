import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ImageDisk } from './disk.ts';

test('a disk can be filled to the last block, and forgets what was not synced when its power is cut', (t) => {
  const obstacle = ImageDisk.obstacle() ?? ImageDisk.powerObstacle();
  if (obstacle !== null) return t.skip(obstacle);
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-disk-'));
  const disk = new ImageDisk(folder);
  try {
    mkdirSync(disk.data);
    const at = (name: string): string => join(disk.data, name);
    writeFileSync(at('META'), JSON.stringify({ bootId: 'this one', startCounter: 3 }), { flush: true });
    disk.fill(0);
    assert.throws(() => writeFileSync(at('more'), Buffer.alloc(100_000)), { code: 'ENOSPC' });
    disk.relieve();
    writeFileSync(at('synced'), 'stays', { flush: true });
    writeFileSync(at('unsynced'), 'goes');
    disk.losePower();
    assert.equal(readFileSync(at('synced'), 'utf8'), 'stays');
    assert.ok(!existsSync(at('unsynced')) || readFileSync(at('unsynced'), 'utf8') === '');
    const meta = JSON.parse(readFileSync(at('META'), 'utf8')) as Record<string, unknown>;
    assert.equal(meta.startCounter, 3);
    assert.notEqual(meta.bootId, 'this one', 'the server is to conclude that the machine was down');
  } finally {
    disk.remove();
    rmSync(folder, { recursive: true });
  }
});
