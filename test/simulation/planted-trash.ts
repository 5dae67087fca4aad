/** Known bugs of the trash, each noticed by a test of the catalog; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const TRASH = 'test/catalog/trash.test.ts';

export const PLANTED_TRASH: readonly Planted[] = [
  replica(
    '71a',
    'whoever has a file open that is thrown away has it collected early',
    {
      file: 'catalog/commands/files.ts',
      find: 'if (inode.trashed === 1 && BigInt(untilNs) <= BigInt(inode.orphanedNs)) return {};',
      replace: '',
    },
    { test: { file: TRASH, name: 'whoever has a file open that is thrown away does not shorten its time' } },
  ),
  replica(
    '71b',
    'a file in the trash is taken for an upload, and gets a name beside its place there',
    {
      file: 'catalog/commands/files.ts',
      find: 'orphan.orphanedNs === null || orphan.trashed === 1',
      replace: 'orphan.orphanedNs === null',
    },
    { test: { file: TRASH, name: 'what is in the trash cannot be had by another way' } },
  ),
  replica(
    '71c',
    'what is restored counts as thrown away',
    {
      file: 'catalog/commands/trash.ts',
      find: 'tables.volumes.chargeTrash(inode.volume, -1, -chargeOf(inode));',
      replace: '',
    },
    {
      test: {
        file: 'test/catalog/property.test.ts',
        name: 'whatever is thrown away and restored, trash and counters stay sound',
      },
    },
  ),
  replica(
    '71d',
    'a file is restored in place of another',
    {
      file: 'catalog/commands/trash.ts',
      find: 'if (tables.child(directory.id, name) !== undefined) {',
      replace: 'if (false) {',
    },
    {
      test: {
        file: TRASH,
        name: 'restoring makes the directories again, and leaves a name alone that is taken',
      },
    },
  ),
];
