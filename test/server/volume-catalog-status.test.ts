/** Goal: the status names each volume whose catalog is unavailable, or would be after one more failure. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { volumeCatalogReasons, volumeCatalogs } from '../../server/status/volume-catalog-status.ts';
import type { ServerStatus } from '../../wire/http-api.ts';
import type { CatalogState, ListedCatalog } from '../../wire/volume-catalogs.ts';

function serverOf(id: string, more: Partial<ServerStatus> = {}): ServerStatus {
  return { id, state: 'serving', ...more } as ServerStatus;
}

function rowOf(number: number, members: readonly string[], state: CatalogState = 'ready'): ListedCatalog {
  const settings = { replicas: 3, objectBytes: 4096 };
  return { number, name: `v${number}`, state, members, view: 1, made: 1, since: 1, settings };
}

const DOWN = { state: 'unreachable' } as const;

function reasonsOf(rows: readonly ListedCatalog[], servers: readonly ServerStatus[], wanted = 3): string[] {
  return volumeCatalogReasons(volumeCatalogs(rows, servers), servers, wanted);
}

test('a removed catalog is left out, and one being created need not have a primary', () => {
  const servers = ['a', 'b', 'c'].map((id) => serverOf(id));
  const rows = [rowOf(1, ['a', 'b', 'c'], 'removed'), rowOf(2, ['a', 'b', 'c'], 'creating')];
  assert.deepEqual(
    volumeCatalogs(rows, servers).map(({ number, primary }) => [number, primary]),
    [[2, null]],
  );
  assert.deepEqual(reasonsOf(rows, servers), []);
});

test('a move is shown with what its primary has copied', () => {
  const servers = [
    serverOf('a', { primaryOfCatalogs: [2], copied: [{ catalog: 2, inodes: 70 }] }),
    serverOf('b'),
  ];
  const rows = [
    { ...rowOf(2, ['a'], 'creating'), moving: 'numbered' as const },
    { ...rowOf(3, ['b'], 'creating'), moving: 'begun' as const },
    rowOf(4, ['a']),
  ];
  assert.deepEqual(
    volumeCatalogs(rows, servers).map(({ moving }) => moving),
    [{ phase: 'numbered', copied: 70 }, { phase: 'begun' }, undefined],
  );
});

test('a move whose new catalog has no majority is reported, and how to end it', () => {
  const servers = [serverOf('a'), serverOf('b', DOWN), serverOf('c', DOWN)];
  for (const [moving, change] of [
    ['begun', ''],
    ['frozen', ', and changes wait with it'],
  ] as const)
    assert.deepEqual(reasonsOf([{ ...rowOf(2, ['a', 'b', 'c'], 'creating'), moving }], servers), [
      `The move of volume v2 waits for a majority of the new catalog's servers${change}: ` +
        'start b, c, or end the move (leasehold volume own-catalog NAME --abort)',
    ]);
});

test('a volume is named once, for the worst that can be said of its catalog', () => {
  const servers = [
    serverOf('a', { primaryOfCatalogs: [2, 4] }),
    serverOf('b', DOWN),
    serverOf('c', DOWN),
    serverOf('d'),
  ];
  const rows = [
    rowOf(1, ['a', 'b', 'c']),
    rowOf(2, ['a', 'd']),
    rowOf(3, ['a', 'b', 'd'], 'removing'),
    rowOf(4, ['a', 'b', 'd']),
    rowOf(5, ['b'], 'creating'),
  ];
  assert.deepEqual(reasonsOf(rows, servers), [
    "No majority of the catalog's servers serves volumes v1, v5: start b, c",
    'The catalog of volume v3 currently has no primary',
    'The catalog of volume v2 is on fewer than 3 servers',
  ]);
  assert.deepEqual(reasonsOf(rows.slice(1, 2), servers, 2), []);
});

test('of many volumes a reason names ten', () => {
  const servers = [serverOf('a')];
  const rows = Array.from({ length: 12 }, (_, index) => rowOf(index + 1, ['a']));
  const [reason] = reasonsOf(rows, servers, 1);
  assert.match(
    String(reason),
    /^The catalog of volumes v1, (?:v\d+, ){8}v10 and 2 more currently has no primary$/,
  );
});
