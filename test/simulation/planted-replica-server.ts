/** Known bugs of how the servers keep replicas on their disks, each noticed by a test of theirs; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const POWER_LOSS = { file: 'test/storage/power-loss.test.ts', name: 'leaves a state that was (SEED=1)' };

const PUNCH = {
  file: 'test/storage/conformance.test.ts',
  name: 'a punch takes whole objects away and zeroes parts of others',
};

const INSTALL = {
  file: 'test/storage/install-power.test.ts',
  name: 'another state is installed as a whole or not at all',
};
const SET_ASIDE = {
  file: 'test/storage/set-aside.test.ts',
  name: 'what is put aside leaves the addresses of the other servers to the empty folder',
};

export const PLANTED_SERVERS: readonly Planted[] = [
  replica(
    '30b',
    'contents that are the base already keep their old epoch on the disk',
    {
      file: 'server/storage/contents.ts',
      find: 'record: { ...state.record, view, installed: epoch, seq, sessions },',
      replace:
        'record: { ...state.record, view, installed: base === null ? state.record.installed : epoch, seq, sessions },',
    },
    { test: { file: 'test/storage/conformance.test.ts', name: 'promise and installed epoch survive' } },
  ),
  replica(
    '33a',
    'the state of another replica counts before its contents are on the disk',
    {
      file: 'server/storage/replica-file.ts',
      find: 'if (!isNew) await this.#syncOrFail(containers.flush(this.id));',
      replace: '',
    },
    { test: INSTALL },
  ),
  replica(
    '33b',
    'a state is told to be installed before the disk has it',
    {
      file: 'server/storage/replica-file.ts',
      find: 'if (!isNew) await this.#syncOrFail(index.flush());',
      replace: '',
    },
    { test: INSTALL },
  ),
  replica(
    '37b',
    'a promise is told before the disk has it',
    {
      file: 'server/storage/replica-file.ts',
      find: 'this.#background(synced, item);',
      replace: 'this.#background(Promise.resolve(), item);',
    },
    { test: { file: 'test/storage/faults.test.ts', name: 'a promise whose sync failed is not given' } },
  ),
  replica(
    '37c',
    'a flush is told before the disk has it',
    {
      file: 'server/storage/replica-file.ts',
      find: 'this.#background(this.#makeDurable(), first);',
      replace: 'this.#background(Promise.resolve(), first);',
    },
    { test: POWER_LOSS },
  ),
  replica(
    '38',
    'a disk that lost bytes in a sync is asked again',
    {
      file: 'server/storage/shared-flush.ts',
      find: 'this.#failed = running;',
      replace: 'this.#running = null;',
    },
    {
      test: {
        file: 'test/storage/faults.test.ts',
        name: 'a failed sync of the contents is never retried: the store is over until a restart',
      },
    },
    {
      also: [
        {
          file: 'server/storage/disk-store.ts',
          find: 'if (this.#error !== null) throw this.#error;',
          replace: '',
        },
      ],
    },
  ),
  replica(
    '43m',
    'nobody notices that the machine lost power',
    {
      file: 'server/storage/contents.ts',
      find: "return installedStart < powerLossStart ? 'suspect' : 'intact';",
      replace: "return installedStart < powerLossStart ? 'intact' : 'intact';",
    },
    { test: POWER_LOSS },
  ),
  replica(
    '43n',
    'an empty disk is taken for one that never had anything',
    {
      file: 'server/storage/contents.ts',
      find: "if (installedStart === LOST_START) return 'lost';",
      replace: '',
    },
    {
      test: {
        file: 'test/storage/conformance.test.ts',
        name: 'a replica that may have replaced one is lost until a base is installed',
      },
    },
  ),
  replica(
    'rebuild-forgets',
    'a server that is rebuilt has no addresses of the others',
    {
      file: 'server/storage/set-aside.ts',
      find: 'if (names.includes(SERVERS_FILE))',
      replace: 'if (names.length < 0)',
    },
    { test: SET_ASIDE },
  ),
  replica(
    'rebuild-foreign',
    'a folder that has nothing but the addresses of the others is refused as that of another program',
    {
      file: 'server/storage/data-folder.ts',
      find: '  CONTAINERS_FOLDER,\n  SERVERS_FILE,',
      replace: '  CONTAINERS_FOLDER,',
    },
    { test: SET_ASIDE },
  ),
  replica(
    '44a',
    'a damaged object is returned as it is',
    {
      file: 'server/storage/object-reader.ts',
      find: 'if (ownCount < row.length || crc32(own) !== row.crc32)',
      replace: 'if (ownCount < 0)',
    },
    { test: { file: 'test/storage/faults.test.ts', name: 'a flipped bit is an integrity error' } },
  ),
  replica(
    '44b',
    'a damaged object is repaired by whatever another replica sends',
    {
      file: 'server/storage/disk-store.ts',
      find: 'if (bytes === null || bytes.length !== row.length || crc32(bytes) !== row.crc32) throw cause;',
      replace: 'if (bytes === null) throw cause;',
    },
    { test: { file: 'test/storage/repair.test.ts', name: 'is never replaced by other bytes' } },
  ),
  replica(
    '45',
    'a deleted file comes back with the next write',
    {
      file: 'server/storage/contents.ts',
      find: 'if (!operationApplies(attributes, operation)) return { ...state, record };',
      replace: '',
    },
    {
      test: {
        file: 'test/storage/conformance.test.ts',
        name: 'a deleted file has no contents and changes no more',
      },
    },
  ),
  replica(
    '47b',
    'a truncate leaves the old bytes behind the new end',
    {
      file: 'server/storage/object-writer.ts',
      find: 'else changes.push([row, await this.#copyWithout(row, part, epoch, seq)]);',
      replace: '',
    },
    {
      test: {
        file: 'test/storage/conformance.test.ts',
        name: 'a truncate to mid-object cuts the tail for good',
      },
    },
  ),
  replica(
    '47c',
    'a punch leaves the objects in it where they are',
    {
      file: 'server/storage/replica-file.ts',
      find: 'index.deleteObjects(this.id, first, last);',
      replace: '',
    },
    { test: PUNCH },
  ),
  replica(
    '47d',
    'a punch leaves the bytes of an object of which it takes a part',
    {
      file: 'server/storage/contents.ts',
      find: 'return new Uint8Array(bytes).fill(0, removed.from, removed.to);',
      replace: 'return new Uint8Array(bytes);',
    },
    { test: PUNCH },
  ),
  replica(
    '47e',
    'an object that was punched away stays at a replica that was away',
    {
      file: 'server/file/difference.ts',
      find: 'for (const range of gone) await this.#cover(range, [], check);',
      replace: '',
    },
    { test: { file: 'test/server/file-difference.test.ts', name: 'a punched hole, of whole objects' } },
  ),
  replica(
    '47f',
    'a hole is shown by a backup before it is known to be committed',
    {
      file: 'server/storage/contents.ts',
      find: 'const resized = sizeBytes !== attributes.sizeBytes || partsWritten(operation).length === 0;',
      replace: 'const resized = sizeBytes !== attributes.sizeBytes;',
    },
    {
      test: {
        file: 'test/storage/conformance.test.ts',
        name: 'a read of a hole depends on the punch that made it',
      },
    },
  ),
  replica(
    '47g',
    'a punch that was not synced cannot be undone after a loss of power',
    {
      file: 'server/storage/replica-file.ts',
      find: 'this.#generations.keepObjects(first, last, epoch);',
      replace: '',
    },
    { test: { file: POWER_LOSS.file, name: 'what a punch took away is there again' } },
  ),
  replica(
    '47h',
    'a hole that makes a file longer makes a longer one end with it',
    {
      file: 'server/storage/contents.ts',
      find: 'return operation.grows ? Math.max(sizeBytes, operation.to) : sizeBytes;',
      replace: 'return operation.grows ? operation.to : sizeBytes;',
    },
    { seeds: 50 },
  ),
  replica(
    '54c',
    'a read that was allowed reads later, from contents that were overwritten meanwhile',
    {
      file: 'server/storage/replica-slots.ts',
      find: 'if (this.#pins.has(slot)) this.#freeWhenUnpinned.add(slot);',
      replace: 'if (this.#pins.size < 0) this.#freeWhenUnpinned.add(slot);',
    },
    { test: { file: 'test/storage/faults.test.ts', name: 'a slow read sees what it pinned' } },
  ),
  replica(
    '60c',
    'a write that is asked for again, and was overtaken before its primary died, is told with the epoch of the next one',
    {
      file: 'server/file/file-primary.ts',
      find: 'return { epoch: seq > this.#inheritedSeq ? this.epoch.counter : this.#inherited.epoch, seq };',
      replace:
        'return { epoch: seq === this.#inherited.seq ? this.#inherited.epoch : this.epoch.counter, seq };',
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'writes that are asked for again after a fail-over have the versions that they had',
      },
    },
  ),
  replica(
    '61a',
    'a size is told to the catalog without a word to the next primary that it may be asked no more',
    {
      file: 'server/file/file-primary.ts',
      find: 'await this.#announceSettling();',
      replace: '',
    },
    { test: { file: 'test/server/file-primary.test.ts', name: 'who follows a primary that has settled' } },
  ),
  replica(
    '61b',
    'every new primary believes that the catalog asks it for the size',
    {
      file: 'server/file/live-mark.ts',
      find: "return seal === 'open' && versionSeq === orderedSeq;",
      replace: "return seal === 'open' && versionSeq <= orderedSeq;",
    },
    { test: { file: 'test/server/file-primary.test.ts', name: 'who follows a primary that has settled' } },
  ),
  replica(
    'made-retry',
    'who is asked once more to make a file takes that for having made it',
    {
      file: 'server/catalog/catalog-service.ts',
      find: "if (outcome?.kind !== 'done' || change?.inodes.length === 0) return [];",
      replace: "if (outcome?.kind !== 'done') return [];",
    },
    { test: { file: 'test/server/catalog-service.test.ts', name: 'a file is made by one call' } },
  ),
  replica(
    '64a',
    'the successor of a primary that ends turns away whoever asks it before the lease is given back',
    {
      file: 'server/primary-waiter.ts',
      find: 'if (isLed && !this.#isEnding(driver, holder)) {',
      replace: 'if (isLed) {',
    },
    {
      test: {
        file: 'test/server/succession.test.ts',
        name: 'who asks the successor before the lease is given back waits',
      },
    },
  ),
  replica(
    '64b',
    'a primary that ends tells nobody, and the file waits for the first who asks',
    {
      file: 'server/file/idle-files.ts',
      find: 'const succeeded = succession.announce(wanted());',
      replace: 'const succeeded = Promise.resolve();',
    },
    {
      test: { file: 'test/server/succession.test.ts', name: 'the server that is chosen leads a file in use' },
    },
  ),
  replica(
    '64c',
    'a primary ends before the others have synced what their promises would wait for',
    {
      file: 'server/file/idle-files.ts',
      find: 'if (wanted().length > 0) await succession.prepare();',
      replace: '',
    },
    {
      test: {
        file: 'test/server/succession.test.ts',
        name: 'everybody syncs what would delay a promise while the file still has its primary',
      },
    },
  ),
  replica(
    '65a',
    'contents fill the room that names and promises need',
    {
      file: 'server/storage/reserve.ts',
      find: 'this.#isOut = freeBytes < reserve / 2;',
      replace: 'this.#isOut = freeBytes < 0;',
    },
    {
      test: { file: 'test/storage/reserve.test.ts', name: 'contents may use the first half of the reserve' },
    },
  ),
  replica(
    '65b',
    'what waits in the queue of a replica is written though no room is left',
    {
      file: 'server/storage/replica-file.ts',
      find: 'if (drafts.byteCount > 0) this.#parts.assertRoom(drafts.byteCount);',
      replace: '',
    },
    {
      test: {
        file: 'test/storage/faults.test.ts',
        name: 'what follows a write for which no room is left is refused with it',
      },
    },
  ),
  replica(
    '66a',
    'a client forgets its wish for further servers when it comes too soon after a search',
    {
      file: 'client/search-schedule.ts',
      find: 'if (restMs > 0) this.#timer',
      replace: 'if (restMs > 0) this.#wanted = false; else if (restMs > 0) this.#timer',
    },
    {
      test: {
        file: 'test/client/search-schedule.test.ts',
        name: 'the first wish is granted at once, one that comes too soon when its time has come',
      },
    },
  ),
  replica(
    '66b',
    'an attempt that came too late for an answer hides why those before it failed',
    {
      file: 'client/exchange.ts',
      find: 'lastCause = isLate ? (lastCause ?? attempt.cause) : attempt.cause;',
      replace: 'lastCause = isLate ? attempt.cause : attempt.cause;',
    },
    {
      test: {
        file: 'test/client/cluster-client.test.ts',
        name: 'an attempt for which hardly any time was left does not hide why those before it failed',
      },
    },
  ),
  replica(
    'removed-served',
    'a server ends where a replica is removed while another server fetches its state',
    {
      file: 'server/file/file-source.ts',
      find: 'if (record !== null) return record;',
      replace: "if (record !== null) return record;\n    throw new Error('A replica in use has a record');",
    },
    {
      test: {
        file: 'test/server/replica-host.test.ts',
        name: 'whoever fetches the state of a replica that is removed meanwhile is told so (readObject)',
      },
    },
  ),
  replica(
    'failed-begun',
    'a server whose store has failed begins what nobody hears the end of, and ends by it',
    {
      file: 'server/file/file-service.ts',
      find: '#bounded<Value>(file: FileId, begin: () => Promise<Value>): Promise<Value> {',
      replace:
        '#bounded<Value>(file: FileId, begin: () => Promise<Value>): Promise<Value> {\n    const begun = begin();\n    begin = () => begun;',
    },
    {
      test: {
        file: 'test/server/file-service.test.ts',
        name: 'with a store that has failed nothing is begun whose end nobody would hear',
      },
    },
  ),
  replica(
    'fault-listened',
    'a server whose native code has failed neither serves nor ends',
    {
      file: 'server/orderly-end.ts',
      find: "'SIGUSR2'] as const",
      replace: "'SIGUSR2', 'SIGSEGV'] as const",
    },
    {
      test: {
        file: 'test/cluster/fault.test.ts',
        name: 'a fault ends a server by its signal, and what was acknowledged stays',
      },
    },
  ),
];
