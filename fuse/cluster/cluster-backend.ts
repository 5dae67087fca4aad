import { setMaxListeners } from 'node:events';
import { posix } from 'node:path';
import { assert } from '../../base/assert.ts';
import { reserveBytes } from '../../base/disk-reserve.ts';
import { ServiceError } from '../../base/errors.ts';
import { majority } from '../../base/quorum.ts';
import { CachingClient } from '../../client/cluster/caching-client.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { Delegations } from '../../client/cluster/delegations.ts';
import type { FileLocks } from '../../client/cluster/file-locks.ts';
import { volumeOf } from '../../client/cluster/remote-path.ts';
import type { QueryResults, VolumeInfo } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import { INODE_FLAGS } from '../../wire/inode-flags.ts';
import { parseRetention, RETENTION_FORM } from '../../wire/retention.ts';
import type {
  AttributeChanges,
  Attributes,
  BackendFile,
  BackendLock,
  ContentVersion,
  FileState,
  FileSystemBackend,
  Owner,
  Space,
} from '../backend.ts';
import { ErrnoError, isLockLoss, lockLost } from '../errno.ts';
import { RETAIN_UNTIL } from '../xattr-names.ts';
import { CatalogAvailability } from './catalog-availability.ts';
import { replicatedCapacity } from './replicated-capacity.ts';
import { NAMELESS_USERS, type Users } from './users.ts';

/** Changes that `fsync` of a file also makes durable. Servers flush its first name themselves. */
const FLUSHED_WITH_FILE: ReadonlySet<string> = new Set([
  'rename',
  'rename-whiteout',
  'link',
  'replace',
  'set-attributes',
  'set-xattr',
  'remove-xattr',
]);

/** A primary of an earlier release refuses the command; one of this release lists members that do not know it. */
function isCommandUnknown({ code, details }: ServiceError): boolean {
  return code === 'bad-request' || details.outdated !== undefined;
}

export function isSnapshot(volume: string): boolean {
  return volume.includes('@');
}

/**
 * The client library as the backend of a mount.
 * @param volume its name, or that of a snapshot (`NAME@…`), whose changes an outer backend must refuse
 * @param path directory of the volume that becomes the root
 * @param delegations directories that commands of this mount do not recall from it
 */
