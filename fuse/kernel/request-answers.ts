import type { Answered } from '../answered.ts';
import type { CacheTimes, InodeView } from '../kernel-view/kernel-view.ts';
import type { Place } from '../place.ts';
import type { Caller, Created, FileSystemCalls, Opened, TransportOptions } from '../transport.ts';
import type { Answers } from './answers.ts';
import { OPENED_FLAG } from './protocol.ts';
import { Replier } from './replier.ts';
import {
  DIRENT_BYTES_MIN,
  type NodeNumbers,
  putAttributesReply,
  putCount,
  putEntries,
  putEntry,
  putNoEntry,
  putOpened,
  putStatxReply,
} from './replies.ts';
import type { Request, RequestHeader } from './requests.ts';

export type RequestOf<Kind extends Request['kind']> = Extract<Request, { readonly kind: Kind }>;

export interface DecodedRequest<Of extends Request = Request> {
  readonly header: RequestHeader;
  readonly request: Of;
  readonly inode: number;
}

/** @param killsPrivileges whether a change of contents by this request clears set-user-id and set-group-id */
export function callerOf({ header, request }: DecodedRequest, killsPrivileges = false): Caller {
  return {
    uid: header.uid,
    gid: header.gid,
    thread: header.pid,
    killsPrivileges,
    ...('umask' in request ? { umask: request.umask & 0o777 } : {}),
  };
}

/** Answers a request with the outcome of a call, in the form that the kernel expects. */
export class RequestAnswers {
  readonly #calls: Pick<FileSystemCalls, 'keptPages' | 'listed' | 'readDirectory' | 'release'>;
  readonly #present: TransportOptions['present'];
  readonly #reply: Replier;
  readonly #answers: Answers;
  readonly #view: InodeView;
  readonly #numbers: NodeNumbers;

  constructor(
    calls: Pick<FileSystemCalls, 'keptPages' | 'listed' | 'readDirectory' | 'release'>,
    present: TransportOptions['present'],
    reply: Replier,
    answers: Answers,
    view: InodeView,
    numbers: NodeNumbers,
  ) {
    this.#calls = calls;
    this.#present = present;
    this.#reply = reply;
    this.#answers = answers;
    this.#view = view;
    this.#numbers = numbers;
  }

  /** As `done`, for a change that may be acknowledged before the cluster has it. */
  changedName({ header, request, inode }: DecodedRequest, change: () => Promise<unknown>): void {
    const ask = async (): Promise<void> => {
      await change();
      await this.#view.changedName(inode, header.pid);
    };
    // After an error for a late call the kernel drops nothing.
    const late = () => this.#view.dropAttributes(inode);
    this.#answers.answer(header, request, ask, () => this.#reply.done(header.unique), late);
  }

  done({ header, request }: DecodedRequest, ask: () => Promise<unknown>, abort?: AbortController): void {
    this.#answers.answer(header, request, ask, () => this.#reply.done(header.unique), undefined, abort);
  }

  put<Value>(
    { header, request }: DecodedRequest,
    ask: () => Promise<Value>,
    put: (reply: Buffer, at: number, value: Value) => number,
    late?: (value: Value) => Promise<unknown>,
  ): void {
    const reply = (value: Value): void => {
      this.#reply.put(header.unique, (bytes, at) => put(bytes, at, value));
    };
    this.#answers.answer(header, request, ask, reply, late);
  }

  count(call: DecodedRequest, ask: () => Promise<number>): void {
    this.put(call, ask, putCount);
  }

