import { allDone } from '../all-done.ts';
import type { Answered, KernelCache } from '../answered.ts';
import { ErrnoError } from '../errno.ts';
import type { FileSystemCalls } from '../transport.ts';
import type { FileSystem, Volume } from '../volume.ts';
import type { NestedVolumes } from './nested-volumes.ts';

type CallName = {
  [Name in keyof FileSystemCalls]: FileSystemCalls[Name] extends (...args: never[]) => unknown ? Name : never;
}[keyof FileSystemCalls];
type AnyCall = (...args: unknown[]) => unknown;

/** One file system of all volumes, which ends with them: each call goes to the volume of its inode or handle. */
export function nestedCalls(volumes: NestedVolumes): Omit<FileSystem, 'trackErrors' | 'stop'> {
  const { own, rootHandles } = volumes;
  const { root, findsNumbers } = own.fileSystem;
  const of = (inode: number): Volume => volumes.of(inode);
  const ofHandle = (handle: number): Volume => volumes.ofHandle(handle);
  const ofNewName = (parent: number): Volume => {
    assertInVolume(volumes, parent);
    return volumes.of(parent);
  };
  const crossed = (found: Answered): Answered | Promise<Answered> =>
    found.junction === undefined ? found : volumes.cross(found, found.junction);
  const opening = async <Opened extends { readonly handle: number }>(
    volume: Volume,
    opened: Promise<Opened>,
  ): Promise<Opened> => {
    const known = await opened;
    volumes.opened(known.handle, volume);
    return known;
  };
  /** Of an inode that the kernel may know from a file handle only. */
  const lookupNumber = async (inode: number, name: '.' | '..', thread?: number): Promise<Answered> => {
    await volumes.enterByNumber(inode);
    const junction = name === '..' ? volumes.junctionOf(inode) : null;
    if (junction !== null) await volumes.enterByNumber(junction);
    const named = junction ?? inode;
    return of(named).fileSystem.lookup(named, name, thread);
  };
  return {
    root,
    hasEntered: () => volumes.fileSystems().length > 1,
    findsNumbers,
    ...routed(of, [
      ...(['attributes', 'attributesWithCreation', 'setAttributes', 'setFlags', 'touchStatus'] as const),
      ...(['truncate', 'readLink', 'xattr', 'xattrs', 'setXattr', 'removeXattr', 'space'] as const),
      ...(['unlink', 'removeDirectory'] as const),
    ]),
    ...routed(ofHandle, [
      ...(['inodeOf', 'read', 'keptPages', 'taken', 'write', 'flush', 'persist'] as const),
      ...(['allocate', 'seek', 'lockHolder', 'lock'] as const),
    ]),
    async lookup(parent, name, thread) {
      if (name === '.' || name === '..') return lookupNumber(parent, name, thread);
      return crossed(await of(parent).fileSystem.lookup(parent, name, thread));
    },
    async lookupToOpen(parent, name) {
      return crossed(await of(parent).fileSystem.lookupToOpen(parent, name));
    },
    async link(inode, parent, name, thread) {
      assertInVolume(volumes, parent, inode);
      return of(inode).fileSystem.link(inode, parent, name, thread);
    },
    async rename(from, to, ...how) {
      assertInVolume(volumes, to.parent, from.parent);
      await of(from.parent).fileSystem.rename(from, to, ...how);
    },
    open(inode, flags, caller) {
      const volume = of(inode);
      return opening(volume, volume.fileSystem.open(inode, flags, caller));
    },
    async create(parent, ...how) {
      const volume = ofNewName(parent);
      return opening(volume, volume.fileSystem.create(parent, ...how));
    },
    async makeNode(parent, ...node) {
      return ofNewName(parent).fileSystem.makeNode(parent, ...node);
    },
    async makeDirectory(parent, ...directory) {
      return ofNewName(parent).fileSystem.makeDirectory(parent, ...directory);
    },
    async symlink(parent, ...link) {
      return ofNewName(parent).fileSystem.symlink(parent, ...link);
    },
    async createUnnamed(directory, ...how) {
      const volume = ofNewName(directory);
      return opening(volume, volume.fileSystem.createUnnamed(directory, ...how));
    },
    async copyRange(from, fromOffset, to, ...how) {
      const volume = ofHandle(from);
      // The kernel then reads and writes.
      if (volume !== ofHandle(to)) throw new ErrnoError('EXDEV', 'The files are of different volumes');
      return volume.fileSystem.copyRange(from, fromOffset, to, ...how);
    },
    release: (handle) => volumes.released(handle).fileSystem.release(handle),
    async openDirectory(inode, flags) {
      const volume = of(inode);
      const handle = await volume.fileSystem.openDirectory(inode, flags);
      volumes.opened(handle, volume);
      if (inode === root) {
        rootHandles.add(handle);
        for (const attached of volumes.fileSystems().slice(1)) attached.trackErrors(handle);
      }
      return handle;
    },
    async readDirectory(handle, offset, countMax) {
      const page = await ofHandle(handle).fileSystem.readDirectory(handle, offset, countMax);
      return { entries: volumes.withRoots(page.entries) };
    },
    listed(parent, name) {
      const listed = of(parent).fileSystem.listed(parent, name);
      // The kernel looks it up when it is used: a listing crosses no junction.
      return listed?.junction === undefined ? listed : undefined;
    },
    async releaseDirectory(handle) {
      const { fileSystem } = volumes.released(handle);
      const affected = rootHandles.delete(handle) ? volumes.fileSystems() : [fileSystem];
      await allDone(affected.map((each) => each.releaseDirectory(handle)));
    },
    async persistDirectory(inode, handle = 0) {
      if (inode !== root) return of(inode).fileSystem.persistDirectory(inode, handle);
      await allDone(volumes.fileSystems().map((each) => each.persistDirectory(each.root, handle)));
    },
    mounted: (kernel) => volumes.mounted(kernel),
    enableAccessTimes: (isRecorded) => volumes.enableAccessTimes(isRecorded),
    isOpenForWriting: (inode) => of(inode).fileSystem.isOpenForWriting(inode),
    openForWritingCount: () =>
      volumes.fileSystems().reduce((count, fileSystem) => count + fileSystem.openForWritingCount(), 0),
    forget: (inode) => of(inode).fileSystem.forget(inode),
    drain: () => allDone(volumes.fileSystems().map((fileSystem) => fileSystem.drain())),
  };
}