export function clusterBackend(
  client: ClusterClient,
  volume: string,
  path = '/',
  delegations: Delegations | null = null,
  users: Users = NAMELESS_USERS,
): FileSystemBackend {
  const caching = client instanceof CachingClient ? client : null;
  const asOwner = (...directories: number[]) => delegations?.asOwner(directories) ?? {};
  let snapshotOption: { readonly snapshot?: number } = {};
  const volumeName = volumeOf(volume);
  const reach = new CatalogAvailability(client.world, () =>
    client.query({ kind: 'volume', name: volumeName }),
  );
  const query: ClusterClient['query'] = (question) =>
    reach.request((limits) => client.query(question, limits));
  const changes = { answered: 0, flushed: 0 };
  const counted =
    (execute: ClusterClient['command']): ClusterClient['command'] =>
    async (change, options) => {
      const result = await reach.request((limits) => execute(change, { ...options, ...limits }));
      if (FLUSHED_WITH_FILE.has(change.kind)) changes.answered++;
      return result;
    };
  const command = counted((change, options) => client.command(change, options));
  /** Of an inode by its number: programs have it open, also when its directory becomes another volume. */
  const commandOfInode = counted((change, options) => client.commandWhereMoved(change, options));
  const findsNumbers = path === '/' && !isSnapshot(volume);
  const byNumber: FileSystemBackend['byNumber'] = async (inode, which) => {
    if (!findsNumbers)
      throw new ServiceError('not-found', `Inode ${inode} cannot be looked up by its number in this mount`);
    if (which === 'parent') return client.resolve(volume, posix.dirname(await pathOf(inode)));
    const { attributes } = await query({ kind: 'attributes', inode });
    // Numbers are unique among all volumes, and a program can forge a handle.
    if (attributes.volume !== volume)
      throw new ServiceError('not-found', `Inode ${inode} is of another volume`);
    return attributes;
  };
  const pathOf = async (inode: number): Promise<string> => {
    const [found] = (await query({ kind: 'paths', inodes: [inode] })).paths;
    if (found?.volume !== volume) throw new ServiceError('not-found', `Inode ${inode} has no path`);
    return found.path;
  };
  const disks = new Map<string, string>();
  return {
    async start() {
      if (path === '/' && !isSnapshot(volume))
        return (await client.query({ kind: 'volume', name: volume })).volume.root;
      const { inode, kind, snapshot } = await client.resolve(volume, path);
      if (kind !== 'directory' || (isSnapshot(volume) && snapshot === undefined))
        throw new ServiceError('not-directory', `Cannot mount ${volume}:${path}: it is not a directory`);
      if (snapshot !== undefined) snapshotOption = { snapshot };
      return inode;
    },
    stop: () => {
      reach.close();
      return client.close();
    },
    isCatalogUnavailable: () => reach.isUnavailable,
    isChanging: () => false,
    delegatedAttributesMs: () => 0,
    findsNumbers,
    byNumber,
    async lookup(parent, name) {
      return (await query({ kind: 'lookup', parent, name, ...snapshotOption })).attributes;
    },
    caches: caching !== null,
    isCached: (parent, name) => caching?.granted(parent, name) !== undefined,
    granted: (parent, name) => caching?.granted(parent, name),
    grantedAttributes: (inode) => caching?.grantedAttributes(inode),
    nameGrantedMs: (parent, name, inode) => caching?.nameValidMs(parent, name, inode) ?? 0,
    isGranted: (directory) => caching?.isGranted(directory) ?? false,
    numberOf: async (inode) => inode,
    formerNumberOf: (inode) => inode,
    async attributes(inode) {
      return (await query({ kind: 'attributes', inode, ...snapshotOption })).attributes;
    },
    list: (inode, after, countMax) => query({ kind: 'list', inode, after, countMax, ...snapshotOption }),
    async createFile(parent, name, mode, owner, exclusive) {
      const place = { parent, name };
      const change = { kind: 'create-file', place, mode, ...ownerOf(owner), exclusive } as const;
      const { created, attributes } = await command(change, asOwner(parent));
      if (created) client.noteCreator(attributes, client.catalogPrimary);
      return { created, attributes };
    },
    async makeDirectory(parent, name, mode, owner) {
      const change = { kind: 'make-directory', place: { parent, name }, mode, ...ownerOf(owner) } as const;
      const requestedAt = delegations?.request() ?? 0;
      const created = await command(change, delegations?.asDirectoryCreator(parent));
      delegations?.learn(created.attributes.inode, created, requestedAt);
      return created.attributes;
    },
    async makeNode(parent, name, type, device, mode, owner) {
      const place = { parent, name };
      const change = { kind: 'make-node', place, type, device, mode, ...ownerOf(owner) } as const;
      return (await command(change, asOwner(parent))).attributes;
    },
    async symlink(parent, name, target, { uid, gid }) {
      const change = { kind: 'symlink', place: { parent, name }, target, uid, gid } as const;
      return (await command(change, asOwner(parent))).attributes;
    },
    async link(inode, parent, name) {
      const change = { kind: 'link', inode, place: { parent, name } } as const;
      return (await command(change, { live: true, ...asOwner(parent) })).attributes;
    },
    async createUnnamed(mode, { uid, gid, umask = 0 }) {
      const change = { kind: 'create-orphan', volume, mode: mode & ~umask, uid, gid } as const;
      const { attributes } = await command(change);
      client.noteCreator(attributes, client.catalogPrimary);
      return attributes;
    },
    async nameFile(inode, parent, name) {
      const change = {
        kind: 'replace',
        inode,
        place: { parent, name },
        expect: { kind: 'nothing' },
      } as const;
      return (await command(change, { live: true, ...asOwner(parent) })).attributes;
    },
    unlink: (parent, name, uid) =>
      command({ kind: 'unlink', place: { parent, name }, by: users.removerText(uid) }, asOwner(parent)),
    removeDirectory: (parent, name, inode = parent) =>
      command({ kind: 'remove-directory', place: { parent, name } }, asOwner(parent, inode)),
    rename: (from, to, mode, uid) =>
      command(
        { kind: 'rename', from, to, mode, by: users.removerText(uid) },
        asOwner(from.parent, to.parent),
      ),
    renameWhiteout(from, to, mode, { uid, gid }) {
      const change = {
        kind: 'rename-whiteout',
        from,
        to,
        mode,
        uid,
        gid,
        by: users.removerText(uid),
      } as const;
      return command(change, asOwner(from.parent, to.parent));
    },
    async setAttributes(inode, changes: AttributeChanges) {
      const change = { kind: 'set-attributes', inode, ...changes } as const;
      return (await commandOfInode(change, { live: true, ...asOwner(inode) })).attributes;
    },
    async setFlags(inode, flags) {
      const clear = INODE_FLAGS.filter((flag) => !flags.includes(flag));
      try {
        return (await commandOfInode({ kind: 'set-flags', inode, set: [...flags], clear }, asOwner(inode)))
          .attributes;
      } catch (error) {
        // The kernel has checked that the inode can have flags.
        if (!(error instanceof ServiceError) || !isCommandUnknown(error)) throw error;
        throw new ErrnoError('EOPNOTSUPP', error.message);
      }
    },
    async recordAccesses(accesses) {
      await command({ kind: 'note-accesses', volume, unset: true, accesses: [...accesses] });
    },
    async keepOrphan(inode) {
      await client.commandWhereMoved({ kind: 'keep-orphan', inode });
    },
    async persistNames(scope) {
      const through = changes.answered;
      if (scope === 'mount' && through === changes.flushed) return;
      await reach.request((limits) => client.flushCatalog(limits));
      changes.flushed = Math.max(changes.flushed, through);
    },
    async xattr(inode, name) {
      return Buffer.from((await query({ kind: 'xattr', inode, name, ...snapshotOption })).value, 'base64');
    },
    async xattrs(inode) {
      return (await query({ kind: 'xattrs', inode, ...snapshotOption })).names;
    },
    async setXattr(inode, name, value, mode, clearsSetgid = false) {
      if (name === RETAIN_UNTIL) {
        const retain = parseRetention(Buffer.from(value).toString().trim());
        if (retain === null) throw new ErrnoError('EINVAL', `Write ${RETENTION_FORM} to ${name}`);
        await commandOfInode({ kind: 'retain', inode, retain }, asOwner(inode));
        return;
      }
      const base64 = Buffer.from(value).toString('base64');
      const more = clearsSetgid ? { clearsSetgid } : {};
      await commandOfInode({ kind: 'set-xattr', inode, name, value: base64, mode, ...more }, asOwner(inode));
    },
    async removeXattr(inode, name) {
      await commandOfInode({ kind: 'remove-xattr', inode, name }, asOwner(inode));
    },
    async space(inode) {
      const [{ volume: info }, { servers }, { servers: reported }, { quotas }] = await Promise.all([
        client.query({ kind: 'volume', name: volumeName }),
        client.query({ kind: 'servers', counts: false }),
        client.status(),
        inode === undefined ? NO_QUOTAS : client.query({ kind: 'quotas-of', inode }).catch(noneIfUnknown),
      ]);
      for (const { id, disk } of reported) if (disk !== undefined) disks.set(id, disk);
      const { totalBytes, freeBytes } = spaceOf(servers, reported, info, (id) => disks.get(id) ?? id);
      return [info, ...quotas].reduce<Space>(withinQuota, { totalBytes, freeBytes, inodes: info.inodes });
    },
    openFile: (inode, replicas, { seq }) =>
      clusterFile(client, inode, { replicas, since: seq, ...snapshotOption }),
  };
}

