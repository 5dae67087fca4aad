import { readFile } from 'node:fs/promises';
import { dateOfNs } from '../../base/dates.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';
import type { FileSystemBackend } from '../backend.ts';
import { ErrnoError } from '../errno.ts';
import { RETAIN_UNTIL } from '../xattr-names.ts';

/** Virtual extended attributes `leasehold.*`: computed from the cluster on each read. One can be set: a retention. */

const PREFIX = 'leasehold.';
const OF_ALL = ['volume', 'inode'];
const OF_FILES = ['replicas', 'policy', 'primary', 'epoch', 'version', 'sealed'];
/** Of files that are, or were, retained. */
const RETENTION = RETAIN_UNTIL.slice(PREFIX.length);
const OF_DIRECTORIES = ['policy', 'copies'];

/** Null if the inode has no virtual attribute of this name. */
export type VirtualAttributes = (inode: number, name: string) => Promise<string | null>;

export function clusterVirtualAttributes(client: ClusterClient, volume: string): VirtualAttributes {
  return async (inode, name) => {
    if (name === 'volume') return volume;
    if (name === 'inode') return String(inode);
    const { attributes } = await client.query({ kind: 'attributes', inode });
    if (attributes.kind === 'directory') {
      if (!OF_DIRECTORIES.includes(name)) return null;
      const { policy, replicas } = (await client.query({ kind: 'volume', name: volume })).volume;
      return name === 'policy' ? policy : String(replicas);
    }
    if (name === RETENTION) {
      const { retainUntilNs } = attributes;
      return retainUntilNs === undefined ? null : dateOfNs(retainUntilNs);
    }
    if (attributes.kind !== 'file' || !OF_FILES.includes(name)) return null;
    if (name === 'replicas') return attributes.replicas.join(',');
    if (name === 'policy') return attributes.policy ?? null;
    const file = client.openFile(inode, { replicas: attributes.replicas });
    switch (name) {
      case 'primary':
        return (await file.ensurePrimary()).primary;
      case 'epoch':
        return String((await file.ensurePrimary()).epoch);
      case 'sealed':
        return (await file.state()).sealed === true ? 'yes' : 'no';
      default: {
        const { epoch, seq } = (await file.state()).contents;
        return `${epoch}.${seq}`;
      }
    }
  };
}

/**
 * Programs that copy all listed attributes (`rsync -X` as root) fail at a target that refuses virtual ones. So `auto`
 * lists them only for `getfattr`, which does not copy.
 */
export type VirtualListing = 'auto' | 'listed' | 'hidden';

const PROGRAM_THAT_SHOWS = 'getfattr';

export function withVirtualAttributes(
  backend: FileSystemBackend,
  facts: VirtualAttributes,
  listing: VirtualListing,
): FileSystemBackend {
  return {
    ...backend,
    async xattr(inode, name) {
      if (!name.startsWith(PREFIX)) return backend.xattr(inode, name);
      const value = await facts(inode, name.slice(PREFIX.length));
      if (value === null) throw new ErrnoError('ENODATA', `There is no ${name} here`);
      return Buffer.from(value);
    },
    async xattrs(inode, thread = 0) {
      const kept = await backend.xattrs(inode, thread);
      const isListed = listing === 'auto' ? await isOfProgramThatShows(thread) : listing === 'listed';
      if (!isListed) return kept;
      const { kind, retainUntilNs } = await backend.attributes(inode);
      const more = kind === 'file' ? OF_FILES : kind === 'directory' ? OF_DIRECTORIES : [];
      const retention = retainUntilNs === undefined ? [] : [RETENTION];
      return [...kept, ...[...OF_ALL, ...more, ...retention].map((name) => PREFIX + name)];
    },
    async setXattr(inode, name, value, ...how) {
      if (name !== RETAIN_UNTIL) refuseVirtual(name);
      await backend.setXattr(inode, name, value, ...how);
    },
    async removeXattr(inode, name) {
      refuseVirtual(name);
      await backend.removeXattr(inode, name);
    },
  };
}

/** Whether the thread is of `getfattr`. False also if unknown: it is in another container, or has ended. */
async function isOfProgramThatShows(thread: number): Promise<boolean> {
  if (thread === 0) return false;
  try {
    return (await readFile(`/proc/${thread}/comm`, 'utf8')).trimEnd() === PROGRAM_THAT_SHOWS;
  } catch {
    return false;
  }
}

function refuseVirtual(name: string): void {
  if (name.startsWith(PREFIX)) throw new ErrnoError('EOPNOTSUPP', `${name} cannot be changed`);
}
