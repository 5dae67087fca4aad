/** Known bugs of removals that follow behind, each noticed by a test of the mount or of the catalog; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const REMOVALS = 'test/fuse/removals.test.ts';

export const PLANTED_REMOVALS: readonly Planted[] = [
  replica(
    'removal-recalled',
    'a directory is given back before what was removed in it is gone',
    {
      file: 'fuse/newborn-files.ts',
      find: 'await this.#removals.flushed(called);',
      replace: '',
    },
    { test: { file: REMOVALS, name: 'a directory is given back when all removals are at the cluster' } },
  ),
  replica(
    'removal-any',
    'a removal that comes late takes the name from whatever has it',
    {
      file: 'catalog/commands/entries.ts',
      find: 'nameTaken(tables, place, expect, command, atNs,',
      replace: 'nameTaken(tables, place, inode > 0 ? undefined : expect, command, atNs,',
    },
    {
      test: {
        file: 'test/catalog/commands.test.ts',
        name: 'many files are removed by one command, each from the inode that is meant, or refused by itself',
      },
    },
  ),
  replica(
    'removal-unfenced',
    'an unlink that was acknowledged under a delegation is sent without its fence',
    {
      file: 'client/delegations.ts',
      find: 'return { client, under, fence, forgets',
      replace: 'return { client, under, forgets',
    },
    {
      test: {
        file: 'test/fuse/cluster-removals.test.ts',
        name: 'names go together, each with the inode that is meant, and who removes them',
      },
    },
  ),
  replica(
    'removal-written',
    'an unlink that comes late takes the name from contents that another client has written since',
    {
      file: 'catalog/commands/entries.ts',
      find: 'if (contents !== null) assertUnwritten(place.name, row, contents);',
      replace: '',
    },
    {
      test: {
        file: 'test/catalog/commands.test.ts',
        name: 'of many files those are not removed that were written since, or are being written',
      },
    },
  ),
  replica(
    'removal-stale-contents',
    'a mount takes contents that it has written since for those that a file has',
    {
      file: 'fuse/seen-contents.ts',
      find: '    this.#contents.delete(inode);\n    if (this.#writes',
      replace: '    if (this.#writes',
    },
    {
      test: {
        file: 'test/fuse/seen-contents.test.ts',
        name: 'after a write of the mount the contents are unknown, until the catalog knows the new ones',
      },
    },
  ),
  replica(
    'removal-given-up',
    'an unlink without a certain answer is dropped while its delegation may be held',
    {
      file: 'fuse/removals.ts',
      find: "error instanceof ServiceError && error.remedy === 'give-up';",
      replace: 'error instanceof ServiceError;',
    },
    {
      test: {
        file: REMOVALS,
        name: 'what the cluster has not answered stays gone here, and a call that needs to know fails in time',
      },
    },
  ),
  replica(
    'removal-kind',
    'fenced unlinks are a command that servers without fences execute',
    {
      file: 'fuse/cluster-births.ts',
      find: "kind: 'unlink-fenced' as const",
      replace: "kind: 'unlink-files' as const",
    },
    {
      test: {
        file: 'test/fuse/cluster-removals.test.ts',
        name: 'names go together, each with the inode that is meant, and who removes them',
      },
    },
  ),
  replica(
    'late-label',
    'a mount adds series to the metric of late errors as it likes',
    {
      file: 'server/late-errors.ts',
      find: "operation: OPERATIONS.has(operation) ? operation : 'other'",
      replace: 'operation',
    },
    {
      test: {
        file: 'test/server/late-errors.test.ts',
        name: 'operations that this release does not know count together',
      },
    },
  ),
  replica(
    'late-older',
    'late errors are forgotten where very many directories have some',
    {
      file: 'fuse/late-errors.ts',
      find: 'const older = this.#older === null ? [] : [this.#older];',
      replace: 'const older: Errors[] = [];',
    },
    {
      test: {
        file: REMOVALS,
        name: 'of very many directories in which something was not removed the errors of the first count for all',
      },
    },
  ),
  replica(
    'late-told-another',
    'a file is lost without a late error where another program has learned of it',
    {
      file: 'fuse/unborn-file.ts',
      find: 'this.#isReported ||= isReported;',
      replace: 'this.#isReported = true;',
    },
    {
      test: {
        file: 'test/fuse/unborn-file.test.ts',
        name: 'what is not stored is a late error unless its creation, its sync or its close has failed',
      },
    },
  ),
  replica(
    'removed-directory-certain',
    'a directory is shown as removed although another mount has renamed it',
    {
      file: 'fuse/file-system.ts',
      find: 'this.#removed.addLikely(attributes);',
      replace: 'this.#removed.add(attributes);',
    },
    {
      test: {
        file: 'test/fuse/removed-directories.test.ts',
        name: 'a directory that another mount has renamed is shown as it is when its former name is removed',
      },
    },
  ),
  replica(
    'late-once',
    'a late error is reported to one descriptor of the directory alone',
    {
      file: 'fuse/late-errors.ts',
      find: 'filter(({ number }) => number > seen);',
      replace: 'filter(({ number, isReported }) => number > seen && !isReported);',
    },
    {
      test: {
        file: REMOVALS,
        name: 'what was acknowledged under a delegation that is over is dropped, and each descriptor of the directory reports it once',
      },
    },
  ),
  replica(
    'late-errno',
    'fsync of a directory fails with the error number of the call that was dropped',
    {
      file: 'fuse/file-system.ts',
      find: 'if (!CALL_ERRNOS.has(errnoName(error))) return error;',
      replace: 'if (error !== null) return error;',
    },
    {
      test: {
        file: 'test/fuse/births.test.ts',
        name: 'what a close has acknowledged ahead is not written to a file that has got the name since, and fsync says so',
      },
    },
  ),
  replica(
    'late-twice',
    'fsync of a directory that waits for a file reports what becomes of it, and the next one reports it again',
    {
      file: 'fuse/newborn-files.ts',
      find: 'file.stored()',
      replace: "file.come('born')",
    },
    {
      test: {
        file: 'test/fuse/births.test.ts',
        name: 'what a close has acknowledged ahead is not written to a file that has got the name since, and fsync says so',
      },
    },
  ),
  replica(
    'removal-again',
    'a name is given away anew before whoever had it has lost it',
    {
      file: 'fuse/newborn-files.ts',
      find: '    await this.#removals.goneAt(place);\n    while (this.#isFull',
      replace: '    while (this.#isFull',
    },
    {
      test: {
        file: REMOVALS,
        name: 'a name whose removal is under way is given away anew when it is gone',
      },
    },
  ),
  replica(
    'removal-alone',
    'a file that is removed by itself, as a journal is, is told as gone before it is',
    {
      file: 'fuse/newborn-files.ts',
      find: 'this.#rows.lengthOf(place.parent) < SHOWN_COUNT) return null;',
      replace: 'this.#rows.lengthOf(place.parent) < 0) return null;',
    },
    {
      test: {
        file: REMOVALS,
        name: 'a removal by itself, which may say something to others, is answered by the cluster, as are the first of a row',
      },
    },
  ),
  replica(
    'removal-failed',
    'a removal that failed is under way for ever, and so is its row: what is removed by itself is told as gone before it is',
    {
      file: 'fuse/newborn-files.ts',
      find: '      this.#rows.end(place.parent);\n      throw error;',
      replace: '      throw error;',
    },
    { test: { file: REMOVALS, name: 'a removal that fails ends the row' } },
  ),
  replica(
    'removal-slow',
    'how long the cluster takes for a removal counts as how long the program waits: where it is slow, each is waited for',
    {
      file: 'fuse/removal-rows.ts',
      find: 'row.underWay > 0 || ',
      replace: '',
    },
    {
      test: {
        file: 'test/fuse/removal-rows.test.ts',
        name: 'removals that take long are a row, and a program that waits long between two ends it',
      },
    },
  ),
  replica(
    'removal-own',
    'a directory that was called back for a removal of its own mount is taken for one that others want',
    {
      file: 'fuse/held-directories.ts',
      find: 'if (!this.#busy.has(directory)) this.#recalledMs',
      replace: 'this.#recalledMs',
    },
    {
      test: {
        file: REMOVALS,
        name: 'a directory that was called back for a removal of this mount is asked for again',
      },
    },
  ),
  replica(
    'removal-locked',
    'a lock is given back while what was removed under it is still there',
    {
      file: 'fuse/after-removals.ts',
      find: 'await removals.gone();\n      await locks.unlock(range);',
      replace: 'await locks.unlock(range);',
    },
    { test: { file: REMOVALS, name: 'locks are taken and given back when what was removed before is gone' } },
  ),
  replica(
    'removal-listed',
    'a directory is listed with what was removed in it',
    {
      file: 'fuse/newborn-files.ts',
      find: '    await this.#removals.goneFrom(new Set([directory]));\n    // Before it is asked for',
      replace: '    // Before it is asked for',
    },
    {
      test: {
        file: REMOVALS,
        name: 'a listing, the times of the directory and its removal wait for what was removed in it',
      },
    },
  ),
  replica(
    'recall-own',
    'what brings a directory that is called back to the cluster calls it back itself, and waits until the session is over',
    {
      file: 'client/delegations.ts',
      find: '(directory) => this.#delegated.has(directory) || this.#returning.has(directory),',
      replace: '(directory) => this.#delegated.has(directory),',
    },
    {
      test: {
        file: 'test/client/remembering-client.test.ts',
        name: 'what brings a directory that is called back to the cluster waits for nobody who calls it back',
      },
    },
  ),
];
