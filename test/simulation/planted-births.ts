/** Known bugs of files that are borne, each noticed by a test of the servers; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const SNAPSHOTS = 'snapshots before and after a file that is borne gets its name';
const BIRTHS = 'test/server/births.test.ts';
const CATALOG = 'test/catalog/births.test.ts';
const OWN_VOLUME = 'each file that has its name is judged by its own volume, whatever its request names';
const MEMBERS =
  'a file with a reserved number has the members of the reservation, in whatever way it is made';

export const PLANTED_BIRTHS: readonly Planted[] = [
  replica(
    'birth-garbage',
    'contents that wait for their name are collected',
    {
      file: 'server/file/garbage.ts',
      find: 'if (awaited.has(file)) continue;',
      replace: '',
    },
    { test: { file: BIRTHS, name: 'what is borne is not collected before its number is void' } },
  ),
  replica(
    'birth-opened',
    'contents of a file that has its name are stored although it was opened since',
    {
      file: 'server/file/births.ts',
      find: 'return this.#parts.host.has(inode as FileId);',
      replace: 'return false;',
    },
    {
      test: {
        file: BIRTHS,
        name: 'a file that has its name, and was opened since, is left to its primary',
      },
    },
  ),
  replica(
    'birth-over-quota',
    'contents of a file that has its name are stored before the quota is asked for',
    {
      file: 'server/file/births.ts',
      find: 'settings.limited ||',
      replace: '',
    },
    {
      test: {
        file: BIRTHS,
        name: 'a file that has its name in a volume with a quota is left to its primary, also where the quota is new',
      },
    },
  ),
  replica(
    'birth-remembered-quota',
    'whether the volume has a quota is taken from what the server remembers of it',
    {
      file: 'server/file/births.ts',
      find: 'settings.limited ||',
      replace: 'volume.quotaBytes > 0 ||',
    },
    {
      test: {
        file: BIRTHS,
        name: 'a file that has its name in a volume with a quota is left to its primary, also where the quota is new',
      },
    },
  ),
  replica(
    'birth-majority-of-all',
    'a majority stores contents of a file that all replicas shall have',
    {
      file: 'server/file/births.ts',
      find: "settings.policy !== 'quorum'",
      replace: 'false',
    },
    { test: { file: BIRTHS, name: OWN_VOLUME } },
  ),
  replica(
    'birth-of-another-volume',
    'contents of a file that has its name are stored as in the volume that the request names',
    {
      file: 'server/file/births.ts',
      find: 'settings.volume !== volume.name',
      replace: 'false',
    },
    { test: { file: BIRTHS, name: OWN_VOLUME } },
  ),
  replica(
    'birth-of-another-size',
    'contents of a file that has its name are cut as in the volume that the server remembers',
    {
      file: 'server/file/births.ts',
      find: '|| settings.objectBytes !== volume.objectBytes',
      replace: '',
    },
    { test: { file: BIRTHS, name: OWN_VOLUME } },
  ),
  replica(
    'birth-without-rights',
    'a token for one volume fills files of another that have their names',
    {
      file: 'server/security/authorization.ts',
      find: 'isNamed === true ? [parent, inode] : [parent]',
      replace: '[parent]',
    },
    {
      test: {
        file: 'test/security/attacks.test.ts',
        name: 'births and the trash: of another volume, of a number that is not reserved, of one that another has',
      },
    },
  ),
  replica(
    'birth-settled-anew',
    'a birth settles a file that another primary has marked since',
    { file: 'server/file/births.ts', find: 'contents: BORNE, mark }', replace: 'contents: BORNE }' },
    {
      test: {
        file: BIRTHS,
        name: 'a file that has its name gets its contents, which the catalog settles unless the file was marked since',
      },
    },
  ),
  replica(
    'birth-void',
    'a number is used after its contents may be collected',
    {
      file: 'catalog/commands/births.ts',
      find: 'if (!this.#tables.numbers.takeReserved(this.#command.owner, id)) throw notReserved(id);',
      replace: 'this.#tables.numbers.takeReserved(this.#command.owner, id);',
    },
    {
      test: {
        file: CATALOG,
        name: 'contents are kept while their number is reserved, and the number is void',
      },
    },
  ),
  replica(
    'birth-members',
    'a file with a reserved number goes where servers are chosen when it is made',
    {
      file: 'catalog/command.ts',
      find: 'if (members.length > 0) return members;',
      replace: '',
    },
    { test: { file: CATALOG, name: MEMBERS } },
  ),
  replica(
    'birth-strangers',
    'a file is named with other members than its number was reserved with',
    {
      file: 'catalog/commands/births.ts',
      find: 'this.#assertMembers(id, replicas);',
      replace: '',
    },
    { test: { file: CATALOG, name: MEMBERS } },
  ),
  replica(
    'birth-unplaced',
    'a number that an earlier release has reserved makes a file where contents may be elsewhere',
    {
      file: 'catalog/command.ts',
      find: 'if (reserved !== undefined && !servers.every(({ id }) => chosen.includes(id as ServerId))) {',
      replace: 'if (reserved === 0) {',
    },
    {
      test: {
        file: CATALOG,
        name: 'numbers are reserved with members only, and those of before make no file where members could differ',
      },
    },
  ),
  replica(
    'birth-elsewhere',
    'contents go to the same servers for all files of a request',
    {
      file: 'server/file/births.ts',
      find: 'const key = place.members.join();',
      replace: "const key = '';",
    },
    {
      test: {
        file: BIRTHS,
        name: 'files go to the servers that were reserved with their numbers, and their names say so',
      },
    },
  ),
  replica(
    'birth-store',
    'a replica is taken into use while it is being made',
    {
      file: 'server/replica-host.ts',
      find: 'return this.#leaving.has(file) || this.#bearing.has(file);',
      replace: 'return this.#leaving.has(file);',
    },
    { test: { file: BIRTHS, name: 'a replica that is being made is not taken into use by a message' } },
    {
      also: [
        {
          file: 'server/replica-host.ts',
          find: "if (this.#bearing.has(file)) throw new ServiceError('busy',",
          replace: "if (this.#leaving.has(file)) throw new ServiceError('busy',",
        },
      ],
    },
  ),
  replica(
    'birth-forgotten',
    'a replica that was borne and is gone with the power is made anew as if there had been none',
    {
      file: 'server/storage/data-folder.ts',
      find: "return file < missedBelow ? 'suspect' : 'intact';",
      replace: "return 'intact';",
    },
    {
      test: {
        file: 'test/storage/data-folder.test.ts',
        name: 'remembers which replicas may be gone with the power',
      },
    },
  ),
  replica(
    'birth-unheld',
    'a replica is borne without a sync, and nobody writes down that it may be there',
    {
      file: 'server/replica-host.ts',
      find: 'for (const { file } of births) this.#parts.holds(file);',
      replace: '',
    },
    {
      test: {
        file: BIRTHS,
        name: 'whoever stores what is borne has written down that it may be there',
      },
    },
  ),
  replica(
    'birth-empty',
    'of an empty file nothing is stored, and whoever leads it next does not know that nobody did before',
    {
      file: 'server/file/borne-file.ts',
      find: "? { kind: 'truncate', sizeBytes: 0, modifiedNs }",
      replace: "? { kind: 'settling' }",
    },
    {
      test: {
        file: BIRTHS,
        name: 'an empty file is stored as any other: by the same word later primaries know that nobody led it',
      },
    },
  ),
  replica(
    'birth-made',
    'a file of a reserved number is led first by the primary of the catalog, too',
    {
      file: 'server/catalog/catalog-service.ts',
      find: "if (command.kind === 'create-file' && command.reserved !== undefined) return [];",
      replace: '',
    },
    {
      test: {
        file: 'test/server/catalog-service.test.ts',
        name: 'nobody leads first what is made by a reserved number',
      },
    },
  ),
  replica(
    'birth-unshown',
    'the next snapshot does not show what was borne before it',
    {
      file: 'catalog/inode-tables.ts',
      find: '      this.#snapshots.nextOf(inode.volume),\n    );\n    this.#servers.place(inode.id, inode.replicas);\n  }',
      replace:
        '      this.#snapshots.nextOf(inode.volume) + 1,\n    );\n    this.#servers.place(inode.id, inode.replicas);\n  }',
    },
    { directed: SNAPSHOTS },
  ),
  replica(
    'birth-unmarked',
    'a file that is borne does not say that the catalog has settled it',
    {
      file: 'server/file/borne-file.ts',
      find: "return [whole, { kind: 'settling' }];",
      replace: 'return [whole];',
    },
    { test: { file: BIRTHS, name: 'many files are one call to each server and one command' } },
  ),
];
