import { BoundedMap } from '../../base/bounded-map.ts';
import { isRefusal, ServiceError } from '../../base/errors.ts';
import { nowNs } from '../../base/times.ts';
import type { Attributes, CreateOutcome, FileSystemBackend, NewFile, Owner } from '../backend.ts';
import { namedInode } from '../metadata/delegated-directories.ts';
import { inheritsGroup } from '../metadata/inodes.ts';
import type { Place } from '../place.ts';
import { Creates } from './creates.ts';
import type { DirectoryOps, DirectoryParts } from './directory-ops.ts';
import type { InodeNumber } from './number-pool.ts';
import { FLUSH_ALL } from './pending-ops.ts';
import { UncommittedFile, type UncommittedFileParts } from './uncommitted-file.ts';
import { emptyFile } from './uncommitted-files.ts';
import { isOverQuota } from './unlinks.ts';

/** A second create in a directory within this time makes others likely. */
const AGAIN_MS = 2_000;
const DIRECTORIES_MAX = 1_000;

/** Creates files: here in delegated directories, else at the cluster. */
export class NewFiles {
  readonly #parts: DirectoryParts;
  readonly #ops: DirectoryOps;
  readonly #creates: Creates;
  readonly #createdMs = new BoundedMap<number, number>(DIRECTORIES_MAX);
  /** The volume allows creates with contents; unknown before the first create. */
  #isPossible = false;
  /** The volume has a quota: growth is requested before contents of a file with a name are stored. */
  #isLimited = false;

