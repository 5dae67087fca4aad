import { assert } from '../../base/assert.ts';
import { ServiceError } from '../../base/errors.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import {
  encodeWriteParts,
  WRITE_BYTES_MAX,
  WRITE_PARTS_MAX,
  type WritePart,
} from '../../wire/file-operation.ts';
import {
  type CopyOrder,
  type FileExtent,
  type FileState,
  type FlushResult,
  unsyncedText,
  type Whence,
  type WriteResult,
} from '../../wire/http-api.ts';
import { HEADER_LOCAL_MISS } from '../../wire/locations.ts';
import type { LocalReads, Miss } from '../local-reads/local-reads.ts';
import type { CallOptions, ExchangeOutcome, Exchanger, Subject } from '../transport/exchange.ts';
import { inTime } from '../transport/in-time.ts';
import { bytesRequest, type ExchangeRequest, getRequest, postRequest } from '../transport/request.ts';
import { RequestWindow } from '../transport/request-window.ts';
import { readBytes, readJson } from '../transport/response.ts';
import { sendOnce, type Ticket } from '../transport/send-once.ts';
import type { FileLocks } from './file-locks.ts';
import { NearReads } from './near-reads.ts';
import type { UnsyncedChanges } from './unsynced-changes.ts';

export const TRANSFER_BYTES_MAX = WRITE_BYTES_MAX;

export interface ReadResult {
  /** Shorter than requested at the end of the file. All bytes are of one state. */
  readonly bytes: Uint8Array;
  readonly sizeBytes: number;
}

/** Bytes of a file, read in pieces. All are of one state, except pieces that changed before they were read. */
export interface FileRange {
  /** The state is at least as new as this moment (monotonic, in milliseconds). */
  readonly sinceMs: number;
  /** Until then bytes come from the local disk; later reads are of a server. */
  readonly untilMs: number;
  read(offset: number, length: number): Promise<Uint8Array>;
}

export interface WriteOptions extends CallOptions {
  /** The version that the contents must have just before the write, else `precondition-failed`. */
  readonly ifContents?: ContentVersion;
}

export interface PrimaryAndEpoch {
  readonly primary: string;
  readonly epoch: number;
}

export interface FileOptions {
  readonly replicas?: readonly string[];
  /**
   * Number of an operation of the file that is known as committed, such as that of its contents in the attributes; the
   * later, the better. Without it, the first change of a file that had many writers may need one more query.
   */
  readonly since?: number;
  /** Reads are of this snapshot of the file's volume; writes are of the file itself. */
  readonly snapshot?: number;
  readonly name?: string;
  /**
   * Locks under which the file is changed. They are checked before each attempt of a change, and servers refuse it once
   * they are lost. Release a lock only when the changes made under it have ended, with or without success: then none of
   * them is executed any more.
   */
  readonly locks?: () => LocksOfChange | null;
}

type LocksOfChange = Pick<FileLocks, 'claim' | 'fence' | 'isOutdated' | 'checkExpiry' | 'currentStamp'>;

/**
 * An open file: reads, and writes under a session of its own. Calls may run in parallel; those on the same bytes then
 * have no order among each other. It needs no closing.
 */
export class FileHandle {
  readonly file: number;
  readonly #name: string;
  readonly #exchanger: Exchanger;
  readonly #subject: Subject;
  readonly #reads: Subject;
  readonly #replicas: readonly string[];
  readonly #local: LocalReads | null;
  readonly #path: string;
  readonly #snapshotQuery: string;
  readonly #locks: () => LocksOfChange | null;
  #session: Promise<RequestWindow> | null = null;
  #hadSession = false;
  #knownSeq: number;
  readonly #unsynced: UnsyncedChanges;

