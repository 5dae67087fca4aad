import { type CatalogNumber, catalogOfInode, inodesOf } from '../../base/ids.ts';
import type { Attachment, Attachments } from '../../fuse/attachments.ts';
import { MetadataCache } from '../../fuse/metadata/cache.ts';
import { type Mounted, mountVolume, type NestedVolume } from '../../fuse/mount.ts';
import { PendingOps } from '../../fuse/pending/pending-ops.ts';
import type { FileSystemCalls, Transport, TransportOptions } from '../../fuse/transport.ts';
import { systemWorld } from '../../world/system-world.ts';
import { MemoryBackend } from './memory-backend.ts';

export const ROOT = 1;
export const OWNER = { uid: 0, gid: 0 };
export const A = 3 as CatalogNumber;
export const B = 5 as CatalogNumber;
const NAMES = new Map<CatalogNumber, string>([
  [A, 'a'],
  [B, 'b'],
]);

/** What the cluster's list says of volumes with catalogs of their own; none is attached at first. */
export class MemoryAttachments implements Attachments {
  ageMaxMs = 0;
  /** The list cannot be queried. */
  isAway = false;
  readonly backends = new Map([A, B].map((catalog) => [catalog, new MemoryBackend(inodesOf(catalog).first)]));
  readonly opened: string[] = [];
  readonly #attached = new Map<number, CatalogNumber>();

  backend(catalog: CatalogNumber): MemoryBackend {
    const backend = this.backends.get(catalog);
    if (backend === undefined) throw new Error(`There is no catalog ${catalog}`);
    return backend;
  }

  /** @returns the inode of the junction */
  attach(catalog: CatalogNumber, at: MemoryBackend, parent: number, name: string): number {
    const junction = at.makeJunction(parent, name, { catalog, volume: NAMES.get(catalog) ?? '' });
    this.#attached.set(junction, catalog);
    return junction;
  }

  /** The volume is attached nowhere; its junction stays, as after an interrupted detach. */
  detach(junction: number): void {
    this.#attached.delete(junction);
  }

  /** As the repetition of an interrupted attach. */
  complete(catalog: CatalogNumber, junction: number): void {
    this.#attached.set(junction, catalog);
  }

  async find({ catalog, volume }: { catalog: number; volume: string }, inode: number) {
    if (this.isAway) throw new Error('The list is away by intent');
    const known = this.#attached.get(inode);
    if (known !== catalog) return null;
    return { catalog: known, volume, root: inodesOf(known).first } satisfies Attachment;
  }

  async findByNumber(inode: number, root: number): ReturnType<Attachments['findByNumber']> {
    const junctions: number[] = [];
    const catalog = catalogOfInode(inode);
    for (let at = catalog; at !== catalogOfInode(root); ) {
      const found = [...this.#attached].find(([, attached]) => attached === at);
      if (found === undefined) return null;
      junctions.push(found[0]);
      at = catalogOfInode(found[0]);
    }
    const attachment = { catalog, volume: NAMES.get(catalog) ?? '', root: inodesOf(catalog).first };
    return { attachment, junctions };
  }

  catalogOf: (inode: number) => CatalogNumber = catalogOfInode;

  async refresh(): Promise<void> {}
  stop = () => Promise.resolve();

  open({ catalog, volume }: Attachment): NestedVolume {
    this.opened.push(volume);
    const cache = new MetadataCache(systemWorld, 0);
    return { backend: this.backend(catalog), cache, pending: new PendingOps(systemWorld) };
  }
}

/** A mount without a kernel: the calls for one, and the options of its transport. */
export interface CalledMount {
  readonly calls: FileSystemCalls;
  readonly options: TransportOptions;
  readonly mounted: Mounted;
}

/** A transport without a kernel. @param called receives what it is to serve */
export function idleTransport(
  called: (calls: FileSystemCalls, options: TransportOptions) => void = () => undefined,
): Transport {
  return async (_directory, calls, options) => {
    called(calls, options);
    const ended = Promise.withResolvers<void>();
    return {
      ended: ended.promise,
      checksAttributesBeforeReads: true,
      unmount: async () => ended.resolve(),
      invalidateInode: async () => undefined,
      expireNames: async () => undefined,
      dropAttributes: async () => undefined,
    };
  };
}

export async function calledMount(
  backend: MemoryBackend,
  attachments: MemoryAttachments,
  ageMaxMs = 0,
  world = systemWorld,
): Promise<CalledMount> {
  const given = Promise.withResolvers<Pick<CalledMount, 'calls' | 'options'>>();
  const transport = idleTransport((calls, options) => given.resolve({ calls, options }));
  const mounted = await mountVolume(backend, transport, {
    ...{ directory: '/', source: 'leasehold:test', world, limitMs: 5_000, xattrs: true },
    ...{ log: () => undefined, ageMaxMs },
    nested: { attachments, open: (attachment) => attachments.open(attachment) },
  });
  return { ...(await given.promise), mounted };
}
