/**
 * Goal: a mount shows contents that it has prefetched or cached no longer than its mode allows after another mount has
 * changed the file.
 * Method: real servers and two real mounts, and one program with a file open on both. It reads in sequence on the
 * first, so that blocks are prefetched, writes ahead of that position on the second, and reads on the first once
 * `fsync` has returned on the second.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { noMount } from '../fuse/mounted.ts';
import { isLong, SERVERS_OF_FORM } from '../long.ts';
import { ClusterMount, runOk } from './cluster-mount.ts';
import { RealCluster } from './real-cluster.ts';

const MIB = 1024 * 1024;
/**
 * Prefetched blocks are checked above the transports: each cache mode over one transport, each transport with one cache
 * mode.
 */
const WAYS: readonly (readonly [transport: string, cache: string])[] = [
  ['kernel', 'strict'],
  ['kernel', 'leases'],
  ['native', 'leases'],
  ...(isLong ? [['native', 'strict'] as const] : []),
];

/**
 * Arguments: the file on both mounts, and flags of the descriptor that reads. Prints what was read instead of what was
 * written.
 */
const AHEAD = `
import os, sys
a, b, flags = sys.argv[1], sys.argv[2], int(sys.argv[3])
MiB, STEP = ${MIB}, 131072
fd = os.open(b, os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, bytes(5 * MiB), 0)
os.fsync(fd)
reader = os.open(a, flags)
at = tag = 0
while at < 3 * MiB:
    end = at + MiB + MiB // 2
    while at < end:
        at += len(os.pread(reader, STEP, at))
    # In the block that is being read, and in the two that were fetched ahead; twice, for the first read fetches, too.
    for ahead in (0, 0, MiB // 2, MiB // 2, MiB, MiB):
        tag += 1
        os.pwrite(fd, b'%08d' % tag, at + ahead)
        os.fsync(fd)
        got = os.pread(reader, STEP, at + ahead)[:8]
        if got != b'%08d' % tag: print('at', at + ahead, 'wrote', tag, 'read', got)
`;

/** The same for a mapping, with seconds to wait; prints how long it took. */
const MAPPED = `
import mmap, os, sys, time
a, b, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
fd = os.open(b, os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, bytes(65536), 0)
os.fsync(fd)
file = os.open(a, os.O_RDWR if sys.argv[4] == 'rw' else os.O_RDONLY)
prot = mmap.PROT_READ | (mmap.PROT_WRITE if sys.argv[4] == 'rw' else 0)
view = mmap.mmap(file, 65536, mmap.MAP_SHARED, prot)
os.close(file)
assert view[:8] == bytes(8)
for tag in range(1, 4):
    os.pwrite(fd, b'%08d' % tag, 0)
    os.fsync(fd)
    began = time.monotonic()
    while view[:8] != b'%08d' % tag:
        if time.monotonic() - began > limit: sys.exit('write %d is not shown: %r' % (tag, view[:8]))
        time.sleep(0.005)
    print('%.3f' % (time.monotonic() - began))
`;

describe('contents that another mount changes', { skip: noMount }, () => {
  let cluster: RealCluster;
  const mounts: ClusterMount[] = [];
  const pairs = new Map<string, Promise<[ClusterMount, ClusterMount]>>();

  before(async () => {
    cluster = await RealCluster.start({ servers: SERVERS_OF_FORM });
    await cluster.createVolume('main');
  });

  after(async () => {
    for (const mount of mounts) await mount.stop();
    await cluster?.stop();
  });

  function pair(cache: string, transport: string): Promise<[ClusterMount, ClusterMount]> {
    const key = `${cache} ${transport}`;
    const start = async (): Promise<ClusterMount> => {
      const mount = await ClusterMount.start(cluster, 'main', '--cache', cache, '--transport', transport);
      mounts.push(mount);
      return mount;
    };
    const known = pairs.get(key) ?? Promise.all([start(), start()]);
    pairs.set(key, known);
    return known;
  }

  for (const [transport, cache] of WAYS) {
    test(`are read at once with cache=${cache}, transport=${transport}, despite prefetched blocks`, async () => {
      const [a, b] = await pair(cache, transport);
      const { O_RDONLY, O_RDWR, O_APPEND } = (await import('node:fs')).constants;
      for (const [how, flags] of [
        ['plain', O_RDONLY],
        ['appending', O_RDWR | O_APPEND],
      ] as const) {
        const name = `${cache}-${transport}-${how}`;
        const { text } = await runOk('python3', ['-c', AHEAD, a.path(name), b.path(name), `${flags}`]);
        assert.equal(text, '', how);
      }
    });
  }

  for (const cache of ['ttl:500ms', 'leases', 'strict']) {
    test(`are shown by a mapping with cache=${cache}`, async (t) => {
      const [a, b] = await pair(cache, 'kernel');
      for (const how of ['r', 'rw']) {
        const name = `mapped-${how}-${cache.replace(':', '-')}`;
        // On a busy machine; without the checks it is never shown.
        const { text } = await runOk('python3', ['-c', MAPPED, a.path(name), b.path(name), '20', how]);
        t.diagnostic(`${how}: after ${text.trim().split('\n').join(', ')} s`);
      }
    });
  }
});
