import { setTimeout as delay } from 'node:timers/promises';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type {
  AttributeChanges,
  Attributes,
  BackendFile,
  BackendLocks,
  ContentVersion,
  FileState,
  FileSystemBackend,
  Junction,
  NewFile,
  NodeKind,
  Owner,
  RecordedAccess,
  RenameMode,
  Space,
  XattrMode,
} from '../../fuse/backend.ts';
import { withoutPrivileges } from '../../fuse/metadata/inodes.ts';
import { LockTable } from '../../server/file/lock-table.ts';
import type { InodeFlag } from '../../wire/inode-flags.ts';

const BLOCK = 1024 * 1024;

interface Inode {
  readonly inode: number;
  readonly kind: NodeKind;
  mode: number;
  uid: number;
  gid: number;
  links: number;
  accessedNs: bigint;
  modifiedNs: bigint;
  changedNs: bigint;
  readonly createdNs: bigint;
  readonly target: string;
  readonly device: number;
  sizeBytes: number;
  contents: ContentVersion;
  live: boolean;
  /** The contents' state that was last reported to the catalog; of a live file its primary knows more. */
  settled: FileState;
  readonly blocks: Map<number, Buffer>;
  readonly children: Map<string, number>;
  readonly xattrs: Map<string, Uint8Array>;
  flags: readonly InodeFlag[];
  /** Nothing can be created in it, and it cannot be removed by `removeDirectory`. */
  readonly junction?: Junction;
}

/** What a test changes in the backend, which runs in another process. */
export interface Disturbance {
  /** Calls get no answer until this is false again. */
  readonly stalled?: boolean;
  readonly delayMs?: number;
  /** Writes of contents fail with this code. */
  readonly writesFail?: ErrorCode | null;
  /**
   * The file that a look-up finds by this name is replaced by a copy right after it, once, as by another mount's
   * rename.
   */
  readonly replaced?: string | null;
}

/** A cluster in memory, with the semantics of the catalog and of the files' primaries. */
export class MemoryBackend implements FileSystemBackend {
  readonly #inodes = new Map<number, Inode>();
  readonly calls: Record<string, number> = {};
  /** The recorded access times, by request. */
  readonly noted: (readonly RecordedAccess[])[] = [];
  /** The update policy of all files. */
  policy: 'quorum' | 'read-only' = 'quorum';
  readonly #locks = new Map<number, LockTable>();
  readonly root: number;
  #last: number;
  #seq = 1;
  #lastNs = 0n;
  #disturbance: Disturbance = {};
  #resumed: PromiseWithResolvers<void> | undefined;

  /** @param root its inode; later ones get the next numbers */
  constructor(root = 1) {
    this.root = root;
    this.#last = root;
    this.#make('directory', 0o755, { uid: 0, gid: 0 }, 2);
  }

  /** Makes a junction, as by `leasehold volume attach`. @returns its inode */
  makeJunction(parent: number, name: string, junction: Junction): number {
    const made = this.#makeAt(parent, name, 'directory', 0o755, { uid: 0, gid: 0 });
    this.#inodes.set(made.inode, { ...made, junction });
    this.#get(parent).links++;
    return made.inode;
  }

  /** As by `leasehold volume detach`. */
  removeJunction(parent: number, name: string): void {
    this.#inodes.delete(this.#child(parent, name).inode);
    this.#directory(parent).children.delete(name);
    this.#get(parent).links--;
  }

  readonly findsNumbers = false;
  readonly caches = false;

  async persistNames(): Promise<void> {}

  async byNumber(inode: number): Promise<Attributes> {
    throw new ServiceError('not-found', `Inode ${inode} is not found by its number`);
  }

  isCached(): boolean {
    return false;
  }

  granted(): undefined {
    return undefined;
  }

  delegatedAttributesMs(): number {
    return 0;
  }

  grantedAttributes(): undefined {
    return undefined;
  }

  nameGrantedMs(): number {
    return 0;
  }

  isGranted(): boolean {
    return false;
  }

  isCatalogUnavailable(): boolean {
    return false;
  }

  isChanging(): boolean {
    return false;
  }

