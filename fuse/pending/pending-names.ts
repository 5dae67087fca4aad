import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { CommandsLost } from '../../client/unflushed-commands.ts';
import type { Attributes, BirthBackend, FileSystemBackend } from '../backend.ts';
import { type NameState, namedInode } from '../metadata/delegated-directories.ts';
import type { Log } from '../transport.ts';
import { CAPABILITY_NAME } from '../xattr-names.ts';
import { DirectoryOps, type PendingState } from './directory-ops.ts';
import { FLUSH_ALL } from './pending-ops.ts';
import type { UnlinkOptions } from './unlinks.ts';

function named(attributes: Attributes): NameState[] {
  return [namedInode(attributes)];
}

/**
 * A volume of which new files are first made here, where that can be: the cluster hears of each with all of its contents
 * (docs/design/mount.md, "Delegated directories"). Whatever needs such a file at the cluster waits until it is there.
 */
export function withPendingNames(
  world: World,
  backend: FileSystemBackend,
  birth: BirthBackend,
  state: PendingState,
  log: Log,
  options: UnlinkOptions = {},
): FileSystemBackend {
  const files = new DirectoryOps(world, backend, birth, state, log, options);
  return {
    ...backend,
    async stop() {
      await files.stop();
      await backend.stop();
    },
    lookup: (parent, name) => files.lookup({ parent, name }),
    async attributes(inode) {
      const uncommitted = files.uncommitted(inode);
      if (uncommitted !== undefined) return uncommitted.attributes;
      const estimated = await files.withUnlinks(inode);
      if (estimated !== null) return estimated;
      await files.flush({ kind: 'inode', inode }, ['unlink']);
      return backend.attributes(inode);
    },
    list: (inode, after, countMax) => files.list(inode, after, countMax),
    createFile: (parent, name, mode, owner, exclusive) =>
      files.create({ parent, name }, mode, owner, exclusive),
    async makeDirectory(parent, name, mode, owner) {
      const place = { parent, name };
      files.prepare();
      const attributes = await files.changing(
        [place],
        () => backend.makeDirectory(parent, name, mode, owner),
        named,
      );
      files.madeDirectory(attributes);
      return attributes;
    },
    makeNode: (parent, name, ...node) =>
      files.changing([{ parent, name }], () => backend.makeNode(parent, name, ...node), named),
    symlink: (parent, name, target, owner) =>
      files.changing([{ parent, name }], () => backend.symlink(parent, name, target, owner), named),
    async link(inode, parent, name) {
      const place = { parent, name };
      await Promise.all([files.flush({ kind: 'inode', inode }), files.flush({ kind: 'name', ...place })]);
      files.linked(inode);
      return files.changing([place], () => backend.link(inode, parent, name), named);
    },
    unlink: (parent, name, uid, isOpen = () => false) => files.unlink({ parent, name }, uid, isOpen),
    async removeDirectory(parent, name, inode) {
      const place = { parent, name };
      // It may be the directory of any of them, and would not be empty.
      await files.flushLogged(FLUSH_ALL);
      // The command says that this mount believes nothing of it any more.
      if (inode !== undefined) files.letGo(inode);
      return files.changing(
        [place],
        () => backend.removeDirectory(parent, name, inode),
        () => ['free'],
      );
    },
    async rename(from, to, mode, uid) {
      const before = files.stateOf(from);
      const isFile = typeof before === 'object' && before.kind === 'file';
      // A directory that is replaced has to be empty.
      const names = [from, to].map((place) => ({ kind: 'name', ...place }) as const);
      if (isFile) await Promise.all(names.map((name) => files.flush(name)));
      else await files.flushLogged(FLUSH_ALL);
      // Which inode it is is known where no other client can have changed the name meanwhile.
      const moved = from.parent === to.parent ? files.stateOf(from) : 'unknown';
      // Of two names of one file none is gone.
      const isGone = typeof moved === 'object' && files.hasOneName(moved);
      const rename = () => backend.rename(from, to, mode, uid);
      if (mode === 'exchange') return files.changing([from, to], rename, () => []);
      const after = [isGone ? 'free' : 'unknown', typeof moved === 'object' ? moved : 'taken'] as const;
      return files.changing([from, to], rename, () => after);
    },
    async renameWhiteout(from, to, mode, owner) {
      await files.flushLogged(FLUSH_ALL);
      return files.changing(
        [from, to],
        () => backend.renameWhiteout(from, to, mode, owner),
        () => ['taken', 'taken'],
      );
    },
    async setAttributes(inode, changes) {
      const uncommitted = files.uncommitted(inode);
      if (uncommitted?.takes(changes) === true) return uncommitted.setAttributes(changes);
      await files.flush({ kind: 'inode', inode });
      files.writing(inode);
      return files.changingDirectory(inode, () => backend.setAttributes(inode, changes));
    },
    async xattr(inode, name) {
      // The kernel asks for a capability before the first write, which is to stay here.
      if (name === CAPABILITY_NAME && files.uncommitted(inode)?.attributes.xattrs === 0)
        throw new ServiceError('no-attribute', `Inode ${inode} has no attribute "${name}"`);
      await files.flush({ kind: 'inode', inode });
      return backend.xattr(inode, name);
    },
    async xattrs(inode, ...by) {
      await files.flush({ kind: 'inode', inode });
      return backend.xattrs(inode, ...by);
    },
    async setXattr(inode, ...how) {
      await files.flush({ kind: 'inode', inode });
      await files.changingDirectory(inode, () => backend.setXattr(inode, ...how));
    },
    async removeXattr(inode, name) {
      await files.flush({ kind: 'inode', inode });
      await files.changingDirectory(inode, () => backend.removeXattr(inode, name));
    },
    // Each descriptor of the volume reports the loss, not only the one whose sync has found it.
    async persistNames(scope) {
      await backend.persistNames(scope).catch((error: unknown) => {
        if (!(error instanceof CommandsLost)) throw error;
        state.pending.errors.set('volume', error);
      });
    },
    isChanging: (inode) => files.isChanging(inode),
    openFile: (inode, ...rest) => files.uncommitted(inode) ?? files.open(inode, ...rest),
  };
}
