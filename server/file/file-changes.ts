import type { Logger } from 'pino';
import { unreachable } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import { FILE_BYTES_MAX, WRITE_BYTES_MAX, type WritePart } from '../../wire/file-operation.ts';
import type { WriteGuard, WriteResult } from '../../wire/http-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { ChangeRequest, CopyPiece, Hole } from '../routing/service-interfaces.ts';
import type { FileStore } from '../storage/store.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import type { Authorities } from './authority.ts';
import type { ChangeAdmission } from './change-admission.ts';
import type { FilePrimaries } from './file-primaries.ts';
import type { Change, FilePrimary } from './file-primary.ts';
import type { FileReads } from './file-reads.ts';
import type { FileReplicas } from './file-replicas.ts';
import type { FileSettling } from './file-settling.ts';
import type { ReleasedFiles } from './released-files.ts';
import { assertKnownRequest } from './sealed-file.ts';
import { decodeWriteOutcome } from './write-outcome.ts';

const STATE_REFUSALS: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'precondition-failed',
  'quota-exceeded',
  'lease-lost',
  'protected',
]);

/** Stands for the piece of a repeated copy, whose result is in the session table. */
const NOTHING_COPIED: CopyPiece = { kind: 'hole', length: 0 };

export interface FileChangesParts {
  readonly self: ServerId;
  readonly log: Logger;
  readonly store: FileStore;
  readonly authorities: Authorities;
  readonly replicas: FileReplicas;
  readonly primaries: FilePrimaries;
  readonly admission: ChangeAdmission;
  readonly releasedFiles: ReleasedFiles;
  readonly reads: FileReads;
  readonly settling: FileSettling;
  readonly traffic?: Traffic;
}

/** Changes of contents: ordered by this server's authority, and answered once they are committed. */
export class FileChanges {
  readonly #parts: FileChangesParts;

  constructor(parts: FileChangesParts) {
    this.#parts = parts;
  }

