import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type {
  AttributeChanges,
  Attributes,
  BackendFile,
  ContentVersion,
  CreatedFile,
  CreateOutcome,
  DelegationBackend,
  FileState,
  NewFile,
} from '../backend.ts';
import { ErrnoError } from '../errno.ts';

/** How a file is sent: with its contents; or created and then written, `changed` if a write follows at once. */
export type CommitMode = 'with-contents' | 'ordinary' | 'changed';

/** The versions of a file right after its creation, without and with contents. */
const CREATED: ContentVersion = { epoch: 0, seq: 0 };
const WITH_CONTENTS: ContentVersion = { epoch: 1, seq: 1 };

const FINAL: ReadonlySet<string> = new Set(['exists', 'not-found', 'not-directory', 'precondition-failed']);

/** With these errors no attempt of a request was executed. */
const NOT_EXECUTED: ReadonlySet<string> = new Set(['busy', 'moving', 'no-space', 'quota-exceeded']);

export interface CommitRequests {
  readonly createWithContents: (file: NewFile) => Promise<CreateOutcome>;
  readonly create: DelegationBackend['create'];
  readonly createAt: DelegationBackend['createAt'];
  readonly reserveAt: DelegationBackend['reserveAt'];
  readonly changeAttributes: DelegationBackend['changeAttributes'];
  readonly attributes: (inode: number) => Promise<Attributes>;
  readonly setAttributes: (inode: number, changes: AttributeChanges) => Promise<Attributes>;
  readonly open: (attributes: Attributes) => BackendFile;
}

export interface CommitTarget {
  file(): NewFile;
  /** What programs have changed since the catalog has created it; its contents bring the modification time. */
  changes(): AttributeChanges;
  /** The catalog has these changes. */
  changed(attributes: Attributes): void;
  /** The catalog obeys conditions of `set-attributes`. */
  readonly isConditional: boolean;
  /** Whether programs have set its times, or seen them as those of its contents. */
  isTimed(way: CommitMode): boolean;
  version(): ContentVersion;
  /**
   * The cluster has the file, by this number, and its directory these times, if known. Called in the tick of the
   * answer.
   */
  committed(inode: number, namedNs: string | null): void;
  failed(error: unknown): void;
  /** The outcome of a creation with contents is unknown: it is created without contents. */
  unknown(error: unknown): void;
  release(): void;
}

/** Commits a new file at most once, whatever the outcome of earlier requests. */
export class FileCommit {
  readonly #requests: CommitRequests;
  readonly #of: CommitTarget;
  /** As the catalog has created it; null if the cluster does not have it. */
  readonly #named: Attributes | null;
  #underWay: Promise<BackendFile> | null = null;
  #clusterFile: BackendFile | null = null;
  /** The file's state if the cluster has these contents and no others. */
  #stateAtCommit: FileState | undefined;
  /** What requests of unknown outcome may have left; `creation`: a created, perhaps written file. */
  #attempted: 'nothing' | 'with-contents' | 'creation' = 'nothing';
  /** An attempt by the reserved number had no answer: the catalog may have created the file. */
  #mayHaveNumber = false;
  /** Of the catalog to which the directory has moved, where the reserved number is of no use. */
  #numberThere: number | null = null;
  /** A request has sent changes of attributes; what becomes of it may be unknown. */
  #hasSentChanges = false;
  /** The catalog has the changes of attributes. */
  #areChangesStored = false;
  /** The ctime of a file that the catalog has created, as long as no other client changes it. */
  #changedNs: string | undefined;
  /** Why no attempt follows: the name or the contents are another client's, or do not exist any more. */
  #refusal: { readonly error: unknown } | null = null;
  isSettled = false;

  /** @param named as the catalog has created it; null if it has not */
  constructor(requests: CommitRequests, of: CommitTarget, named: Attributes | null) {
    this.#requests = requests;
    this.#of = of;
    this.#named = named;
    this.#changedNs = named?.changedNs;
  }

  get isUnsent(): boolean {
    const isSent = this.#attempted !== 'nothing' || this.#hasSentChanges;
    return this.#underWay === null && this.#refusal === null && !isSent;
  }

  /** Whether attributes were changed by a request of their own. */
  get hasChanged(): boolean {
    return this.#hasSentChanges;
  }

  /** Whether the catalog lacks changes of attributes that a request has tried to send, and no request is under way. */
  get lacksChanges(): boolean {
    return this.#hasSentChanges && !this.#areChangesStored && !this.isRefused && this.#underWay === null;
  }

  /** Whether no attempt follows: the file is kept for its handles, whose calls fail. */
  get isRefused(): boolean {
    return this.#refusal !== null;
  }

