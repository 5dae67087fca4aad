import { plantedEnv } from '../simulation/plant.ts';
import type { Mutation } from '../simulation/planted.ts';

/**
 * What makes a server of this release one of the release before, in all that others see of it: it names no version of commands and knows
 * the first alone, and does not have what came with the second. Formats on disks are not other ones: `test/catalog` and `test/storage` bring
 * those of before up to date.
 */
const EARLIER: readonly Mutation[] = [
  {
    file: 'server/transport/handshake.ts',
    find: "'leasehold-commands': String(COMMANDS_VERSION),",
    replace: '',
  },
  {
    file: 'catalog/versions.ts',
    find: 'export const COMMANDS_VERSION = 2;',
    replace: 'export const COMMANDS_VERSION = 1;',
  },
  {
    file: 'server/catalog/catalog-service.ts',
    find: 'if (version === 1) return;',
    replace:
      "if (version === 1) return;\n    throw new ServiceError('bad-request', 'There is no such command');",
  },
  {
    file: 'server/http/app.ts',
    find: 'if (births !== undefined) await app.register(async (scope) => birthRoutes(scope, births));',
    replace: '',
  },
  {
    file: 'server/http/app.ts',
    find: 'await app.register(async (scope) => snapshotRoutes(scope, gateway));',
    replace: '',
  },
  {
    file: 'server/http/app.ts',
    find: 'await app.register(async (scope) => trashRoutes(scope, gateway));',
    replace: '',
  },
];

/** @returns the environment in which a server is one of the release before */
export function earlierRelease(): NodeJS.ProcessEnv {
  const [first, ...also] = EARLIER as readonly [Mutation, ...Mutation[]];
  const what = 'the release before';
  return plantedEnv({ ...first, also, row: 'earlier', layer: 'replica', what, caughtBy: {} });
}
