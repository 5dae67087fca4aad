/** Known bugs of the lesser effects that calls have, and of the list of attributes; each noticed by a test of what answers the kernel; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const CALLS = 'test/fuse/call-details.test.ts';
const FACTS = 'test/fuse/facts.test.ts';

export const PLANTED_DETAILS: readonly Planted[] = [
  replica(
    'open-emptied',
    'a file that is opened for reading with O_TRUNC keeps what it has',
    {
      file: 'fuse/open-files.ts',
      find: 'else if (truncates) await this.truncate(inode, 0, caller, false);',
      replace: '',
    },
    {
      test: {
        file: CALLS,
        name: 'a file that is opened with O_TRUNC is emptied, also where it is opened for reading',
      },
    },
  ),
  replica(
    'open-special',
    'a pipe that another mount has given the name of a file is opened as a file',
    {
      file: 'fuse/open-files.ts',
      find: "if (attributes.kind !== 'file') throw new ErrnoError('ENXIO',",
      replace: "if (attributes.kind === 'directory') throw new ErrnoError('ENXIO',",
    },
    {
      test: {
        file: CALLS,
        name: 'a name that is another mount’s pipe or socket by now is not opened as a file',
      },
    },
  ),
  replica(
    'status-untold',
    'a chown with neither an owner nor a group is answered, and changes nothing',
    {
      file: 'fuse/kernel/session.ts',
      find: '? this.#calls.touchStatus(inode, caller(killsPrivileges))',
      replace: '? this.#calls.attributes(inode)',
    },
    {
      test: {
        file: 'test/fuse/kernel/session.test.ts',
        name: 'a request that sets nothing, as of chown with neither an owner nor a group, is a change of status',
      },
    },
  ),
  replica(
    'status-privileges',
    'a chown of nothing leaves a program its set-id bits',
    {
      file: 'fuse/inodes.ts',
      find: "kind === 'directory' || !isOwner ? mode : withoutPrivileges(mode)",
      replace: 'mode',
    },
    {
      test: {
        file: CALLS,
        name: 'a change of nothing is one of status, and takes the set-id bits of a program away where it is the owner’s or root’s',
      },
    },
  ),
  replica(
    'allocate-there',
    'whoever allocates what is there already leaves the times as they were',
    {
      file: 'fuse/open-files.ts',
      find: 'if (end <= sizeBytes) return this.#touch(file, caller);',
      replace: 'if (end <= sizeBytes) return;',
    },
    {
      test: {
        file: CALLS,
        name: 'to allocate what is there already, or beyond a size that is kept, changes the times and nothing else',
      },
    },
  ),
  replica(
    'allocate-beyond',
    'whoever allocates beyond a size that is kept leaves the times as they were',
    {
      file: 'fuse/open-files.ts',
      find: 'if (mode === FALLOC_FL_KEEP_SIZE) return this.#touch(file, caller);',
      replace: 'if (mode === FALLOC_FL_KEEP_SIZE) return;',
    },
    {
      test: {
        file: CALLS,
        name: 'to allocate what is there already, or beyond a size that is kept, changes the times and nothing else',
      },
    },
  ),
  replica(
    'seek-beyond',
    'whoever seeks data beyond all files is told that the file is too large',
    {
      file: 'fuse/kernel/requests.ts',
      find: "...readPlace(bytes, at, 'ENXIO'), whence",
      replace: '...readPlace(bytes, at), whence',
    },
    {
      test: {
        file: 'test/fuse/kernel/requests.test.ts',
        name: 'names that are not UTF-8, and positions beyond what a file may have, are refused',
      },
    },
  ),
  replica(
    'write-counted',
    'a write that survives a loss of power is counted when its memory was given back, and has no bytes then',
    {
      file: 'fuse/open-files.ts',
      find: 'await this.#written(handle, opened);\n    return length;',
      replace: 'await this.#written(handle, opened);\n    return bytes.length;',
    },
    {
      test: {
        file: CALLS,
        name: 'what is written to survive a loss of power is counted, although its memory is given back when it is there',
      },
    },
  ),
  replica(
    'xattr-trusted',
    'names of trusted attributes are listed to everybody',
    {
      file: 'fuse/file-system.ts',
      find: 'return uid === 0 ? names : names.filter((name) => !isTrusted(name));',
      replace: 'return uid === 0 ? names : [...names];',
    },
    { test: { file: CALLS, name: 'names of trusted attributes are root’s to see' } },
  ),
  replica(
    'xattr-nameless',
    'a namespace of attributes is taken for an attribute',
    {
      file: 'fuse/file-system.ts',
      find: 'if (isNamespaceAlone(name)) throw',
      replace: 'if (isNamespaceAlone(name.slice(1))) throw',
    },
    { test: { file: CALLS, name: 'a namespace of attributes is no attribute' } },
  ),
  replica(
    'facts-copied',
    'programs that copy all attributes find facts among them',
    {
      file: 'fuse/facts.ts',
      find: "listing === 'auto' ? await isOfProgramThatShows(thread) : listing === 'listed';",
      replace: "listing !== 'hidden' || (await isOfProgramThatShows(-thread));",
    },
    {
      test: { file: FACTS, name: 'facts are in the list for the program that shows them, and for no other' },
    },
  ),
  replica(
    'facts-asker',
    'nobody learns which program asks for the list, and facts are in none',
    {
      file: 'fuse/file-system.ts',
      find: 'await this.#backend.xattrs(inode, thread);',
      replace: 'await this.#backend.xattrs(inode);',
    },
    {
      test: { file: FACTS, name: 'facts are in the list for the program that shows them, and for no other' },
    },
  ),
  replica(
    'facts-births',
    'where new files may be made here, nobody learns which program asks for the list',
    {
      file: 'fuse/birth-backend.ts',
      find: 'return backend.xattrs(inode, ...by);',
      replace: 'return backend.xattrs(inode);',
    },
    {
      test: { file: FACTS, name: 'facts are in the list for the program that shows them, and for no other' },
    },
  ),
  replica(
    'facts-set',
    'whoever sets a fact is told that it is set, and it is hidden behind what the cluster says',
    {
      file: 'fuse/file-system.ts',
      find: "if (kind !== 'kept' && kind !== 'acl')",
      replace: "if (kind === 'none')",
    },
    {
      test: {
        file: FACTS,
        name: 'facts are neither set nor removed, and those that an inode has not are absent',
      },
    },
    {
      also: [
        {
          file: 'fuse/facts.ts',
          find: 'refuseFact(name);\n      await backend.setXattr',
          replace: 'await backend.setXattr',
        },
      ],
    },
  ),
];
