import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { Attributes, ContentVersion } from '../../wire/catalog-api.ts';
import {
  encodeWriteParts,
  FILE_BYTES_MAX,
  WRITE_BYTES_MAX,
  type WritePart,
} from '../../wire/file-operation.ts';
import {
  type AcknowledgedRequest,
  type CopyOrder,
  type FileExtent,
  type FileState,
  type FlushResult,
  unsyncedText,
  type Whence,
  type WriteGuard,
  type WriteResult,
} from '../../wire/http-api.ts';
import type { LockClaim, LockGrant, LockList, LockOrder, LockRenewal } from '../../wire/lock-api.ts';
import { unknownIfAmbiguous } from './catalog-gateway.ts';
import type { FileFills } from './file-fills.ts';
import { jsonOfAnswer, jsonRequest, type PeerAnswer, type PeerRequest } from './peer-http.ts';
import type { Trail } from './route-course.ts';
import type { Call, CallOptions, Router } from './router.ts';
import type {
  ChangeRequest,
  CopyPiece,
  FileLeaseStatus,
  FileLocated,
  FileRead,
  Hole,
  Services,
} from './service-interfaces.ts';
import { SharedFile, type SharedReads, sharedState } from './shared-reads.ts';
import type { SnapshotContents, SnapshotReads } from './snapshot-reads.ts';
import { ageOfHeaders, stateOfHeaders } from './state-headers.ts';

export interface WriteOptions extends CallOptions {
  readonly guard?: WriteGuard;
}

export interface SnapshotReadOptions extends CallOptions {
  /** Read the contents as this snapshot of the file's volume shows them. */
  readonly snapshot?: number | undefined;
  /** Contents of another version are refused with `precondition-failed`. */
  readonly asOf?: ContentVersion | undefined;
}

export interface ReadOptions extends SnapshotReadOptions {
  readonly stale?: boolean;
}

export interface FileGatewayParts {
  readonly world: World;
  readonly services: Services;
  readonly router: Router;
  readonly snapshots: SnapshotReads;
  readonly shared: SharedReads;
  readonly fills: Pick<FileFills, 'fillWithin'>;
  /** Forwards a request to another server. */
  ask(server: ServerId, request: PeerRequest, timeoutMs: number): Promise<PeerAnswer>;
}

/** Serves requests about the contents of files: here, or at the primary. @see Gateway */
export class FileGateway {
  readonly #parts: FileGatewayParts;

  constructor(parts: FileGatewayParts) {
    this.#parts = parts;
  }

