/** Goal: where mounting is impossible, `leasehold mount` says why, also if a mount there does not answer. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { systemWorld } from '../../world/system-world.ts';
import { run } from '../cluster/cluster-mount.ts';
import { noMount, TestMount } from '../fuse/mounted.ts';
import { FakeCluster } from './fake-cluster.ts';
import { LAUNCHER } from './run-cli.ts';

const skip = noMount;
/** Several times as long as it waits for a mount that does not answer. */
const HANGS_MS = 30_000;

const cluster = await FakeCluster.start(1);
after(() => cluster.stop());
{
  await using client = new ClusterClient({ world: systemWorld, servers: cluster.urls });
  await client.command({ kind: 'volume-create', name: 'main', replicas: 1, objectBytes: 131_072 });
}

/** In a separate process, which may hang: this one must not access the mount. */
function mountOn(directory: string) {
  const argv = [LAUNCHER, 'mount', 'main', directory, '--servers', cluster.urls.join()];
  return run(process.execPath, argv, { timeoutMs: HANGS_MS });
}

test('a mount that does not answer is queried for a limited time, and then reported', { skip }, async (t) => {
  // Nothing is cached: every access has to ask the mount.
  const mount = await TestMount.start(t, 20_000, 'auto', { ageMaxMs: 0 });
  mount.signal('SIGSTOP');
  const { code, text } = await mountOn(mount.directory);
  assert.match(text, /leasehold:test is mounted there already, and does not respond\n.*umount --lazy/);
  assert.equal(code, 4);
});

test('a mount over another one, on a file, or at a missing path is refused', { skip }, async (t) => {
  const mount = await TestMount.start(t);
  const there = await mountOn(mount.directory);
  assert.deepEqual(
    [there.code, /is mounted there already\n.*umount \//.test(there.text)],
    [4, true],
    there.text,
  );
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-mount-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'file'), '');
  const file = await mountOn(join(folder, 'file'));
  assert.deepEqual([file.code, /it is not a directory/.test(file.text)], [2, true], file.text);
  const missing = await mountOn(join(folder, 'missing'));
  assert.deepEqual([missing.code, /mkdir -p .*missing/.test(missing.text)], [3, true], missing.text);
});