  constructor(parts: DirectoryParts, ops: DirectoryOps) {
    const { world, delegation, log } = parts;
    this.#parts = parts;
    this.#ops = ops;
    this.#creates = new Creates(world, delegation, (error) => {
      log('debug', 'inode numbers are not reserved', { error: String(error) });
    });
  }

  /** Creates a file here if it may be pending, else at the cluster. @throws ServiceError `exists` */
  async create(
    place: Place,
    mode: number,
    owner: Owner,
    exclusive: boolean,
  ): ReturnType<FileSystemBackend['createFile']> {
    const { parent, name } = place;
    await this.#ops.requests.requestEnded(parent);
    // A pending unlink of the name must be executed or refused first.
    await this.#ops.unlinks.flush({ kind: 'name', ...place });
    const { budget } = this.#ops.files;
    while (budget.isFull && this.#ops.isDelegated(parent)) await budget.untilReleased();
    const uncommitted = this.#ops.files.at(place);
    if (uncommitted !== undefined) {
      if (exclusive) throw new ServiceError('exists', `There is a "${name}" already`);
      return { attributes: uncommitted.attributes, created: false };
    }
    // Programs use exclusive creates as locks. This process may be paused between any check of its delegation and the
    // answer, while another client creates the name: so the catalog has to answer.
    const named = exclusive ? await this.#createNamed(place, mode, owner) : null;
    if (named !== null) return { attributes: named, created: true };
    const here = exclusive ? null : this.#createHere(place, mode, owner);
    if (here !== null) return { attributes: here, created: true, uncommitted: true };
    this.prepare();
    const result = await this.#ops.changing(
      [place],
      () => this.#parts.backend.createFile(parent, name, mode, owner, exclusive),
      ({ attributes }) => [namedInode(attributes)],
    );
    if (result.created) this.#createdAtCluster(parent, result.attributes);
    return result;
  }

  /** Prepares delegations and numbers for creates that are likely. */
  prepare(): void {
    this.#parts.delegation.markUsed();
    if (this.#isPossible) this.#creates.prepare();
  }

  /** @returns the attributes of a new file that only this mount has; null if it has to be created at the cluster */
  #createHere(place: Place, mode: number, owner: Owner): Attributes | null {
    const { parent } = place;
    const { uid, gid, umask = 0 } = owner;
    const directory = this.#parts.cache.delegations.of(parent);
    const isPlain = directory?.attributes.xattrs === 0 && directory.attributes.flags === undefined;
    if (!this.#isPossible || !isPlain || this.#parts.cache.delegations.stateOf(place) !== 'free') return null;
    const number = this.#creates.takeNumber(directory.attributes.placement);
    if (number === null) return null;
    this.#parts.delegation.markUsed();
    const inherits = inheritsGroup(directory.attributes);
    const attributes = emptyFile(
      number.inode,
      mode & ~umask,
      { uid, gid: inherits ? directory.attributes.gid : gid },
      String(nowNs(this.#parts.world)),
    );
    const how = { inheritsGroup: inherits, isNamed: false, takesAttributes: true, isConditional: true };
    this.#keep(place, attributes, number, how);
    return attributes;
  }

  /**
   * Has the catalog create a file by a reserved number, and keeps its contents here until the close.
   * @returns null if that is impossible. @throws ServiceError `exists`
   */
  async #createNamed(place: Place, mode: number, owner: Owner): Promise<Attributes | null> {
    const { uid, gid, umask = 0 } = owner;
    const directory = this.#parts.cache.delegations.of(place.parent);
    if (!this.#isPossible || this.#isLimited || directory?.attributes.xattrs !== 0) return null;
    const number = this.#creates.takeNumber(directory.attributes.placement);
    if (number?.takesNamed !== true) return null;
    this.#parts.delegation.markUsed();
    const atNs = String(nowNs(this.#parts.world));
    const file: NewFile = {
      ...{ ...place, inode: number.inode, mode: mode & ~umask, uid, gid },
      ...{ accessedNs: atNs, modifiedNs: atNs, changedNs: atNs, contents: new Uint8Array(0) },
    };
    const created = await this.#ops
      .changing(
        [place],
        () => this.#parts.delegation.create(file, 'catalog'),
        ({ attributes }) => [namedInode(attributes)],
      )
      .catch((error: unknown) => {
        // The number has expired; nothing was created.
        if (error instanceof ServiceError && error.code === 'precondition-failed') return null;
        throw error;
      });
    if (created === null) return null;
    const { attributes, isConditional, generation } = created;
    this.#learn(attributes);
    if (!this.#isPossible || this.#isLimited || !this.#ops.isDelegated(place.parent)) return attributes;
    const takesAttributes =
      isConditional && this.#parts.delegation.fenceOf(place.parent)?.generation === generation;
    const how = { inheritsGroup: false, isNamed: true, takesAttributes, isConditional };
    this.#keep(place, { ...attributes, live: false }, number, how);
    return attributes;
  }

  #keep(
    place: Place,
    attributes: Attributes,
    number: InodeNumber,
    how: Pick<UncommittedFileParts, 'inheritsGroup' | 'takesAttributes' | 'isConditional'> & {
      readonly isNamed: boolean;
    },
  ): void {
    const { parent } = place;
    const { isNamed, ...takes } = how;
    const parts: UncommittedFileParts = {
      ...takes,
      createWithContents: (whole) => this.#send(whole, number.server),
      create: (whole) => this.#parts.delegation.create(whole),
      createAt: (catalog, whole) => this.#parts.delegation.createAt(catalog, whole),
      reserveAt: (catalog, directory) => this.#parts.delegation.reserveAt(catalog, directory),
      changeAttributes: (inode, changes) => this.#parts.delegation.changeAttributes(inode, changes),
      attributes: (inode) => this.#parts.backend.attributes(inode),
      setAttributes: (inode, changes) => this.#parts.backend.setAttributes(inode, changes),
      open: (there) => {
        const { inode, replicas, contents } = there;
        this.#ops.contents.learn(there, this.#ops.contents.request());
        return this.#ops.open(inode, replicas, contents);
      },
      isDelegated: () => this.#ops.isDelegated(parent),
      committed: ({ inode }, there, namedNs) => {
        this.#ops.files.delete(file);
        if (there !== inode) this.#parts.renumbered(inode, there);
        if (!isNamed) this.#parts.cache.directoryChanged(parent, namedNs);
        // Its ctime is the catalog's now.
        else if (file.commit.hasChanged) this.#parts.cache.attributes.drop(inode);
      },
      failed: ({ inode }, error) => {
        // Programs see what another client has set.
        if (file.commit.isRefused && file.commit.hasChanged) this.#parts.cache.attributes.drop(inode);
        if (file.commit.hasChanged) this.#ops.files.failed(file);
        if (!file.commit.isRefused && !isRefusal(error) && this.#ops.isDelegated(parent)) return;
        this.#ops.files.dropName(file);
        this.#ops.dropOperation(file);
      },
      lost: ({ name, inode }, error, isReported) => {
        this.#ops.files.delete(file);
        this.#ops.dropOperation(file);
        if (isReported) return;
        const facts = { directory: parent, name, file: inode, error: String(error) };
        this.#parts.log('error', 'a file that was closed is not stored', facts);
        this.#parts.pending.errors.set({ kind: 'directory', inode: parent }, error);
        this.#parts.late({ operation: 'create', directory: parent, name, error });
      },
      unknown: ({ inode }, error) => {
        this.#parts.log('info', 'a new file is created with a synchronous request', {
          file: inode,
          error: String(error),
        });
      },
      budget: this.#ops.files.budget,
    };
    const file: UncommittedFile = new UncommittedFile(this.#parts.world, place, attributes, parts, isNamed);
    this.#ops.files.add(file);
    this.#ops.changed(file, namedInode(attributes));
  }

  /** A file that was refused for lack of quota may fit after pending unlinks: it is created without contents then. */
  async #send(file: NewFile, server: string): Promise<CreateOutcome> {
    const { isEmpty } = this.#ops.unlinks;
    const outcome = await this.#creates.send(file, server);
    if (isEmpty || outcome.kind !== 'refused' || !isOverQuota(outcome.error)) return outcome;
    await this.#ops.unlinks.flush(FLUSH_ALL);
    return { kind: 'not-created' };
  }

  #learn({ policy = 'quorum', allowedBytes }: Attributes): void {
    this.#isPossible = policy === 'quorum';
    this.#isLimited = allowedBytes !== undefined;
  }

  #createdAtCluster(parent: number, attributes: Attributes): void {
    this.#learn(attributes);
    this.prepare();
    const nowMs = this.#parts.world.nowMs();
    const isAgain = nowMs - (this.#createdMs.get(parent) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS;
    this.#createdMs.set(parent, nowMs);
    if (this.#isPossible && isAgain && !this.#ops.isDelegated(parent)) void this.#ops.requests.send(parent);
  }
}
