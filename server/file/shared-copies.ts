import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { copyEpoch, FIRST_COUNTER } from '../../replica/create-with-contents.ts';
import type { View } from '../../replica/view.ts';
import type { ContentVersion, SharedContents } from '../../wire/catalog-api.ts';
import type { FileExtent, Whence } from '../../wire/http-api.ts';
import { bounded } from '../process/bounded.ts';
import { type CopyState, decodeCopyCall, encodeCopyAnswer } from '../routing/copy-call.ts';
import { crc32Of } from '../storage/checksum.ts';
import type { FetchedObject, FirstState } from '../storage/store.ts';
import { viewOf } from './file-replicas.ts';
import type { FileCopy, ReplicaHost } from './replica-host.ts';

/** A copy that takes longer is asked for again. */
const ANSWER_MS_MAX = 5_000;
const COPIES_MAX = 8;
const BUSY_RETRY_MS = 200;
const READ_BYTES = 1024 * 1024;
/** While a copy is made, the contents move at most once: to the file that preserves them. */
const LOCATIONS_MAX = 3;

export interface SharedCopiesParts {
  readonly self: ServerId;
  readonly world: World;
  readonly log: Logger;
  readonly host: Pick<ReplicaHost, 'createCopy'>;
  locate(file: FileId): Promise<SharedContents>;
  read(file: FileId, offset: number, length: number, asOf: ContentVersion): Promise<Uint8Array>;
  extent(file: FileId, offset: number, whence: Whence, asOf: ContentVersion): Promise<FileExtent>;
}

/**
 * Copies the contents of files of clones into replicas of their own, before the first change: docs/design/clones.md. A
 * copy depends on the contents and the members alone, so any number of servers may ask for it, at any time.
 */
export class SharedCopies {
  readonly #parts: SharedCopiesParts;
  readonly #inProgress = new Map<FileId, Promise<boolean>>();

  constructor(parts: SharedCopiesParts) {
    this.#parts = parts;
  }

  async serve(payload: Uint8Array): Promise<Uint8Array> {
    return encodeCopyAnswer(await this.copy(decodeCopyCall(payload)));
  }

  /** Begins a copy, or waits a while for the one in progress; it continues without a caller. */
  async copy(file: FileId): Promise<CopyState> {
    const copying = this.#inProgress.get(file) ?? this.#begin(file);
    const ended = copying.then((isHere): CopyState => (isHere ? 'copied' : 'not-needed'));
    const late = new Error('still copying');
    return bounded(this.#parts.world, ended, ANSWER_MS_MAX, () => late).catch((error: unknown) => {
      if (error === late) return 'copying';
      throw error;
    });
  }

  #begin(file: FileId): Promise<boolean> {
    if (this.#inProgress.size >= COPIES_MAX) {
      const text = `This server is copying ${COPIES_MAX} files of clones: retry later`;
      return Promise.reject(new ServiceError('busy', text, { retryAfterMs: BUSY_RETRY_MS }));
    }
    const { host, log } = this.#parts;
    const copying = host.createCopy(file, () => this.#copyOf(file));
    this.#inProgress.set(file, copying);
    void copying
      .catch((error: unknown) => log.info({ file, err: error }, 'could not copy a file of a clone'))
      .finally(() => this.#inProgress.delete(file));
    return copying;
  }

  /**
   * Called when no replica of the file can begin here: as long as the catalog says after that that the contents are
   * shared, this server has promised nothing for the file, on this disk or an earlier one.
   */
  async #copyOf(file: FileId): Promise<FileCopy | null> {
    const shared = await this.#parts.locate(file);
    const members = shared.members as readonly ServerId[];
    if (!isShared(file, shared) || !members.includes(this.#parts.self)) return null;
    const state = firstStateOf(shared, viewOf({ view: 1, replicas: members, policy: shared.policy }));
    return { state, objects: this.#objects(file, shared) };
  }

  async *#objects(file: FileId, shared: SharedContents): AsyncGenerator<FetchedObject> {
    const { sizeBytes, objectBytes } = shared;
    const contents = new MovingContents(this.#parts, file, shared);
    const atOnce = Math.max(1, Math.floor(READ_BYTES / objectBytes)) * objectBytes;
    for (let offset = 0; offset < sizeBytes; ) {
      const begin = await contents.find(offset, 'data');
      if (begin === null || begin >= sizeBytes) return;
      const end = Math.min((await contents.find(begin, 'hole')) ?? sizeBytes, sizeBytes);
      for (let from = begin - (begin % objectBytes); from < end; from += atOnce) {
        const bytes = await contents.read(from, Math.min(atOnce, end - from));
        yield* objectsOf(bytes, from / objectBytes, objectBytes);
      }
      // A hole within an object is its end.
      offset = Math.max(end, begin + 1);
    }
  }
}

/** The contents of a shared file, wherever they are while they are read. */
class MovingContents {
  readonly #parts: SharedCopiesParts;
  readonly #file: FileId;
  #shared: SharedContents;
  #locations = 1;

  constructor(parts: SharedCopiesParts, file: FileId, shared: SharedContents) {
    this.#parts = parts;
    this.#file = file;
    this.#shared = shared;
  }

  /** @throws ServiceError `integrity` if there are fewer bytes */
  async read(offset: number, length: number): Promise<Uint8Array> {
    const bytes = await this.#use((source, asOf) => this.#parts.read(source, offset, length, asOf));
    if (bytes.length === length) return bytes;
    throw new ServiceError(
      'integrity',
      `The contents of file ${this.#file}, those of a snapshot, end within its size`,
    );
  }

  async find(offset: number, whence: Whence): Promise<number | null> {
    const { found } = await this.#use((source, asOf) => this.#parts.extent(source, offset, whence, asOf));
    return found;
  }

  async #use<Result>(work: (source: FileId, asOf: ContentVersion) => Promise<Result>): Promise<Result> {
    for (;;) {
      const { source, contents } = this.#shared;
      try {
        return await work(source as FileId, contents);
      } catch (error) {
        const hasMoved = error instanceof ServiceError && error.code === 'precondition-failed';
        if (!hasMoved) throw error;
        // A client that waits to change the file must not take it for an answer about its change.
        if (this.#locations++ === LOCATIONS_MAX) throw lost(this.#file);
        this.#shared = await this.#parts.locate(this.#file);
        if (!isShared(this.#file, this.#shared))
          throw new ServiceError('busy', `File ${this.#file} has contents of its own by now: retry`);
      }
    }
  }
}

function lost(file: FileId): ServiceError {
  return new ServiceError('integrity', `The contents of file ${file}, those of a snapshot, were lost`);
}

function isShared(file: FileId, { source }: SharedContents): boolean {
  return source !== file;
}

/** The same at each server. */
function firstStateOf({ sizeBytes, modifiedNs, objectBytes }: SharedContents, view: View): FirstState {
  const attributes = {
    ...{ sizeBytes, modifiedNs: BigInt(modifiedNs), versionEpoch: FIRST_COUNTER, versionSeq: 1 },
    ...{ objectBytes, dead: false, seal: 'open' as const },
  };
  return { view, epoch: copyEpoch(view), attributes };
}

function* objectsOf(bytes: Uint8Array, first: number, objectBytes: number): Generator<FetchedObject> {
  for (let at = 0; at < bytes.length; at += objectBytes) {
    const part = bytes.subarray(at, at + objectBytes);
    const entry = {
      ...{ index: first + at / objectBytes, versionEpoch: FIRST_COUNTER, versionSeq: 1 },
      ...{ length: part.length, crc32: crc32Of([part]) },
    };
    yield { entry, bytes: part };
  }
}
