import type { Expectation, Place } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';
import type { ContentsPiece, Node } from './difference-records.ts';

const WRITES_AT_ONCE = 4;
/** Of a path that the catalog resolves. */
const PATH_LENGTH_MAX = 16_384;

export type Pieces = AsyncIterable<ContentsPiece>;

/** Creates and changes inodes of a volume so that they are as nodes of another one. */
export class TargetFiles {
  readonly #client: ClusterClient;
  readonly #volume: string;
  readonly #call: CallOptions;
  /** Of contents, written so far. */
  bytes = 0;
  /** Of new contents on their way to files that replace others. */
  #replacingBytes = 0;

  constructor(client: ClusterClient, volume: string, call: CallOptions) {
    this.#client = client;
    this.#volume = volume;
    this.#call = call;
  }

  /** Creates an inode at a place that is free. @returns its number; of a directory, the caller sets the attributes */
  async create(node: Node, place: Place, contents: Pieces): Promise<number> {
    const { kind, mode, uid, gid, target, device } = node;
    switch (kind) {
      case 'file':
        return this.#createFile(node, place, contents);
      case 'directory': {
        const { attributes } = await this.#client.command(
          { kind: 'make-directory', place, mode, uid, gid },
          this.#call,
        );
        return attributes.inode;
      }
      case 'symlink': {
        const made = await this.#client.command({ kind: 'symlink', place, target, uid, gid }, this.#call);
        await this.setAttributes(made.attributes.inode, node, true);
        return made.attributes.inode;
      }
      default: {
        const made = await this.#client.command(
          { kind: 'make-node', place, type: kind, device, mode, uid, gid },
          this.#call,
        );
        await this.setAttributes(made.attributes.inode, node, true);
        return made.attributes.inode;
      }
    }
  }

  /** The file appears at its place with all of its contents. */
  async #createFile(node: Node, place: Place, contents: Pieces): Promise<number> {
    const inode = await this.#putContents(node, place, contents, { kind: 'anything' });
    await this.setAttributes(inode, node, true);
    return inode;
  }

  /** @returns the number of a new file with these contents, which has the name at `place` */
  async #putContents(node: Node, place: Place, contents: Pieces, expect: Expectation): Promise<number> {
    const { mode, uid, gid } = node;
    const volume = this.#volume;
    const orphan = await this.#client.command(
      { kind: 'create-orphan', volume, place, mode, uid, gid },
      this.#call,
    );
    const { inode, replicas, policy } = orphan.attributes;
    const file = this.#client.openFile(inode, { replicas });
    await this.#write(file, node, contents);
    await (policy === 'read-only' ? file.seal(this.#call) : file.flush(this.#call));
    await file.settle(this.#call);
    await this.#client.command({ kind: 'replace', place, inode, expect, trash: false }, this.#call);
    return inode;
  }

  /** @returns the place of a file; null if it has several, or none, or one of a path that is too long to be resolved */
  async onlyPlaceOf(inode: number): Promise<Extract<Place, { parent: number }> | null> {
    const client = this.#client;
    const { attributes } = await client.query({ kind: 'attributes', inode }, this.#call);
    const [found] = (await client.query({ kind: 'paths', inodes: [inode] }, this.#call)).paths;
    if (attributes.links !== 1 || found === undefined || found.path.length > PATH_LENGTH_MAX) return null;
    const { volume, path } = found;
    const end = path.lastIndexOf('/');
    const directory = await client.resolve(volume, path.slice(0, end) || '/', this.#call);
    return { parent: directory.inode, name: path.slice(end + 1) };
  }

  /**
   * Replaces a file by one with other contents: a write that comes late changes a file without a name.
   * @param place its only one
   * @returns the number of the new file, which has the other attributes of the old one
   */
  async replace(inode: number, node: Node, place: Place, contents: Pieces): Promise<number> {
    this.#replacingBytes += node.sizeBytes;
    try {
      return await this.#putContents(node, place, contents, { kind: 'inode', inode });
    } finally {
      this.#replacingBytes -= node.sizeBytes;
    }
  }

  /** @returns whether the volume's quota allows a file's old and new contents at the same time */
  async hasRoomFor(bytes: number): Promise<boolean> {
    const { volume } = await this.#client.query({ kind: 'volume', name: this.#volume }, this.#call);
    const { quotaBytes, usedBytes } = volume;
    return quotaBytes === 0 || usedBytes + this.#replacingBytes + bytes <= quotaBytes;
  }

  /** Replaces the contents of a file that may have several names. */
  async rewrite(inode: number, node: Node, contents: Pieces): Promise<void> {
    const file = this.#client.openFile(inode);
    await file.truncate(0, this.#call);
    await this.#write(file, node, contents);
    await file.flush(this.#call);
    await file.settle(this.#call);
  }

  async #write(file: FileHandle, { sizeBytes }: Node, contents: Pieces): Promise<void> {
    let end = 0;
    const writes = prefetch(contents, WRITES_AT_ONCE, async ({ offset, bytes }) => {
      if (bytes.length > 0) await file.write(offset, bytes, this.#call);
      return { end: offset + bytes.length, length: bytes.length };
    });
    for await (const written of writes) {
      this.bytes += written.length;
      end = Math.max(end, written.end);
    }
    if (end < sizeBytes) await file.truncate(sizeBytes, this.#call);
  }

  /** @param isNew it has no extended attributes but those that it inherited */
  async setAttributes(
    inode: number,
    { mode, uid, gid, modifiedNs, xattrs }: Pick<Node, 'mode' | 'uid' | 'gid' | 'modifiedNs' | 'xattrs'>,
    isNew: boolean,
  ): Promise<void> {
    if (xattrs !== null) await this.#setXattrs(inode, xattrs, isNew);
    await this.#client.command({ kind: 'set-attributes', inode, mode, uid, gid, modifiedNs }, this.#call);
  }

  async #setXattrs(inode: number, xattrs: NonNullable<Node['xattrs']>, isNew: boolean): Promise<void> {
    const wanted = new Map(xattrs);
    const { attributes } = await this.#client.query({ kind: 'attributes', inode }, this.#call);
    if (attributes.xattrs !== 0 || !isNew) {
      const { names } = await this.#client.query({ kind: 'xattrs', inode }, this.#call);
      for (const name of names)
        if (!wanted.has(name)) await this.#client.command({ kind: 'remove-xattr', inode, name }, this.#call);
    }
    for (const [name, value] of wanted)
      await this.#client.command({ kind: 'set-xattr', inode, name, value, mode: 'set' }, this.#call);
  }
}
