import { OPCODE } from '../../../fuse/kernel/protocol.ts';
import type { Dentry } from './dentries.ts';
import type { Call, FuseClient } from './fuse-client.ts';
import { type Inode, STALE } from './inode.ts';
import { ignoreKernelError, KernelError } from './kernel-error.ts';
import { type DirectoryEntry, type Entry, nameBytes } from './messages.ts';
import { MAY } from './permissions.ts';

const LINKS_MAX = 40;
const PATH_BYTES_MAX = 4096;

/** A name and its inode. */
export interface Place {
  readonly dentry: Dentry;
  readonly inode: Inode;
}

/** The last component of a path, and its directory. */
export interface LastName {
  readonly parent: Place;
  readonly name: string;
  readonly kind: 'name' | 'dot' | 'dotdot' | 'root';
  readonly hasSlash: boolean;
}

/** Counts the symbolic links that one walk has followed. */
interface Depth {
  links: number;
}

const begun = (): Depth => ({ links: 0 });

/** The path walk (fs/namei.c) over the dentries of a mount. */
export class Names {
  readonly #client: FuseClient;
  /** d_alloc_parallel: pending look-ups, for which others of the same name wait. */
  readonly #underWay = new Map<Inode, Map<string, Promise<Dentry>>>();

  constructor(client: FuseClient) {
    this.#client = client;
  }

  /** filename_lookup. @throws KernelError ENOENT */
  async find(
    call: Call,
    from: Dentry,
    path: string,
    follows: boolean,
    depth: Depth = begun(),
  ): Promise<Place> {
    return this.#last(call, await this.parent(call, from, path, depth), follows, depth);
  }

  /** filename_parentat and link_path_walk */
  async parent(call: Call, from: Dentry, path: string, depth: Depth = begun()): Promise<LastName> {
    if (path === '') throw new KernelError('ENOENT');
    if (nameBytes(path).length >= PATH_BYTES_MAX) throw new KernelError('ENAMETOOLONG');
    const names = path.split('/').filter((name) => name !== '');
    const hasSlash = path.endsWith('/');
    const name = names.pop();
    let parent = this.#place(call, path.startsWith('/') ? this.#client.dentries.root : from);
    for (const each of names) {
      const last = { parent, name: each, kind: kindOf(each), hasSlash: true } as const;
      await this.#checkSearch(call, parent.inode);
      parent = await this.#last(call, last, true, depth);
    }
    if (name === undefined) return { parent, name: '/', kind: 'root', hasSlash };
    // A path through a non-directory fails before its last name is checked.
    if (!parent.inode.isDirectory) throw new KernelError('ENOTDIR');
    await this.#checkSearch(call, parent.inode);
    return { parent, name, kind: kindOf(name), hasSlash };
  }

