import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { SERVERS } from './fixture.ts';

const EPOCH: Epoch = { counter: 1, server: 's1' as ServerId, incarnation: 7 as Incarnation };

test('one path of each linked file is found, in whichever directory', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-paths-'));
  const store = await CatalogStore.open({
    world: systemWorld,
    folder,
    view: { number: 1, members: SERVERS.slice(0, 3) },
  });
  try {
    await store.promise(EPOCH);
    await store.install(EPOCH, 0, null);
    let number = 0;
    const run = async (command: Command): Promise<{ attributes?: { inode: number } }> => {
      await store.ready();
      store.begin();
      const request = { session: 1, number: ++number, since: 0, command };
      const { outcomes } = store.execute([request], {
        nowNs: 1n,
        placement: () => SERVERS.slice(0, 3),
      });
      await store.finish(EPOCH, store.record().seq + 1);
      return outcomeResult(outcomes[0] as (typeof outcomes)[number]) as { attributes?: { inode: number } };
    };
    const owner = { mode: 0o755, uid: 0, gid: 0 };
    const place = (at: string, volume = 'main') => ({ volume, path: at });
    const make = async (at: string, volume = 'main'): Promise<number> => {
      const made = await run({ kind: 'create-file', place: place(at, volume), ...owner, exclusive: true });
      return made.attributes?.inode ?? 0;
    };
    for (const name of ['main', 'other'])
      await run({ kind: 'volume-create', name, replicas: 3, objectBytes: 4096 });
    for (const at of ['/a', '/a/b', '/z']) await run({ kind: 'make-directory', place: place(at), ...owner });
    const top = await make('/top');
    const deep = await make('/a/b/deep');
    const other = await make('/there', 'other');
    const linked = await make('/z/linked');
    await run({ kind: 'link', inode: linked, place: place('/a/also') });
    const gone = await make('/gone');
    await run({ kind: 'unlink', place: place('/gone') });

    const found = (inodes: number[]) => store.query({ kind: 'paths', inodes }).paths;
    assert.deepEqual(found([top, deep, other, gone, 999_999]), [
      { inode: top, volume: 'main', path: '/top' },
      { inode: deep, volume: 'main', path: '/a/b/deep' },
      { inode: other, volume: 'other', path: '/there' },
    ]);
    assert.deepEqual(found([linked]), [{ inode: linked, volume: 'main', path: '/a/also' }]);
    await run({ kind: 'unlink', place: place('/a/also') });
    assert.deepEqual(found([linked]), [{ inode: linked, volume: 'main', path: '/z/linked' }]);
    assert.deepEqual(found([]), []);
  } finally {
    await store.close();
    fs.rmSync(folder, { recursive: true });
  }
});
