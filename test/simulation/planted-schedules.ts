/** Known violations, put back, which directed schedules of composed servers, clients and mounts notice; see `planted.ts`. */
import type { Planted } from './planted.ts';

export const PLANTED_SCHEDULES: readonly Planted[] = [
  {
    layer: 'replica',
    row: 'create-twice',
    rule: 'A create of unknown outcome is repeated only with the contents that it expects.',
    file: 'fuse/unborn-file.ts',
    in: 'UnbornFile.#make',
    find: `$before === 'birth' && !$created && !this.isNamed`,
    replace: 'false',
    also: [
      {
        file: 'fuse/unborn-file.ts',
        in: 'UnbornFile.#write',
        find: '$there.write(0, [$contents], CREATED)',
        replace: '$there.write(0, [$contents])',
      },
    ],
    caughtBy: { schedule: 'create-executed-twice' },
  },
  {
    layer: 'replica',
    row: 'unlink-late',
    rule: 'An unlink that was acknowledged under a delegation has no effect once the delegation is over.',
    file: 'client/delegations.ts',
    in: 'fencedBy',
    find: 'return { client, under, fence, forgets: fence.map(({ inode }) => inode) };',
    replace: 'return { client, under, forgets: fence.map(({ inode }) => inode) };',
    also: [
      {
        file: 'catalog/commands/entries.ts',
        in: 'unlinkFiles',
        find: 'if ($contents !== null) assertUnwritten($place.name, $row, $contents);',
        replace: '',
      },
    ],
    caughtBy: { schedule: 'late-unlink' },
  },
  {
    layer: 'replica',
    row: 'exclusive-ahead',
    rule: 'An exclusive create is answered once a majority of the catalog has the name.',
    file: 'fuse/newborn-files.ts',
    in: 'NewbornFiles.create',
    find: '$exclusive ? null : this.#make($place, $mode, $owner)',
    replace: 'this.#make($place, $mode, $owner)',
    also: [
      {
        file: 'fuse/newborn-files.ts',
        in: 'NewbornFiles.create',
        find: '$exclusive ? await this.#createNamed($place, $mode, $owner) : null',
        replace: 'null',
      },
    ],
    caughtBy: { schedule: 'exclusive-create' },
  },
  {
    layer: 'replica',
    row: 'recall-own',
    rule: 'A command recalls what its own client was granted since the client has stopped waiting.',
    file: 'server/catalog/client-caches.ts',
    in: 'ClientCaches.#othersOf',
    find: '({ id, client }) => id !== $own || client !== $owner?.client',
    replace: '({ client }) => $own === undefined || client !== $owner?.client',
    caughtBy: { schedule: 'late-command' },
  },
  {
    layer: 'replica',
    row: 'recall-renounced',
    rule: 'A client whose command has an unknown outcome uses nothing that the session of the command is granted.',
    file: 'client/cache-session.ts',
    in: 'CacheSession.renounce',
    find: 'if ($session === null) return;',
    replace: 'return;',
    caughtBy: { schedule: 'late-command' },
  },
  {
    layer: 'replica',
    row: 'members-twice',
    rule: 'For one file and one view there is one set of members, which is fixed with the number.',
    file: 'catalog/command.ts',
    in: 'replicasOf',
    find: 'if ($members.length > 0) return $members;',
    replace: '',
    also: [
      {
        file: 'catalog/command.ts',
        in: 'replicasOf',
        find: '$reserved !== undefined && !$servers.every(({ id }) => $chosen.includes(id ))',
        replace: 'false',
      },
    ],
    caughtBy: { schedule: 'two-member-sets' },
  },
];