  constructor(
    exchanger: Exchanger,
    file: number,
    unsynced: UnsyncedChanges,
    options: FileOptions = {},
    local: LocalReads | null = null,
    subject: Subject = { primary: options.replicas?.[0] ?? null },
  ) {
    const { replicas = [], since = 0, snapshot, name = `file ${file}`, locks = () => null } = options;
    assert(Number.isSafeInteger(file) && file > 0, 'A file has a positive number');
    this.#exchanger = exchanger;
    this.file = file;
    this.#unsynced = unsynced;
    this.#name = name;
    this.#subject = subject;
    this.#reads = new NearReads(subject, exchanger.endpoints.zone, file, replicas);
    this.#replicas = replicas;
    this.#local = local;
    this.#path = `/v1/data/${file}`;
    this.#snapshotQuery = snapshot === undefined ? '' : `&snapshot=${snapshot}`;
    this.#knownSeq = since;
    this.#locks = locks;
  }

  get primary(): string | null {
    return this.#subject.primary;
  }

  read(offset: number, length: number, options?: CallOptions): Promise<ReadResult> {
    return this.#read(offset, length, null, options);
  }

  /** Asks a server on this machine where bytes are on its disk. @returns null if none here may answer reads now */
  async range(offset: number, length: number): Promise<FileRange | null> {
    const { file } = this;
    const located = {
      file,
      subject: this.#subject,
      replicas: this.#replicas,
      snapshotQuery: this.#snapshotQuery,
    };
    const range = (await this.#local?.locate(located, offset, length)) ?? null;
    if (range === null) return null;
    const { end, sizeBytes, sinceMs, untilMs } = range;
    return {
      sinceMs,
      untilMs,
      read: async (at, count) => {
        if (at + count > end && end < sizeBytes) return (await this.read(at, count)).bytes;
        const bytes = await range.read(at, count);
        return typeof bytes === 'string' ? (await this.#read(at, count, bytes)).bytes : bytes;
      },
    };
  }

  #read(offset: number, length: number, miss: Miss | null, options?: CallOptions): Promise<ReadResult> {
    assert(length <= TRANSFER_BYTES_MAX, 'A read is one transfer');
    const path = `${this.#path}?offset=${offset}&length=${length}${this.#snapshotQuery}`;
    const request = getRequest(`Cannot read ${this.#name}`, path, {
      files: [this.file],
      ...(miss === null ? {} : { headers: { [HEADER_LOCAL_MISS]: miss } }),
    });
    return this.#exchanger.perform(this.#reads, request, readBytes, options);
  }

  /**
   * Writes bytes. When it resolves, a majority of the replicas has acknowledged them.
   * @param bytes 1 to `TRANSFER_BYTES_MAX`, in consecutive pieces; unchanged until then, since a retry sends them again
   */
  write(
    offset: number | 'append',
    bytes: Uint8Array | readonly Uint8Array[],
    { ifContents, ...options }: WriteOptions = {},
  ): Promise<WriteResult> {
    const path = `${this.#path}?offset=${offset}${conditionOf(ifContents, '&')}`;
    const length =
      bytes instanceof Uint8Array ? bytes.length : bytes.reduce((sum, one) => sum + one.length, 0);
    assert(length > 0 && length <= TRANSFER_BYTES_MAX, 'A write is one transfer');
    const what = `Cannot write ${this.#name}`;
    return this.#change(
      (query) => bytesRequest(what, 'PUT', `${path}&${query}`, bytes, [this.file]),
      options,
    );
  }

