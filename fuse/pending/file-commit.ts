import { ServiceError } from '../../base/errors.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type {
  AttributeChanges,
  Attributes,
  BackendFile,
  ContentVersion,
  CreateOutcome,
  DelegationBackend,
  FileState,
  NewFile,
} from '../backend.ts';
import { ErrnoError } from '../errno.ts';

/**
 * How the cluster gets a file: with all of its contents, or as any file that is about to be written, `changed` if that is in this
 * moment.
 */
export type Way = 'with-contents' | 'ordinary' | 'changed';

/** The contents of a file that was created, and of one that was created with contents, before anything else has changed them. */
const CREATED: ContentVersion = { epoch: 0, seq: 0 };
const WITH_CONTENTS: ContentVersion = { epoch: 1, seq: 1 };

const FINAL: ReadonlySet<string> = new Set(['exists', 'not-found', 'not-directory', 'precondition-failed']);

/** The requests by which the cluster gets a file. */
export interface CommitRequests {
  readonly createWithContents: (file: NewFile) => Promise<CreateOutcome>;
  readonly create: DelegationBackend['create'];
  readonly setAttributes: (inode: number, changes: AttributeChanges) => Promise<Attributes>;
  /** The file as the cluster has it. */
  readonly open: (attributes: Attributes) => BackendFile;
}

/** What is committed: the file, and what to do about it. */
export interface Committed {
  /** As it is at this moment. */
  file(): NewFile;
  /** Programs here have seen its times as those of its contents, or have set them. */
  isTimed(way: Way): boolean;
  /** The version of what is kept here. */
  version(): ContentVersion;
  /** The cluster has it, and the directory these times, if they are known. In the same tick as its answer. */
  committed(namedNs: string | null): void;
  /** An attempt has failed. */
  failed(error: unknown): void;
  /** What became of its creation with contents is not known: it is created in the ordinary way. */
  unknown(error: unknown): void;
  /** What is kept here is not needed any more. */
  release(): void;
}

/** Has the cluster get a new file, at most once whatever is known of earlier requests. */
export class FileCommit {
  readonly #requests: CommitRequests;
  readonly #of: Committed;
  /** As the catalog has created it; null where the cluster does not have it. */
  readonly #named: Attributes | null;
  #underWay: Promise<BackendFile> | null = null;
  #there: BackendFile | null = null;
  /** How the cluster got its contents, where all of them and nothing else. */
  #arrival: FileState | undefined;
  /**
   * What earlier requests of unknown outcome may have left at the cluster: nothing, the file with all of its contents, or a file
   * that was created and perhaps written.
   */
  #attempted: 'nothing' | 'with-contents' | 'creation' = 'nothing';
  /** Why no attempt follows: the name, or the contents, are another client's, or are gone. */
  #refusal: { readonly error: unknown } | null = null;
  /** The catalog has size and times. */
  isSettled = false;

  /** @param named the file as the catalog has created it; null: it has not */
  constructor(requests: CommitRequests, of: Committed, named: Attributes | null) {
    this.#requests = requests;
    this.#of = of;
    this.#named = named;
  }

  /** No request has told the cluster of what is kept here. */
  get isUnsent(): boolean {
    return this.#underWay === null && this.#refusal === null && this.#attempted === 'nothing';
  }

  /** No attempt follows: the file is kept for its handles, whose calls fail. */
  get isRefused(): boolean {
    return this.#refusal !== null;
  }

  /** The file at the cluster; null before it is there. */
  get there(): BackendFile | null {
    return this.#there;
  }

  /** How the cluster got the contents; undefined where it may have others. */
  get arrival(): FileState | undefined {
    return this.#arrival;
  }