  /** Reads bytes, all of one state; fewer than `length` at the end of the file. */
  async read(file: FileId, offset: number, length: number, options: ReadOptions = {}): Promise<FileRead> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      const { stale: _, ...current } = rest;
      return this.#parts.snapshots.use(file, snapshot, current, (shown) =>
        this.read(shown.source, offset, length, { ...current, asOf: shown.asOf }),
      );
    }
    return this.#parts.shared.use(
      file,
      { ...rest, asOf },
      () => this.#readOwn(file, offset, length, options),
      async (shown, attributes) => {
        const { stale: _, ...current } = rest;
        const found = await this.read(shown.source, offset, length, { ...current, asOf: shown.asOf });
        return { ...found, state: this.#sharedState(attributes) };
      },
    );
  }

  #readOwn(file: FileId, offset: number, length: number, options: ReadOptions): Promise<FileRead> {
    const { asOf } = options;
    const stale = options.stale === true;
    const { files } = this.#parts.services;
    return this.#parts.router.route<FileRead>(
      {
        cell: file,
        action: `read file ${file}`,
        // A stale answer may name an earlier primary.
        showsPrimary: !stale,
        local: () => (stale ? files.readStale(file, offset, length) : files.read(file, offset, length, asOf)),
        remote: async (server, timeoutMs) => {
          const consistency = stale ? '&consistency=stale' : '';
          const path = `/v1/data/${file}?offset=${offset}&length=${length}${consistency}${asOfText(asOf)}`;
          const { headers, bytes } = await this.#parts.ask(server, { method: 'GET', path }, timeoutMs);
          return {
            bytes,
            state: stateOfHeaders(file, headers),
            served: 'forwarded',
            ageMs: ageOfHeaders(headers),
          };
        },
      },
      options,
    );
  }

  /** Returns where a file's bytes are on this server's disk, for processes on this machine; never forwarded. */
  async locate(
    file: FileId,
    offset: number,
    length: number,
    options: SnapshotReadOptions = {},
  ): Promise<FileLocated> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      return this.#parts.snapshots.use(file, snapshot, rest, (shown) =>
        this.locate(shown.source, offset, length, { ...rest, asOf: shown.asOf }),
      );
    }
    return this.#parts.services.files.locate(file, offset, length, asOf);
  }

  async write(
    file: FileId,
    request: ChangeRequest,
    offset: number | 'append',
    bytes: Uint8Array,
    options: WriteOptions = {},
  ): Promise<WriteResult> {
    const { guard = {} } = options;
    return this.#fileCall(
      file,
      `write file ${file}`,
      () => this.#parts.services.files.write(file, request, offset, bytes, guard),
      {
        method: 'PUT',
        path: `/v1/data/${file}?offset=${offset}&${requestText(request)}${guardText(guard)}`,
        contentType: 'application/octet-stream',
        body: bytes,
      },
      options,
    );
  }

  /** Writes bytes at several offsets atomically. */
  async writeParts(
    file: FileId,
    request: ChangeRequest,
    parts: readonly WritePart[],
    options: CallOptions = {},
  ): Promise<WriteResult> {
    return this.#fileCall(
      file,
      `write file ${file}`,
      () => this.#parts.services.files.writeParts(file, request, parts),
      {
        method: 'PUT',
        path: `/v1/data/${file}/parts?${requestText(request)}`,
        contentType: 'application/octet-stream',
        body: encodeWriteParts(parts),
      },
      options,
    );
  }

  async truncate(
    file: FileId,
    request: ChangeRequest,
    sizeBytes: number,
    options: CallOptions = {},
  ): Promise<WriteResult> {
    return this.#fileCall(
      file,
      `truncate file ${file}`,
      () => this.#parts.services.files.truncate(file, request, sizeBytes),
      { method: 'POST', path: `/v1/data/${file}/truncate?size=${sizeBytes}&${requestText(request)}` },
      options,
    );
  }

  async punch(
    file: FileId,
    request: ChangeRequest,
    hole: Hole,
    options: CallOptions = {},
  ): Promise<WriteResult> {
    const { from, to, grows } = hole;
    return this.#fileCall(
      file,
      `punch a hole into file ${file}`,
      () => this.#parts.services.files.punch(file, request, hole),
      {
        method: 'POST',
        path: `/v1/data/${file}/punch?from=${from}&to=${to}&grows=${grows}&${requestText(request)}`,
      },
      options,
    );
  }

  /** Finds where data or a hole begins, at `offset` or after it. */
  async extent(
    file: FileId,
    offset: number,
    whence: Whence,
    options: SnapshotReadOptions = {},
  ): Promise<FileExtent> {
    const { snapshot, asOf, ...rest } = options;
    if (snapshot !== undefined) {
      return this.#parts.snapshots.use(file, snapshot, rest, (shown) =>
        this.extent(shown.source, offset, whence, { ...rest, asOf: shown.asOf }),
      );
    }
    const own = () => this.#extentOwn(file, offset, whence, options);
    return this.#parts.shared.use(file, { ...rest, asOf }, own, (shown) =>
      this.extent(shown.source, offset, whence, { ...rest, asOf: shown.asOf }),
    );
  }

  #extentOwn(
    file: FileId,
    offset: number,
    whence: Whence,
    options: SnapshotReadOptions,
  ): Promise<FileExtent> {
    const { asOf } = options;
    return this.#routed(
      file,
      `find ${whence === 'data' ? 'data' : 'a hole'} in file ${file}`,
      () => this.#parts.services.files.extent(file, offset, whence, asOf),
      { method: 'GET', path: `/v1/data/${file}/extents?offset=${offset}&whence=${whence}${asOfText(asOf)}` },
      options,
    );
  }

  /**
   * Copies the beginning of a range to `file`, as much as fits one operation; the files may be the same. The primary of
   * `file` reads the source like a client. A request is one operation, so it may be repeated. `offset` of the result is
   * the end of the copied bytes in `file`: the caller continues from there, under another request number.
   * @throws ServiceError `bad-request` if the two ranges overlap
   */
  async copy(
    file: FileId,
    request: ChangeRequest,
    order: CopyOrder & { readonly from: FileId },
    options: CallOptions = {},
  ): Promise<WriteResult> {
    const { from, fromOffset, toOffset, length, snapshot } = order;
    if (from === file && snapshot === undefined && Math.abs(fromOffset - toOffset) < length) {
      throw new ServiceError('bad-request', `Cannot copy within file ${file}: the ranges overlap`);
    }
    if (fromOffset + length > FILE_BYTES_MAX || toOffset + length > FILE_BYTES_MAX) {
      throw new ServiceError('bad-request', `A file ends at ${FILE_BYTES_MAX} bytes`);
    }
    return this.#fileCall(
      file,
      `copy to file ${file}`,
      () =>
        this.#parts.services.files.copy(file, request, toOffset, () =>
          this.#copyPiece(from, fromOffset, length, snapshot),
        ),
      jsonRequest(`/v1/data/${file}/copy?${requestText(request)}`, order),
      options,
    );
  }

  /** Reads a copy's next piece: a whole hole, however long, or data up to the next hole, limited to one operation. */
  async #copyPiece(from: FileId, offset: number, length: number, snapshot?: number): Promise<CopyPiece> {
    // The write after it gets the other half.
    const options = { timeoutMs: this.#parts.services.status.operationTimeoutMs / 2, snapshot };
    const data = await this.extent(from, offset, 'data', options);
    const end = Math.min(data.sizeBytes, offset + length);
    if (offset >= end) return { kind: 'end' };
    const begin = Math.min(data.found ?? end, end);
    if (begin > offset) return { kind: 'hole', length: begin - offset };
    const { found: hole } = await this.extent(from, offset, 'hole', options);
    const until = Math.min(hole === null || hole <= offset ? end : hole, end, offset + WRITE_BYTES_MAX);
    const { bytes } = await this.read(from, offset, until - offset, options);
    return bytes.length === 0 ? { kind: 'end' } : { kind: 'data', bytes };
  }

  /** Resolves when all acknowledged operations survive a loss of power of all servers. @see FileService.flush */
  async flush(
    file: FileId,
    options: CallOptions = {},
    unsynced: readonly AcknowledgedRequest[] = [],
  ): Promise<FlushResult> {
    const query = unsynced.length === 0 ? '' : `?unsynced=${unsyncedText(unsynced)}`;
    return this.#fileCall(
      file,
      `flush file ${file}`,
      () => this.#parts.services.files.flush(file, unsynced),
      { method: 'POST', path: `/v1/data/${file}/flush${query}` },
      options,
    );
  }

  /** Resolves when the file can no longer change, and each of its reachable servers can answer reads. */
  async seal(file: FileId, options: CallOptions = {}, expected?: ContentVersion): Promise<FileState> {
    const guard = expected === undefined ? '' : guardText({ contents: expected }).replace('&', '?');
    return this.#fileCall(
      file,
      `seal file ${file}`,
      () => this.#parts.services.files.seal(file, expected),
      { method: 'POST', path: `/v1/data/${file}/seal${guard}` },
      options,
    );
  }

  /** Resolves when the catalog has size, modification time and version. */
  async settle(file: FileId, options: CallOptions = {}): Promise<FileState> {
    return this.#fileCall(
      file,
      `settle file ${file}`,
      () => this.#parts.services.files.settle(file),
      { method: 'POST', path: `/v1/data/${file}/settle` },
      options,
    );
  }

  async state(file: FileId, options: SnapshotReadOptions = {}): Promise<FileState> {
    const { snapshot, asOf: _, ...rest } = options;
    if (snapshot !== undefined)
      return this.#parts.snapshots.use(file, snapshot, rest, (shown) => this.#stateInSnapshot(file, shown));
    const own = () =>
      this.#routed(
        file,
        `ask for the state of file ${file}`,
        () => this.#parts.services.files.state(file),
        { method: 'GET', path: `/v1/data/${file}/state` },
        options,
      );
    return this.#parts.shared.use(file, rest, own, async (_, attributes) => this.#sharedState(attributes));
  }

  #sharedState(attributes: Attributes): FileState {
    return sharedState(attributes, this.#parts.services.status.id);
  }

  async #stateInSnapshot(file: FileId, { attributes }: SnapshotContents): Promise<FileState> {
    const { sizeBytes, modifiedNs, contents } = attributes;
    const { epoch, seq } = contents;
    return {
      file,
      sizeBytes,
      modifiedNs,
      contents,
      seq,
      epoch,
      primary: this.#parts.services.status.id,
      sealed: true,
    };
  }

  /** The file's lease and replicas as its primary sees them; a file without a primary gets one. */
  async leaseStatus(file: FileId, options: CallOptions = {}): Promise<FileLeaseStatus> {
    return this.#routed(
      file,
      `ask for the replicas of file ${file}`,
      async () => {
        const { primary } = await this.#parts.services.files.becomePrimary(file);
        const standing = this.#parts.services.files.leaseStatus(file);
        if (standing?.role === 'primary') return standing;
        throw new ServiceError('not-primary', `The primary of file ${file} has just changed`, { primary });
      },
      { method: 'GET', path: `/v1/data/${file}/standing` },
      options,
    ).catch((error: unknown) => {
      throw error instanceof SharedFile ? noServers(file) : error;
    });
  }

  async lock(file: FileId, order: LockOrder, options: CallOptions = {}): Promise<LockGrant> {
    const { since, heard, ...body } = order;
    return this.#fileCall(
      file,
      `lock file ${file}`,
      () => this.#parts.services.files.lock(file, order, options.holder ?? null),
      // Servers trust each other about the holder.
      jsonRequest(`/v1/data/${file}/locks${queryText({ holder: options.holder, since, ...heard })}`, body),
      options,
    );
  }

  async renewLocks(file: FileId, claim: LockClaim, options: CallOptions = {}): Promise<LockRenewal> {
    const { since, heard, ...body } = claim;
    return this.#fileCall(
      file,
      `renew the locks on file ${file}`,
      () => this.#parts.services.files.renewLocks(file, claim, options.holder ?? null),
      jsonRequest(
        `/v1/data/${file}/locks/renew${queryText({ holder: options.holder, since, ...heard })}`,
        body,
      ),
      options,
    );
  }

  async locks(file: FileId, options: CallOptions = {}): Promise<LockList> {
    return this.#routed(
      file,
      `list the locks on file ${file}`,
      () => this.#parts.services.files.locks(file),
      { method: 'GET', path: `/v1/data/${file}/locks` },
      options,
    ).catch((error: unknown): LockList => {
      if (!(error instanceof SharedFile)) throw error;
      // A file is locked at its primary, which it has none of.
      return { primary: this.#parts.services.status.id, epoch: 0, locks: [], waiting: 0, graceMs: 0 };
    });
  }

  /**
   * Moves the file's replicas. A move continues after the call has timed out; a repeated call waits for its end.
   * @see FileService.changeMembers
   */
  async changeMembers(
    file: FileId,
    members: readonly ServerId[],
    options: CallOptions & { readonly decidedBy?: number | undefined } = {},
  ): Promise<View> {
    const { decidedBy } = options;
    const view = await this.#fileCall(
      file,
      `move the replicas of file ${file}`,
      () => this.#parts.services.files.changeMembers(file, members, decidedBy),
      jsonRequest(`/v1/data/${file}/members`, { members, decidedBy }),
      options,
    );
    this.#parts.router.rememberMembers(file, view.members);
    return view;
  }

  /** Like `#routed`; a file with the contents of a snapshot first gets contents of its own. */
  async #fileCall<Result>(
    file: FileId,
    action: string,
    local: () => Promise<Result>,
    request: PeerRequest,
    options: CallOptions,
  ): Promise<Result> {
    const { services, world, fills } = this.#parts;
    const deadlineMs = world.nowMs() + (options.timeoutMs ?? services.status.operationTimeoutMs);
    for (;;) {
      const timeoutMs = Math.max(1, deadlineMs - world.nowMs());
      try {
        return await this.#routed(file, action, local, request, { ...options, timeoutMs });
      } catch (error) {
        if (!(error instanceof SharedFile)) throw error;
        await fills.fillWithin(file, timeoutMs);
      }
    }
  }

  /** @throws ServiceError, SharedFile */
  async #routed<Result>(
    file: FileId,
    action: string,
    local: () => Promise<Result>,
    request: PeerRequest,
    options: CallOptions,
  ): Promise<Result> {
    const trail: Trail = { ambiguous: false };
    const call: Call<Result> = {
      cell: file,
      action,
      local,
      remote: async (server, timeoutMs) =>
        jsonOfAnswer<Result>(await this.#parts.ask(server, request, timeoutMs)),
    };
    return this.#parts.router.route(call, options, trail).catch((error: unknown) => {
      throw unknownIfAmbiguous(error, trail, `it was possible to ${action}`);
    });
  }
}

function noServers(file: FileId): ServiceError {
  return new ServiceError(
    'precondition-failed',
    `File ${file} has no servers of its own: its contents are those of a snapshot until its first change`,
  );
}

function requestText(request: ChangeRequest): string {
  const { session, number, since, answered = 0, under } = request;
  const locks = under === undefined ? '' : `&under=${under.client}-${under.stamp}`;
  return `session=${session}&number=${number}&since=${since}&answered=${answered}${locks}`;
}

/** Parsed by `guardOf` of the data routes. */
function guardText({ contents, sizeBytes, changedNs }: WriteGuard): string {
  const ifContents = contents === undefined ? '' : `&if-contents=${contents.epoch}-${contents.seq}`;
  const ifSize = sizeBytes === undefined ? '' : `&if-size=${sizeBytes}`;
  return `${ifContents}${ifSize}${changedNs === undefined ? '' : `&if-changed=${changedNs}`}`;
}

function asOfText(asOf: ContentVersion | undefined): string {
  return asOf === undefined ? '' : `&as-of=${asOf.epoch}-${asOf.seq}`;
}

function queryText(parameters: Readonly<Record<string, string | number | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) query.set(name, `${value}`);
  return query.size === 0 ? '' : `?${query}`;
}