  async write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    guard: WriteGuard = {},
    returns: 'begin' | 'end' = 'begin',
  ): Promise<WriteResult> {
    if (bytes.length > WRITE_BYTES_MAX) {
      throw new ServiceError(
        'too-large',
        `A write carries at most ${WRITE_BYTES_MAX} bytes, not ${bytes.length}`,
      );
    }
    if (offset !== 'append' && offset + bytes.length > FILE_BYTES_MAX) {
      throw new ServiceError('bad-request', `The file would exceed the maximum of ${FILE_BYTES_MAX} bytes`);
    }
    const { replicas, admission } = this.#parts;
    const answered = this.#answerIfSealed(file, request);
    if (answered !== null) return answered;
    this.#parts.releasedFiles.assertNotReleased(file);
    const driver = bytes.length === 0 ? await replicas.primary(file) : await replicas.orderer(file);
    if (bytes.length === 0) {
      const state = await this.#parts.reads.state(file);
      return { ...state, offset: offset === 'append' ? state.sizeBytes : offset };
    }
    admission.assertAllReachable(driver);
    await admission.assertSpace(driver, request, bytes.length);
    return this.#changeWithRetryAsPrimary(driver, request, async (orderer, primary) => {
      const write = (expected: WriteGuard): Promise<Change> =>
        primary.write(request, offset, bytes, { guard: expected, returns });
      try {
        return await write(guard);
      } catch (error) {
        const isRefused = error instanceof ServiceError && error.code === 'precondition-failed';
        // If this very request has changed the file already, only its answer is repeated.
        if (isRefused && orderer.isPrimary && (await admission.isKnown(orderer, request))) return write({});
        throw error;
      }
    });
  }

  /**
   * Makes a change; if it is refused by the file's state, and this server only resumed or created the file, makes it
   * again as active primary: another server may have become primary without this one's knowledge.
   */
  async #changeWithRetryAsPrimary(
    driver: ReplicaDriver,
    request: ChangeRequest,
    change: (orderer: ReplicaDriver, primary: FilePrimary) => Promise<Change>,
  ): Promise<WriteResult> {
    const { file } = driver;
    const by = async (orderer: ReplicaDriver): Promise<WriteResult> => {
      const primary = this.#parts.primaries.of(orderer);
      return this.#resultOf(
        file,
        primary,
        await this.#parts.replicas.withinTimeout(file, () => change(orderer, primary)),
      );
    };
    try {
      return await by(driver);
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'quota-exceeded') this.#returnGrowth(file);
      const isRefused = error instanceof ServiceError && STATE_REFUSALS.has(error.code);
      if (!isRefused) throw error;
      if (driver.isPrimary) return this.#earlierAnswer(file, request, error);
      const primary = await this.#parts.replicas.primary(file);
      return by(primary).catch((refusal: unknown) => this.#earlierAnswer(file, request, refusal));
    }
  }

  /** Repeats the answer to a request that changed the file before its flags forbade that; else throws `refusal`. */
  async #earlierAnswer(file: FileId, request: ChangeRequest, refusal: unknown): Promise<WriteResult> {
    if (!(refusal instanceof ServiceError) || refusal.code !== 'protected') throw refusal;
    const { replicas, admission, primaries, self } = this.#parts;
    const driver = await replicas.primary(file);
    const answer = await admission.outcomeOf(driver, request);
    if (answer.kind === 'fresh') throw refusal;
    if (answer.kind === 'expired') throw expiredError(file);
    return resultBy(file, primaries.of(driver), answer, self);
  }

  /** Settles the file: until then, all that the catalog let it grow by counts against the quota, used or not. */
  #returnGrowth(file: FileId): void {
    this.#parts.settling.settle(file).catch((error: unknown) => {
      this.#parts.log.debug(
        { file, err: error },
        "cannot return a file's growth reservation to the catalog yet",
      );
    });
  }

  async writeParts(file: FileId, request: ChangeRequest, parts: readonly WritePart[]): Promise<WriteResult> {
    const { replicas, admission } = this.#parts;
    const answered = this.#answerIfSealed(file, request);
    if (answered !== null) return answered;
    this.#parts.releasedFiles.assertNotReleased(file);
    const driver = await replicas.orderer(file);
    admission.assertAllReachable(driver);
    await admission.assertSpace(
      driver,
      request,
      parts.reduce((sum, { bytes }) => sum + bytes.length, 0),
    );
    return this.#changeWithRetryAsPrimary(driver, request, (_, primary) =>
      primary.writeParts(request, parts),
    );
  }

  async truncate(file: FileId, request: ChangeRequest, sizeBytes: number): Promise<WriteResult> {
    if (sizeBytes > FILE_BYTES_MAX)
      throw new ServiceError('bad-request', `The file would exceed the maximum of ${FILE_BYTES_MAX} bytes`);
    const { replicas, admission } = this.#parts;
    const answered = this.#answerIfSealed(file, request);
    if (answered !== null) return answered;
    const driver = await replicas.orderer(file);
    admission.assertAllReachable(driver);
    return this.#changeWithRetryAsPrimary(driver, request, (_, primary) =>
      primary.truncate(request, sizeBytes),
    );
  }

  async punch(file: FileId, request: ChangeRequest, hole: Hole): Promise<WriteResult> {
    if (hole.from > hole.to || hole.to > FILE_BYTES_MAX) {
      throw new ServiceError('bad-request', `Invalid hole: from ${hole.from} to ${hole.to}`);
    }
    const { replicas, admission } = this.#parts;
    const answered = this.#answerIfSealed(file, request);
    if (answered !== null) return answered;
    const driver = await replicas.orderer(file);
    admission.assertAllReachable(driver);
    return this.#changeWithRetryAsPrimary(driver, request, (_, primary) => primary.punch(request, hole));
  }

  async copy(
    file: FileId,
    request: ChangeRequest,
    toOffset: number,
    read: () => Promise<CopyPiece>,
  ): Promise<WriteResult> {
    const { replicas, admission } = this.#parts;
    const answered = this.#answerIfSealed(file, request);
    if (answered !== null) return answered;
    const driver = await replicas.primary(file);
    // A repeated copy gets the first answer, whatever the source contains by now.
    const isKnown = await admission.isKnown(driver, request);
    const piece = isKnown ? NOTHING_COPIED : await read();
    switch (piece.kind) {
      case 'data':
        return this.write(file, request, toOffset, piece.bytes, {}, 'end');
      case 'hole':
        return this.punch(file, request, { from: toOffset, to: toOffset + piece.length, grows: true });
      case 'end':
        return { ...(await this.#parts.reads.state(file)), offset: toOffset };
      default:
        return unreachable(piece);
    }
  }

  /**
   * @returns the answer to a change that a sealed file got before; null if the file is not sealed
   * @throws ServiceError `sealed`, or `session-expired` if it is unknown whether the change was made
   */
  #answerIfSealed(file: FileId, request: ChangeRequest): WriteResult | null {
    const { store, self, authorities } = this.#parts;
    const sealed = authorities.sealed(file);
    if (sealed === null) return null;
    const answer = assertKnownRequest(store, file, request);
    if (answer.kind === 'expired') throw expiredError(file);
    const epoch = store.record(file)?.installed.counter ?? 0;
    const version = { epoch: sealed.attributes.versionEpoch, seq: answer.seq };
    return resultOf(file, answer, version, epoch, self);
  }

  #resultOf(file: FileId, primary: FilePrimary, committed: Change): WriteResult {
    this.#parts.traffic?.countWrite();
    return resultBy(file, primary, committed, this.#parts.self);
  }
}

function expiredError(file: FileId): ServiceError {
  return new ServiceError(
    'session-expired',
    `The outcome of this change of file ${file} is no longer known: read the file before changing it again`,
  );
}

function resultBy(file: FileId, primary: FilePrimary, done: Change, self: ServerId): WriteResult {
  return resultOf(file, done, primary.versionOf(done.seq), primary.epoch.counter, self);
}

function resultOf(
  file: FileId,
  done: Change,
  contents: ContentVersion,
  epoch: number,
  primary: ServerId,
): WriteResult {
  const { offset, sizeBytes, modifiedNs, sameNames } = decodeWriteOutcome(done.result);
  return {
    file,
    sizeBytes,
    modifiedNs: modifiedNs.toString(),
    contents,
    ...(done.before === undefined ? {} : { before: done.before }),
    ...(sameNames === undefined ? {} : { sameNames }),
    seq: done.seq,
    primary,
    epoch,
    offset,
  };
}
