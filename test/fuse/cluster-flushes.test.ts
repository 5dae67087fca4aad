/**
 * Goal: `fsync` flushes the catalog after this mount's changes of names and attributes. Method: a client that counts
 * flushes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { FileSystemBackend } from '../../fuse/backend.ts';
import { clusterBackend } from '../../fuse/cluster/cluster-backend.ts';
import { systemWorld } from '../../world/system-world.ts';

const OWNER = { uid: 7, gid: 8 };
const FROM = { parent: 1, name: 'a' };
const TO = { parent: 1, name: 'b' };

const CHANGES: Readonly<Record<string, (backend: FileSystemBackend) => Promise<unknown>>> = {
  rename: (backend) => backend.rename(FROM, TO, 'replace'),
  'rename-whiteout': (backend) => backend.renameWhiteout(FROM, TO, 'replace', OWNER),
  link: (backend) => backend.link(7, 1, 'b'),
  replace: (backend) => backend.nameFile(7, 1, 'b'),
  'set-attributes': (backend) => backend.setAttributes(7, { mode: 0o600 }),
  'set-xattr': (backend) => backend.setXattr(7, 'user.a', Buffer.from('x'), 'set'),
  'remove-xattr': (backend) => backend.removeXattr(7, 'user.a'),
};

test('fsync of a file flushes the catalog once after each change of a name or of attributes', async () => {
  const commands: string[] = [];
  let flushes = 0;
  const client = {
    world: systemWorld,
    command: async ({ kind }: { readonly kind: string }) => {
      commands.push(kind);
      return { attributes: { inode: 7 } };
    },
    commandWhereMoved: async ({ kind }: { readonly kind: string }) => {
      commands.push(kind);
      return { attributes: { inode: 7 } };
    },
    flushCatalog: async () => void flushes++,
  } as unknown as ClusterClient;
  const backend = clusterBackend(client, 'v');
  await backend.persistNames('mount');
  assert.equal(flushes, 0);
  for (const [index, [kind, change]] of Object.entries(CHANGES).entries()) {
    await change(backend);
    assert.equal(commands.at(-1), kind);
    for (let count = 0; count < 2; count++) await backend.persistNames('mount');
    assert.equal(flushes, index + 1, kind);
  }
});
