import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '../cluster/real-cluster.ts';
import { ImageDisk } from './disk.ts';

const MIB = 1024 * 1024;

test('a disk can be filled to its last block, and after a loss of power lacks what was not synced', (t) => {
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
    assert.notEqual(meta.bootId, 'this one', 'The server must conclude that the machine was down');
  } finally {
    disk.remove();
    rmSync(folder, { recursive: true });
  }
});

test('a disk is filled while other programs use its space, and again if it is full', async (t) => {
  const obstacle = ImageDisk.obstacle();
  if (obstacle !== null) return t.skip(obstacle);
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-disk-'));
  const disk = new ImageDisk(folder);
  try {
    mkdirSync(disk.data);
    for (let turn = 0; turn < 5; turn++) {
      const taken = join(disk.data, 'taken');
      const taker = spawn('dd', ['if=/dev/zero', `of=${taken}`, 'bs=1M'], { stdio: 'ignore' });
      const ended = once(taker, 'exit') as Promise<[number | null]>;
      await until('it takes room', () => Promise.resolve(existsSync(taken)));
      disk.fill(0);
      const [code] = await ended;
      assert.equal(code, 1, 'No space is left for other programs');
      disk.fill(0);
      assert.throws(() => writeFileSync(join(disk.data, 'more'), Buffer.alloc(100_000)), { code: 'ENOSPC' });
      rmSync(taken);
      disk.relieve();
    }
    disk.fill(8 * MIB);
    writeFileSync(join(disk.data, 'much'), Buffer.alloc(7 * MIB), { flush: true });
  } finally {
    disk.remove();
    rmSync(folder, { recursive: true });
  }
});
