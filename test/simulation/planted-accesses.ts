/** Known bugs of access times, each noticed by a test of the mount or of the catalog, and of which moment is the later one; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const CATALOG = 'test/catalog/accesses.test.ts';
const TIMES = 'test/base/times.test.ts';
const MOUNT = 'test/fuse/access-times.test.ts';

export const PLANTED_ACCESSES: readonly Planted[] = [
  replica(
    'access-restored',
    'a read that is told late undoes an access time that was set to what it was',
    {
      file: 'catalog/commands/accesses.ts',
      find: 'return isStrict && inode.changedNs !== inode.modifiedNs;',
      replace: 'return false;',
    },
    {
      test: {
        file: 'test/catalog/accesses.test.ts',
        name: 'a read of before does not count after the access time was set to what it was',
      },
    },
  ),
  replica(
    'access-lowers',
    'a read of which the catalog is told late makes an access time earlier',
    {
      file: 'catalog/commands/accesses.ts',
      find: '!isLater(accessedNs, inode.accessedNs) || mayBeSet',
      replace: 'mayBeSet',
    },
    { test: { file: CATALOG, name: 'it never becomes earlier, nor later than the present' } },
  ),
  replica(
    'access-ahead',
    'whoever may read makes access times as late as he likes',
    {
      file: 'catalog/commands/accesses.ts',
      find: 'earlierNs(timeCheck(access.accessedNs), atNs)',
      replace: 'timeCheck(access.accessedNs)',
    },
    { test: { file: CATALOG, name: 'it never becomes earlier, nor later than the present' } },
  ),
  replica(
    'access-over-set',
    'a read of before takes the place of an access time that somebody has set since',
    {
      file: 'catalog/commands/accesses.ts',
      find: ' || mayBeSet(inode, access, command.unset === true)) continue;',
      replace: ') continue;',
    },
    {
      test: {
        file: CATALOG,
        name: 'a read of before does not count after the access time was set by hand, whatever to',
      },
    },
  ),
  replica(
    'access-changes',
    'a read changes the time of the change of status',
    {
      file: 'catalog/inode-tables.ts',
      find: "'UPDATE inodes SET accessed_ns = ? WHERE id = ?', accessedNs, id);\n  }\n\n  setModified",
      replace:
        "'UPDATE inodes SET accessed_ns = ?, changed_ns = ? WHERE id = ?', accessedNs, accessedNs, id);\n  }\n\n  setModified",
    },
    {
      test: {
        file: CATALOG,
        name: 'an access time becomes later by a read, and nothing else of the inode changes',
      },
    },
  ),
  replica(
    'access-in-snapshot',
    'a snapshot shows what was read after it was made',
    {
      file: 'catalog/inode-tables.ts',
      find: 'noteAccessed(id: number, accessedNs: string): void {\n    this.#snapshots.keepInode(id);',
      replace: 'noteAccessed(id: number, accessedNs: string): void {',
    },
    {
      test: {
        file: 'test/catalog/snapshots.test.ts',
        name: 'snapshots show what was, whatever is done, and go without a trace',
      },
    },
  ),
  replica(
    'access-recalls',
    'each read calls back what others believe of the file',
    {
      file: 'catalog/inode-tables.ts',
      find: 'noteAccessed(id: number, accessedNs: string): void {\n',
      replace: 'noteAccessed(id: number, accessedNs: string): void {\n    this.#changes.touch(id);\n',
    },
    {
      test: {
        file: 'test/server/catalog-touched.test.ts',
        name: 'but those of which only the access time is another: nobody is called back for a read',
      },
    },
  ),
  replica(
    'access-on-its-way',
    'a read that is on its way arrives after the access time that was set by hand',
    {
      file: 'fuse/access-times.ts',
      find: 'while (this.#sending.has(inode)) await this.#sent;',
      replace: '',
    },
    { test: { file: MOUNT, name: 'an access time that is set by hand stays, whatever was read before it' } },
  ),
  replica(
    'access-removed',
    'the cluster is told of reads of files that are gone',
    {
      file: 'fuse/file-system.ts',
      find: 'if (!this.#inodes.isOpen(inode)) this.#accesses.forget(inode);',
      replace: '',
    },
    {
      test: {
        file: MOUNT,
        name: 'many reads are one request, and a file that was removed meanwhile is not in it',
      },
    },
  ),
  replica(
    'access-noatime',
    'what is opened with O_NOATIME counts as read',
    {
      file: 'fuse/open-files.ts',
      find: 'return !unnoted && this.#accesses.read(file.latest);',
      replace: 'return this.#accesses.read(file.latest) || unnoted;',
    },
    {
      test: {
        file: MOUNT,
        name: 'what is opened with O_NOATIME, written, or opened and closed is not read',
      },
    },
  ),
  replica(
    'access-again',
    'what was read again while the cluster was being told does not count there',
    {
      file: 'fuse/access-times.ts',
      find: 'this.#noted.set(inode, { ...next, seen: { ...next.seen, accessedNs } });',
      replace: 'this.#noted.set(inode, next);',
    },
    { test: { file: MOUNT, name: 'what is read again while the cluster is being told counts as well' } },
  ),
  replica(
    'access-newer',
    'what was heard before counts as heard anew when the cluster was told of a read',
    {
      file: 'fuse/open-file.ts',
      find: 'this.#heard = replaced.get(this.#heard) ?? this.#heard;',
      replace: '',
    },
    {
      test: {
        file: 'test/fuse/own-contents.test.ts',
        name: 'that the cluster was told of a read makes nothing newer that was heard before',
      },
    },
  ),
  replica(
    'access-asked-again',
    'a cluster that does not know of reads is told of each',
    {
      file: 'fuse/access-times.ts',
      find: 'this.#offUntilMs = performance.now() + OFF_MS;',
      replace: '',
    },
    {
      test: {
        file: MOUNT,
        name: 'a cluster that does not know of reads is asked once, and again after a while',
      },
    },
  ),
  replica(
    'access-vain',
    'whoever syncs while nobody answers waits twice',
    {
      file: 'fuse/access-times.ts',
      find: 'if (!(await this.#sent)) return;',
      replace: 'await this.#sent;',
    },
    {
      test: {
        file: MOUNT,
        name: 'whoever syncs while the cluster is being asked in vain does not ask it once more',
      },
    },
  ),
  replica(
    'moment-digits',
    'of two moments the one that begins with the larger digit is the later one',
    {
      file: 'base/times.ts',
      find: 'a.length === b.length && ',
      replace: '',
    },
    {
      test: {
        file: TIMES,
        name: 'moments are in the order of their numbers, before 1970 and of fewer digits, too',
      },
    },
  ),
  replica(
    'moment-early',
    'before 1970 the earlier one of two moments is the later one',
    {
      file: 'base/times.ts',
      find: " && !a.startsWith('-') && !b.startsWith('-')",
      replace: '',
    },
    {
      test: {
        file: TIMES,
        name: 'moments are in the order of their numbers, before 1970 and of fewer digits, too',
      },
    },
  ),
];
