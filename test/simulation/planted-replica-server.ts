/** Known bugs of how the servers keep replicas on their disks, each noticed by a test of theirs; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const POWER_LOSS = { file: 'test/storage/power-loss.test.ts', name: 'leaves a state that was (SEED=1)' };

const INSTALL = {
  file: 'test/storage/install-power.test.ts',
  name: 'another state is installed as a whole or not at all',
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
      find: 'if (!isNew) await this.#syncOrFail(this.#parts.containers.flush(this.id));',
      replace: '',
    },
    { test: INSTALL },
  ),
  replica(
    '33b',
    'a state is told to be installed before the disk has it',
    {
      file: 'server/storage/replica-file.ts',
      find: 'if (!isNew) await this.#syncOrFail(this.#parts.index.flush());',
      replace: '',
    },
    { test: INSTALL },
  ),
  replica(
    '37b',
    'a promise is told before the disk has it',
    {
      file: 'server/storage/replica-file.ts',
      find: 'this.#background(this.#flushIndex(), first);',
      replace: 'this.#background(Promise.resolve(), first);',
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
    '44a',
    'a damaged object is returned as it is',
    {
      file: 'server/storage/disk-store.ts',
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
      file: 'server/storage/replica-file.ts',
      find: 'if (tail !== null && tail.length > kept) cut = await this.#copyHead(tail, kept, item.seq);',
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
    '54c',
    'a read that was allowed reads later, from contents that were overwritten meanwhile',
    {
      file: 'server/storage/replica-file.ts',
      find: 'if (this.#pins.has(slot)) this.#freeWhenUnpinned.add(slot);',
      replace: 'if (this.#pins.size < 0) this.#freeWhenUnpinned.add(slot);',
    },
    { test: { file: 'test/storage/faults.test.ts', name: 'a slow read sees what it pinned' } },
  ),
];