  /** The file at the cluster; null before that. */
  get clusterFile(): BackendFile | null {
    return this.#clusterFile;
  }

  /** The file's state at its commit; undefined if the cluster may have other contents. */
  get committedState(): FileState | undefined {
    return this.#stateAtCommit;
  }

  /** Sends the file; repeats an attempt that failed without a definite answer. */
  start(way: CommitMode): Promise<BackendFile> {
    if (this.#refusal !== null) return Promise.reject(this.#refusal.error);
    const isAgain = this.#attempted !== 'nothing' && way === 'with-contents';
    this.#underWay ??= this.#commit(isAgain ? 'ordinary' : way).catch((error: unknown) => {
      this.#underWay = null;
      if (this.#refusal === null && isFinal(error)) this.#refusal = { error };
      this.#of.failed(error);
      throw error;
    });
    return this.#underWay;
  }

  async #commit(way: CommitMode): Promise<BackendFile> {
    if (this.#named !== null && !this.#areChangesStored) await this.#change(this.#named);
    const file = this.#of.file();
    const created = way === 'with-contents' ? await this.#createWithContents(file) : null;
    const { inode, there, namedNs, arrival, isSettled } = created ?? (await this.#create(file, way));
    this.isSettled = isSettled;
    this.#clusterFile = there;
    // From here on changes are made at the cluster.
    if (arrival !== null) this.#stateAtCommit = { ...arrival, before: this.#of.version() };
    this.#of.committed(inode, namedNs);
    this.#of.release();
    return there;
  }

  /**
   * Changes attributes of a file that the catalog has created, before other clients can read its contents. Only while
   * the inode is as it was created: the changes were acknowledged before any later one of another client.
   *
   * @throws ErrnoError `EIO` if another client has changed the inode
   */
  async #change(named: Attributes): Promise<void> {
    const { inode, changedNs: unchangedNs } = named;
    const changes = this.#of.changes();
    // Programs may still change attributes here after an attempt that was refused.
    if (Object.keys(changes).length === 0) return;
    this.#hasSentChanges = true;
    const changed = await this.#requests
      .changeAttributes(inode, { ...changes, unchangedNs })
      .catch((error) => {
        // An attempt of unknown outcome may have been executed.
        return this.#appliedOrRefuse(error, inode, changes);
      });
    this.#of.changed(changed);
    this.#changedNs = changed.changedNs;
    this.#areChangesStored = true;
  }

  /**
   * Sets the times after a write. Of a file that the catalog has created, only while no other client has changed it:
   * these times were acknowledged before.
   *
   * @returns whether the cluster has them
   */
  async #setTimes(inode: number, times: Pick<NewFile, 'accessedNs' | 'modifiedNs'>): Promise<boolean> {
    const unchangedNs = this.#of.isConditional ? this.#changedNs : undefined;
    const condition = unchangedNs === undefined ? {} : { unchangedNs };
    try {
      await this.#requests.setAttributes(inode, { ...times, ...condition });
    } catch (error) {
      // If no program has set times, those of the write are as good.
      if (isPreconditionFailed(error) && unchangedNs !== undefined && !this.#areChangesStored) return false;
      await this.#appliedOrRefuse(error, inode, times);
    }
    return true;
  }

