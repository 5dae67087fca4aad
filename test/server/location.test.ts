import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, inodesOf } from '../../base/ids.ts';
import {
  type AttachedVolumes,
  type Location,
  type LocationParts,
  locationOf,
} from '../../server/routing/location.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';

interface Attached {
  readonly name: string;
  readonly number: number;
  /** The junction's place, and its inode. */
  readonly at: string;
  readonly inode: number;
  readonly state?: ListedCatalog['state'];
}

const TEAM: Attached = { name: 'team', number: 1, at: 'main:/projects/a', inode: 70 };
const DEEP: Attached = {
  name: 'deep',
  number: 2,
  at: 'team:/b',
  inode: inodesOf(1 as CatalogNumber).first + 5,
};

/** Volumes whose catalogs refuse paths at junctions. @param listed those that the server's list has as attached */
function volumes(junctions: readonly Attached[], listed: readonly Attached[] = junctions) {
  const asked: string[] = [];
  const settings = { replicas: 3, objectBytes: 131_072 };
  const rowsOf = (attached: readonly Attached[]): ListedCatalog[] =>
    attached.map(({ name, number, inode, state = 'ready' }) => ({
      ...{ number, name, state, view: 1, members: ['s1'], made: 1, since: 1, settings },
      attached: inode,
    }));
  let rows = rowsOf(listed);
  let refreshes = 0;
  const catalogs: AttachedVolumes & { fetched: readonly Attached[] } = {
    fetched: listed,
    row: (number) => rows.find((row) => row.number === number) ?? null,
    refresh: async () => {
      refreshes += 1;
      rows = rowsOf(catalogs.fetched);
    },
  };
  const resolve = async ({ volume, path }: Location): Promise<void> => {
    asked.push(`${volume}:${path}`);
    for (const { name, number, at, inode } of junctions) {
      if (`${volume}:${path}/`.startsWith(`${at}/`)) {
        const rest = `${volume}:${path}`.slice(at.length) || '/';
        const junction = { volume: name, catalog: number, inode, path: rest };
        throw new ServiceError('junction', 'It leads into another volume', { junction });
      }
    }
    if (path.endsWith('missing')) throw new ServiceError('not-found', 'It is not there');
    if (volume === 'away') throw new ServiceError('no-majority', 'It is away');
  };
  const find = async (
    volume: string,
    path: string,
    mayEnter?: LocationParts['mayEnter'],
  ): Promise<Location> => {
    const parts = { catalogs, resolve, ...(mayEnter === undefined ? {} : { mayEnter }) };
    return (await locationOf(parts, { volume, path })).location;
  };
  return { catalogs, asked, find, refreshes: () => refreshes };
}

test('a path leads through junctions to the volume that has its end, which may be missing', async () => {
  const { find, asked, refreshes } = volumes([TEAM, DEEP]);
  assert.deepEqual(await find('main', '/projects/a/b/c/missing'), { volume: 'deep', path: '/c/missing' });
  assert.deepEqual(asked, ['main:/projects/a/b/c/missing', 'team:/b/c/missing', 'deep:/c/missing']);
  assert.deepEqual(await find('main', '/projects/a'), { volume: 'team', path: '/' });
  assert.deepEqual(await find('main', '/projects/ab'), { volume: 'main', path: '/projects/ab' });
  assert.equal(refreshes(), 0);
});

test('a junction is crossed only if the list has the volume attached at this very directory', async () => {
  const { find, catalogs, refreshes } = volumes([TEAM], []);
  const refused = { code: 'not-found', message: /the volume "team" is not attached there/ };
  await assert.rejects(find('main', '/projects/a/x'), refused);
  assert.equal(refreshes(), 1, 'The list was fetched first');
  for (const wrong of [
    { ...TEAM, inode: 71 },
    { ...TEAM, number: 3 },
    { ...TEAM, state: 'removed' },
  ] as const) {
    catalogs.fetched = [wrong];
    await assert.rejects(find('main', '/projects/a/x'), refused);
  }
  catalogs.fetched = [TEAM];
  assert.deepEqual(await find('main', '/projects/a/x'), { volume: 'team', path: '/x' });
});

test('a caller learns nothing of a volume that it may not enter', async () => {
  const { find, asked } = volumes([TEAM, DEEP]);
  const entered: string[] = [];
  const mayEnter = (volume: string): void => {
    entered.push(volume);
    if (volume === 'deep') throw new ServiceError('forbidden', 'Not this one');
  };
  await assert.rejects(find('main', '/projects/a/b/c', mayEnter), { code: 'forbidden' });
  assert.deepEqual(entered, ['team', 'deep']);
  assert.deepEqual(asked, ['main:/projects/a/b/c', 'team:/b/c']);
});

test('a catalog that does not answer fails the path; links that lead round and round do so too', async () => {
  const { find } = volumes([]);
  await assert.rejects(find('away', '/x'), { code: 'no-majority' });
  const loop: Attached = { name: 'main', number: 4, at: 'main:/loop', inode: 9 };
  const resolve = async (): Promise<void> => {
    const junction = { volume: 'main', catalog: 4, inode: 9, path: '/loop' };
    throw new ServiceError('junction', 'It leads into another volume', { junction });
  };
  const { catalogs } = volumes([loop]);
  await assert.rejects(locationOf({ catalogs, resolve }, { volume: 'main', path: '/loop' }), {
    code: 'bad-request',
    message: /more than 32 attached volumes/,
  });
});
