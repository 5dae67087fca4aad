/** Of mounts and the client library; see `planted.ts`. */
import type { Planted } from './planted.ts';

export const PLANTED_MOUNTS: readonly Planted[] = [
  {
    layer: 'replica',
    row: '63c',
    rule: 'A client counts its session from when it asked.',
    file: 'client/cache-session.ts',
    in: 'CacheSession.#poll',
    find: '$sentMs + $answer.validMs',
    replace: 'this.#parts.world.nowMs() + $answer.validMs',
    caughtBy: {
      test: {
        file: 'test/client/cache-session.test.ts',
        name: 'a session counts from when the poll was sent',
      },
    },
  },
  {
    layer: 'replica',
    row: 'removal-unfenced',
    rule: 'An unlink under a delegation carries its fence.',
    file: 'client/delegations.ts',
    in: 'fencedBy',
    find: 'return { client, under, fence, forgets: fence.map(({ inode }) => inode) };',
    replace: 'return { client, under, forgets: fence.map(({ inode }) => inode) };',
    caughtBy: {
      test: {
        file: 'test/fuse/cluster-removals.test.ts',
        name: 'names go together, each with the inode that is meant, and who removes them',
      },
    },
  },
  {
    layer: 'replica',
    row: 'late-once',
    rule: 'Each descriptor learns of a late error.',
    file: 'fuse/late-errors.ts',
    in: 'LateErrors.report',
    find: '({ number }) => number > $seen',
    replace: '({ number, isReported }) => number > $seen && !isReported',
    caughtBy: {
      test: {
        file: 'test/fuse/removals.test.ts',
        name: 'what was acknowledged under a delegation that is over is dropped, and each descriptor of the directory reports it once',
      },
    },
  },
  {
    layer: 'replica',
    row: 'directory-unflushed',
    rule: 'fsync of a directory waits until the catalog has flushed.',
    file: 'fuse/file-system.ts',
    in: 'FileSystem.persistDirectory',
    find: `await this.#backend.persistNames?.('cluster');`,
    replace: '',
    caughtBy: { schedule: 'power-of-all' },
  },
  {
    layer: 'replica',
    row: 'session-unnamed',
    rule: 'A client names when its session began.',
    file: 'client/cluster-client.ts',
    in: 'ClusterClient.command',
    find: 'since === undefined ? {} : { since }',
    replace: '{}',
    caughtBy: {
      test: {
        file: 'test/http/exactly-once.test.ts',
        name: 'a client names with each command when its session began, and begins another where it is forgotten',
      },
    },
  },
  {
    layer: 'replica',
    row: 'unborn-unexpected',
    rule: 'Contents are written to a new file only if no other client has written to it.',
    file: 'fuse/unborn-file.ts',
    in: 'UnbornFile.#write',
    find: '$there.write(0, [$contents], CREATED)',
    replace: '$there.write(0, [$contents])',
    caughtBy: {
      test: {
        file: 'test/fuse/unborn-file.test.ts',
        name: 'contents are written to the file as it was created, or not at all (first attempt, written since)',
      },
    },
  },
  {
    layer: 'replica',
    row: 'unborn-final',
    rule: 'Once another client has the name, no later attempt makes the file.',
    file: 'fuse/unborn-file.ts',
    in: 'UnbornFile.come',
    find: 'if (this.#refusal === null && isFinal(error)) this.#refusal = { error };',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/fuse/unborn-file.test.ts',
        name: 'where another client has the name nothing is written to its file, and no attempt follows',
      },
    },
  },
  {
    layer: 'replica',
    row: 'newborn-exclusive',
    rule: 'An exclusive create is answered once the cluster has the name.',
    file: 'fuse/newborn-files.ts',
    in: 'NewbornFiles.create',
    find: '$exclusive ? null : this.#make($place, $mode, $owner)',
    replace: 'this.#make($place, $mode, $owner)',
    caughtBy: {
      test: {
        file: 'test/fuse/births.test.ts',
        name: 'an exclusive create is answered when the cluster has the name, also in a directory that is delegated',
      },
    },
  },
  {
    layer: 'replica',
    row: 'newborn-undelegated',
    rule: 'A mount answers for a name only while it holds the delegation.',
    file: 'fuse/newborn-files.ts',
    in: 'NewbornFiles.#keep',
    find: '!$file.isRefused && !isRefusal($error) && this.isHeld($parent)',
    replace: '!$file.isRefused && !isRefusal($error)',
    caughtBy: {
      test: {
        file: 'test/fuse/births.test.ts',
        name: 'while no attempt succeeds and the delegation is over, the cluster says what has the name',
      },
    },
  },
  {
    layer: 'replica',
    row: '63i',
    rule: 'A directory is given back once the cluster has what was made in it.',
    file: 'fuse/newborn-files.ts',
    in: 'NewbornFiles.#recalled',
    find: 'await this.#comeAll(this.#unbornIn($called))',
    replace: 'void this.#comeAll(this.#unbornIn($called))',
    caughtBy: {
      test: {
        file: 'test/fuse/births.test.ts',
        name: 'before a directory is given back all of it is at the cluster',
      },
    },
  },
  {
    layer: 'replica',
    row: 'ahead-unconfirmed',
    rule: 'What was read ahead is confirmed before it is given to a reader.',
    file: 'fuse/open-files.ts',
    in: 'OpenFiles.#isCurrent',
    find: '$wasAsked ? ASKED_MS : 0',
    replace: '1_000',
    caughtBy: { schedule: 'read-ahead' },
  },
  {
    layer: 'replica',
    row: 'mapping-kept',
    rule: 'Mapped pages are dropped when another mount has written them.',
    file: 'fuse/open-files.ts',
    in: 'OpenFiles.#confirm',
    find: 'if ($dropsPages) await $file.refreshPages($attributes, () => this.#dropPages($file));',
    replace: '',
    caughtBy: { schedule: 'mapped-pages' },
  },
  {
    layer: 'replica',
    row: 'lock-clamped',
    rule: 'Locks reach to the last byte of 64-bit offsets.',
    file: 'fuse/kernel/requests.ts',
    in: 'decodeLock',
    find: '$bytes.readBigUInt64LE($at + 16)',
    replace: 'BigInt(Math.min(Number($bytes.readBigUInt64LE($at + 16)), Number.MAX_SAFE_INTEGER))',
    caughtBy: {
      test: { file: 'test/fuse/kernel/requests.test.ts', name: 'locks keep their places, also beyond 2^53' },
    },
  },
  {
    layer: 'replica',
    row: '91a',
    rule: 'Bytes from the disk of a neighbour are checked.',
    file: 'client/local-reads/local-disk.ts',
    in: 'LocalDisk.#read',
    find: '$isThere && crc32($bytes) === $sum',
    replace: '$isThere',
    caughtBy: {
      test: {
        file: 'test/storage/local-reads.test.ts',
        name: 'a container that was cut, damaged, replaced or is gone has nothing',
      },
    },
  },
  {
    layer: 'replica',
    row: 'umount-loss',
    rule: 'An unmount that would lose data fails.',
    file: 'client/unmount.ts',
    in: 'unmountDirectory',
    find: '$isLost && !$lazy',
    replace: '$isLost && $lazy',
    caughtBy: {
      test: {
        file: 'test/client/unmount.test.ts',
        name: 'what could not be stored is said before the mount goes, which it does the next time',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-lost-written',
    rule: 'A program does not write under a lock that is lost.',
    file: 'fuse/locks.ts',
    in: 'OpenLocks.assertKept',
    find: 'if (this.#locks.isLost($kind, $owner)) throw lost();',
    replace: 'this.#locks.isLost($kind, $owner);',
    caughtBy: {
      test: {
        file: 'test/fuse/lost-locks.test.ts',
        name: 'bytes that were written under a lost lock and not sent are dropped',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-lost-unsent',
    rule: 'Bytes that were written under a lock are not sent once it is lost.',
    file: 'fuse/open-file.ts',
    in: 'OpenFile.openLocks',
    find: 'if (this.writes.dirty) this.writes.abandon(locksLost());',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/fuse/lost-locks.test.ts',
        name: 'bytes that were written under a lost lock and not sent are dropped',
      },
    },
  },
  {
    layer: 'replica',
    row: 'lock-fence-unnamed',
    rule: 'A mount says under which locks it writes.',
    file: 'client/file-handle.ts',
    in: 'FileHandle.#changed',
    find: 'this.#locks()?.under ?? null',
    replace: 'null',
    caughtBy: { schedule: 'late-write-under-lock' },
  },
  {
    layer: 'replica',
    row: 'lock-lost-answered',
    rule: 'A write is not acknowledged where its lock may have been lost before it.',
    file: 'fuse/cluster-backend.ts',
    in: 'clusterFile',
    find: '$locks?.notice();',
    replace: '',
    caughtBy: {
      test: {
        file: 'test/fuse/lost-locks.test.ts',
        name: 'a write whose answer arrives after the loss of a lock has failed',
      },
    },
  },
  {
    layer: 'replica',
    row: 'argument-bytes',
    rule: 'An argument that is not UTF-8 names no file.',
    file: 'bin/leasehold.js',
    in: 'hasWrongBytes',
    find: `!buffer.isUtf8(readFileSync('/proc/self/cmdline'))`,
    replace: 'false',
    caughtBy: {
      test: {
        file: 'test/client/cli.test.ts',
        name: 'an argument that is not UTF-8 is refused by each program in its own name, and by its own exit code',
      },
    },
  },
  {
    layer: 'replica',
    row: 'flush-of-less',
    rule: 'A flush does not succeed where changes that were acknowledged before are gone.',
    file: 'client/unsynced-changes.ts',
    in: 'UnsyncedChanges.flushed',
    find: 'if (!$areLost) return;',
    replace: 'return;',
    caughtBy: {
      test: {
        file: 'test/client/unsynced-changes.test.ts',
        name: 'a flush that answers an earlier version than a change reports the loss once',
      },
    },
  },
];
