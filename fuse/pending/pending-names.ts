import { ServiceError } from '../../base/errors.ts';
import { isLater } from '../../base/times.ts';
import type { World } from '../../base/world.ts';
import { CommandsLost } from '../../client/cluster/unflushed-commands.ts';
import type { Attributes, DelegationBackend, FileSystemBackend } from '../backend.ts';
import { type NameState, namedInode } from '../metadata/delegated-directories.ts';
import type { Log } from '../transport.ts';
import { CAPABILITY_NAME } from '../xattr-names.ts';
import { AsyncUnlinks } from './async-unlinks.ts';
import { DirectoryOps, type DirectoryParts, type PendingState } from './directory-ops.ts';
import { NewFiles } from './new-files.ts';
import { NewNumbers } from './new-numbers.ts';
import { FLUSH_ALL } from './pending-ops.ts';
import type { UnlinkOptions } from './unlinks.ts';

/** Long enough for the requests of one system call: a look-up and the directory's attributes. */
const DELEGATED_MS_MAX = 50;

/** Whether nothing has changed since: every change changes a time. The cluster may lack reads of this mount. */
function hasTimesOf(one: Attributes, other: Attributes | undefined): boolean {
  return other?.changedNs === one.changedNs && !isLater(other.accessedNs, one.accessedNs);
}

function named(attributes: Attributes): NameState[] {
  return [namedInode(attributes)];
}

/**
 * Acknowledges creates and unlinks ahead of the cluster if it may (docs/design/mount.md, "Delegated directories"), and
 * flushes them before calls that depend on them.
 */