  /** @returns what a last name leads to */
  async #last(
    call: Call,
    { parent, name, kind, hasSlash }: LastName,
    follows: boolean,
    depth: Depth,
  ): Promise<Place> {
    if (kind === 'root' || kind === 'dot') return parent;
    if (kind === 'dotdot') return this.#place(call, parent.dentry.parent ?? parent.dentry);
    if (!parent.inode.isDirectory) throw new KernelError('ENOTDIR');
    const dentry = await this.#lookup(call, parent, name);
    const { inode } = dentry;
    if (inode === null) throw new KernelError('ENOENT');
    if (inode.isSymlink && (follows || hasSlash)) {
      const target = await this.followOnce(call, inode, depth);
      const place = await this.find(call, parent.dentry, target, true, depth);
      if (hasSlash && !place.inode.isDirectory) throw new KernelError('ENOTDIR');
      return place;
    }
    if (hasSlash && !inode.isDirectory) throw new KernelError('ENOTDIR');
    return { dentry, inode: call.pin(inode) };
  }

  /** @throws KernelError ELOOP after too many */
  async followOnce(call: Call, link: Inode, depth: Depth): Promise<string> {
    depth.links++;
    if (depth.links > LINKS_MAX) throw new KernelError('ELOOP');
    return this.readLink(call, link);
  }

  /** fuse_get_link: the target is cached like a page. */
  async readLink({ task, pin }: Call, link: Inode): Promise<string> {
    pin(link);
    if (link.isBad) throw new KernelError('EIO');
    if (link.linkTarget !== null) return link.linkTarget;
    const reply = await this.#client.queue.request(task, OPCODE.readlink, link.node, []);
    link.invalidate(STALE.accessed);
    const target = reply.toString('utf8');
    if (this.#client.has('cacheSymlinks')) link.linkTarget = target;
    return target;
  }

  #place(call: Call, dentry: Dentry): Place {
    const { inode } = dentry;
    if (inode === null) throw new KernelError('ENOENT');
    return { dentry, inode: call.pin(inode) };
  }

  async #checkSearch(call: Call, directory: Inode): Promise<void> {
    if (!directory.isDirectory) throw new KernelError('ENOTDIR');
    await this.#client.checkAccess(call, directory, MAY.exec);
  }

  /** lookup_fast and lookup_slow: the dentry of a name, which may be of an absent file. */
  async #lookup(call: Call, parent: Place, name: string): Promise<Dentry> {
    const dentry = await this.cached(call, parent, name);
    if (dentry !== null) return dentry;
    return parent.inode.lock.shared(() => this.lookupLocked(call, parent, name));
  }

  /**
   * lookup_slow, if the directory is locked.
   * @param asks the name must be new, or is a rename's target: it is looked up in any case
   */
  async lookupLocked(call: Call, parent: Place, name: string, asks = false): Promise<Dentry> {
    const dentry = await this.cached(call, parent, name, asks);
    if (dentry !== null) return dentry;
    if (parent.inode.isDead) throw new KernelError('ENOENT');
    const underWay = this.#underWay.get(parent.inode)?.get(name);
    if (underWay !== undefined) {
      // The other look-up reports its own error. Its result is checked again.
      await underWay.catch(ignoreKernelError);
      return this.lookupLocked(call, parent, name, asks);
    }
    return this.#alone(parent.inode, name, () => this.#ask(call, parent, name));
  }

  async #alone(directory: Inode, name: string, run: () => Promise<Dentry>): Promise<Dentry> {
    const names = this.#underWay.get(directory) ?? new Map<string, Promise<Dentry>>();
    this.#underWay.set(directory, names);
    const asked = run();
    names.set(name, asked);
    try {
      return await asked;
    } finally {
      names.delete(name);
      if (names.size === 0) this.#underWay.delete(directory);
    }
  }

  /** fuse_lookup */
  async #ask(call: Call, parent: Place, name: string): Promise<Dentry> {
    const client = this.#client;
    const { version, evictions } = client;
    const entry = await client.askName(call, parent.inode, name);
    const inode =
      entry === null || entry.node === 0 ? null : await client.inodeOf(call, entry, version, evictions);
    const dentry = client.dentries.add(parent.dentry, name, inode);
    dentry.validUntilMs = client.untilMs(entry?.nameMs ?? 0);
    if (inode !== null) parent.inode.advisesPlus = true;
    return dentry;
  }

  /** lookup_fast: a known and valid dentry; null if the file system must be asked. */
  async cached(call: Call, parent: Place, name: string, asks = false): Promise<Dentry | null> {
    const dentry = this.#client.dentries.find(parent.dentry, name);
    if (dentry === undefined) return null;
    if (await this.#revalidate(call, parent.inode, dentry, asks)) return dentry;
    this.#client.dentries.invalidate(dentry);
    return null;
  }

  /** fuse_dentry_revalidate */
  async #revalidate(call: Call, directory: Inode, dentry: Dentry, asks: boolean): Promise<boolean> {
    const client = this.#client;
    const { inode } = dentry;
    if (inode?.isBad) return false;
    if (!asks && !call.revalidates && dentry.validUntilMs >= client.world.nowMs()) {
      if (inode?.cameByPlus) {
        inode.cameByPlus = false;
        directory.advisesPlus = true;
      }
      return true;
    }
    if (inode === null) return false;
    call.pin(inode);
    const { version } = client;
    let entry: Entry | null;
    try {
      entry = await client.askName(call, directory, dentry.name);
    } catch (error) {
      // ENOMEM and EINTR are returned; after other errors the name is looked up again.
      if (error instanceof KernelError && error.errno !== 'EINTR') return false;
      throw error;
    }
    if (entry === null || entry.node === 0) return false;
    if (entry.node !== inode.node) {
      client.forget(entry.node);
      return false;
    }
    inode.lookups++;
    if ((entry.attributes.mode & 0o170000) !== inode.type) return false;
    inode.forgetAcls();
    await client.changeAttributes(inode, entry.attributes, entry.attributesMs, version);
    dentry.validUntilMs = client.untilMs(entry.nameMs);
    return true;
  }

  /** fuse_direntplus_link: an entry of a listing counts as a look-up. */
  async link(
    call: Call,
    parent: Dentry,
    { name, entry }: DirectoryEntry,
    version: number,
    evictions: number,
  ): Promise<void> {
    if (entry === undefined || name === '.' || name === '..') return;
    const client = this.#client;
    const directory = parent.inode;
    const underWay = directory === null ? undefined : this.#underWay.get(directory)?.get(name);
    await underWay?.catch(ignoreKernelError);
    let dentry = client.dentries.find(parent, name);
    if (dentry !== undefined && dentry.inode?.node !== entry.node) {
      client.dentries.invalidate(dentry);
      dentry = undefined;
    }
    const inode = dentry?.inode ?? null;
    if (dentry !== undefined && inode !== null) {
      call.pin(inode);
      inode.lookups++;
      inode.forgetAcls();
      await client.changeAttributes(inode, entry.attributes, entry.attributesMs, version);
      inode.cameByPlus = client.has('readDirectoryPlusAuto');
    } else {
      const found = await client.inodeOf(call, entry, version, evictions);
      dentry = client.dentries.add(parent, name, found);
      found.cameByPlus = client.has('readDirectoryPlusAuto');
    }
    dentry.validUntilMs = client.untilMs(entry.nameMs);
  }
}

function kindOf(name: string): LastName['kind'] {
  return name === '.' ? 'dot' : name === '..' ? 'dotdot' : 'name';
}