  bytes(
    { header, request }: DecodedRequest,
    ask: () => Promise<Uint8Array>,
    taken?: (bytes: Uint8Array) => void,
  ): void {
    this.#answers.answer(header, request, ask, (bytes) => {
      this.#reply.bytes(header.unique, bytes);
      taken?.(bytes);
    });
  }

  /** Answers with bytes if the caller's buffer of `bytesMax` has space; with their size if `bytesMax` is 0. */
  sized(
    { header, request }: DecodedRequest<RequestOf<'xattr' | 'xattrs'>>,
    ask: () => Promise<Uint8Array>,
  ): void {
    const { bytesMax } = request;
    this.#answers.answer(header, request, ask, (bytes) => {
      if (bytesMax === 0) this.#reply.put(header.unique, (reply, at) => putCount(reply, at, bytes.length));
      else if (bytes.length > bytesMax) this.#reply.error(header.unique, 'ERANGE');
      else this.#reply.bytes(header.unique, bytes);
    });
  }

  attributes(
    { header, request }: DecodedRequest<RequestOf<'attributes'>>,
    ask: () => Promise<Answered>,
  ): void {
    const put = request.withCreation === true ? putStatxReply : putAttributesReply;
    this.#answers.answer(header, request, ask, (attributes) =>
      this.#view.answer(
        attributes,
        (times) => this.#putAttributes(header, attributes, times, put),
        header.pid,
      ),
    );
  }

  changedAttributes({ header, request }: DecodedRequest, ask: () => Promise<Answered>): void {
    this.#answers.answer(header, request, ask, (attributes) =>
      this.#view.answerChange(
        attributes,
        (times) => this.#putAttributes(header, attributes, times),
        header.pid,
      ),
    );
  }

  /** For a change of attributes whose answer has none. Resolves when the kernel has dropped its earlier ones. */
  async changingAttributes({ inode }: DecodedRequest, change: () => Promise<unknown>): Promise<void> {
    await change();
    await this.#view.dropAttributes(inode);
  }

  #putAttributes(
    { unique }: RequestHeader,
    attributes: Answered,
    { attributesMs }: CacheTimes,
    put = putAttributesReply,
  ): boolean {
    return this.#reply.put(unique, (reply, at) => put(reply, at, this.#present(attributes), attributesMs));
  }

  entry({ header, request, inode }: DecodedRequest, name: string, ask: () => Promise<Answered>): void {
    this.#answers.answer(header, request, ask, (stored) => {
      const node = this.#numbers.node(stored.inode);
      const put = (times: CacheTimes): boolean =>
        this.#reply.put(header.unique, (reply, at) =>
          putEntry(reply, at, node, this.#present(stored), times),
        );
      this.#view.answer(stored, put, header.pid, { parent: inode, name }, request.kind === 'lookup');
    });
  }

  /** @param rename called once the kernel may have the new name for as long as the old one */
  renamed(
    call: DecodedRequest,
    from: Place,
    to: Place,
    isExchange: boolean,
    rename: () => Promise<void>,
  ): void {
    this.done(call, async () => {
      await this.#view.renaming(from, to, isExchange);
      await rename();
    });
  }

  opened(call: DecodedRequest, open: () => Promise<Opened>): void {
    const { inode } = call;
    this.put(
      call,
      async () => {
        const opened = await open();
        await this.#view.opening(inode, opened.version);
        return opened;
      },
      (reply, at, opened) => putOpened(reply, at, opened.handle, this.#openedFlags(inode, opened)),
      ({ handle }) => this.#calls.release(handle),
    );
  }

  created(
    { header, request, inode }: DecodedRequest,
    name: string | null,
    create: () => Promise<Created>,
  ): void {
    const place = name === null ? null : { parent: inode, name };
    const reply = (created: Created): void => {
      const { attributes } = created;
      const node = this.#numbers.node(attributes.inode);
      const openedFlags = this.#openedFlags(attributes.inode, created);
      const put = (times: CacheTimes): boolean =>
        this.#reply.put(header.unique, (bytes, at) => {
          const next = putEntry(bytes, at, node, this.#present(attributes), times);
          return putOpened(bytes, next, created.handle, openedFlags);
        });
      this.#view.answer(attributes, put, header.pid, place, false);
    };
    this.#answers.answer(header, request, create, reply, ({ handle }) => this.#calls.release(handle));
  }

  #openedFlags(inode: number, opened: Opened): number {
    const isSame = this.#view.opened(inode, opened.version);
    if (isSame && !opened.directIo) this.#calls.keptPages(opened.handle);
    // Never `noFlush`: at each close the kernel has to get errors of writes and release locks.
    return opened.directIo ? OPENED_FLAG.directIo : isSame ? OPENED_FLAG.keepCache : 0;
  }

  listing(call: DecodedRequest<RequestOf<'read-directory'>>): void {
    const { handle, offset, plus } = call.request;
    const bytesMax = Math.min(call.request.bytesMax, Replier.bodyBytesMax);
    const countMax = Math.ceil(bytesMax / DIRENT_BYTES_MIN[plus ? 'plus' : 'plain']);
    const { header, request } = call;
    const ask = () => this.#calls.readDirectory(handle, offset, countMax);
    this.#answers.answer(header, request, ask, ({ entries }) => {
      const put = (reply: Buffer, at: number): number => {
        if (!plus) return putEntries(reply, at, entries, bytesMax);
        return putEntries(reply, at, entries, bytesMax, (entryAt, { name, inode }) =>
          this.#putListed(reply, entryAt, { parent: call.inode, name }, inode),
        );
      };
      this.#view.page(() => this.#reply.put(header.unique, put));
    });
  }

  /** Writes the attributes of a listed name, which counts as a look-up, if they are still valid. */
  #putListed(reply: Buffer, at: number, place: Place, inode: number | null): void {
    const stored = this.#calls.listed(place.parent, place.name);
    // `.` and `..` are not looked up, and the name may have changed since the listing.
    if (stored === undefined || stored.inode !== inode) {
      putNoEntry(reply, at);
      return;
    }
    const times = this.#view.listed(stored, place);
    putEntry(reply, at, this.#numbers.node(stored.inode), this.#present(stored), times);
  }
}