  /**
   * Sends the file. An attempt that failed without a definite answer is repeated by the next call.
   *
   * @returns the file as the cluster has it
   */
  start(way: Way): Promise<BackendFile> {
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

  async #commit(way: Way): Promise<BackendFile> {
    const file = this.#of.file();
    const created = way === 'with-contents' ? await this.#createWithContents(file) : null;
    const { there, namedNs, arrival, isSettled } = created ?? (await this.#create(file, way));
    this.isSettled = isSettled;
    this.#there = there;
    // What comes later is changed there: until now it was these contents.
    if (arrival !== null) this.#arrival = { ...arrival, before: this.#of.version() };
    this.#of.committed(namedNs);
    this.#of.release();
    return there;
  }

  /** @returns null where it has to be created in the ordinary way */
  async #createWithContents(file: NewFile): Promise<Arrived | null> {
    let outcome: CreateOutcome;
    try {
      outcome = await this.#requests.createWithContents(file);
    } catch (error) {
      // A request that creates it by its number finds it, or creates it.
      this.#of.unknown(error);
      this.#attempted = 'with-contents';
      return null;
    }
    if (outcome.kind === 'not-created') return null;
    if (outcome.kind === 'refused') throw outcome.error;
    const { attributes, namedNs } = outcome;
    const there = this.#requests.open(attributes);
    return { there, namedNs, arrival: stateOf(attributes), isSettled: true };
  }

  /**
   * Each attempt, the first one included, writes to the file as it was created: another client may have opened the file and written to
   * it since this process has checked anything.
   */
  async #create(file: NewFile, way: Way): Promise<Arrived> {
    const before = this.#attempted;
    this.#attempted = 'creation';
    const { attributes, created, namedNs } =
      this.#named === null
        ? await this.#requests.create(file)
        : { attributes: this.#named, created: false, namedNs: null };
    const there = this.#requests.open(attributes);
    const found = stateOf(attributes);
    // The creation took effect, with all contents; what others have written since is theirs.
    if (before === 'with-contents' && !created && this.#named === null) {
      const isOwn = !attributes.live && contentVersionCompare(attributes.contents, WITH_CONTENTS) === 0;
      return { there, namedNs, arrival: isOwn ? found : null, isSettled: isOwn };
    }
    const { inode, contents, accessedNs, modifiedNs } = file;
    const written = contents.length === 0 ? found : await this.#write(there, contents);
    const isAlone = attributes.sizeBytes === 0 && (written === found || isAfter(written, found));
    const isTimed = this.#of.isTimed(way);
    if (isTimed) await this.#requests.setAttributes(inode, { accessedNs, modifiedNs });
    const arrival = isTimed ? { ...written, modifiedNs } : written;
    return { there, namedNs, arrival: isAlone ? arrival : null, isSettled: false };
  }

  /** @throws ErrnoError `EIO` where the file was written since it was created */
  async #write(there: BackendFile, contents: Uint8Array): Promise<FileState> {
    try {
      return await there.write(0, [contents], CREATED);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'precondition-failed') throw error;
      // Nothing else was ordered in the first epoch of a file that was created by a reserved number.
      const state = await there.state();
      if (contentVersionCompare(state.contents, WITH_CONTENTS) === 0) return state;
      const message = 'The file was written since it was created, perhaps by an attempt of unknown outcome';
      this.#refusal = { error: new ErrnoError('EIO', message) };
      // Open handles read what the file has, not what was refused.
      this.#there = there;
      this.#of.release();
      throw this.#refusal.error;
    }
  }
}

interface Arrived {
  readonly there: BackendFile;
  readonly namedNs: string | null;
  /** Null where the cluster may have others than these contents. */
  readonly arrival: FileState | null;
  /** The catalog knows size and times. */
  readonly isSettled: boolean;
}

/** Without this name and this number another attempt cannot succeed, or only over what another client has made since. */
function isFinal(error: unknown): boolean {
  return error instanceof ServiceError && FINAL.has(error.code);
}

export function stateOf({ sizeBytes, modifiedNs, contents }: FileState): FileState {
  return { sizeBytes, modifiedNs, contents };
}

function isAfter({ before }: FileState, { contents }: FileState): boolean {
  return before !== undefined && contentVersionCompare(before, contents) === 0;
}
