import type { ClusterClient } from '../cluster/cluster-client.ts';
import { preconditionFailure } from '../terminal/failure.ts';
import type { CallOptions } from '../transport/exchange.ts';

interface Tree {
  readonly client: ClusterClient;
  /** Number of the directory. */
  readonly inode: number;
  readonly snapshot: number;
}

/**
 * Matches the inodes of a snapshot with those of its copy, by their names. Reads all names of both.
 * @param copies gets the copy of each inode
 * @throws CommandFailure if they do not have the same names
 */
export async function matchInodes(
  original: Tree,
  copy: Tree,
  copies: Map<number, number>,
  call: CallOptions,
  path = '/',
): Promise<void> {
  copies.set(original.inode, copy.inode);
  const others = copy.client.list(copy, call);
  for await (const { name, attributes } of original.client.list(original, call)) {
    const other = await others.next();
    if (other.done || other.value.name !== name || other.value.attributes.kind !== attributes.kind)
      throw differs(`${path}${name}`);
    const [inode, copyInode] = [attributes.inode, other.value.attributes.inode];
    const known = copies.get(inode);
    if (known !== undefined && known !== copyInode) throw differs(`${path}${name}`);
    if (attributes.kind === 'directory')
      await matchInodes(
        { ...original, inode },
        { ...copy, inode: copyInode },
        copies,
        call,
        `${path}${name}/`,
      );
    else copies.set(inode, copyInode);
  }
  const more = await others.next();
  if (!more.done) throw differs(`${path}${more.value.name}`);
}

function differs(path: string): Error {
  return preconditionFailure(
    `Cannot continue the mirror: its two snapshots of one number differ at "${path}"`,
    'remove the snapshots "mirror-…" of the target, and start again with --replace',
  );
}