export function withPendingNames(
  world: World,
  backend: FileSystemBackend,
  delegation: DelegationBackend,
  state: PendingState,
  log: Log,
  options: UnlinkOptions = {},
): FileSystemBackend {
  const { late = () => undefined, changed = () => Promise.resolve() } = options;
  const { delegations } = state.cache;
  const numbers = new NewNumbers();
  const renumbered = (former: number, inode: number): void => numbers.set(former, inode);
  const parts: DirectoryParts = { ...state, world, backend, delegation, log, late, changed, renumbered };
  const ops = new DirectoryOps(parts, options);
  const newFiles = new NewFiles(parts, ops);
  const unlinks = new AsyncUnlinks(parts, ops);
  const linking =
    (link: FileSystemBackend['link']): FileSystemBackend['link'] =>
    async (inode, parent, name) => {
      const place = { parent, name };
      await Promise.all([ops.flush({ kind: 'inode', inode }), ops.flushName(place)]);
      delegations.linked(inode);
      return ops.changing([place], () => link(inode, parent, name), named);
    };
  const grantedAttributes: FileSystemBackend['grantedAttributes'] = (inode) => {
    const attributes = ops.files.of(inode) === undefined ? backend.grantedAttributes(inode) : undefined;
    return attributes && ops.afterUnlinks(attributes);
  };
  return numbers.over({
    ...backend,
    async stop() {
      await ops.stop();
      await backend.stop();
    },
    lookup: (parent, name) => ops.lookup({ parent, name }),
    async byNumber(inode, which) {
      const uncommitted = which === 'self' ? ops.files.of(inode)?.attributes : undefined;
      return uncommitted ?? backend.byNumber(inode, which);
    },
    async numberOf(inode) {
      await ops.flush({ kind: 'inode', inode });
      return inode;
    },
    async attributes(inode) {
      const uncommitted = ops.files.of(inode);
      if (uncommitted !== undefined) return uncommitted.attributes;
      const estimated = await ops.withUnlinks(inode);
      if (estimated !== null) return estimated;
      await ops.flush({ kind: 'inode', inode }, ['unlink']);
      return backend.attributes(inode);
    },
    granted(parent, name) {
      const attributes = ops.isPendingAt({ parent, name }) ? undefined : backend.granted(parent, name);
      return attributes === undefined || ops.isPendingOf(attributes.inode) ? undefined : attributes;
    },
    grantedAttributes,
    // The kernel must not cache an answer from before the latest change of this mount.
    delegatedAttributesMs: (attributes) =>
      hasTimesOf(attributes, grantedAttributes(attributes.inode))
        ? Math.min(DELEGATED_MS_MAX, delegation.delegatedMs(attributes.inode))
        : 0,
    nameGrantedMs(parent, name, inode) {
      const place = { parent, name };
      if (!ops.isPendingAt(place)) return backend.nameGrantedMs(parent, name, inode);
      return ops.files.at(place)?.inode === inode ? delegation.delegatedMs(parent) : 0;
    },
    isGranted: (directory) => delegation.isDelegated(directory) || backend.isGranted(directory),
    list: (inode, after, countMax) => ops.list(inode, after, countMax),
    createFile: (parent, name, mode, owner, exclusive) =>
      newFiles.create({ parent, name }, mode, owner, exclusive),
    async makeDirectory(parent, name, mode, owner) {
      const place = { parent, name };
      newFiles.prepare();
      const attributes = await ops.changing(
        [place],
        () => backend.makeDirectory(parent, name, mode, owner),
        named,
      );
      ops.requests.created(attributes);
      return attributes;
    },
    makeNode: (parent, name, ...node) =>
      ops.changing([{ parent, name }], () => backend.makeNode(parent, name, ...node), named),
    symlink: (parent, name, target, owner) =>
      ops.changing([{ parent, name }], () => backend.symlink(parent, name, target, owner), named),
    link: linking(backend.link),
    nameFile: linking(backend.nameFile),
    unlink: (parent, name, uid, isOpen = () => false) => unlinks.unlink({ parent, name }, uid, isOpen),
    async removeDirectory(parent, name, inode) {
      const place = { parent, name };
      // Any of them may be in the directory, which would not be empty.
      await ops.flushLogged(FLUSH_ALL);
      // The command reports that this mount has no valid records of it.
      if (inode !== undefined) delegations.endDelegation(inode);
      return ops.changing(
        [place],
        () => backend.removeDirectory(parent, name, inode),
        () => ['free'],
      );
    },
    async rename(from, to, mode, uid) {
      const before = delegations.stateOf(from);
      const isFile = typeof before === 'object' && before.kind === 'file';
      // A directory that is replaced has to be empty.
      if (!isFile) await ops.flushLogged(FLUSH_ALL);
      await Promise.all([ops.flush({ kind: 'name', ...from }), ops.flushName(to)]);
      // Known within one directory, since no other client can have changed the name meanwhile.
      const moved = from.parent === to.parent ? delegations.stateOf(from) : 'unknown';
      // A rename between two names of one file removes neither.
      const leavesNameFree = typeof moved === 'object' && delegations.hasOneName(moved);
      const rename = () => backend.rename(from, to, mode, uid);
      if (mode === 'exchange') return ops.changing([from, to], rename, () => []);
      const after = [
        leavesNameFree ? 'free' : 'unknown',
        typeof moved === 'object' ? moved : 'taken',
      ] as const;
      return ops.changing([from, to], rename, () => after);
    },
    async renameWhiteout(from, to, mode, owner) {
      await ops.flushLogged(FLUSH_ALL);
      await Promise.all([ops.flush({ kind: 'name', ...from }), ops.flushName(to)]);
      return ops.changing(
        [from, to],
        () => backend.renameWhiteout(from, to, mode, owner),
        () => ['taken', 'taken'],
      );
    },
    async setAttributes(inode, changes) {
      const uncommitted = ops.files.of(inode);
      if (uncommitted?.takes(changes) === true) return uncommitted.setAttributes(changes);
      await ops.flush({ kind: 'inode', inode });
      ops.contents.written(inode);
      return ops.changingDirectory(inode, () => backend.setAttributes(inode, changes));
    },
    async setFlags(inode, flags) {
      await ops.flush({ kind: 'inode', inode });
      ops.contents.written(inode);
      return ops.changingDirectory(inode, () => backend.setFlags(inode, flags));
    },
    async xattr(inode, name) {
      // The kernel requests this before the first write, which should stay here.
      if (name === CAPABILITY_NAME && ops.files.of(inode)?.attributes.xattrs === 0)
        throw new ServiceError('no-attribute', `Inode ${inode} has no attribute "${name}"`);
      await ops.flush({ kind: 'inode', inode });
      return backend.xattr(inode, name);
    },
    async xattrs(inode, ...by) {
      await ops.flush({ kind: 'inode', inode });
      return backend.xattrs(inode, ...by);
    },
    async setXattr(inode, ...how) {
      await ops.flush({ kind: 'inode', inode });
      await ops.changingDirectory(inode, () => backend.setXattr(inode, ...how));
    },
    async removeXattr(inode, name) {
      await ops.flush({ kind: 'inode', inode });
      await ops.changingDirectory(inode, () => backend.removeXattr(inode, name));
    },
    // All descriptors of the volume report the loss, not only the one whose sync found it.
    async persistNames(scope) {
      await backend.persistNames(scope).catch((error: unknown) => {
        if (!(error instanceof CommandsLost)) throw error;
        state.pending.errors.set('volume', error);
      });
    },
    isChanging: (inode) => ops.isChanging(inode),
    openFile: (inode, ...rest) => ops.files.of(inode) ?? ops.open(inode, ...rest),
  });
}
