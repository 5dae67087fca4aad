import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SynchronousWrites } from '../../server/storage/synchronous-writes.ts';

/** A disk that takes `takesMs` for each write, and the clock by which that is measured. */
class Disk {
  nowMs = 0;
  takesMs = 0;
  fails = false;
  readonly written: string[] = [];

  writeNow(path: string): void {
    this.nowMs += this.takesMs;
    if (this.fails) throw new Error('no room');
    this.written.push(path);
  }
}

const run = (byteCount: number) => ({ position: 0, buffers: [new Uint8Array(byteCount)], byteCount });

test('small writes run in the same tick of the event loop, large ones in the thread pool', () => {
  const disk = new Disk();
  const prompt = new SynchronousWrites(disk, () => disk.nowMs);
  assert.equal(prompt.tryWrite('small', [run(4096)]), true);
  assert.equal(prompt.tryWrite('large', [run(40_000), run(40_000)]), false);
  assert.deepEqual(disk.written, ['small']);
});

test('a disk that blocks the event loop is used from the thread pool for a while, also if it fails', () => {
  for (const fails of [false, true]) {
    const disk = new Disk();
    const prompt = new SynchronousWrites(disk, () => disk.nowMs);
    const write = (): boolean => prompt.tryWrite('file', [run(1)]);
    Object.assign(disk, { takesMs: 50, fails });
    if (fails) assert.throws(write, /no room/);
    else assert.equal(write(), true);
    Object.assign(disk, { takesMs: 0, fails: false });
    assert.equal(write(), false);
    disk.nowMs += 500;
    assert.equal(write(), false);
    disk.nowMs += 500;
    assert.equal(write(), true);
  }
});
