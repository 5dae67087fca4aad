import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FileId } from '../../base/ids.ts';
import { FailedReplicas } from '../../server/file/failed-replicas.ts';

const [FILE, OTHER_FILE] = [7, 8] as FileId[] as [FileId, FileId];

test('a replica that fails again and again restarts less and less often, until there is free space', () => {
  const failed = new FailedReplicas();
  const begun: number[] = [];
  for (let nowMs = 0; nowMs < 20_000; nowMs += 100) if (failed.mayRestart(FILE, nowMs)) begun.push(nowMs);
  assert.deepEqual(begun, [0, 300, 900, 2_100, 4_500, 9_300, 14_300, 19_300]);
  assert.ok(failed.mayRestart(OTHER_FILE, 20_000), 'Each file by itself');
  assert.ok(!failed.mayRestart(FILE, 20_000));
  failed.resetWaits();
  assert.ok(failed.mayRestart(FILE, 20_000));
  assert.ok(!failed.mayRestart(FILE, 20_100));
  assert.ok(failed.mayRestart(FILE, 30_000), 'It has run for a while');
  assert.ok(failed.mayRestart(FILE, 30_300), 'and counts like any other');
});
