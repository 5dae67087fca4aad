import { assert } from '../base/assert.ts';
import { ServiceError } from '../base/errors.ts';
import type { ContentVersion } from '../wire/catalog-api.ts';
import {
  encodeWriteParts,
  WRITE_BYTES_MAX,
  WRITE_PARTS_MAX,
  type WritePart,
} from '../wire/file-operation.ts';
import {
  type CopyOrder,
  type FileExtent,
  type FileState,
  type FlushResult,
  unsyncedText,
  type Whence,
  type WriteResult,
} from '../wire/http-api.ts';
import { HEADER_LOCAL_MISS } from '../wire/locations.ts';
import type { CallOptions, ExchangeOutcome, Exchanger, Subject } from './exchange.ts';
import type { FileLocks } from './file-locks.ts';
import { inTime } from './in-time.ts';
import type { LocalReads, Miss } from './local-reads/local-reads.ts';
import { bytesRequest, type ExchangeRequest, getRequest, postRequest } from './request.ts';
import { RequestWindow } from './request-window.ts';
import { readBytes, readJson } from './response.ts';
import { sendOnce, type Ticket } from './send-once.ts';
import type { UnsyncedChanges } from './unsynced-changes.ts';

/** Bytes that one `read` or `write` takes at the most. */
export const TRANSFER_BYTES_MAX = WRITE_BYTES_MAX;

export interface ReadResult {
  /** Shorter than asked for at the end of the file; all bytes are of one state. */
  readonly bytes: Uint8Array;
  /** Size of the file in that state. */
  readonly sizeBytes: number;
}

/** Bytes of a file that are read in pieces, and are of one state but for pieces that changed before they were read. */
export interface FileRange {
  /** All of them were so at this moment, or later (monotonic, in milliseconds). */
  readonly sinceMs: number;
  /** Until when pieces of it can be read. */
  readonly untilMs: number;
  /** @param length at most `TRANSFER_BYTES_MAX` */
  read(offset: number, length: number): Promise<Uint8Array>;
}

export interface WriteOptions extends CallOptions {
  /** The version that the contents have just before the write, else it fails with `precondition-failed`; absent: any. */
  readonly ifContents?: ContentVersion;
}

/** Who leads a file, and in which epoch. */
export interface Leading {
  readonly primary: string;
  readonly epoch: number;
}

export interface FileOptions {
  /** Ids of the servers that hold the file, if known; the first is asked first. */
  readonly replicas?: readonly string[];
  /**
   * Number of an operation of the file that was told as committed, such as its newest contents of the attributes, the later the
   * better; without it, the first change of a file with many writers before may take a question more.
   */
  readonly since?: number;
  /** Reads what this snapshot of the file's volume shows; writes are of the file itself. */
  readonly snapshot?: number;
  /** What failures call it, such as `VOLUME:/path`; its number where that is absent. */
  readonly name?: string;
  /**
   * Locks on the file under which it is changed. They are looked at before each attempt of a change, and servers refuse it once they are lost.
   * A lock is to be given back once the changes that were made under it have ended, in whatever way: then none of them is executed any more.
   */
  readonly locks?: () => Under | null;
}

type Under = Pick<FileLocks, 'claim' | 'fence' | 'isOutdated' | 'notice' | 'under'>;

/**
 * An open file: reads, and writes under a session of its own. Calls may run in parallel; those on the
 * same bytes then have no order among each other. Holds nothing that would have to be closed.
 */
export class FileHandle {
  readonly file: number;
  readonly #name: string;
  readonly #exchanger: Exchanger;
  readonly #subject: Subject;
  readonly #replicas: readonly string[];
  readonly #local: LocalReads | null;
  readonly #path: string;
  /** Of a URL's query, where a snapshot is read. */
  readonly #shown: string;
  readonly #locks: () => Under | null;
  #session: Promise<RequestWindow> | null = null;
  #hadSession = false;
  /** The largest number of a committed operation that is known here. */
  #knownSeq: number;
  readonly #unsynced: UnsyncedChanges;

