/** Known bugs of writes past the page cache, each noticed by a test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const STORE = 'test/storage/direct-writes.test.ts';
const IN_PLACE = 'writes from where the bytes are, if they begin at a page and lie side by side';
const MEMORY = 'test/base/page-memory.test.ts';

export const PLANTED_DIRECT_WRITES: readonly Planted[] = [
  replica(
    '94a',
    'a direct write begins where the bytes do, and not at a page',
    {
      file: 'server/storage/direct-writes.ts',
      find: 'const from = Math.ceil(position / PAGE_BYTES) * PAGE_BYTES - position;',
      replace: 'const from = 0;',
    },
    { test: { file: STORE, name: 'writes whole pages directly, and what is left at both ends through it' } },
  ),
  replica(
    '94b',
    'a direct write is not waited for, and its memory is given back meanwhile',
    {
      file: 'server/storage/direct-writes.ts',
      find: 'count = await write();',
      replace: 'count = await Promise.race([write(), Promise.resolve(Infinity)]);',
    },
    { test: { file: STORE, name: 'acknowledges nothing before the disk has it' } },
  ),
  replica(
    '94c',
    'what the disk did not take of a direct write is forgotten',
    {
      file: 'server/storage/container.ts',
      find: 'await writeFully(this.#ops, this.#fd, rangeOf(buffers, count, byteCount), position + count);',
      replace: '',
    },
    { test: { file: STORE, name: 'goes on where the disk stops short' } },
  ),
  replica(
    '94d',
    'an error of the disk counts as a file system that has no direct writes',
    {
      file: 'server/storage/direct-writes.ts',
      find: 'if (!REFUSALS.has(errorCode(error))) throw error;',
      replace: '',
    },
    { test: { file: STORE, name: 'refuses what the disk refuses, and nothing torn is seen (EIO)' } },
  ),
  replica(
    '94e',
    'memory that was given back is still seen by who had it',
    {
      file: 'base/page-memory.ts',
      find: 'const slot = structuredClone(buffer, { transfer: [buffer] });',
      replace: 'const slot = buffer;',
    },
    { test: { file: MEMORY, name: 'memory that was given back is there again, and not for who had it' } },
  ),
  replica(
    '94f',
    'memory is given back twice, and lent to two',
    {
      file: 'base/page-memory.ts',
      find: "assert(buffer instanceof ArrayBuffer && lent.delete(buffer), 'Memory is given back once, by who has it');",
      replace: 'if (!(buffer instanceof ArrayBuffer)) return;',
    },
    { test: { file: MEMORY, name: 'memory is given back once, and by who has it' } },
  ),
  replica(
    '94g',
    'bytes that do not lie side by side are written as if they did',
    {
      file: 'server/storage/buffers.ts',
      find: 'if (buffer !== first.buffer || byteOffset !== end) return null;',
      replace: '',
    },
    { test: { file: STORE, name: IN_PLACE } },
  ),
  replica(
    '94h',
    'a direct write gives back memory that was lent to others',
    {
      file: 'server/storage/container.ts',
      find: 'if (!isThere) givePagesBack(pages);',
      replace: 'givePagesBack(pages);',
    },
    { test: { file: STORE, name: IN_PLACE } },
  ),
];
