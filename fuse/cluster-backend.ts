import { assert } from '../base/assert.ts';
import type { ClusterClient } from '../client/cluster-client.ts';
import type { AttributeChanges, BackendFile, FileSystemBackend } from './backend.ts';

/** The volume of a real cluster, through the client library. */
export function clusterBackend(client: ClusterClient, volume: string): FileSystemBackend {
  return {
    async start() {
      const answer = await client.query({ kind: 'volume', name: volume });
      return answer.volume.root;
    },
    stop: () => client.close(),
    async lookup(parent, name) {
      return (await client.query({ kind: 'lookup', parent, name })).attributes;
    },
    async attributes(inode) {
      return (await client.query({ kind: 'attributes', inode })).attributes;
    },
    list: (inode, after, countMax) => client.query({ kind: 'list', inode, after, countMax }),
    createFile: (parent, name, mode, { uid, gid }, exclusive) =>
      client.command({ kind: 'create-file', place: { parent, name }, mode, uid, gid, exclusive }),
    async makeDirectory(parent, name, mode, { uid, gid }) {
      const command = { kind: 'make-directory', place: { parent, name }, mode, uid, gid } as const;
      return (await client.command(command)).attributes;
    },
    async makeNode(parent, name, type, device, mode, { uid, gid }) {
      const command = { kind: 'make-node', place: { parent, name }, type, device, mode, uid, gid } as const;
      return (await client.command(command)).attributes;
    },
    async symlink(parent, name, target, { uid, gid }) {
      const command = { kind: 'symlink', place: { parent, name }, target, uid, gid } as const;
      return (await client.command(command)).attributes;
    },
    async link(inode, parent, name) {
      return (await client.command({ kind: 'link', inode, place: { parent, name } })).attributes;
    },
    unlink: (parent, name) => client.command({ kind: 'unlink', place: { parent, name } }),
    async removeDirectory(parent, name) {
      await client.command({ kind: 'remove-directory', place: { parent, name } });
    },
    rename: (from, to, mode) => client.command({ kind: 'rename', from, to, mode }),
    async setAttributes(inode, changes: AttributeChanges) {
      return (await client.command({ kind: 'set-attributes', inode, ...changes })).attributes;
    },
    async keepOrphan(inode) {
      await client.command({ kind: 'keep-orphan', inode });
    },
    async xattr(inode, name) {
      return Buffer.from((await client.query({ kind: 'xattr', inode, name })).value, 'base64');
    },
    async xattrs(inode) {
      return (await client.query({ kind: 'xattrs', inode })).names;
    },
    async setXattr(inode, name, value, mode) {
      const base64 = Buffer.from(value).toString('base64');
      await client.command({ kind: 'set-xattr', inode, name, value: base64, mode });
    },
    async removeXattr(inode, name) {
      await client.command({ kind: 'remove-xattr', inode, name });
    },
    async space() {
      const [{ volume: info }, { servers }] = await Promise.all([
        client.query({ kind: 'volume', name: volume }),
        client.status(),
      ]);
      // Every byte of the volume takes as much room on each of its replicas.
      const sum = (of: (server: (typeof servers)[number]) => number): number =>
        Math.floor(servers.reduce((total, server) => total + of(server), 0) / info.replicas);
      return {
        totalBytes: sum((server) => server.totalBytes),
        freeBytes: sum((server) => server.freeBytes),
        inodes: info.inodes,
      };
    },
    openFile: (inode, replicas) => clusterFile(client, inode, replicas),
  };
}

function clusterFile(client: ClusterClient, inode: number, replicas: readonly string[]): BackendFile {
  const handle = client.openFile(inode, { replicas });
  return {
    async read(offset, length) {
      const { bytes } = await handle.read(offset, length);
      assert(bytes.length <= length, 'No more is answered than was asked for');
      return bytes;
    },
    write: (offset, bytes) => handle.write(offset, bytes),
    append: (bytes) => handle.write('append', bytes),
    truncate: (sizeBytes) => handle.truncate(sizeBytes),
    flush: () => handle.flush(),
    async seal() {
      await handle.seal();
    },
    async settle() {
      await handle.settle();
    },
    state: () => handle.state(),
  };
}
