import type { World } from '../base/world.ts';
import type { Answered, KernelCache } from './answered.ts';
import { type Attachment, type Attachments, NO_ATTACHMENTS } from './attachments.ts';
import type { FileSystemBackend } from './backend.ts';
import { withDeadline } from './deadline.ts';
import { ErrnoError } from './errno.ts';
import { type FileSystemOptions, fileSystemOf } from './file-system.ts';
import { HandleNumbers } from './handle-numbers.ts';
import { MetadataCache } from './metadata/cache.ts';
import { leasesPolicy, STRICT } from './metadata/validity.ts';
import { nestedCalls, nestedPolicy } from './nested/nested-calls.ts';
import { NestedVolumes } from './nested/nested-volumes.ts';
import type { Log, Transport, TransportOptions } from './transport.ts';
import type { Volume } from './volume.ts';
import { WriteGate } from './write-gate.ts';

/** What a volume needs besides its backend. */
export interface VolumeOptions extends FileSystemOptions {
  readonly ageMaxMs?: number;
  /** With `leases`: how long attributes are valid without a recall, in milliseconds. */
  readonly grantedMs?: (attributes: Answered) => number;
}

/** A volume that is attached below the mounted one, with its backend. */
export interface NestedVolume extends VolumeOptions {
  readonly backend: FileSystemBackend;
}

export interface NestedOptions {
  readonly attachments: Attachments;
  /** Called when a program first crosses a junction of the volume. Sends no request. */
  readonly open: (attachment: Attachment) => NestedVolume;
}

export interface MountOptions
  extends Partial<Pick<TransportOptions, 'kernelOptions' | 'present'>>,
    VolumeOptions {
  readonly directory: string;
  readonly source: string;
  readonly world: World;
  readonly limitMs: number;
  readonly xattrs: boolean;
  readonly acls?: boolean;
  readonly creationTimes?: boolean;
  readonly deviceNumber?: number | null;
  readonly log: Log;
  /** Absent: no junction is crossed. */
  readonly nested?: NestedOptions;
}

const NOT_NESTED: NestedOptions = {
  attachments: NO_ATTACHMENTS,
  open: () => {
    throw new Error('No volume was found');
  },
};

export type RemountMode = 'ro' | 'rw';

export interface Mounted {
  /** Resolves when the mount is gone for any reason, and the written bytes are at the cluster. */
  readonly ended: Promise<void>;
  unmount(): Promise<void>;
  /**
   * Switches changes on or off. Before the mount is read-only, all written bytes are stored.
   * @param isForced also with files open for writing: later writes by their descriptors fail
   * @throws ErrnoError `EBUSY` if files are open for writing; why bytes were not stored. Nothing has changed then.
   */
  remount(mode: RemountMode, isForced?: boolean): Promise<void>;
  /** Resolves when the kernel caches nothing of these inodes, which other clients are about to change. */
  invalidate(inodes: readonly number[]): Promise<void>;
  dropAttributes(inodes: readonly number[]): Promise<void>;
}

/**
 * The process should do nothing else: every call under the mount uses its event loop.
 * @throws ServiceError if the cluster or the volume cannot be reached, before anything is mounted
 */