const NO_QUOTAS: QueryResults['quotas-of'] = { quotas: [] };

/** The file may not be created yet, or the server of an earlier release, which knows no quotas of directories. */
function noneIfUnknown(error: unknown): QueryResults['quotas-of'] {
  if (error instanceof ServiceError && (error.code === 'not-found' || error.code === 'bad-request'))
    return NO_QUOTAS;
  throw error;
}

/** Space by one more quota: as much as is left of it, if that is less. */
function withinQuota(
  space: Space,
  {
    quotaBytes,
    quotaInodes,
    namedBytes,
    namedInodes,
  }: Pick<VolumeInfo, 'quotaBytes' | 'quotaInodes' | 'namedBytes' | 'namedInodes'>,
): Space {
  const leftBytes = quotaBytes === 0 ? Number.POSITIVE_INFINITY : Math.max(0, quotaBytes - namedBytes);
  const leftInodes = quotaInodes === 0 ? Number.POSITIVE_INFINITY : Math.max(0, quotaInodes - namedInodes);
  const isLessBytes = leftBytes < space.freeBytes;
  const isLessInodes = leftInodes < (space.freeInodes ?? Number.POSITIVE_INFINITY);
  return {
    ...space,
    totalBytes: quotaBytes === 0 ? space.totalBytes : Math.min(space.totalBytes, quotaBytes),
    ...(isLessBytes ? { freeBytes: leftBytes, isQuota: true as const } : {}),
    ...(isLessInodes ? { freeInodes: leftInodes, inodes: namedInodes } : {}),
  };
}

interface Disk extends Pick<Space, 'totalBytes' | 'freeBytes'> {
  readonly id: string;
  /** `out`: its server has left the cluster. */
  readonly state: string;
}

/**
 * How many bytes of contents all servers can store, and how many more, with each byte on several of them
 * ({@link replicatedCapacity}). A server without an answer counts by its last report, a disk of several servers once.
 * @param reported current reports of servers
 * @param diskOf the same key for all servers of one disk
 */