  /** @returns the file's attributes if they show `changes`. @throws ErrnoError `EIO`: another client has changed it */
  async #appliedOrRefuse(error: unknown, inode: number, changes: AttributeChanges): Promise<Attributes> {
    if (!isPreconditionFailed(error)) throw error;
    const found = await this.#requests.attributes(inode);
    if (hasAll(found, changes)) return found;
    const message = 'Another client has changed the file since it was created';
    return this.#refuse(message, this.#requests.open(found));
  }

  async #createWithContents(file: NewFile): Promise<CommitResult | null> {
    let outcome: CreateOutcome;
    try {
      outcome = await this.#requests.createWithContents(file);
    } catch (error) {
      // The catalog that the directory has left has executed no attempt, and will execute none.
      if (movedTo(error) !== undefined) return null;
      this.#mayHaveNumber ||= isOutcomeUnknown(error);
      // A create by the same number will find the file, or create it.
      this.#of.unknown(error);
      this.#attempted = 'with-contents';
      return null;
    }
    if (outcome.kind === 'not-created') return null;
    if (outcome.kind === 'refused') throw outcome.error;
    const { attributes, namedNs } = outcome;
    const there = this.#requests.open(attributes);
    return { inode: file.inode, there, namedNs, arrival: stateOf(attributes), isSettled: true };
  }

  /** Every attempt writes only to a just created version: another client may have written since any check. */
  async #create(file: NewFile, way: CommitMode): Promise<CommitResult> {
    const before = this.#attempted;
    this.#attempted = 'creation';
    const { attributes, created, namedNs } =
      this.#named === null
        ? await this.#createEmpty(file)
        : { attributes: this.#named, created: false, namedNs: null };
    const { inode } = attributes;
    const there = this.#requests.open(attributes);
    const found = stateOf(attributes);
    // The creation with contents was executed; later writes are other clients'.
    if (before === 'with-contents' && !created && this.#named === null) {
      const isOwn = !attributes.live && contentVersionCompare(attributes.contents, WITH_CONTENTS) === 0;
      return { inode, there, namedNs, arrival: isOwn ? found : null, isSettled: isOwn };
    }
    const { contents, accessedNs, modifiedNs } = file;
    const written = contents.length === 0 ? found : await this.#write(there, contents);
    const isAlone = attributes.sizeBytes === 0 && (written === found || isAfter(written, found));
    const isTimed = this.#of.isTimed(way) && (await this.#setTimes(inode, { accessedNs, modifiedNs }));
    const arrival = isTimed ? { ...written, modifiedNs } : written;
    return { inode, there, namedNs, arrival: isAlone ? arrival : null, isSettled: false };
  }

  /**
   * Creates the file without contents; in another catalog, if its directory has become another volume meanwhile. It was
   * acknowledged under a delegation of the former catalog. That catalog's refusal says that it has executed no attempt,
   * and will execute none, so a reserved number of the other catalog takes the place of the former one as the fence:
   * whatever the outcome of a request by it, the next one creates the file only if none has. As before, another
   * client's file of this name is not replaced.
   */
  async #createEmpty(file: NewFile): Promise<CreatedFile> {
    try {
      return await this.#requests.create(file);
    } catch (error) {
      const catalog = movedTo(error);
      if (catalog !== undefined) return this.#createAt(catalog, file);
      this.#mayHaveNumber ||= isOutcomeUnknown(error);
      throw error;
    }
  }

  async #createAt(catalog: CatalogNumber, file: NewFile): Promise<CreatedFile> {
    if (this.#numberThere === null) {
      // A file that an earlier attempt has created has moved with its number.
      try {
        return await this.#requests.createAt(catalog, file);
      } catch (error) {
        // It might have been renamed or removed since: by another number it would exist twice, or again.
        if (this.#mayHaveNumber || !isPreconditionFailed(error)) throw error;
      }
      this.#numberThere = await this.#requests.reserveAt(catalog, file.parent);
    }
    return this.#requests.createAt(catalog, { ...file, inode: this.#numberThere });
  }

  /** @throws ErrnoError `EIO` if the file was written since it was created */
  async #write(there: BackendFile, contents: Uint8Array): Promise<FileState> {
    try {
      return await there.write(0, [contents], CREATED);
    } catch (error) {
      if (!isPreconditionFailed(error)) throw error;
      // In the first epoch of a file with a reserved number, only these contents can have been written.
      const state = await there.state();
      if (contentVersionCompare(state.contents, WITH_CONTENTS) === 0) return state;
      const message = 'The file was written since it was created, perhaps by an attempt of unknown outcome';
      return this.#refuse(message, there);
    }
  }

  /** No attempt follows. Open handles now read the file at the cluster, not what is in memory. */
  #refuse(message: string, there: BackendFile): never {
    this.#refusal = { error: new ErrnoError('EIO', message) };
    this.#clusterFile = there;
    this.#of.release();
    throw this.#refusal.error;
  }
}

interface CommitResult {
  readonly inode: number;
  readonly there: BackendFile;
  readonly namedNs: string | null;
  readonly arrival: FileState | null;
  readonly isSettled: boolean;
}

/** @returns the catalog that has the directory now, if that is why the former one has refused a request for good */
function movedTo(error: unknown): CatalogNumber | undefined {
  return error instanceof ServiceError ? error.details.movedTo : undefined;
}

/** Whether a request may have been executed. */
function isOutcomeUnknown(error: unknown): boolean {
  return !(error instanceof ServiceError) || !NOT_EXECUTED.has(error.code);
}

function isPreconditionFailed(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'precondition-failed';
}

function hasAll(attributes: Attributes, changes: AttributeChanges): boolean {
  return Object.entries(changes).every(([name, value]) => attributes[name as keyof Attributes] === value);
}

/** Without this name or number another attempt must fail, or would overwrite another client's changes. */
function isFinal(error: unknown): boolean {
  return error instanceof ServiceError && FINAL.has(error.code);
}

export function stateOf({ sizeBytes, modifiedNs, contents }: FileState): FileState {
  return { sizeBytes, modifiedNs, contents };
}

function isAfter({ before }: FileState, { contents }: FileState): boolean {
  return before !== undefined && contentVersionCompare(before, contents) === 0;
}
