import { ServiceError } from '../../base/errors.ts';
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
export function nestedCalls(
  volumes: NestedVolumes,
): Omit<FileSystem, 'trackErrors' | 'numberOf' | 'formerNumberOf' | 'stop'> {
  const { own, rootHandles } = volumes;
  const { root, findsNumbers } = own.fileSystem;
  const of = (inode: number): Volume => volumes.of(inode);
  const ofHandle = (handle: number): Volume => volumes.ofHandle(handle);
  const ofNewName = (parent: number): Volume => {
    assertInVolume(volumes, parent);
    return volumes.of(parent);
  };
  /** Repeats a call at the volume that has become of the inode's directory. What is open stays with the former one. */
  const followed = async <Value>(inode: number, call: () => Promise<Value> | Value): Promise<Value> => {
    try {
      return await call();
    } catch (error) {
      if (!hasMoved(error) || !(await volumes.enterSplit(inode))) throw error;
      return call();
    }
  };
  const held = (found: Answered): Answered | Promise<Answered> => {
    const number = volumes.heldAs(found.inode);
    return number === null ? found : own.fileSystem.attributes(number);
  };
  const crossed = (found: Answered): Answered | Promise<Answered> =>
    found.junction === undefined ? held(found) : volumes.cross(found, found.junction);
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
    findsNumbers,
    ...routed(of, ['space'] as const),
    ...routed(
      of,
      [
        ...(['attributes', 'attributesWithCreation', 'setAttributes', 'truncate', 'readLink'] as const),
        ...(['setFlags', 'touchStatus'] as const),
        ...(['xattr', 'xattrs', 'setXattr', 'removeXattr', 'unlink', 'removeDirectory'] as const),
      ],
      followed,
    ),
    ...routed(ofHandle, [
      ...(['inodeOf', 'read', 'keptPages', 'taken', 'write', 'flush', 'persist'] as const),
      ...(['allocate', 'seek', 'lockHolder', 'lock'] as const),
    ]),
    async lookup(parent, name, thread) {
      if (name === '.' || name === '..') return lookupNumber(parent, name, thread);
      return crossed(await followed(parent, () => of(parent).fileSystem.lookup(parent, name, thread)));
    },
    async lookupToOpen(parent, name) {
      return crossed(await followed(parent, () => of(parent).fileSystem.lookupToOpen(parent, name)));
    },
    link: (inode, parent, name, thread) =>
      followed(parent, async () => {
        // A new file that is open in the former volume is sent first: the link changes its status.
        const number = await of(inode).fileSystem.numberOf(inode);
        assertInVolume(volumes, parent, number);
        return held(await of(parent).fileSystem.link(number, parent, name, thread));
      }),
    rename: (from, to, ...how) =>
      followed(from.parent, () =>
        followed(to.parent, () => {
          assertInVolume(volumes, to.parent, from.parent);
          return of(from.parent).fileSystem.rename(from, to, ...how);
        }),
      ),
    open: (inode, flags, caller) =>
      followed(inode, () => opening(of(inode), of(inode).fileSystem.open(inode, flags, caller))),
    create: (parent, ...how) =>
      followed(parent, () => opening(ofNewName(parent), ofNewName(parent).fileSystem.create(parent, ...how))),
    makeNode: (parent, ...node) =>
      followed(parent, () => ofNewName(parent).fileSystem.makeNode(parent, ...node)),
    makeDirectory: (parent, ...directory) =>
      followed(parent, () => ofNewName(parent).fileSystem.makeDirectory(parent, ...directory)),
    symlink: (parent, ...link) =>
      followed(parent, () => ofNewName(parent).fileSystem.symlink(parent, ...link)),
    createUnnamed: (directory, ...how) =>
      followed(directory, () =>
        opening(ofNewName(directory), ofNewName(directory).fileSystem.createUnnamed(directory, ...how)),
      ),
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
      if (listed === undefined || listed.junction !== undefined) return undefined;
      // Nor does it have the bytes that are not sent yet.
      return volumes.heldAs(listed.inode) === null ? listed : undefined;
    },
    async releaseDirectory(handle) {
      const { fileSystem } = volumes.released(handle);
      const affected = rootHandles.delete(handle) ? volumes.fileSystems() : [fileSystem];
      await allDone(affected.map((each) => each.releaseDirectory(handle)));
    },
    async persistDirectory(inode, handle = 0) {
      if (inode !== root) {
        // A descriptor from before the directory became a volume covers new files that are not sent yet.
        const covered = new Set([of(inode), ...(handle === 0 ? [] : [ofHandle(handle)])]);
        return allDone([...covered].map(({ fileSystem }) => fileSystem.persistDirectory(inode, handle)));
      }
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
  if (volumes.ofNumber(parent) !== volumes.ofNumber(inode))
    throw new ErrnoError('EXDEV', 'The volumes are different');
}

/** Whether the catalog of the volume refused a request because another one has its inode. */
function hasMoved(error: unknown): boolean {
  return error instanceof ServiceError && error.details.movedTo !== undefined;
}

/**
 * Calls of the volume that the first argument names.
 * @param around calls it, perhaps again
 */
function routed<Name extends CallName>(
  volumeOf: (key: number) => Volume,
  names: readonly Name[],
  around: (key: number, call: () => unknown) => unknown = (_key, call) => call(),
): Pick<FileSystemCalls, Name> {
  const entries = names.map((name) => {
    const call = (key: number, a: unknown, b: unknown, c: unknown, d: unknown, e: unknown): unknown =>
      around(key, () => (volumeOf(key).fileSystem[name] as unknown as AnyCall)(key, a, b, c, d, e));
    return [name, call];
  });
  return Object.fromEntries(entries) as Pick<FileSystemCalls, Name>;
}
