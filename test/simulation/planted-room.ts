/** Known bugs of what servers and mounts make of the room that there is, each noticed by its test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const ROOM = 'test/fuse/room.test.ts';
const PRIMARY = 'test/server/file-primary.test.ts';
const FULL = 'test/server/full-disks.test.ts';
const BALLAST = 'test/storage/ballast.test.ts';
const FULL_START = {
  file: 'test/server/full-start.test.ts',
  name: 'a start on a full disk uses the reserved space, and without any is left to a later start',
};

export const PLANTED_ROOM: readonly Planted[] = [
  replica(
    'room-unreachable',
    'a server that is away is taken for one that has room',
    {
      file: 'server/file/file-service.ts',
      find: '!full.includes(member) && !away.includes(member);',
      replace: '!full.includes(member);',
    },
    {
      test: {
        file: PRIMARY,
        name: 'where those in reach have no room nothing is ordered for want of those who are away',
      },
    },
  ),
  replica(
    'room-unlooked',
    'a disk that others fill is noticed by whoever is to store something that has a place in the order',
    { file: 'server/full-disks.ts', find: '      reserve.look();', replace: '' },
    {
      test: {
        file: FULL,
        name: 'a disk that others fill is noticed though nothing is stored, and so is that they gave it back',
      },
    },
  ),
  replica(
    'ballast-hole',
    'the ballast is a hole, which reserves no space',
    {
      file: 'server/storage/ballast.ts',
      find: 'await fs.promises.writeFile(fresh, Buffer.alloc(BALLAST_BYTES), { mode: 0o600, flush: true });',
      replace:
        "await fs.promises.writeFile(fresh, '');\n    await fs.promises.truncate(fresh, BALLAST_BYTES);",
    },
    { test: { file: BALLAST, name: 'a ballast takes blocks of the disk, and is released once' } },
  ),
  replica(
    'ballast-part',
    'a part of a ballast stays on a disk that has no space for all of it',
    {
      file: 'server/storage/ballast.ts',
      find: 'await fs.promises.rm(fresh, { force: true });',
      replace: '',
    },
    { test: { file: BALLAST, name: 'a disk that has no space for a ballast keeps no part of it' } },
  ),
  replica(
    'ballast-unused',
    'a start on a full disk does not use the space that is reserved for it',
    {
      file: 'server/server.ts',
      find: "if (error.code === 'no-space' && ballastRelease(config.data)) {",
      replace: "if (error.code === 'no-space' && config.data === '') {",
    },
    { test: FULL_START },
  ),
  replica(
    'ballast-once',
    'no space is reserved again after a start that has used it',
    {
      file: 'server/composition.ts',
      find: 'fullDisks.start();\n  keepBallast();',
      replace: 'fullDisks.start();',
    },
    { test: FULL_START },
  ),
  replica(
    'start-final',
    'a start on a full disk ends as one that no later start can help',
    {
      file: 'server/storage/folder-error.ts',
      find: "new Set(['locked', 'no-space'])",
      replace: "new Set(['locked'])",
    },
    { test: FULL_START },
  ),
  replica(
    'room-kept',
    'whoever writes waits for another primary with room, where the one that there is stays because there is none',
    {
      file: 'server/router.ts',
      find: 'if (error.details.primary === asked) throw this.#failure(call, error, silent, trail);',
      replace: '',
    },
    {
      test: {
        file: 'test/http/gateway.test.ts',
        name: 'a primary that has room itself and stays is believed at once that others have none',
      },
    },
  ),
  replica(
    'room-retried',
    'a replica that fails again and again begins anew at every look',
    {
      file: 'server/file/failed-replicas.ts',
      find: 'if (sinceMs < waitMs) return false;',
      replace: '',
    },
    {
      test: {
        file: 'test/server/failed-replicas.test.ts',
        name: 'a replica that fails again and again begins anew less and less often, until there is room',
      },
    },
  ),
  replica(
    'room-awaited',
    'a transfer for which there is no room begins anew at once',
    {
      file: 'server/replica-driver.ts',
      find: 'await this.#pause(NO_ROOM_PAUSE_MS);',
      replace: 'await this.#pause(0);',
    },
    {
      test: {
        file: 'test/server/file-service.test.ts',
        name: 'a transfer without room waits before it begins anew',
      },
    },
  ),
  replica(
    'room-unnamed',
    'whoever waits in vain for full disks hears of servers that are away alone',
    {
      file: 'server/primary-waiter.ts',
      find: 'isConnected(member) && isDiskFull(member));',
      replace: 'isConnected(member) && !isDiskFull(member));',
    },
    { test: { file: PRIMARY, name: 'what full disks hold up is told by their names' } },
  ),
  replica(
    'room-quota',
    'where a quota is exhausted what is written is told as written, and lost when it is closed',
    {
      file: 'fuse/room.ts',
      find: "(error.code === 'no-space' || error.code === 'quota-exceeded')",
      replace: "error.code === 'no-space'",
    },
    { test: { file: ROOM, name: 'where no file can be had, nobody is told that one was made, or finds it' } },
  ),
  replica(
    'room-little',
    'a few bytes that are free are taken for room for all that may be gathered',
    {
      file: 'fuse/room.ts',
      find: 'freeBytes >= Math.min(ROOM_BYTES_MIN, totalBytes * ROOM_SHARE)',
      replace: 'freeBytes >= Math.min(1, totalBytes * ROOM_SHARE)',
    },
    {
      test: {
        file: ROOM,
        name: 'there is room again when that was said, and nobody was refused for a while',
      },
    },
  ),
  replica(
    'room-small',
    'a small volume never has room again',
    {
      file: 'fuse/room.ts',
      find: 'Math.min(ROOM_BYTES_MIN, totalBytes * ROOM_SHARE)',
      replace: 'ROOM_BYTES_MIN',
    },
    {
      test: {
        file: ROOM,
        name: 'there is room again when that was said, and nobody was refused for a while',
      },
    },
  ),
  replica(
    'room-held',
    'whoever was refused is believed no longer when other servers have room',
    {
      file: 'fuse/room.ts',
      find: 'performance.now() - this.#refusedMs >= this.#holdMs',
      replace: 'performance.now() >= this.#refusedMs',
    },
    {
      test: {
        file: ROOM,
        name: 'there is room again when that was said, and nobody was refused for a while',
      },
    },
  ),
  replica(
    'room-unknown',
    'where nobody knows how much room there is, there is none',
    {
      file: 'fuse/room.ts',
      find: 'if (totalBytes === 0) return;',
      replace: '',
    },
    {
      test: {
        file: ROOM,
        name: 'there is room again when that was said, and nobody was refused for a while',
      },
    },
  ),
  replica(
    'room-looks',
    'while there is no room the cluster is asked about it with each write',
    {
      file: 'fuse/room.ts',
      find: 'performance.now() - this.#lookedMs >= LOOK_MS',
      replace: 'performance.now() >= this.#lookedMs',
    },
    {
      test: {
        file: ROOM,
        name: 'while there is none, whoever writes has it looked for, and not with each write',
      },
    },
  ),
  replica(
    'room-away',
    'there is room again when nobody answers how much',
    {
      file: 'fuse/room.ts',
      find: '() => undefined,',
      replace: '() => void (this.#isTight = false),',
    },
    { test: { file: ROOM, name: 'while nobody says how much there is, what was heard last counts' } },
  ),
  replica(
    'room-written',
    'where there may be no room a write does not wait for the cluster, and its close is refused',
    {
      file: 'fuse/open-files.ts',
      find: 'else if (this.room.isTight) {',
      replace: 'else if (this.room.isTight && this.#flushBehind) {',
    },
    { test: { file: ROOM, name: 'after a close was refused for want of room, the next write is' } },
  ),
  replica(
    'room-made',
    'where there may be no room a file is told as made before it can be had',
    {
      file: 'fuse/open-files.ts',
      find: 'if (this.room.isTight) await this.#arriveOrGiveUp(file, isForWriting(flags));',
      replace: '',
    },
    { test: { file: ROOM, name: 'where no file can be had, nobody is told that one was made, or finds it' } },
  ),
];
