/** Known bugs of reads past a server on the same machine, each noticed by a test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const STORE = 'test/storage/local-reads.test.ts';
const SERVICE = {
  file: 'test/server/file-service.test.ts',
  name: 'whoever may not answer a read does not tell where its bytes are',
};

export const PLANTED_LOCAL_READS: readonly Planted[] = [
  replica(
    '91a',
    'what lies on the disk of a server is believed without its checksum',
    {
      file: 'client/local-reads/local-disk.ts',
      find: 'const isGood = isThere && crc32(bytes) === sum;',
      replace: 'const isGood = isThere;',
    },
    {
      test: { file: STORE, name: 'a container that was cut, damaged, replaced or is gone has nothing' },
    },
  ),
  replica(
    '91b',
    'slots of which somebody was told where they are, are used again at once',
    {
      file: 'server/storage/disk-store.ts',
      find: 'const timer = setTimeout(release, heldMs);',
      replace: 'const timer = setTimeout(release, 0);',
    },
    {
      test: {
        file: STORE,
        name: 'what lies where it was told is what a read would have had, for as long as it is held',
      },
    },
  ),
  replica(
    '91c',
    'where bytes are is told by a replica that may not answer reads any more',
    {
      file: 'server/file/file-reads.ts',
      find: 'if (driver === null) throw this.#mayNotAnswer(file);',
      replace:
        "if (driver === null) return { locations: null, state: this.stateOfFinal(file, store.attributes(file)), served: 'local' };",
    },
    { test: SERVICE },
  ),
  replica(
    '91d',
    'a block is read of what was told before a newer read of its neighbour',
    {
      file: 'fuse/read-windows.ts',
      find: 'this.#windows.clear();',
      replace: '',
    },
    {
      test: {
        file: 'test/fuse/read-windows.test.ts',
        name: 'what is read after a single read is as new as that, although a window is older',
      },
    },
  ),
  replica(
    '91e',
    'where bytes are is told to whoever cannot read the disk',
    {
      file: 'server/http/local-routes.ts',
      find: 'if (!proof.isShown(request.headers[HEADER_LOCAL_PROOF])) {',
      replace: 'if (proof.folder === undefined) {',
    },
    {
      test: {
        file: 'test/security/access.test.ts',
        name: 'where contents lie on a disk is told to those who may have them sent, and can read the disk',
      },
    },
  ),
];
