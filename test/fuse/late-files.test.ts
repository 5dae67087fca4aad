import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { catalogOfInode } from '../../base/ids.ts';
import type { Attachments } from '../../fuse/attachments.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import { mountVolume } from '../../fuse/mount.ts';
import { withPendingNames } from '../../fuse/pending/pending-names.ts';
import { PendingOps } from '../../fuse/pending/pending-ops.ts';
import type { FileSystemCalls } from '../../fuse/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';
import { MemoryBirths } from './memory-births.ts';
import { A, idleTransport, ROOT } from './nested-mount.ts';

/**
 * Goal: a file that a program has created, and that the mount has not sent when its directory becomes another volume,
 * is one file with one number and all its bytes for every program of the mount.
 */
const USER = { uid: 7, gid: 8 };
const FLAGS = constants.O_RDWR | constants.O_CREAT;

/** A mount of a volume whose directory `d` becomes another volume, in the same memory. */
class SplitMount {
  readonly memory: MemoryBackend;
  readonly births: MemoryBirths;
  readonly #moved = new Set<number>();
  #calls: FileSystemCalls | null = null;
  directory = 0;

  private constructor(memory: MemoryBackend) {
    this.memory = memory;
    this.births = new MemoryBirths(memory);
  }

  static async start(t: TestContext): Promise<SplitMount> {
    const memory = new MemoryBackend();
    const mount = new SplitMount(memory);
    const state = mount.births.state(systemWorld, 1_000);
    memory.byNumber = (inode) => memory.attributes(inode);
    const { births } = mount;
    const named = withPendingNames(systemWorld, births.backend, births, state, () => undefined);
    const backend = { ...named, byNumber: memory.byNumber };
    const transport = idleTransport((calls) => {
      mount.#calls = calls;
    });
    const mounted = await mountVolume(backend, transport, {
      ...{ directory: '/', source: 'leasehold:test', world: systemWorld, limitMs: 5_000, xattrs: true },
      ...{ log: () => undefined, ...state },
      nested: {
        attachments: mount.#attachments(),
        open: () => ({
          ...{ backend: memory, cache: new MetadataCache(systemWorld, 0) },
          pending: new PendingOps(systemWorld),
        }),
      },
    });
    t.after(async () => {
      await mounted.unmount();
      await mounted.ended;
    });
    mount.directory = (await mount.calls.makeDirectory(ROOT, 'd', 0o755, USER)).inode;
    const first = await mount.create('first');
    await mount.calls.flush(first.handle);
    await mount.calls.release(first.handle);
    return mount;
  }

  get calls(): FileSystemCalls {
    assert.ok(this.#calls !== null);
    return this.#calls;
  }

  /** Creates a file with contents. */
  async create(name: string): Promise<{ readonly handle: number; readonly inode: number }> {
    const { handle, attributes } = await this.calls.create(this.directory, name, 0o640, FLAGS, USER);
    await this.calls.write(handle, 0, Buffer.from('contents'), USER);
    return { handle, inode: attributes.inode };
  }

  /** The directory is another volume, which the mount enters. */
  async split(): Promise<void> {
    this.#moved.add(this.directory);
    await this.calls.lookup(this.directory, '.');
  }

  /** What was reserved for the mounted volume is of no use any more. */
  numbersEnd(): void {
    this.births.end();
    this.births.movedTo = A;
  }

  /** The number of the file is one of the new volume. */
  moves(name: string): number {
    const inode = this.memory.inodeAt(this.directory, name);
    assert.ok(inode !== undefined);
    this.#moved.add(inode);
    return inode;
  }

  #attachments(): Attachments {
    return {
      ageMaxMs: 0,
      catalogOf: (inode) => (this.#moved.has(inode) ? A : catalogOfInode(inode)),
      find: async () => null,
      findByNumber: async () => ({
        attachment: { catalog: A, volume: 'a', root: this.directory },
        junctions: [ROOT],
      }),
      refresh: async () => undefined,
      stop: async () => undefined,
    };
  }
}

test('other programs find a file that was not sent before its directory became a volume', async (t) => {
  const mount = await SplitMount.start(t);
  const file = await mount.create('a');
  await mount.split();
  assert.equal((await mount.calls.lookup(mount.directory, 'a')).inode, file.inode);
  const again = await mount.calls.create(mount.directory, 'a', 0o640, FLAGS, USER);
  await mount.calls.release(again.handle);
  await mount.calls.flush(file.handle);
  assert.equal(mount.memory.textAt(mount.directory, 'a'), 'contents');
});

test('a sync of a directory that became a volume sends the files of its open descriptor', async (t) => {
  const mount = await SplitMount.start(t);
  const handle = await mount.calls.openDirectory(mount.directory, 0);
  await mount.split();
  mount.births.movedTo = A;
  await mount.create('a');
  await mount.calls.persistDirectory(mount.directory, handle);
  assert.equal(mount.memory.textAt(mount.directory, 'a'), 'contents');
});

test('listings and look-ups have the number that programs know; links to the former volume are refused', async (t) => {
  const mount = await SplitMount.start(t);
  const { calls, directory } = mount;
  const { handle, inode } = await mount.create('a');
  mount.numbersEnd();
  await calls.flush(handle);
  await mount.split();
  assert.notEqual(mount.moves('a'), inode);
  assert.equal((await calls.lookup(directory, 'a')).inode, inode);
  const listed = await calls.readDirectory(await calls.openDirectory(directory, 0), 0, 100);
  assert.equal(listed.entries.find(({ name }) => name === 'a')?.inode, inode);
  await assert.rejects(calls.link(inode, ROOT, 'x'), { errno: 'EXDEV' });
});
