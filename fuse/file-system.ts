import type { World } from '../base/world.ts';
import type { FileSystemBackend } from './backend.ts';
import type { CallParts } from './calls/call-parts.ts';
import { DirectoryCalls } from './calls/directory-calls.ts';
import { InodeCalls } from './calls/inode-calls.ts';
import { NameCalls } from './calls/name-calls.ts';
import { SpaceCalls } from './calls/space-calls.ts';
import { FileCalls } from './contents/file-calls.ts';
import { FileHandles } from './contents/file-handles.ts';
import { LockCalls } from './contents/lock-calls.ts';
import { OpenFiles } from './contents/open-files.ts';
import { WRITTEN_BYTES_LEAST } from './contents/written-pages.ts';
import { type DeadlineOf, usualDeadline } from './deadline.ts';
import { HandleNumbers } from './handle-numbers.ts';
import { MetadataCache } from './metadata/cache.ts';
import { Directories } from './metadata/directories.ts';
import { Names } from './metadata/names.ts';
import { RemovedDirectories } from './metadata/removed-directories.ts';
import { ttlPolicy } from './metadata/validity.ts';
import { ACCESS_RULE_DEFAULT, type AccessRule, AccessTimes } from './pending/access-times.ts';
import { FLUSH_ALL, PendingOps } from './pending/pending-ops.ts';
import type { Log } from './transport.ts';
import type { FileSystem } from './volume.ts';

export interface FileSystemOptions {
  /** `cache` and `pending` are shared with the backend. */
  readonly cache?: MetadataCache;
  readonly pending?: PendingOps;
  readonly flushBehind?: boolean;
  readonly accessRule?: AccessRule;
  readonly writtenBytesMax?: number;
  readonly deadlineOf?: DeadlineOf;
  /** Shared with the mount's other file systems. */
  readonly handleNumbers?: HandleNumbers;
}

/** @param limitMs of one request to the cluster */
export function fileSystemOf(
  world: World,
  backend: FileSystemBackend,
  root: number,
  limitMs: number,
  log: Log,
  options: FileSystemOptions = {},
): FileSystem & { readonly ttlPolicy: ReturnType<typeof ttlPolicy> } {
  const { cache = new MetadataCache(world), pending = new PendingOps(world) } = options;
  const { flushBehind = false, accessRule = ACCESS_RULE_DEFAULT, deadlineOf = usualDeadline } = options;
  const { writtenBytesMax = WRITTEN_BYTES_LEAST, handleNumbers = new HandleNumbers() } = options;
  const accesses = new AccessTimes(world, backend, accessRule, log, (access) => inodes.accessed(access));
  const shared = { world, backend, limitMs, deadlineOf, log, cache, accesses, pending };
  const files = new OpenFiles(shared, writtenBytesMax);
  const { inodes } = files;
  pending.add('write', files);
  pending.add('access-time', accesses);

  const parts: CallParts = { ...shared, root, files, inodes, removed: new RemovedDirectories(world) };
  const names = new Names(world, backend, inodes);
  const directories = new Directories(names, handleNumbers);
  const handles = new FileHandles(pending.errors, handleNumbers);
  const fileCalls = new FileCalls(shared, files, handles, flushBehind);
  const inodeCalls = new InodeCalls(parts, directories);
  return {
    root,
    findsNumbers: backend.findsNumbers,
    inodeOf: (handle) => directories.inodeOf(handle) ?? fileCalls.inodeOf(handle),
    ...callsOf(new NameCalls(parts, names, fileCalls), [
      ...(['lookup', 'lookupToOpen', 'create', 'makeNode', 'makeDirectory', 'symlink'] as const),
      ...(['createUnnamed', 'link', 'unlink', 'removeDirectory', 'rename'] as const),
    ]),
    ...callsOf(inodeCalls, [
      ...(['attributes', 'attributesWithCreation', 'setAttributes', 'touchStatus'] as const),
      ...(['setFlags', 'truncate', 'readLink'] as const),
      ...(['xattr', 'xattrs', 'setXattr', 'removeXattr'] as const),
    ]),
    ...callsOf(fileCalls, [
      ...(['open', 'read', 'taken', 'keptPages', 'write', 'flush', 'persist', 'release'] as const),
      ...(['allocate', 'seek', 'copyRange'] as const),
    ]),
    ...callsOf(new LockCalls(files, handles, log), ['lockHolder', 'lock']),
    ...callsOf(new DirectoryCalls(parts, directories, inodeCalls), [
      ...(['openDirectory', 'readDirectory', 'listed', 'releaseDirectory', 'persistDirectory'] as const),
      'trackErrors',
    ]),
    ...callsOf(new SpaceCalls(parts), ['space']),
    ttlPolicy: ttlPolicy(cache, cache.ttlMs),
    ...callsOf(files, ['mounted', 'isOpenForWriting']),
    numberOf: (inode) => backend.numberOf(inode),
    formerNumberOf: (inode) => backend.formerNumberOf(inode),
    openForWritingCount: () => files.openForWritingCount,
    enableAccessTimes: (isRecorded) => {
      accesses.isPaused = !isRecorded;
    },
    async forget(inode) {
      cache.attributes.forget(inode);
      await files.openFile(inode)?.source.invalidate();
    },
    async drain() {
      // Programs that have the file open get the failure.
      await files.flush(FLUSH_ALL).catch(() => undefined);
    },
    async stop() {
      await files.stop();
      await accesses.stop();
    },
  };
}

function callsOf<Handler extends object, Call extends keyof Handler>(
  handler: Handler,
  calls: readonly Call[],
): Pick<Handler, Call> {
  const entries = calls.map((call) => [call, (handler[call] as () => unknown).bind(handler)]);
  return Object.fromEntries(entries) as Pick<Handler, Call>;
}
