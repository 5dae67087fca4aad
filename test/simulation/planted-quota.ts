/** Known bugs of quotas, each noticed by a test of the catalog or of a file's primary; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

export const PLANTED_QUOTA: readonly Planted[] = [
  replica(
    '70a',
    'a primary lets a file grow without asking',
    {
      file: 'server/file/file-primary.ts',
      find: 'return sizeBytes > this.#sizeBytes && sizeBytes > this.#allowedBytes;',
      replace: 'return false;',
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'a file grows no further than the catalog allows',
      },
    },
  ),
  replica(
    'quota-inherited',
    'a primary that takes over a file in the midst of its changes lets it grow without asking',
    {
      file: 'server/file/file-primary.ts',
      find: 'catalog.isLive ? catalog.allowedBytes : 0;',
      replace: 'catalog.isLive ? catalog.allowedBytes : Infinity;',
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'who follows a primary in the midst of its changes writes without a word from the catalog, and grows with one',
      },
    },
  ),
  replica(
    'quota-kept-back',
    'what a file may grow to counts after its growth was refused',
    {
      file: 'server/file/file-service.ts',
      find: "error.code === 'quota-exceeded') this.#giveBackGrowth(file);",
      replace: "error.code === 'quota-exceeded') void 0;",
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'a file grows no further than the catalog allows',
      },
    },
  ),
  replica(
    'quota-late-answer',
    'what an earlier mark allowed stays in force although the file was settled since',
    {
      file: 'server/file/file-primary.ts',
      find: 'if (this.#turn === turn) this.#allowedBytes = allowedBytes;',
      replace: 'this.#allowedBytes = allowedBytes;',
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'a late answer to an earlier mark lets a file grow no further than the last mark',
      },
    },
  ),
  replica(
    'quota-never-ends',
    'what a file may grow to is not ended where its primary has gone without settling',
    {
      file: 'server/file/reservation-sweep.ts',
      find: 'filter(([file, mark]) => isSame(before.get(file), mark))',
      replace: 'filter(() => before.size < 0)',
    },
    {
      test: {
        file: 'test/server/reservation-sweep.test.ts',
        name: 'what files may grow to ends where the primary that asked has gone',
      },
    },
  ),
  replica(
    'quota-of-trash-never-ends',
    'what a file may grow to is not ended once the file is in the trash',
    {
      file: 'catalog/queries.ts',
      find: 'rows.filter(isCounted).map(',
      replace: 'rows.filter((row) => row.orphanedNs === null).map(',
    },
    {
      test: {
        file: 'test/server/reservation-sweep.test.ts',
        name: 'what files may grow to ends where the primary that asked has gone',
      },
    },
  ),
  replica(
    'quota-settled-amidst',
    'files that are marked anew all the time are settled in each round',
    {
      file: 'server/file/reservation-sweep.ts',
      find: 'return a !== undefined && a.epoch === b.epoch && a.turn === b.turn;',
      replace: 'return a !== undefined && a.epoch === b.epoch;',
    },
    {
      test: {
        file: 'test/server/reservation-sweep.test.ts',
        name: 'files that are marked anew, or have no count, or are out of reach, are left',
      },
    },
  ),
  replica(
    '70b',
    'what a file may grow to counts only once it has grown',
    {
      file: 'catalog/quota.ts',
      find: 'chargeOf({ ...inode, allowed }) - chargeOf(inode)',
      replace: '0',
    },
    {
      test: {
        file: 'test/catalog/quota.test.ts',
        name: 'files that grow at the same time do not exceed the quota together',
      },
    },
  ),
];
