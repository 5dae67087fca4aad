/**
 * Goal: a request by path is handled in the volume that has the path's end, also if its server's list is outdated, and
 * never without the right to that volume.
 */
import assert from 'node:assert/strict';
import { PassThrough, type Readable } from 'node:stream';
import { test } from 'node:test';
import type { FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { PathLocations } from '../../server/http/path-location.ts';
import { readWholeBody } from '../../server/http/whole-body.ts';
import { type FilePath, volumePath } from '../../server/requests/path.ts';
import type { Gateway } from '../../server/routing/gateway.ts';
import type { Query } from '../../wire/catalog-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';

const JUNCTION = 70;
const ROW = { number: 1, name: 'team', state: 'ready', attached: JUNCTION } as unknown as ListedCatalog;

/** Volume `team` is attached at main:/a. @param listed whether the server's list says so at first */
function server(listed: boolean) {
  const rows = listed ? [ROW] : [];
  const queries: string[] = [];
  const refuse = (volume: string, path: string): void => {
    if (volume !== 'main' || !/^\/a(\/|$)/.test(path)) return;
    const junction = { volume: 'team', catalog: 1, inode: JUNCTION, path: path.slice(2) || '/' };
    throw new ServiceError('junction', 'It leads into another volume', { junction });
  };
  const gateway = {
    services: {
      catalogs: {
        row: (number: number) => rows.find((row) => row.number === number) ?? null,
        refresh: async () => void rows.splice(0, rows.length, ROW),
      },
    },
    queryCatalog: async (query: Extract<Query, { kind: 'resolve' }>) => {
      queries.push(`${query.volume}:${query.path}`);
      refuse(query.volume, query.path);
    },
  };
  const locations = new PathLocations(gateway as unknown as Gateway);
  /** Like a handler: the catalog refuses a path that leads elsewhere. */
  const handle = async ({ volume, names }: FilePath): Promise<string> => {
    const path = volumePath(names);
    refuse(volume, path);
    return `${volume}:${path}`;
  };
  return { locations, queries, handle };
}

function pathOf(text: string): FilePath {
  const [volume = '', path = ''] = text.split(':/');
  const names = path.split('/').filter((name) => name !== '');
  return { volume, names, directory: false, search: new URLSearchParams() };
}

function request(raw: Readable, volumes: readonly string[] | null = null): FastifyRequest {
  const principal = { kind: 'client', grant: { name: 'one', role: 'write', volumes } };
  return { raw, principal } as unknown as FastifyRequest;
}

function body(text: string): Readable {
  return new PassThrough().end(text);
}

test('a request is handled where its path leads; one that leads nowhere else costs no query', async () => {
  const { locations, handle, queries } = server(true);
  assert.equal(await locations.at(request(body('')), pathOf('main:/a/x'), 'target', handle), 'team:/x');
  assert.equal(await locations.at(request(body('')), pathOf('main:/b'), 'target', handle), 'main:/b');
  assert.equal(await locations.at(request(body('')), pathOf('team:/x'), 'target', handle), 'team:/x');
  assert.deepEqual(queries, ['main:/a/x', 'team:/x']);
});

test('the name at the end of a path may be that of a junction', async () => {
  const { locations } = server(true);
  const ends = async (text: string): Promise<string> => {
    const { volume, names } = await locations.locate(request(body('')), pathOf(text), 'name');
    return `${volume}:${volumePath(names)}`;
  };
  assert.equal(await ends('main:/a'), 'main:/a');
  assert.equal(await ends('main:/a/x'), 'team:/x');
  assert.equal(await ends('main:/'), 'main:/');
});

test('a request is handled again with the body that was read, also if the list was outdated', async () => {
  for (const reads of [false, true]) {
    const { locations, handle } = server(false);
    const sent = request(body('contents'));
    const seen: string[] = [];
    const at = await locations.at(sent, pathOf('main:/a/x'), 'target', async (path) => {
      if (reads) seen.push((await readWholeBody(sent, 100)).toString());
      return handle(path);
    });
    assert.equal(at, 'team:/x');
    assert.deepEqual(seen, reads ? ['contents', 'contents'] : []);
  }
});

test('a request of which a part is gone is refused', async () => {
  const { locations, handle } = server(false);
  const sent = request(body('contents'));
  const work = locations.at(sent, pathOf('main:/a/x'), 'target', async (path) => {
    for await (const _ of sent.raw.iterator({ destroyOnReturn: false })) break;
    return handle(path);
  });
  await assert.rejects(work, { code: 'junction' });
});

test('credentials for the outer volume do not enter the attached one, whatever the list says', async () => {
  for (const listed of [true, false]) {
    const { locations, handle, queries } = server(listed);
    const sent = request(body(''), ['main']);
    await assert.rejects(locations.at(sent, pathOf('main:/a/x'), 'target', handle), { code: 'forbidden' });
    assert.ok(
      queries.every((query) => query.startsWith('main:')),
      queries.join(),
    );
    const both = request(body(''), ['main', 'team']);
    assert.equal(await locations.at(both, pathOf('main:/a/x'), 'target', handle), 'team:/x');
  }
});
