/** Known bugs of how a mount begins and ends, and of what it says of the room that there is; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const UNMOUNT = 'test/client/unmount.test.ts';
const MOUNT = 'test/client/mount.test.ts';
const OPTIONS = 'test/client/mount-options.test.ts';
const SPACE = 'test/fuse/cluster-space.test.ts';
const SHARED = 'test/fuse/space.test.ts';
const ERRORS = 'test/fuse/write-errors.test.ts';

export const PLANTED_MOUNTS: readonly Planted[] = [
  replica(
    'umount-loss',
    'a mount goes although not all that was written is stored',
    {
      file: 'client/unmount.ts',
      find: 'if (isLost && !lazy) {',
      replace: 'if (isLost && lazy) {',
    },
    {
      test: {
        file: UNMOUNT,
        name: 'what could not be stored is said before the mount goes, which it does the next time',
      },
    },
  ),
  replica(
    'umount-silent',
    'that a mount which goes lazily has lost something nobody is told',
    {
      file: 'client/unmount.ts',
      find: '  if (isLost) {\n    const why',
      replace: '  if (isLost && !lazy) {\n    const why',
    },
    { test: { file: UNMOUNT, name: '--lazy gives up what could not be stored, and says so' } },
  ),
  replica(
    'umount-kept',
    'what a mount has lost that another namespace keeps is passed over',
    {
      file: 'client/unmount.ts',
      find: '  if (isLost) {\n    const why',
      replace: '  if (isLost && !isElsewhere) {\n    const why',
    },
    {
      test: {
        file: UNMOUNT,
        name: 'where a mount is kept on another directory, what is stored is said, and what is lost, and who keeps it',
      },
    },
  ),
  replica(
    'umount-held',
    'whoever holds a mount that is detached loses what he writes then',
    {
      file: 'client/unmount.ts',
      find: 'await detach(directory, lazy);\n  const holders',
      replace:
        "await detach(directory, lazy);\n  for (const pid of daemons) process.kill(pid, 'SIGTERM');\n  const holders",
    },
    {
      test: {
        file: UNMOUNT,
        name: 'whoever holds what was detached reads and writes on, and what he writes is stored',
      },
    },
  ),
  replica(
    'umount-twice',
    'umount waits for as long as it may for each of its steps',
    {
      file: 'client/unmount.ts',
      find: 'if (performance.now() > wait.untilMs) throw',
      replace: 'if (performance.now() > wait.untilMs + wait.timeoutMs) throw',
    },
    {
      test: {
        file: UNMOUNT,
        name: 'a process that answers nothing is not waited for for longer than that, and left to store what it has',
      },
    },
  ),
  replica(
    'umount-number',
    'whatever has got the number of a mount that is gone is taken for that',
    {
      file: 'client/mount-table.ts',
      find: 'holder.namespace === namespace && holder.directory === directory',
      replace: 'holder.namespace === namespace',
    },
    {
      test: {
        file: 'test/client/mount-table.test.ts',
        name: 'what has got the number of a file system that was unmounted is not taken for that',
      },
    },
  ),
  replica(
    'umount-hanging',
    'what a mount that answers nothing has stored is waited for for longer than anybody has said',
    {
      file: 'client/unmount.ts',
      find: "await run('env', ['LC_ALL=C', 'sync', directory], leftMs(wait));",
      replace: "await run('env', ['LC_ALL=C', 'sync', directory], 3 * wait.timeoutMs);",
    },
    {
      test: {
        file: UNMOUNT,
        name: 'a process that answers nothing is not waited for for longer than that, and left to store what it has',
      },
    },
  ),
  replica(
    'umount-users',
    'who uses a mount by a program that lies there is not named',
    {
      file: 'client/mount-table.ts',
      find: 'const path = /^(?:\\S+\\s+){5}(\\/.*)$/.exec(line)?.[1] ?? null;',
      replace: 'const path = line === null ? line : null;',
    },
    {
      test: {
        file: UNMOUNT,
        name: 'whoever uses a mount is named: by what is open or mapped, by a directory, and by what is mounted inside',
      },
    },
  ),
  replica(
    'umount-lines',
    'what a program was started with is written as it is, to a terminal that obeys it',
    { file: 'client/unmount.ts', find: ".replaceAll(/\\p{Cc}/gu, '?')", replace: '' },
    {
      test: {
        file: UNMOUNT,
        name: 'whoever uses a mount is named: by what is open or mapped, by a directory, and by what is mounted inside',
      },
    },
  ),
  replica(
    'mount-hanging',
    'whoever mounts on a mount that does not answer waits for it himself, and for ever',
    { file: 'client/mount.ts', find: "await run('stat', [directory], LOOK_TIMEOUT_MS);", replace: '' },
    {
      test: {
        file: MOUNT,
        name: 'a mount that does not answer is looked at for a while, and said to be one',
      },
    },
  ),
  replica(
    'mount-remount',
    'whoever asks for a remount is told the option that comes nearest to that word',
    {
      file: 'client/mount-options.ts',
      find: "if (options.some(({ name }) => name === 'remount')) throw",
      replace: "if (options.some(({ name }) => name === '')) throw",
    },
    {
      test: {
        file: OPTIONS,
        name: 'an unknown option is named, together with the one that comes nearest',
      },
    },
  ),
  replica(
    'mount-unit',
    'an age without a unit, as in ttl:1, is taken for one of milliseconds',
    {
      file: 'client/mount-options.ts',
      find: 'const ageMs = withUnitMs(duration);',
      replace: 'const ageMs = parseDurationMs(duration);',
    },
    { test: { file: OPTIONS, name: 'values are looked at' } },
  ),
  replica(
    'space-reserve',
    'what servers keep for themselves is told as room, though they refuse to fill it',
    {
      file: 'fuse/cluster-backend.ts',
      find: 'Math.max(0, freeBytes - reserveBytes(totalBytes));',
      replace: 'Math.max(totalBytes * 0, freeBytes);',
    },
    {
      test: {
        file: SPACE,
        name: 'what servers keep for themselves is no room, on a small disk neither, and a disk that is full takes none from others',
      },
    },
  ),
  replica(
    'space-small',
    'of a small disk a server keeps all for itself',
    {
      file: 'base/disk-reserve.ts',
      find: 'return Math.min(RESERVE_BYTES, totalBytes * RESERVE_SHARE);',
      replace: 'return Math.max(RESERVE_BYTES, totalBytes * RESERVE_SHARE * 0);',
    },
    {
      test: {
        file: SPACE,
        name: 'what servers keep for themselves is no room, on a small disk neither, and a disk that is full takes none from others',
      },
    },
  ),
  replica(
    'space-full',
    'a disk that is full takes away room that others have',
    {
      file: 'fuse/cluster-backend.ts',
      find: 'Math.max(0, freeBytes - reserveBytes(totalBytes));',
      replace: 'freeBytes - reserveBytes(totalBytes);',
    },
    {
      test: {
        file: SPACE,
        name: 'what servers keep for themselves is no room, on a small disk neither, and a disk that is full takes none from others',
      },
    },
  ),
  replica(
    'space-unequal',
    'the room of disks is their sum over the number of copies, however they differ',
    {
      file: 'fuse/replicated-room.ts',
      find: 'if (above < wanted) allBytes',
      replace: 'if (above === 0) allBytes',
    },
    { test: { file: SPACE, name: 'room is what all copies have, or as many as a write waits for' } },
  ),
  replica(
    'space-lagging',
    'there is no room where one copy of three has none, though writes wait for two',
    {
      file: 'fuse/replicated-room.ts',
      find: 'Math.max(allBytes, neededBytes)',
      replace: 'Math.max(allBytes, neededBytes * 0)',
    },
    { test: { file: SPACE, name: 'room is what all copies have, or as many as a write waits for' } },
  ),
  replica(
    'space-silent',
    'the disk of a server that is silent is no room',
    {
      file: 'fuse/cluster-backend.ts',
      find: '&& totalBytes > 0) ?? server);',
      replace: '&& totalBytes > 0) ?? { ...server, totalBytes: 0, freeBytes: 0 });',
    },
    {
      test: {
        file: SPACE,
        name: 'a server that is silent counts with what it said last, and one that is out does not',
      },
    },
  ),
  replica(
    'space-shared',
    'the room of a disk counts once for each server that stores on it',
    {
      file: 'fuse/cluster-backend.ts',
      find: '(id) => disks.get(id) ?? id);',
      replace: '(id) => id);',
    },
    {
      test: {
        file: SHARED,
        name: 'the room of a disk that servers share is there once, also while one of them is silent',
      },
    },
  ),
  replica(
    'space-shared-silent',
    'a server that is silent is taken for one with a disk of its own',
    {
      file: 'fuse/cluster-backend.ts',
      find: 'if (disk !== undefined) disks.set(id, disk);',
      replace: 'disks.set(id, disk ?? id);',
    },
    {
      test: {
        file: SHARED,
        name: 'the room of a disk that servers share is there once, also while one of them is silent',
      },
    },
  ),
  replica(
    'space-named',
    'servers that store on one disk say that it is one for each',
    {
      file: 'server/storage/data-folder.ts',
      find: 'const { dev } = fs.statSync(folder);',
      replace: 'const dev = folder;',
    },
    {
      test: {
        file: 'test/storage/data-folder.test.ts',
        name: 'says the same of the disk as another one on it, within one start of the machine',
      },
    },
  ),
  replica(
    'untold-twice',
    'what a close that waits for nothing did not tell is told by each fsync of the root',
    {
      file: 'fuse/open-files.ts',
      find: '    this.#untold = undefined;\n    if (error',
      replace: '    if (error',
    },
    {
      test: {
        file: ERRORS,
        name: 'what a close that waits for nothing did not tell is told by the next fsync of the root, once',
      },
    },
  ),
  replica(
    'untold-told',
    'what a sync of all has told already is told by the next one, too',
    {
      file: 'fuse/open-files.ts',
      find: 'this.#toldToAll.get(opened.file) ?? 0',
      replace: '0 * (this.#toldToAll.get(opened.file) ?? 0)',
    },
    {
      test: {
        file: ERRORS,
        name: 'what a sync of all has told is not left to the next one by whoever closes later',
      },
    },
  ),
];
