/** Goal: the status of a mount shows the dropped operations in its log, and nothing else of it. */
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { LATE_ERROR_MESSAGE, lateErrorsIn } from '../../client/mounts/mount-status.ts';

test('late errors are read from a log with other lines', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-log-'));
  t.after(() => rm(folder, { recursive: true }));
  const log = join(folder, 'mount.log');
  const late = { time: 'now', operation: 'unlink', path: 'v:/d/x', error: 'lost' };
  const line = JSON.stringify({ level: 'error', message: LATE_ERROR_MESSAGE, ...late });
  await writeFile(log, `cut off ${LATE_ERROR_MESSAGE}\n{"message":"mounted"}\n${line}\n`);
  assert.deepEqual(await lateErrorsIn(log), [late]);
  assert.deepEqual(await lateErrorsIn(join(folder, 'none')), []);
});
