/**
 * Goal: a command that is executed after its mount has stopped waiting for it is visible on both mounts, although the
 * first one was granted the directory again.
 * Method: a short run of `npm run nemesis:schedules`, with real servers and mounts: the catalog's primary is stopped
 * while it has the command.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { run } from '../cluster/cluster-mount.ts';

const MAIN = fileURLToPath(new URL('schedules-main.ts', import.meta.url));
const EXIT_OBSTACLE = 2;
const LIMIT_MS = 300_000;

test('the mount that sent a late command shows its effect, with leases', async (t) => {
  const args = [MAIN, '--schedules', 'late-command', '--caches', 'leases', '--rounds', '1'];
  const { code, text } = await run(process.execPath, args, { timeoutMs: LIMIT_MS });
  if (code === EXIT_OBSTACLE) return t.skip(text.trim());
  t.diagnostic(text.trim());
  assert.equal(code, 0, text);
});
