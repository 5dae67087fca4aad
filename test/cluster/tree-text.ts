import { createHash } from 'node:crypto';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { fileContents } from '../../client/difference/file-contents.ts';
import { xattrsOf } from '../../client/difference/snapshot-difference.ts';
import type { Attributes } from '../../wire/catalog-api.ts';

/**
 * All that copies of a volume have in common, one line for each name: attributes, extended attributes, hard links, and
 * the digest of contents.
 * @param tree a volume or `volume@snapshot`
 */
export async function treeText(client: ClusterClient, tree: string): Promise<string[]> {
  const lines: string[] = [];
  const firstNames = new Map<number, string>();
  const visit = async (path: string, attributes: Attributes): Promise<void> => {
    const { inode, kind, mode, uid, gid, links, sizeBytes, modifiedNs, target, device } = attributes;
    const first = firstNames.get(inode) ?? path;
    firstNames.set(inode, first);
    const sum = createHash('sha256');
    if (kind === 'file')
      for await (const { offset, bytes } of fileContents(client, attributes, {})) {
        // A hole and zeros are the same contents.
        if (!bytes.every((byte) => byte === 0)) sum.update(`${offset} ${bytes.length}\n`).update(bytes);
      }
    const xattrs = await xattrsOf(client, attributes, {});
    const count = kind === 'directory' ? 0 : links;
    const size = kind === 'directory' ? 0 : sizeBytes;
    const own = [path, kind, mode.toString(8), uid, gid, count, size, modifiedNs, target, device];
    lines.push(JSON.stringify([...own, first, xattrs.sort(), sum.digest('hex').slice(0, 16)]));
    if (kind !== 'directory') return;
    for await (const entry of client.list(attributes)) await visit(`${path}/${entry.name}`, entry.attributes);
  };
  await visit('', await client.resolve(tree, '/'));
  return lines;
}
