/** Known bugs of contents on their way between programs, kernel, mount and disks, each noticed by a test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const GIVEN = 'test/fuse/given-pages.test.ts';

export const PLANTED_CONTENTS: readonly Planted[] = [
  replica(
    '68a',
    'the kernel is given what was fetched before a change',
    {
      file: 'fuse/read-source.ts',
      find: 'generation === this.#generation && this.isGivable',
      replace: 'this.isGivable',
    },
    { test: { file: GIVEN, name: 'what was fetched before a write is not given after it' } },
  ),
  replica(
    '68b',
    'a program may write while pages are on their way to the kernel',
    {
      file: 'fuse/open-files.ts',
      find: 'if (writing && file.source.isGiving) await file.source.withdraw();',
      replace: '',
    },
    {
      test: { file: GIVEN, name: 'a program is let write once what is on its way to the kernel has arrived' },
    },
  ),
  replica(
    '68c',
    'the kernel hears of a change before pages of what was there before',
    {
      file: 'fuse/open-file.ts',
      find: 'await this.source.withoutOutdated();\n    const order',
      replace: 'const order',
    },
    {
      test: { file: GIVEN, name: 'the kernel hears of a change elsewhere after what was fetched before it' },
    },
  ),
  replica(
    '68d',
    'a recall is acknowledged while pages are on their way to the kernel',
    {
      file: 'fuse/file-system.ts',
      find: 'await this.#files.openFile(inode)?.source.withdraw();',
      replace: '',
    },
    {
      test: {
        file: GIVEN,
        name: 'a recall during a fetch has nothing given, and one during a gift waits for it',
      },
    },
  ),
  replica(
    '68e',
    'what a write has at several places is applied the other way round',
    {
      file: 'server/storage/object-draft.ts',
      find: 'for (const { offset, bytes } of written) {',
      replace: 'for (const { offset, bytes } of written.toReversed()) {',
    },
    {
      test: {
        file: 'test/storage/conformance.test.ts',
        name: 'of what one operation writes at several places the later counts',
      },
    },
  ),
  replica(
    '68f',
    'small writes overtake older ones of the same bytes',
    {
      file: 'fuse/write-behind.ts',
      find: 'if (!this.#small.has(chunk) || this.#chunks.isBlocked(chunk, batch)) continue;',
      replace: 'if (!this.#small.has(chunk)) continue;',
    },
    {
      test: {
        file: 'test/fuse/write-behind.test.ts',
        name: 'what overlaps leaves in one request, in its order, or behind what is under way',
      },
    },
  ),
  replica(
    '68g',
    'a write that was cut in two gives its memory back with the first half',
    {
      file: 'fuse/write-behind.ts',
      find: 'if (isSplit) keepMemory(bytes);',
      replace: '',
    },
    {
      test: {
        file: 'test/fuse/write-behind.test.ts',
        name: 'what was written gives its memory back once the cluster has it, unless it failed, or was cut in two',
      },
    },
  ),
  replica(
    '68h',
    'a block gives its memory back while another reader has a part of it',
    {
      file: 'fuse/read-ahead.ts',
      find: 'if (block.userCount === 0 && block.readBytes',
      replace: 'if (block.readBytes',
    },
    {
      test: {
        file: 'test/fuse/read-ahead.test.ts',
        name: 'the memory of a block ends when all of it was read and taken by all who read it, and no sooner',
      },
    },
  ),
  replica(
    '68j',
    'blocks that are fetched for slow readers are kept, however many there are',
    {
      file: 'fuse/read-ahead.ts',
      find: 'this.#blocks.delete(oldest);',
      replace: '',
    },
    {
      test: {
        file: 'test/fuse/read-ahead.test.ts',
        name: 'no more blocks are kept than there is room for, whoever is slow to read them',
      },
    },
  ),
  replica(
    '68i',
    'a frame that begins as a large message, and goes on as none, is lost',
    {
      file: 'server/transport/frame-intake.ts',
      find: 'this.#pass(this.#held.bytes);',
      replace: '',
    },
    {
      test: {
        file: 'test/transport/frame-intake.test.ts',
        name: 'what is sent arrives once, whole and in its order, however it is cut (SEED=1)',
      },
    },
  ),
];
