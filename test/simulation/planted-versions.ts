/** Known bugs of servers of two releases side by side, each noticed by a test; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const VERSIONS = 'test/catalog/versions.test.ts';
const REPLACEMENT =
  'U+FFFD in a name is of a version of its own: where a server of before refused it, it is refused here';

export const PLANTED_VERSIONS: readonly Planted[] = [
  replica(
    '72a',
    'a field that the server that executed a command passed over is executed by the others',
    {
      file: 'catalog/batch.ts',
      find: 'const known = commandAsOf(command as Command, version);',
      replace: 'const known = command as Command;',
    },
    { test: { file: VERSIONS, name: 'what a server of before passed over is passed over here' } },
  ),
  replica(
    'replacement-character',
    'a name with U+FFFD is executed by some replicas, and refused by those of an earlier release',
    {
      file: 'catalog/versions.ts',
      find: 'if (hasReplacementCharacter(command)) versions.push(REPLACEMENT_CHARACTER_VERSION);',
      replace: '',
    },
    { test: { file: VERSIONS, name: REPLACEMENT } },
  ),
  replica(
    'replacement-character-before',
    'a name with U+FFFD that a primary of an earlier release refused is made by later replicas',
    {
      file: 'catalog/versions.ts',
      find: "return withRefusedTexts(asKnown, '') as Command;",
      replace: 'return asKnown;',
    },
    { test: { file: VERSIONS, name: REPLACEMENT } },
  ),
  replica(
    '72b',
    'a batch of a later version is executed as far as it is known',
    { file: 'catalog/batch.ts', find: 'assertKnownVersion(version);', replace: '' },
    {
      test: {
        file: VERSIONS,
        name: 'a batch of a later version is refused before any of it is executed, with what to do',
      },
    },
  ),
  replica(
    '72c',
    'commands are given that a member does not know',
    {
      file: 'server/catalog/catalog-service.ts',
      find: 'this.#assertUnderstood(request.command);',
      replace: '',
    },
    {
      test: {
        file: 'test/server/catalog-service.test.ts',
        name: 'a command is given only if all members that are there know what it means',
      },
    },
  ),
];