  disturb(disturbance: Disturbance): void {
    this.#disturbance = { ...this.#disturbance, ...disturbance };
    if (this.#disturbance.stalled) this.#resumed ??= Promise.withResolvers();
    else {
      this.#resumed?.resolve();
      this.#resumed = undefined;
    }
  }

  async start(): Promise<number> {
    await this.#reach('start');
    return this.root;
  }

  async stop(): Promise<void> {}

  async lookup(parent: number, name: string): Promise<Attributes> {
    await this.#reach('lookup');
    const attributes = this.#attributes(this.#child(parent, name));
    if (this.#disturbance.replaced === name) this.#replace(parent, name);
    return attributes;
  }

  #replace(parent: number, name: string): void {
    this.#disturbance = { ...this.#disturbance, replaced: null };
    const before = this.#child(parent, name);
    // A file without names stays for handles.
    if (before.kind === 'file') this.#inodes.set(before.inode, { ...before, links: 0 });
    else this.#inodes.delete(before.inode);
    const inode = ++this.#last;
    this.#inodes.set(inode, { ...before, inode });
    this.#directory(parent).children.set(name, inode);
  }

  async attributes(inode: number): Promise<Attributes> {
    await this.#reach('attributes');
    return this.#attributes(this.#get(inode));
  }

  async list(inode: number, after: string, countMax: number) {
    await this.#reach('list');
    const names = [...this.#directory(inode).children.keys()]
      .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
      .filter((name) => after === '' || Buffer.compare(Buffer.from(name), Buffer.from(after)) > 0);
    const entries = names
      .slice(0, countMax)
      .map((name) => ({ name, attributes: this.#attributes(this.#child(inode, name)) }));
    return { entries, more: names.length > countMax };
  }

  async createFile(parent: number, name: string, mode: number, owner: Owner, exclusive: boolean) {
    await this.#reach('createFile');
    const present = this.#directory(parent).children.get(name);
    if (present !== undefined) {
      if (exclusive) throw new ServiceError('exists', `"${name}" is there`);
      return { attributes: this.#catalogAttributes(this.#get(present)), created: false };
    }
    const inode = this.#makeAt(parent, name, 'file', mode, owner);
    inode.live = true;
    return { attributes: this.#attributes(inode), created: true };
  }

  async makeDirectory(parent: number, name: string, mode: number, owner: Owner): Promise<Attributes> {
    await this.#reach('makeDirectory');
    const inherited = this.#directory(parent).mode & 0o2000;
    const made = this.#makeAt(parent, name, 'directory', mode | inherited, owner);
    this.#get(parent).links++;
    return this.#attributes(made);
  }

  async makeNode(
    parent: number,
    name: string,
    type: 'fifo' | 'socket' | 'character' | 'block',
    device: number,
    mode: number,
    owner: Owner,
  ): Promise<Attributes> {
    await this.#reach('makeNode');
    return this.#attributes(this.#makeAt(parent, name, type, mode, owner, '', device));
  }

  async symlink(parent: number, name: string, target: string, owner: Owner): Promise<Attributes> {
    await this.#reach('symlink');
    return this.#attributes(this.#makeAt(parent, name, 'symlink', 0o777, owner, target));
  }

  async link(inode: number, parent: number, name: string): Promise<Attributes> {
    await this.#reach('link');
    return this.#link(inode, parent, name);
  }

  #link(inode: number, parent: number, name: string): Attributes {
    const target = this.#get(inode);
    const directory = this.#directory(parent);
    if (directory.children.has(name)) throw new ServiceError('exists', `"${name}" is there`);
    directory.children.set(name, inode);
    target.links++;
    target.changedNs = this.#touch(directory);
    return this.#attributes(target);
  }

  async createUnnamed(mode: number, owner: Owner): Promise<Attributes> {
    await this.#reach('createUnnamed');
    return this.#attributes(this.#make('file', mode & ~(owner.umask ?? 0), owner, 0));
  }

  async nameFile(inode: number, parent: number, name: string): Promise<Attributes> {
    await this.#reach('nameFile');
    return this.#link(inode, parent, name);
  }

  async unlink(parent: number, name: string) {
    await this.#reach('unlink');
    const inode = this.#child(parent, name);
    if (inode.kind === 'directory') throw new ServiceError('is-directory', `"${name}" is a directory`);
    this.#directory(parent).children.delete(name);
    inode.links--;
    const atNs = this.#touch(this.#get(parent));
    inode.changedNs = atNs;
    return { inode: inode.inode, links: inode.links, atNs: String(atNs) };
  }

  async removeDirectory(parent: number, name: string) {
    await this.#reach('removeDirectory');
    const inode = this.#child(parent, name);
    if (inode.kind !== 'directory') throw new ServiceError('not-directory', `"${name}" is no directory`);
    if (inode.children.size > 0) throw new ServiceError('not-empty', `"${name}" is not empty`);
    if (inode.junction !== undefined) throw new ServiceError('attached', `A volume is attached at "${name}"`);
    const directory = this.#get(parent);
    directory.children.delete(name);
    directory.links--;
    this.#inodes.delete(inode.inode);
    return { atNs: String(this.#touch(directory)) };
  }

  async rename(
    from: { parent: number; name: string },
    to: { parent: number; name: string },
    mode: RenameMode,
  ): Promise<{ replaced: number | null; atNs?: string }> {
    await this.#reach('rename');
    const moved = this.#child(from.parent, from.name);
    const source = this.#directory(from.parent);
    const target = this.#directory(to.parent);
    const old = target.children.get(to.name);
    if (mode === 'exchange') {
      const other = this.#child(to.parent, to.name);
      source.children.set(from.name, other.inode);
      target.children.set(to.name, moved.inode);
      return { replaced: null };
    }
    if (old !== undefined && mode === 'no-replace') throw new ServiceError('exists', `"${to.name}" is there`);
    if (old === moved.inode) return { replaced: null };
    const replaced = old === undefined ? null : this.#get(old);
    if (replaced?.junction !== undefined)
      throw new ServiceError('attached', `A volume is attached at "${to.name}"`);
    if (replaced?.kind === 'directory') {
      if (moved.kind !== 'directory') throw new ServiceError('is-directory', `"${to.name}" is a directory`);
      if (replaced.children.size > 0) throw new ServiceError('not-empty', `"${to.name}" is not empty`);
      target.links--;
    } else if (replaced !== null && moved.kind === 'directory') {
      throw new ServiceError('not-directory', `"${to.name}" is no directory`);
    }
    source.children.delete(from.name);
    target.children.set(to.name, moved.inode);
    if (moved.kind === 'directory') {
      source.links--;
      target.links++;
    }
    const atNs = this.#touch(source);
    this.#touch(target, atNs);
    moved.changedNs = atNs;
    if (replaced !== null) {
      replaced.links--;
      replaced.changedNs = atNs;
    }
    return { replaced: replaced?.inode ?? null, atNs: String(atNs) };
  }

  async renameWhiteout(
    from: { parent: number; name: string },
    to: { parent: number; name: string },
    mode: RenameMode,
    owner: Owner,
  ): Promise<{ replaced: number | null; atNs?: string }> {
    const renamed = await this.rename(from, to, mode);
    // A rename between two names of one file changes nothing.
    if (!this.#directory(from.parent).children.has(from.name))
      this.#makeAt(from.parent, from.name, 'character', 0, owner, '', 0);
    return renamed;
  }

  formerNumberOf(inode: number): number {
    return inode;
  }

  async numberOf(inode: number): Promise<number> {
    return inode;
  }

  async setAttributes(inode: number, changes: AttributeChanges): Promise<Attributes> {
    await this.#reach('setAttributes');
    const target = this.#get(inode);
    const isOwned = changes.uid !== undefined || changes.gid !== undefined;
    const kept = isOwned && target.kind !== 'directory' ? withoutPrivileges(target.mode) : target.mode;
    target.mode = changes.mode ?? kept;
    target.uid = changes.uid ?? target.uid;
    target.gid = changes.gid ?? target.gid;
    if (changes.accessedNs !== undefined) target.accessedNs = BigInt(changes.accessedNs);
    if (changes.modifiedNs !== undefined) {
      const { modifiedNs } = changes;
      target.modifiedNs = BigInt(modifiedNs);
      target.settled = { ...target.settled, modifiedNs, contents: target.contents };
    }
    target.changedNs = this.#nowNs();
    return this.#attributes(target);
  }

  async setFlags(inode: number, flags: readonly InodeFlag[]): Promise<Attributes> {
    await this.#reach('setFlags');
    const target = this.#get(inode);
    target.flags = flags;
    target.changedNs = this.#nowNs();
    return this.#attributes(target);
  }

  async recordAccesses(accesses: readonly RecordedAccess[]): Promise<void> {
    await this.#reach('noteAccesses');
    this.noted.push(accesses);
    for (const { inode, accessedNs, seen } of accesses) {
      const target = this.#inodes.get(inode);
      if (target === undefined || BigInt(accessedNs) <= target.accessedNs) continue;
      const isSeen =
        String(target.accessedNs) === seen.accessedNs || String(target.changedNs) === seen.changedNs;
      if (isSeen) target.accessedNs = BigInt(accessedNs);
    }
  }

  async keepOrphan(): Promise<void> {
    await this.#reach('keepOrphan');
  }

  async xattr(inode: number, name: string): Promise<Uint8Array> {
    await this.#reach('xattr');
    const value = this.#get(inode).xattrs.get(name);
    if (value === undefined) throw new ServiceError('no-attribute', `No attribute ${name}`);
    return value;
  }

  async xattrs(inode: number): Promise<readonly string[]> {
    await this.#reach('xattrs');
    return [...this.#get(inode).xattrs.keys()];
  }

  async setXattr(inode: number, name: string, value: Uint8Array, mode: XattrMode): Promise<void> {
    await this.#reach('setXattr');
    const { xattrs } = this.#get(inode);
    if (mode === 'create' && xattrs.has(name)) throw new ServiceError('exists', `Attribute ${name} is there`);
    if (mode === 'replace' && !xattrs.has(name))
      throw new ServiceError('no-attribute', `No attribute ${name}`);
    xattrs.set(name, value);
  }

  async removeXattr(inode: number, name: string): Promise<void> {
    await this.#reach('removeXattr');
    if (!this.#get(inode).xattrs.delete(name)) throw new ServiceError('no-attribute', `No attribute ${name}`);
  }

  async space(): Promise<Space> {
    await this.#reach('space');
    return { totalBytes: 1 << 30, freeBytes: 1 << 29, inodes: this.#inodes.size };
  }

  openFile(inode: number): BackendFile {
    return {
      range: async () => null,
      staysUncommitted: () => false,
      read: async (offset, length) => {
        await this.#reach('read');
        return this.#read(this.#get(inode), offset, length);
      },
      write: async (offset, parts, expect) => {
        await this.#reachToWrite('write');
        const { contents } = this.#get(inode);
        if (expect !== undefined && (contents.epoch !== expect.epoch || contents.seq !== expect.seq))
          throw new ServiceError('precondition-failed', 'It was changed meanwhile');
        return this.#write(this.#get(inode), offset, Buffer.concat(parts));
      },
      writeParts: async (parts) => {
        await this.#reachToWrite('write');
        const file = this.#get(inode);
        const { contents: before } = file;
        for (const { offset, bytes } of parts) this.#write(file, offset, bytes);
        return { ...stateOf(file), before };
      },
      append: async (bytes) => {
        await this.#reachToWrite('append');
        const target = this.#get(inode);
        return this.#write(target, target.sizeBytes, bytes);
      },
      truncate: async (sizeBytes) => {
        await this.#reachToWrite('truncate');
        return this.#truncate(this.#get(inode), sizeBytes);
      },
      punch: async (from, to, grows) => {
        await this.#reachToWrite('punch');
        return this.#punch(this.#get(inode), from, to, grows);
      },
      seek: async (offset, what) => {
        await this.#reach('seek');
        return this.#seek(this.#get(inode), offset, what);
      },
      copyFrom: async (source, fromOffset, toOffset, length) => {
        await this.#reachToWrite('copyFrom');
        const target = this.#get(inode);
        const from = this.#get(source);
        const end = Math.min(fromOffset + length, from.sizeBytes);
        if (end <= fromOffset) return { copiedBytes: 0, state: stateOf(target) };
        const data = this.#seek(from, fromOffset, 'data') ?? end;
        if (data > fromOffset) {
          const copiedBytes = Math.min(data, end) - fromOffset;
          return { copiedBytes, state: this.#punch(target, toOffset, toOffset + copiedBytes, true) };
        }
        const hole = this.#seek(from, fromOffset, 'hole') ?? end;
        const bytes = this.#read(from, fromOffset, Math.min(hole, end) - fromOffset);
        return { copiedBytes: bytes.length, state: this.#write(target, toOffset, bytes) };
      },
      ensureCommitted: async () => undefined,
      flush: async () => {
        await this.#reachToWrite('flush');
        return { ...stateOf(this.#get(inode)), ...holesOf(this.#get(inode)) };
      },
      seal: async () => {
        await this.#reachToWrite('seal');
      },
      settle: async () => {
        await this.#reach('settle');
        const target = this.#get(inode);
        target.live = false;
        target.settled = stateOf(target);
      },
      state: async () => {
        await this.#reach('state');
        return { ...stateOf(this.#get(inode)), ...holesOf(this.#get(inode)) };
      },
      openLocks: () => this.#locksOf(inode),
    };
  }

  /** All locks belong to this mount. */
  #locksOf(inode: number): BackendLocks {
    const table = this.#locks.get(inode) ?? new LockTable();
    this.#locks.set(inode, table);
    return {
      lock: async (lock, waits, signal) => {
        await this.#reach('lock');
        const wish = { ...lock, client: 1 };
        table.beginFlock(wish);
        if (waits && table.wouldDeadlock(wish)) throw new ServiceError('deadlock', 'By intent');
        while (table.conflict(wish) !== null) {
          if (!waits) throw new ServiceError('locked', 'Another has it');
          const place = table.addWaiter(wish, null);
          await delay(5, undefined, { signal }).finally(() => table.removeWaiter(place));
        }
        table.set(wish);
      },
      unlock: async (range) => {
        await this.#reach('unlock');
        table.set({ ...range, client: 1, type: 'unlock' });
      },
      findConflict: async (lock) => {
        await this.#reach('holder');
        const found = table.conflict({ ...lock, client: 1 });
        return found === null ? null : { lock: found, own: true };
      },
      isLost: () => false,
      close: async () => undefined,
    };
  }

  /** Reserves numbers that no other inode gets. @returns the first */
  reserve(count: number): number {
    this.#last += count;
    return this.#last - count + 1;
  }

  /** Creates a file with a reserved number, with its contents or empty. */
  async makeNumbered(file: NewFile, isWhole: boolean): Promise<Attributes> {
    await this.#reach(isWhole ? 'bear' : 'makeNumbered');
    const { parent, name, inode, mode, uid, gid } = file;
    const present = this.#directory(parent).children.get(name);
    if (present === inode && !isWhole) return this.#attributes(this.#get(inode));
    const last = this.#last;
    this.#last = inode - 1;
    try {
      const made = this.#makeAt(parent, name, 'file', mode, { uid, gid });
      if (isWhole) {
        this.#write(made, 0, file.contents);
        made.contents = { epoch: 1, seq: 1 };
      }
      made.accessedNs = BigInt(file.accessedNs);
      made.modifiedNs = BigInt(file.modifiedNs);
      made.changedNs = BigInt(file.changedNs);
      made.live = !isWhole;
      made.settled = stateOf(made);
      return this.#attributes(made);
    } finally {
      this.#last = last;
    }
  }

  /** Fills a file that was created empty. @returns null if another client has written it since */
  async fillNumbered({ inode, contents, modifiedNs }: NewFile): Promise<Attributes | null> {
    await this.#reach('bear');
    const file = this.#get(inode);
    if (file.contents.epoch !== 0 || file.contents.seq !== 0) return null;
    this.#write(file, 0, contents);
    file.contents = { epoch: 1, seq: 1 };
    file.modifiedNs = BigInt(modifiedNs);
    file.live = false;
    file.settled = stateOf(file);
    return this.#attributes(file);
  }

  /** @returns the cluster's contents of a file, whatever a mount has cached */
  textAt(parent: number, name: string): string | null {
    const inode = this.#directory(parent).children.get(name);
    if (inode === undefined) return null;
    const file = this.#get(inode);
    return Buffer.from(this.#read(file, 0, file.sizeBytes)).toString();
  }

  /** @returns the inode that has the name at the cluster, whatever a mount has cached */
  inodeAt(parent: number, name: string): number | undefined {
    return this.#inodes.get(parent)?.children.get(name);
  }

  /** @returns the sizes of files in the root, by name */
  sizes(): Record<string, number> {
    return Object.fromEntries(
      [...this.#get(this.root).children].map(([name, inode]) => [name, this.#get(inode).sizeBytes]),
    );
  }

  /** Replaces the contents of a file in the root, as another mount would. */
  writeFromElsewhere(name: string, text: string): void {
    const inode = this.#child(this.root, name);
    this.#truncate(inode, 0);
    this.#write(inode, 0, Buffer.from(text));
  }

  /** Replaces a file in the root by a new one, as another mount would. */
  replaceFromElsewhere(name: string, text: string): void {
    const before = this.#child(this.root, name);
    before.links--;
    const made = this.#make('file', before.mode, before, 1);
    this.#directory(this.root).children.set(name, made.inode);
    this.#write(made, 0, Buffer.from(text));
  }

  /** Renames a file in the root, as another mount would. */
  renameFromElsewhere(name: string, to: string): void {
    const { children } = this.#directory(this.root);
    children.set(to, this.#child(this.root, name).inode);
    children.delete(name);
  }

  async #reach(call: string): Promise<void> {
    this.calls[call] = (this.calls[call] ?? 0) + 1;
    if (this.#disturbance.delayMs) await delay(this.#disturbance.delayMs);
    await this.#resumed?.promise;
  }

  async #reachToWrite(call: string): Promise<void> {
    await this.#reach(call);
    const { writesFail } = this.#disturbance;
    if (writesFail) throw new ServiceError(writesFail, 'A write fails by intent');
  }

  #read(inode: Inode, offset: number, length: number): Uint8Array {
    const end = Math.min(offset + length, inode.sizeBytes);
    if (end <= offset) return new Uint8Array(0);
    const bytes = Buffer.alloc(end - offset);
    for (let at = offset; at < end; ) {
      const index = Math.floor(at / BLOCK);
      const until = Math.min(end, (index + 1) * BLOCK);
      inode.blocks.get(index)?.copy(bytes, at - offset, at - index * BLOCK, until - index * BLOCK);
      at = until;
    }
    return bytes;
  }

  #write(inode: Inode, offset: number, bytes: Uint8Array): FileState {
    for (let done = 0; done < bytes.length; ) {
      const at = offset + done;
      const index = Math.floor(at / BLOCK);
      let block = inode.blocks.get(index);
      if (block === undefined) {
        block = Buffer.alloc(BLOCK);
        inode.blocks.set(index, block);
      }
      const length = Math.min(bytes.length - done, (index + 1) * BLOCK - at);
      block.set(bytes.subarray(done, done + length), at - index * BLOCK);
      done += length;
    }
    inode.sizeBytes = Math.max(inode.sizeBytes, offset + bytes.length);
    return this.#changed(inode);
  }

  #truncate(inode: Inode, sizeBytes: number): FileState {
    if (sizeBytes < inode.sizeBytes) {
      for (const [index, block] of inode.blocks) {
        if (index * BLOCK >= sizeBytes) inode.blocks.delete(index);
        else if ((index + 1) * BLOCK > sizeBytes) block.fill(0, sizeBytes - index * BLOCK);
      }
    }
    inode.sizeBytes = sizeBytes;
    return this.#changed(inode);
  }

  #punch(inode: Inode, from: number, to: number, grows: boolean): FileState {
    for (const [index, block] of inode.blocks) {
      const begin = index * BLOCK;
      if (from <= begin && to >= Math.min(begin + BLOCK, inode.sizeBytes)) inode.blocks.delete(index);
      else if (from < begin + BLOCK && to > begin) {
        block.fill(0, Math.max(0, from - begin), Math.min(BLOCK, to - begin));
      }
    }
    if (grows) inode.sizeBytes = Math.max(inode.sizeBytes, to);
    return this.#changed(inode);
  }

  #seek(inode: Inode, offset: number, what: 'data' | 'hole'): number | null {
    for (let at = offset; at < inode.sizeBytes; at = (Math.floor(at / BLOCK) + 1) * BLOCK) {
      if (inode.blocks.has(Math.floor(at / BLOCK)) === (what === 'data')) return at;
    }
    return what === 'hole' && offset < inode.sizeBytes ? inode.sizeBytes : null;
  }

  #changed(inode: Inode): FileState {
    const { contents: before } = inode;
    inode.contents = { epoch: 1, seq: ++this.#seq };
    inode.modifiedNs = this.#nowNs();
    inode.changedNs = inode.modifiedNs;
    inode.live = true;
    return { ...stateOf(inode), before };
  }

  #makeAt(
    parent: number,
    name: string,
    kind: NodeKind,
    mode: number,
    owner: Owner,
    target = '',
    device = 0,
  ): Inode {
    const directory = this.#directory(parent);
    if (directory.junction !== undefined)
      throw new ServiceError('cross-volume', 'Another volume is to be here');
    if (directory.children.has(name)) throw new ServiceError('exists', `"${name}" is there`);
    const gid = (directory.mode & 0o2000) !== 0 ? directory.gid : owner.gid;
    const inode = this.#make(
      kind,
      mode & ~(owner.umask ?? 0),
      { uid: owner.uid, gid },
      kind === 'directory' ? 2 : 1,
      target,
      device,
    );
    directory.children.set(name, inode.inode);
    this.#touch(directory, inode.changedNs);
    return inode;
  }

  #make(kind: NodeKind, mode: number, owner: Owner, links: number, target = '', device = 0): Inode {
    const atNs = this.#nowNs();
    const inode: Inode = {
      inode: this.#inodes.size === 0 ? this.root : ++this.#last,
      kind,
      mode,
      uid: owner.uid,
      gid: owner.gid,
      links,
      accessedNs: atNs,
      modifiedNs: atNs,
      changedNs: atNs,
      createdNs: atNs,
      target,
      device,
      sizeBytes: kind === 'symlink' ? Buffer.byteLength(target) : 0,
      contents: { epoch: 0, seq: 0 },
      live: false,
      settled: { sizeBytes: 0, modifiedNs: String(atNs), contents: { epoch: 0, seq: 0 } },
      blocks: new Map(),
      children: new Map(),
      xattrs: new Map(),
      flags: [],
    };
    this.#inodes.set(inode.inode, inode);
    return inode;
  }

  #get(inode: number): Inode {
    const found = this.#inodes.get(inode);
    if (found === undefined) throw new ServiceError('not-found', `No inode ${inode}`);
    return found;
  }

  #directory(inode: number): Inode {
    const found = this.#get(inode);
    if (found.kind !== 'directory') throw new ServiceError('not-directory', `Inode ${inode} is no directory`);
    return found;
  }

  #child(parent: number, name: string): Inode {
    const inode = this.#directory(parent).children.get(name);
    if (inode === undefined) throw new ServiceError('not-found', `No "${name}"`);
    return this.#get(inode);
  }

  #touch(directory: Inode, atNs = this.#nowNs()): bigint {
    directory.modifiedNs = atNs;
    directory.changedNs = atNs;
    return atNs;
  }

  /** Each change has a later time than the one before. */
  #nowNs(): bigint {
    const ns = BigInt(Date.now()) * 1_000_000n;
    this.#lastNs = ns > this.#lastNs ? ns : this.#lastNs + 1n;
    return this.#lastNs;
  }

  /** The attributes in the answer to a command: of a live file as the catalog has them. */
  #catalogAttributes(inode: Inode): Attributes {
    return inode.live ? { ...this.#attributes(inode), ...inode.settled } : this.#attributes(inode);
  }

  /** The attributes in the answer to a query. */
  #attributes(inode: Inode): Attributes {
    const { kind, mode, uid, gid, links, target, device, sizeBytes, contents, live } = inode;
    return {
      inode: inode.inode,
      kind,
      mode,
      uid,
      gid,
      links,
      target,
      device,
      sizeBytes,
      ...holesOf(inode),
      contents,
      live,
      xattrs: inode.xattrs.size,
      ...(inode.flags.length > 0 && { flags: inode.flags }),
      ...(inode.junction !== undefined && { junction: inode.junction }),
      accessedNs: String(inode.accessedNs),
      createdNs: String(inode.createdNs),
      modifiedNs: String(inode.modifiedNs),
      changedNs: String(inode.changedNs),
      replicas: kind === 'file' ? ['s1'] : [],
      ...(kind === 'file' ? { policy: this.policy } : {}),
    };
  }
}

/** The absent blocks, and the unused end of the last one. */
function holesOf({ kind, sizeBytes, blocks }: Inode): { readonly holeBytes?: number } {
  if (kind !== 'file') return {};
  const holeBytes = [...blocks.keys()].reduce(
    (left, index) => left - Math.min(BLOCK, sizeBytes - index * BLOCK),
    sizeBytes,
  );
  return holeBytes === 0 ? {} : { holeBytes };
}

function stateOf(inode: Inode): FileState {
  return { sizeBytes: inode.sizeBytes, modifiedNs: String(inode.modifiedNs), contents: inode.contents };
}