function spaceOf(
  servers: readonly Disk[],
  reported: readonly Omit<Disk, 'state'>[],
  { replicas, policy }: { readonly replicas: number } & Pick<Attributes, 'policy'>,
  diskOf: (server: string) => string,
): Pick<Space, 'totalBytes' | 'freeBytes'> {
  const current = servers
    .filter(({ state }) => state !== 'out')
    .map((server) => reported.find(({ id, totalBytes }) => id === server.id && totalBytes > 0) ?? server);
  // Servers that share a disk have measured it at different times.
  const disks = [...Map.groupBy(current, ({ id }) => diskOf(id)).values()];
  const needed = policy === 'all' ? replicas : majority(replicas);
  const capacity = (of: (sharers: typeof current) => number): number =>
    replicatedCapacity(
      disks.map((sharers) => ({ bytes: of(sharers), servers: sharers.length })),
      replicas,
      needed,
    );
  // The servers' reserve takes no contents.
  const usable = ({ freeBytes, totalBytes }: (typeof current)[number]): number =>
    Math.max(0, freeBytes - reserveBytes(totalBytes));
  return {
    totalBytes: capacity((sharers) => Math.max(...sharers.map(({ totalBytes }) => totalBytes))),
    freeBytes: capacity((sharers) => Math.min(...sharers.map(usable))),
  };
}

/** Without the other fields of a `Caller`, which the catalog would refuse. */
function ownerOf({ uid, gid, umask }: Owner): Owner {
  return { uid, gid, ...(umask === undefined ? {} : { umask }) };
}

/** Node warns of more than ten listeners; many changes of a file are under way at once, and each adds one. */
function abortControllerForMany(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

function clusterFile(
  client: ClusterClient,
  inode: number,
  options: { readonly replicas: readonly string[]; readonly since: number; readonly snapshot?: number },
): BackendFile {
  const handle = client.openFile(inode, { ...options, locks: () => locks });
  const { replicas } = options;
  let locks: FileLocks | null = null;
  let lockLoss = abortControllerForMany();
  let written: ContentVersion | null = null;
  /**
   * Makes a change. If locks on the file are lost meanwhile, it fails and is not repeated: their next holder may have
   * changed what the program has read. An answer after the loss does not say whether the change came before it.
   */
  const unlessLocksLost = async <State extends FileState>(
    change: (options: { readonly signal?: AbortSignal }) => Promise<State>,
  ): Promise<State> => {
    const { signal } = lockLoss;
    const state = await change(locks === null ? {} : { signal }).catch((error: unknown) => {
      throw isLockLoss(error) ? lockLost() : error;
    });
    locks?.checkExpiry();
    signal.throwIfAborted();
    if (written === null || contentVersionCompare(state.contents, written) > 0) written = state.contents;
    return state;
  };
  return {
    async read(offset, length) {
      const { bytes } = await handle.read(offset, length);
      assert(bytes.length <= length, 'No more is answered than was asked for');
      return bytes;
    },
    range: (offset, length) => handle.range(offset, length),
    write: (offset, parts, expect) =>
      unlessLocksLost((how) =>
        handle.write(offset, parts, { ...how, ...(expect && { ifContents: expect }) }),
      ),
    writeParts: (parts) => unlessLocksLost((how) => handle.writeParts(parts, how)),
    append: (bytes) => unlessLocksLost((how) => handle.write('append', bytes, how)),
    truncate: (sizeBytes) => unlessLocksLost((how) => handle.truncate(sizeBytes, how)),
    punch: (from, to, grows) => unlessLocksLost((how) => handle.punch(from, to, grows, how)),
    seek: async (offset, what) => (await handle.extent(offset, what)).found,
    async copyFrom(source, fromOffset, toOffset, length) {
      const state = await unlessLocksLost((how) =>
        handle.copyFrom({ from: source, fromOffset, toOffset, length }, how),
      );
      return { copiedBytes: state.offset - toOffset, state };
    },
    ensureCommitted: async () => undefined,
    staysUncommitted: () => false,
    flush: () => handle.flush(),
    async seal() {
      // Refused by the primary if another client has written since, however late the request arrives.
      await handle.seal(written === null ? {} : { ifContents: written });
    },
    settle: () => client.settleSoon(handle),
    openLocks(report) {
      const onLost = (lostLocks: readonly BackendLock[]): void => {
        lockLoss.abort(lockLost());
        lockLoss = abortControllerForMany();
        report(lostLocks);
      };
      locks = client.fileLocks(inode, { lost: (_file, lost) => onLost(lost) }, { replicas });
      return locks;
    },
    state: () => handle.state(),
  };
}