  /**
   * Writes at several places as one operation: readers see all of it or none.
   * @param parts 1 to `WRITE_PARTS_MAX`, `TRANSFER_BYTES_MAX` bytes in all; where parts overlap the later one counts
   */
  writeParts(parts: readonly WritePart[], options?: CallOptions): Promise<WriteResult> {
    assert(parts.length > 0 && parts.length <= WRITE_PARTS_MAX, 'A write has a bounded number of parts');
    const body = encodeWriteParts(parts);
    const what = `Cannot write ${this.#name}`;
    return this.#change(
      (query) => bytesRequest(what, 'PUT', `${this.#path}/parts?${query}`, body, [this.file]),
      options,
    );
  }

  truncate(sizeBytes: number, options?: CallOptions): Promise<WriteResult> {
    return this.#post(`Cannot truncate ${this.#name}`, `truncate?size=${sizeBytes}&`, options);
  }

  /** Makes bytes `from` to before `to` a hole, which takes no space; `grows` extends a shorter file to `to`. */
  punch(from: number, to: number, grows: boolean, options?: CallOptions): Promise<WriteResult> {
    const range = `from=${from}&to=${to}&grows=${grows}`;
    return this.#post(`Cannot punch a hole into ${this.#name}`, `punch?${range}&`, options);
  }

  /** Finds where data or a hole begins, by objects: a small hole may count as data. A file has a hole at its end. */
  extent(offset: number, whence: Whence, options?: CallOptions): Promise<FileExtent> {
    const what = `Cannot find ${whence === 'data' ? 'data' : 'a hole'} in ${this.#name}`;
    const path = `extents?offset=${offset}&whence=${whence}${this.#snapshotQuery}`;
    return this.#ask('GET', what, path, options, this.#reads);
  }

  /**
   * Copies bytes of another file of the cluster; the servers read and write them. One call copies what one operation
   * takes, a hole as a whole, and is executed exactly once.
   * @returns `offset` is how far it came: before `toOffset + length`, if it is to be called again; `toOffset` itself if
   *   the source has ended
   * @throws ServiceError `bad-request` if both are ranges of one file that overlap
   */
  copyFrom(order: CopyOrder, options?: CallOptions): Promise<WriteResult> {
    return this.#post(`Cannot copy from file ${order.from} to ${this.#name}`, 'copy?', options, order);
  }

  /** Makes acknowledged changes survive a power failure of all servers. @throws ChangesLost once, if some are lost */
  async flush(options?: CallOptions): Promise<FileState> {
    const state = await this.#flush(options);
    this.#unsynced.report();
    return state;
  }

  async #flush(options?: CallOptions): Promise<FlushResult> {
    const sent = this.#unsynced.changes;
    const requests = sent.flatMap(({ request }) => request ?? []);
    const name = requests.length === 0 ? 'flush' : `flush?unsynced=${unsyncedText(requests)}`;
    const state = await this.#askState<FlushResult>('POST', name, `Cannot flush ${this.#name}`, options);
    this.#unsynced.flushed(state, sent);
    return state;
  }

  /**
   * Seals a file of policy `read-only`: its contents never change again, survive a power failure of every server, and
   * are at each of its servers that can be reached. With `ifContents`, a file written since is not sealed.
   */
  seal({ ifContents, ...options }: WriteOptions = {}): Promise<FileState> {
    const name = `seal${conditionOf(ifContents, '?')}`;
    return this.#askState('POST', name, `Cannot seal ${this.#name}`, options);
  }

  /** Has the primary report size, time and version to the catalog, so that the file is no longer live. */
  settle(options?: CallOptions): Promise<FileState> {
    return this.#askState('POST', 'settle', `Cannot settle ${this.#name}`, options);
  }

  state(options?: CallOptions): Promise<FileState> {
    return this.#askState('GET', 'state', `Cannot open ${this.#name}`, options);
  }

  /** @returns the primary; if there is none, a server becomes primary for this */
  ensurePrimary(): Promise<PrimaryAndEpoch> {
    return this.#ask('GET', `Cannot open ${this.#name}`, 'standing');
  }

  /** Requests a flush, seal, settle or state: they are idempotent, so they need no request id. */
  async #askState<State extends FileState = FileState>(
    method: 'GET' | 'POST',
    name: string,
    what: string,
    options?: CallOptions,
  ): Promise<State> {
    const path = name + (name.includes('?') ? this.#snapshotQuery : this.#snapshotQuery.replace('&', '?'));
    const state = await this.#ask<State>(
      method,
      what,
      path,
      options,
      method === 'GET' ? this.#reads : this.#subject,
    );
    this.#knownSeq = Math.max(this.#knownSeq, state.seq);
    return state;
  }

  #ask<Value>(
    method: 'GET' | 'POST',
    what: string,
    path: string,
    options?: CallOptions,
    subject: Subject = this.#subject,
  ): Promise<Value> {
    const request = { ...getRequest(what, `${this.#path}/${path}`, { files: [this.file] }), method };
    return this.#exchanger.ask(request, options, subject);
  }

  #post(what: string, path: string, options?: CallOptions, order?: CopyOrder): Promise<WriteResult> {
    const files = order === undefined ? [this.file] : [this.file, order.from];
    return this.#change(
      (query) => postRequest(what, `${this.#path}/${path}${query}`, order, { files, mutation: true }),
      options,
    );
  }

  /** Executes a change exactly once. @param build makes the request; `query` names the session, number and locks */
  async #change(build: (query: string) => ExchangeRequest, options: CallOptions = {}): Promise<WriteResult> {
    // The deadline covers all of it: a caller that waits longer, as a mount does before it releases a lock, knows that
    // no attempt follows.
    const limits = this.#exchanger.limitsOf(options);
    const remaining = (): CallOptions => ({ ...options, timeoutMs: limits.leftMs() });
    const sent = this.#unsynced.changes;
    const acquire = async (): Promise<Ticket> => {
      this.#session ??= this.#beginSession(options);
      const beginning = this.#session;
      const late = (): Error =>
        new ServiceError(
          'no-majority',
          `Cannot begin a session for ${this.#name}: no server answered in time`,
        );
      const window = await inTime(this.#exchanger.world, beginning, limits, late);
      const forgotten = (): void => this.#dropSession(beginning);
      return { window, number: await window.acquire(limits), forgotten };
    };
    const send = async ({ window, number }: Ticket) => {
      const { session, since } = window;
      if (this.#unsynced.isFull(session, number)) await this.#flush(remaining());
      // Servers keep the result of a change until a flush has asked for it.
      const answered = Math.min(window.answered, this.#unsynced.lowestOf(session) - 1);
      const query = `session=${session}&number=${number}&since=${since}&answered=${answered}`;
      const outcome = await this.#sendUnderLocks((locked) => build(query + locked), remaining);
      if (outcome.kind === 'answered')
        this.#unsynced.acknowledged(outcome.value, { session, number, since: since ?? 0 }, sent);
      return outcome;
    };
    return sendOnce(acquire, send, () => this.#locks()?.fence());
  }

  /** Sends a change, again with the new stamp if that of its locks was outdated. All attempts are one change. */
  async #sendUnderLocks(
    build: (locked: string) => ExchangeRequest,
    limits: () => CallOptions,
  ): Promise<ExchangeOutcome<WriteResult>> {
    let isUnknown = false;
    for (;;) {
      const locks = this.#locks();
      const under = locks?.currentStamp ?? null;
      let attempts = 0;
      const onAttempt = (): void =>
        attempts++ === 0 ? this.#locks()?.checkExpiry() : this.#locks()?.claim();
      const locked = under === null ? '' : `&under=${under.client}-${under.stamp}`;
      const request = { ...build(locked), onAttempt };
      const outcome = await this.#exchanger.exchange(this.#subject, request, readJson<WriteResult>, limits());
      if (outcome.kind === 'answered') return outcome;
      isUnknown ||= outcome.isOutcomeUnknown;
      const isRefused = outcome.error.code === 'lease-lost' && under !== null;
      if (!isRefused || locks?.isOutdated(under) !== true) return { ...outcome, isOutcomeUnknown: isUnknown };
    }
  }

  /**
   * Begins a session. It names an operation from before its first change (`since`): servers refuse an unknown session
   * if the file has forgotten sessions after that operation, whose requests it may have executed. The handle's first
   * session names the last operation that is known here, without a request. Each later one follows a refusal, so it
   * requests the file's position, the newest operation, which is one more round trip.
   */
  #beginSession(options: CallOptions): Promise<RequestWindow> {
    const windowFrom = (since: number): RequestWindow => new RequestWindow(this.#exchanger.world, since);
    if (!this.#hadSession) {
      this.#hadSession = true;
      return Promise.resolve(windowFrom(this.#knownSeq));
    }
    const beginning = this.state(options).then(({ seq }) => windowFrom(seq));
    beginning.catch(() => this.#dropSession(beginning));
    return beginning;
  }

  #dropSession(session: Promise<RequestWindow>): void {
    if (this.#session === session) this.#session = null;
  }
}

function conditionOf(contents: ContentVersion | undefined, separator: '?' | '&'): string {
  return contents === undefined ? '' : `${separator}if-contents=${contents.epoch}-${contents.seq}`;
}
