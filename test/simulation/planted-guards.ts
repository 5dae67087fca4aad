/** Known bugs of what changes expect, each noticed by a test of the catalog or of a file's primary; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const PRIMARY = 'test/server/file-primary.test.ts';

export const PLANTED_GUARDS: readonly Planted[] = [
  replica(
    '69a',
    'a condition is held against what the disk has, not against what was ordered',
    {
      file: 'server/file/file-primary.ts',
      find: 'this.#contents = { epoch: this.epoch.counter, seq: this.#driver.orderedSeq };',
      replace: '',
    },
    { test: { file: PRIMARY, name: 'of two who write on the same condition at the same time one does' } },
  ),
  replica(
    '69b',
    'a write that was done is refused when it comes again, for it changed what it expects',
    {
      file: 'server/file/file-service.ts',
      find: 'if (isRefused && orderer.leads && (await this.#isKnown(orderer, request))) return write({});',
      replace: '',
    },
    {
      test: {
        file: PRIMARY,
        name: 'a write that was done is answered again, although its condition holds no more',
      },
    },
  ),
  replica(
    '69c',
    'the catalog believes to know the contents of a file that is being written',
    {
      file: 'catalog/commands/expectation.ts',
      find: 'return !live && contents.epoch',
      replace: 'return contents.epoch',
    },
    {
      test: {
        file: 'test/catalog/commands.test.ts',
        name: 'contents that a change expects are compared with what the catalog knows for certain',
      },
    },
  ),
];
