/** Known bugs of snapshots, each noticed by a test of the catalog, of a store or of files' primaries; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const MODEL = {
  file: 'test/catalog/snapshots.test.ts',
  name: 'snapshots show what was, whatever is done, and go without a trace',
};
const LOAD = {
  file: 'test/server/snapshots.test.ts',
  name: 'snapshots under load are made in time, and each shows one moment for ever',
};

export const PLANTED_SNAPSHOTS: readonly Planted[] = [
  replica(
    '84a',
    'a row that a snapshot shows is not kept when it changes',
    {
      file: 'catalog/snapshot-tables.ts',
      find: 'if (versions.since <= versions.kept && versions.named === 1) {',
      replace: 'if (versions.since > versions.kept && versions.named === 1) {',
    },
    { test: MODEL },
  ),
  replica(
    '84b',
    'a name that a snapshot shows is not kept when it goes',
    {
      file: 'catalog/snapshot-tables.ts',
      find: '    if (since <= kept) {',
      replace: '    if (since > kept) {',
    },
    { test: MODEL },
  ),
  replica(
    '84c',
    'a file that a snapshot shows is collected when it has lost its name',
    {
      file: 'catalog/commands/snapshots.ts',
      find: 'return snapshots.holdsContents(id) || snapshots.needs(id);',
      replace: 'return snapshots.needs(id);',
    },
    { test: MODEL },
  ),
  replica(
    '84d',
    'what was begun to be preserved is gone on with after the contents have changed',
    {
      file: 'catalog/commands/snapshots.ts',
      find: '    release(tables, inode);\n    return null;\n  }\n  if (preserved ===',
      replace: '    return null;\n  }\n  if (preserved ===',
    },
    {
      test: {
        file: 'test/catalog/snapshots.test.ts',
        name: 'what was begun for a snapshot that is gone is not gone on with after a change',
      },
    },
  ),
  replica(
    '84e',
    'there is no barrier',
    {
      file: 'server/catalog/snapshot-cut.ts',
      find: 'if (!this.isUp) return false;',
      replace: 'if (this.isUp) return false;',
    },
    { test: LOAD },
  ),
  replica(
    '84f',
    'the first change does not wait until contents are preserved',
    {
      file: 'server/file/live-marks.ts',
      find: 'for (let wish = preserveIn(answer); wish !== null; wish = preserveIn(answer)) {',
      replace: 'for (let wish = preserveIn(answer); wish === undefined; wish = preserveIn(answer)) {',
    },
    { test: LOAD },
  ),
  replica(
    '84g',
    'a reader is given contents that are newer than the snapshot',
    {
      file: 'server/file/file-reads.ts',
      find: '  if (asOf === undefined) return;',
      replace: '  if (asOf !== null) return;',
    },
    {
      test: {
        file: 'test/server/snapshots.test.ts',
        name: 'a reader that knows the file is refused once it has moved on',
      },
    },
  ),
  replica(
    '84j',
    'whoever acknowledges is taken for having what is preserved',
    {
      file: 'server/file/live-marks.ts',
      find: 'if (await areSo(answers, majority(view.members.length) - 1))',
      replace: 'if (await areSo(answers, 0))',
    },
    {
      test: {
        file: 'test/server/snapshots.test.ts',
        name: 'who acknowledges without having applied is found out, and a majority has what is preserved',
      },
    },
  ),
  replica(
    '84h',
    'a slot that is lent is used again',
    {
      file: 'server/storage/replica-slots.ts',
      find: 'if (this.#lent.has(slot)) {',
      replace: 'if (slot < 0) {',
    },
    {
      test: {
        file: 'test/storage/preserve.test.ts',
        name: 'what is preserved stays as it was, on the disk',
      },
    },
  ),
  replica(
    '84i',
    'contents are preserved, whatever their version',
    {
      file: 'server/storage/contents.ts',
      find: 'if (!isMeant || attributes.dead',
      replace: 'if (attributes.dead',
    },
    {
      test: {
        file: 'test/storage/preserve.test.ts',
        name: 'only the contents that are meant are preserved, and only once',
      },
    },
  ),
  replica(
    '84k',
    'who begins after a loss of power writes by a mark that may have ended',
    {
      file: 'replica/reset.ts',
      find: 'return isWhole ? base.position.epoch : null;',
      replace: 'return base.position.epoch;',
    },
    { directed: 'snapshot, and power of all after it', says: 'has lost what it shows' },
  ),
  replica(
    '84l',
    'so does who begins after a primary that wrote nothing',
    {
      file: 'server/file/live-mark.ts',
      find: 'inheritedFrom?.counter === attributes.versionEpoch;',
      replace: 'inheritedFrom !== null;',
    },
    { directed: 'snapshot, power of all, and two primaries after it', says: 'has lost what it shows' },
  ),
  replica(
    '84m',
    'the mark of what is flushed is not',
    {
      file: 'server/file/file-primary.ts',
      find: 'before this mark.\n    this.#nameFlushed = null;',
      replace: 'before this mark.',
    },
    {
      test: {
        file: 'test/server/file-primary.test.ts',
        name: 'a flush has the catalog keep the mark under which the file is written',
      },
    },
  ),
  replica(
    '84n',
    'who says that it has what is preserved may lose it with its power',
    {
      file: 'server/storage/replica-file.ts',
      find: 'arriving.delete(as);\n    await this.#syncOrFail(index.flush());',
      replace: 'arriving.delete(as);',
    },
    {
      test: {
        file: 'test/storage/preserve.test.ts',
        name: 'what is preserved is whole after a loss of power, whatever of the file is lost',
      },
    },
  ),
  replica(
    '84o',
    'a start leaves what was about to be preserved',
    {
      file: 'server/storage/disk-store.ts',
      find: 'await index.commit(() => index.deleteObjects(file, 0, Number.MAX_SAFE_INTEGER));',
      replace: 'continue;',
    },
    {
      test: {
        file: 'test/storage/preserve.test.ts',
        name: 'a start after an end in the midst of preserving many objects finds all of them, or nothing',
      },
    },
  ),
];
