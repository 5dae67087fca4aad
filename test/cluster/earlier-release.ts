import { type Mutation, plantedEnv } from '../planted/plant.ts';

/**
 * Makes a server of this release one of the release before, as far as others can see: it names no version of commands,
 * knows only the first one, lacks what was added with those after it, and refuses data folders with volumes' catalogs.
 * Otherwise it uses this release's formats on disk: `test/catalog` and `test/storage` upgrade earlier ones.
 */
const EARLIER: readonly Mutation[] = [
  {
    file: 'server/transport/handshake.ts',
    find: 'String(COMMANDS_VERSION)',
    replace: "''",
  },
  { file: 'server/transport/frame.ts', in: 'WIRE_VERSION', find: '3', replace: '2' },
  { file: 'catalog/versions.ts', in: 'COMMANDS_VERSION', find: '17', replace: '1' },
  { file: 'server/storage/folder-meta.ts', in: 'FOLDER_FORMAT', find: '3', replace: '2' },
  {
    file: 'server/catalog/catalog-service.ts',
    find: 'if ($version === 1) return;',
    replace: `if ($version === 1) return; throw new ServiceError('bad-request', 'There is no such command');`,
  },
  {
    file: 'server/http/catalog-routes.ts',
    find: 'Command.anyOf',
    replace:
      'Command.anyOf.filter(({ properties }) => !/^(snapshot-|clone-|trash-|sweep|bear|reserve-|forgo|unlink-files|unlink-fenced|note-|rename-whiteout|plan-|set-flags|retain|trim-deletions|server-label|set-placement|set-quota|walk-quotas|inherit-placement|catalog-|follow-servers|extend-|junction-|volume-(at|de)tach|volume-(move|split|part|freeze|number|forget))/.test(properties.kind.const))',
  },
  {
    file: 'server/http/catalog-routes.ts',
    find: 'Query.anyOf',
    replace:
      'Query.anyOf.filter(({ properties }) => !/^(snapshots|clones|unfilled|shared-contents|trash|sweeps|plans|deletions|catalog|files-misplaced|placement-classes|directory-quotas|quotas-of|quota-walk)/.test(properties.kind.const))',
  },
  {
    file: 'server/http/app.ts',
    find: 'if ($births !== undefined) await $app.register(async (scope) => creationRoutes(scope, $births));',
    replace: '',
  },
  {
    file: 'server/http/app.ts',
    find: 'snapshotRoutes($app, $gateway);',
    replace: '',
  },
  {
    file: 'server/http/app.ts',
    find: 'trashRoutes($app, $gateway);',
    replace: '',
  },
];

/** The same of a command line and of a mount: they know no snapshots, trash, or creations with contents. */
const EARLIER_CLIENT: readonly Mutation[] = [
  { file: 'client/main.ts', find: 'addSnapshotCommands($program);', replace: '' },
  { file: 'client/main.ts', find: 'addTrashCommands($program);', replace: '' },
  {
    file: 'fuse/cluster-volume.ts',
    find: 'new ClusterDelegations($client, $volume, $failed, $users)',
    replace: 'null',
  },
];

/** @returns the environment in which a server is one of the release before */
export function earlierRelease(): NodeJS.ProcessEnv {
  return plantedEnv(EARLIER);
}

/** @returns the environment in which a command, or the mount that it makes, is one of the release before */
export function earlierClient(): NodeJS.ProcessEnv {
  return plantedEnv(EARLIER_CLIENT);
}
