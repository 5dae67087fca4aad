import type { World } from '../base/world.ts';
import type { Answered, KernelCache } from './answered.ts';
import type { FileSystemBackend } from './backend.ts';
import { withDeadline } from './deadline.ts';
import { ErrnoError } from './errno.ts';
import { type FileSystem, type FileSystemOptions, fileSystemOf } from './file-system.ts';
import { MetadataCache } from './metadata/cache.ts';
import { leasesPolicy, STRICT } from './metadata/validity.ts';
import type { Log, Transport, TransportOptions } from './transport.ts';
import { WriteGate } from './write-gate.ts';

export interface MountOptions
  extends Partial<Pick<TransportOptions, 'kernelOptions' | 'present'>>,
    FileSystemOptions {
  readonly directory: string;
  readonly source: string;
  readonly world: World;
  /** The longest that a program under the mount waits for the cluster. */
  readonly limitMs: number;
  readonly xattrs: boolean;
  /** @see TransportOptions.acls; true where it is absent */
  readonly acls?: boolean;
  /** @see TransportOptions.creationTimes; false where it is absent */
  readonly creationTimes?: boolean;
  readonly log: Log;
  /** How long names and attributes are valid, where no `cache` is given. */
  readonly ageMaxMs?: number;
  /** Of the mode `leases`: how long attributes are valid without a recall, in milliseconds. */
  readonly grantedMs?: (attributes: Answered) => number;
}

/** What a running mount may change into. */
export type RemountMode = 'ro' | 'rw';

export interface Mounted {
  /** Resolves when the mount is gone, by whomever, and what was written has arrived. */
  readonly ended: Promise<void>;
  /** Everything written arrives, then the mount goes. */
  unmount(): Promise<void>;
  /**
   * Lets changes pass, or refuses them. Before it is read-only, everything written has arrived.
   *
   * @param isForced also where files are open for writing: writes by their descriptors fail from then on
   * @throws ErrnoError `EBUSY` where files are open for writing; why something has not arrived. Nothing has changed then.
   */
  remount(mode: RemountMode, isForced?: boolean): Promise<void>;
  /** Resolves when the kernel keeps nothing any more of these inodes, which others are about to change. */
  forgotten(inodes: readonly number[]): Promise<void>;
  /** Resolves when the kernel has no attributes of these inodes cached. */
  dropAttributes(inodes: readonly number[]): Promise<void>;
}

/**
 * Puts the volume of `backend` at a directory. The process should do nothing else: every call of every
 * program under the mount goes through its event loop.
 *
 * @throws ServiceError when the cluster or the volume is not there, before anything is mounted
 */
export async function mountVolume(
  backend: FileSystemBackend,
  transport: Transport,
  options: MountOptions,
): Promise<Mounted> {
  const { world, limitMs, log, cache = new MetadataCache(world, options.ageMaxMs) } = options;
  const root = await withDeadline(world, backend.start(), limitMs, 'Reaching the cluster');
  const fileSystem = fileSystemOf(world, backend, root, limitMs, log, { ...options, cache });
  const stop = async (): Promise<void> => {
    await fileSystem.stop();
    await backend.stop();
  };
  try {
    await withDeadline(world, fileSystem.attributes(root), limitMs, 'Looking at the root');
    const { source, xattrs, acls = true, creationTimes = false, directory } = options;
    const { kernelOptions = usualOptions(), present = (same) => same } = options;
    const gate = new WriteGate();
    const mounted = await transport(directory, gate.over(fileSystem), {
      ...{ source, kernelOptions, present, world, limitMs, xattrs, acls, creationTimes, log },
      cache: policyOf(backend, fileSystem, cache.ttlMs, options.grantedMs),
    });
    fileSystem.mounted(mounted);
    // Should the cluster be away when df asks for the first time, there are numbers to tell.
    void fileSystem.space();
    return {
      ended: mounted.ended.then(stop),
      unmount: async () => {
        await fileSystem.drain();
        await mounted.unmount();
      },
      remount: (mode, isForced = false) => remount(world, fileSystem, gate, mode, isForced),
      forgotten: async (inodes) => {
        await Promise.all(inodes.map((inode) => fileSystem.forget(inode)));
        // Of what is written here the kernel holds pages while it waits for us, who wait for those who wait for this.
        await Promise.all([
          mounted.expireNames(inodes),
          ...inodes.map((inode) => mounted.invalidateInode(inode, !fileSystem.isWritten(inode))),
        ]);
      },
      dropAttributes: async (inodes) => {
        await Promise.all(inodes.map((inode) => mounted.dropAttributes(inode)));
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function remount(
  world: World,
  fileSystem: FileSystem,
  gate: WriteGate,
  mode: RemountMode,
  isForced: boolean,
): Promise<void> {
  if (mode === 'rw') {
    gate.open();
    fileSystem.noteReads(true);
    return;
  }
  if (!gate.isOpen) return;
  const assertUnused = (): void => {
    const count = fileSystem.writtenCount();
    if (count === 0 || isForced) return;
    throw new ErrnoError('EBUSY', `${count} ${count === 1 ? 'file is' : 'files are'} open for writing`);
  };
  // A file that a program has closed counts until its bytes have arrived.
  if (fileSystem.writtenCount() > 0) {
    await fileSystem.persistDirectory(fileSystem.root);
    await world.nextTurn();
  }
  // Before the gate is closed, so that no program notices what is refused.
  assertUnused();
  try {
    fileSystem.noteReads(false);
    await gate.close();
    assertUnused();
    await fileSystem.persistDirectory(fileSystem.root);
  } catch (error) {
    gate.open();
    fileSystem.noteReads(true);
    throw error;
  }
}

function policyOf(
  backend: FileSystemBackend,
  fileSystem: FileSystem,
  ttlMs: number,
  grantedMs: MountOptions['grantedMs'],
): KernelCache {
  if (grantedMs !== undefined) return leasesPolicy(grantedMs, backend);
  return ttlMs === 0 ? STRICT : fileSystem.ttlPolicy;
}

function usualOptions(): string[] {
  return process.getuid?.() === 0 ? ['nosuid', 'nodev', 'allow_other'] : ['nosuid', 'nodev'];
}