/** What the kernel may cache, by the volume of each answer. */
export function nestedPolicy(volumes: NestedVolumes): KernelCache {
  const { attributesMs, nameValidMs, isGranted } = volumes.own.policy;
  const of = (inode: number): KernelCache => volumes.of(inode).policy;
  return {
    attributesMs,
    validMs: (attributes) => of(attributes.inode).validMs(attributes),
    // The name of an attached volume's root is the junction's, in the other volume.
    nameValidMs:
      nameValidMs &&
      ((parent, name, inode) =>
        of(parent).nameValidMs?.(parent, name, volumes.junctionOf(inode) ?? inode) ?? 0),
    isGranted: isGranted && ((directory) => of(directory).isGranted?.(directory) ?? false),
  };
}

/** @throws ErrnoError `EXDEV` for a new name in another volume than the inode's, or in a junction */
function assertInVolume(volumes: NestedVolumes, parent: number, inode = parent): void {
  if (volumes.isInert(parent)) throw new ErrnoError('EXDEV', 'Another volume is to be attached here');
  if (volumes.of(parent) !== volumes.of(inode)) throw new ErrnoError('EXDEV', 'The volumes are different');
}

/** Calls of the volume that the first argument names. */
function routed<Name extends CallName>(
  volumeOf: (key: number) => Volume,
  names: readonly Name[],
): Pick<FileSystemCalls, Name> {
  const entries = names.map((name) => {
    const call = (key: number, a: unknown, b: unknown, c: unknown, d: unknown, e: unknown): unknown =>
      (volumeOf(key).fileSystem[name] as unknown as AnyCall)(key, a, b, c, d, e);
    return [name, call];
  });
  return Object.fromEntries(entries) as Pick<FileSystemCalls, Name>;
}