export async function mountVolume(
  backend: FileSystemBackend,
  transport: Transport,
  options: MountOptions,
): Promise<Mounted> {
  const { world, limitMs, log, nested = NOT_NESTED } = options;
  const root = await withDeadline(world, backend.start(), limitMs, 'Reaching the cluster');
  const handleNumbers = new HandleNumbers();
  const begin = (volume: NestedVolume, of: number): Volume =>
    volumeOf({ ...volume, handleNumbers }, of, options);
  const own = begin({ ...options, backend }, root);
  const enter = (attachment: Attachment): Volume => begin(nested.open(attachment), attachment.root);
  const volumes = new NestedVolumes(world, own, nested.attachments, enter, log);
  const fileSystem = nestedCalls(volumes);
  try {
    await withDeadline(world, fileSystem.attributes(root), limitMs, 'The request for the root');
    const { source, xattrs, acls = true, creationTimes = false, deviceNumber = null, directory } = options;
    const { kernelOptions = usualOptions(), present = (same) => same } = options;
    const gate = new WriteGate();
    const mounted = await transport(directory, gate.over(fileSystem), {
      ...{ source, kernelOptions, present, world, limitMs, xattrs, acls, creationTimes, deviceNumber, log },
      ...(options.deadlineOf === undefined ? {} : { deadlineOf: options.deadlineOf }),
      cache: nestedPolicy(volumes),
    });
    fileSystem.mounted(mounted);
    // So that `df` has numbers even if the cluster is away at its first call.
    void fileSystem.space(root);
    return {
      ended: mounted.ended.then(() => volumes.stop()),
      unmount: async () => {
        await fileSystem.drain();
        await mounted.unmount();
      },
      remount: (mode, isForced = false) => remount(world, fileSystem, gate, mode, isForced),
      invalidate: async (inodes) => {
        await Promise.all(inodes.map((inode) => fileSystem.forget(inode)));
        // Not the pages of a file that is written here: the kernel locks them until their write is answered, which may
        // wait for the client that waits for this recall.
        await Promise.all([
          mounted.expireNames(inodes),
          ...inodes.map((inode) => mounted.invalidateInode(inode, !fileSystem.isOpenForWriting(inode))),
        ]);
      },
      dropAttributes: async (inodes) => {
        await Promise.all(inodes.map((inode) => mounted.dropAttributes(inode)));
      },
    };
  } catch (error) {
    await volumes.stop();
    throw error;
  }
}

/** Makes the mount writable or read-only. @throws ErrnoError `EBUSY` if files are open for writing, unless forced */
async function remount(
  world: World,
  fileSystem: ReturnType<typeof nestedCalls>,
  gate: WriteGate,
  mode: RemountMode,
  isForced: boolean,
): Promise<void> {
  if (mode === 'rw') {
    gate.open();
    fileSystem.enableAccessTimes(true);
    return;
  }
  if (!gate.isOpen) return;
  const assertUnused = (): void => {
    const count = fileSystem.openForWritingCount();
    if (count === 0 || isForced) return;
    throw new ErrnoError('EBUSY', `${count} ${count === 1 ? 'file is' : 'files are'} open for writing`);
  };
  // A file that a program has closed counts until its bytes are stored.
  if (fileSystem.openForWritingCount() > 0) {
    await fileSystem.persistDirectory(fileSystem.root);
    await world.nextTick();
  }
  // Checked before the gate closes too, so that a refused remount disturbs no program.
  assertUnused();
  try {
    fileSystem.enableAccessTimes(false);
    await gate.close();
    assertUnused();
    await fileSystem.persistDirectory(fileSystem.root);
  } catch (error) {
    gate.open();
    fileSystem.enableAccessTimes(true);
    throw error;
  }
}

/** Begins the file system of a volume, which from then on ends with `stop`. */
function volumeOf(
  { backend, ...options }: NestedVolume,
  root: number,
  { world, limitMs, log }: Pick<MountOptions, 'world' | 'limitMs' | 'log'>,
): Volume {
  const { cache = new MetadataCache(world, options.ageMaxMs), grantedMs } = options;
  const fileSystem = fileSystemOf(world, backend, root, limitMs, log, { ...options, cache });
  return {
    fileSystem,
    policy: policyOf(backend, fileSystem.ttlPolicy, cache.ttlMs, grantedMs),
    stop: async () => {
      await fileSystem.stop();
      await backend.stop();
    },
  };
}

function policyOf(
  backend: FileSystemBackend,
  ttlPolicy: KernelCache,
  ttlMs: number,
  grantedMs: VolumeOptions['grantedMs'],
): KernelCache {
  if (grantedMs !== undefined) return leasesPolicy(grantedMs, backend);
  return ttlMs === 0 ? STRICT : ttlPolicy;
}

function usualOptions(): string[] {
  return process.getuid?.() === 0 ? ['nosuid', 'nodev', 'allow_other'] : ['nosuid', 'nodev'];
}