  /**
   * @param local null where nothing is read past servers
   * @param subject where it is remembered who answers for the file
   */
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
    this.#replicas = replicas;
    this.#local = local;
    this.#path = `/v1/data/${file}`;
    this.#shown = snapshot === undefined ? '' : `&snapshot=${snapshot}`;
    this.#knownSeq = since;
    this.#locks = locks;
  }

  /** Id of the server that was the primary when last heard of. */
  get primary(): string | null {
    return this.#subject.primary;
  }

  /** @param length at most `TRANSFER_BYTES_MAX` */
  read(offset: number, length: number, options?: CallOptions): Promise<ReadResult> {
    return this.#read(offset, length, null, options);
  }

  /**
   * Bytes that are going to be read soon, all of one state, from the disk of a server on this machine.
   *
   * @returns null where none may answer for them at once: they are to be read one by one
   */
  async range(offset: number, length: number): Promise<FileRange | null> {
    const { file } = this;
    const located = { file, subject: this.#subject, replicas: this.#replicas, shown: this.#shown };
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

  /** @param miss why they were not read on this machine, where they were to be */
  #read(offset: number, length: number, miss: Miss | null, options?: CallOptions): Promise<ReadResult> {
    assert(length <= TRANSFER_BYTES_MAX, 'A read is one transfer');
    const path = `${this.#path}?offset=${offset}&length=${length}${this.#shown}`;
    const request = getRequest(`Cannot read ${this.#name}`, path, {
      files: [this.file],
      ...(miss === null ? {} : { headers: { [HEADER_LOCAL_MISS]: miss } }),
    });
    return this.#exchanger.perform(this.#subject, request, readBytes, options);
  }

  /**
   * Acknowledged by a majority of the replicas when it resolves.
   *
   * @param bytes 1 to `TRANSFER_BYTES_MAX`, in one piece or several that follow each other; must stay unchanged until then,
   *   since a retry sends them again
   */
  write(
    offset: number | 'append',
    bytes: Uint8Array | readonly Uint8Array[],
    { ifContents, ...options }: WriteOptions = {},
  ): Promise<WriteResult> {
    const path = `${this.#path}?offset=${offset}${guardOf(ifContents, '&')}`;
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
   * Writes at several places as one operation: whoever reads finds all of it or none. Acknowledged by a majority when it
   * resolves.
   *
   * @param parts 1 to `WRITE_PARTS_MAX`, with bytes in each and at most `TRANSFER_BYTES_MAX` in all; of those that overlap the later one counts
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

  /**
   * Makes bytes `from` to before `to` a hole, which reads as zeros and takes no room. Acknowledged by a majority when it
   * resolves.
   *
   * @param grows whether the file is made to reach to `to`; otherwise its size stays
   */
  punch(from: number, to: number, grows: boolean, options?: CallOptions): Promise<WriteResult> {
    const range = `from=${from}&to=${to}&grows=${grows}`;
    return this.#post(`Cannot punch a hole into ${this.#name}`, `punch?${range}&`, options);
  }

  /**
   * Where data or a hole begins, not before `offset`: by objects, so that a hole may be taken for data where it is small. A
   * file has a hole at its end.
   */
  extent(offset: number, whence: Whence, options?: CallOptions): Promise<FileExtent> {
    const what = `Cannot look for ${whence === 'data' ? 'data' : 'a hole'} in ${this.#name}`;
    return this.#ask('GET', what, `extents?offset=${offset}&whence=${whence}${this.#shown}`, options);
  }

  /**
   * Copies bytes of a file of the same cluster, which never come here: the servers read and write them. One call copies what
   * one operation takes, a hole as a whole, and is carried out once, however often it is tried.
   *
   * @returns `offset` is how far it came: before `toOffset + length`, where it is to be called again; `toOffset` itself
   *   where the source has ended
   * @throws ServiceError `bad-request` where both are ranges of one file that overlap
   */
  copyFrom(order: CopyOrder, options?: CallOptions): Promise<WriteResult> {
    return this.#post(`Cannot copy from file ${order.from} to ${this.#name}`, 'copy?', options, order);
  }

  /**
   * All acknowledged operations survive power loss of every server when it resolves.
   *
   * @throws ChangesLost once, where such a loss has taken some that were acknowledged to this client, through
   *   this handle or another one that may be closed
   */
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
   * The file changes no more, survives power loss of every server, and is at each of its servers that can be reached,
   * when it resolves. For files whose policy is `read-only`. With `ifContents` one that was written since is not sealed.
   */
  seal({ ifContents, ...options }: WriteOptions = {}): Promise<FileState> {
    const name = `seal${guardOf(ifContents, '?')}`;
    return this.#askState('POST', name, `Cannot seal ${this.#name}`, options);
  }

  /** The catalog knows size and modification time when it resolves. */
  settle(options?: CallOptions): Promise<FileState> {
    return this.#askState('POST', 'settle', `Cannot settle ${this.#name}`, options);
  }

  state(options?: CallOptions): Promise<FileState> {
    return this.#askState('GET', 'state', `Cannot open ${this.#name}`, options);
  }

  /** The file is led for that, where nobody leads it. */
  primaryNow(): Promise<Leading> {
    return this.#ask('GET', `Cannot open ${this.#name}`, 'standing');
  }

  /** Flush, seal, settle and state may be repeated freely, so they need no request id. */
  async #askState<State extends FileState = FileState>(
    method: 'GET' | 'POST',
    name: string,
    what: string,
    options?: CallOptions,
  ): Promise<State> {
    const path = name + (name.includes('?') ? this.#shown : this.#shown.replace('&', '?'));
    const state = await this.#ask<State>(method, what, path, options);
    this.#knownSeq = Math.max(this.#knownSeq, state.seq);
    return state;
  }

  #ask<Value>(method: 'GET' | 'POST', what: string, path: string, options?: CallOptions): Promise<Value> {
    const request = { ...getRequest(what, `${this.#path}/${path}`, { files: [this.file] }), method };
    return this.#exchanger.ask(request, options, this.#subject);
  }

  /** @param path ends where the query of the session follows */
  #post(what: string, path: string, options?: CallOptions, order?: CopyOrder): Promise<WriteResult> {
    const files = order === undefined ? [this.file] : [this.file, order.from];
    return this.#change(
      (query) => postRequest(what, `${this.#path}/${path}${query}`, order, { files, mutation: true }),
      options,
    );
  }

  async #change(build: (query: string) => ExchangeRequest, options: CallOptions = {}): Promise<WriteResult> {
    const { timeoutMs = this.#exchanger.operationTimeoutMs, signal } = options;
    const { world } = this.#exchanger;
    // All of it takes no longer: who waits for longer, as a mount does before it gives a lock back, knows that no attempt follows.
    const deadlineMs = world.nowMs() + timeoutMs;
    const limits = () => ({ timeoutMs: Math.max(0, deadlineMs - world.nowMs()), signal });
    const rest = (): CallOptions => ({ ...options, timeoutMs: limits().timeoutMs });
    const sent = this.#unsynced.changes;
    const acquire = async (): Promise<Ticket> => {
      this.#session ??= this.#beginSession(options);
      const beginning = this.#session;
      const late = (): Error =>
        new ServiceError('no-majority', `How far ${this.#name} is was not answered in time`);
      const window = await inTime(world, beginning, limits(), late);
      const forgotten = (): void => this.#leave(beginning);
      return { window, number: await window.acquire(limits()), forgotten };
    };
    const send = async ({ window, number }: Ticket) => {
      const { session, since } = window;
      if (this.#unsynced.isFull(session, number)) await this.#flush(rest());
      // The result of a change is kept until a flush has asked for it.
      const answered = Math.min(window.answered, this.#unsynced.lowestOf(session) - 1);
      const query = `session=${session}&number=${number}&since=${since}&answered=${answered}`;
      const outcome = await this.#sendUnderLocks((locked) => build(query + locked), rest);
      if (outcome.kind === 'answered')
        this.#unsynced.acknowledged(outcome.value, { session, number, since: since ?? 0 }, sent);
      return outcome;
    };
    return sendOnce(acquire, send, () => this.#locks()?.fence());
  }

  /** All attempts are one change, also those that name other locks. */
  async #sendUnderLocks(
    build: (locked: string) => ExchangeRequest,
    limits: () => CallOptions,
  ): Promise<ExchangeOutcome<WriteResult>> {
    let doubtful = false;
    for (;;) {
      const locks = this.#locks();
      const under = locks?.under ?? null;
      let attempts = 0;
      const onAttempt = (): void => (attempts++ === 0 ? this.#locks()?.notice() : this.#locks()?.claim());
      const locked = under === null ? '' : `&under=${under.client}-${under.stamp}`;
      const request = { ...build(locked), onAttempt };
      const outcome = await this.#exchanger.exchange(this.#subject, request, readJson<WriteResult>, limits());
      if (outcome.kind === 'answered') return outcome;
      doubtful ||= outcome.doubtful;
      const isRefused = outcome.error.code === 'lease-lost' && under !== null;
      if (!isRefused || locks?.isOutdated(under) !== true) return { ...outcome, doubtful };
    }
  }

  /**
   * The first session claims to be as old as what is known of the file. That is refused only where the file has forgotten
   * sessions since then; the next one asks how far the file is, which is a round trip more. To be refused after an attempt
   * without an answer means that nobody can tell whether that was carried out: so the claim should not be older than it has to be.
   */
  #beginSession(options: CallOptions): Promise<RequestWindow> {
    const begun = (since: number): RequestWindow => new RequestWindow(this.#exchanger.world, since);
    if (!this.#hadSession) {
      this.#hadSession = true;
      return Promise.resolve(begun(this.#knownSeq));
    }
    const beginning = this.state(options).then(({ seq }) => begun(seq));
    // Its callers get the error; the next change tries anew.
    beginning.catch(() => this.#leave(beginning));
    return beginning;
  }

  #leave(session: Promise<RequestWindow>): void {
    if (this.#session === session) this.#session = null;
  }
}

function guardOf(contents: ContentVersion | undefined, separator: '?' | '&'): string {
  return contents === undefined ? '' : `${separator}if-contents=${contents.epoch}-${contents.seq}`;
}
