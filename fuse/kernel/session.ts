import { unreachable } from '../../base/assert.ts';
import { errnoName } from '../errno.ts';
import type { AbsentLists } from '../kernel-view/absent-lists.ts';
import { type CacheTimes, KernelView } from '../kernel-view/kernel-view.ts';
import { logUnforeseen } from '../log.ts';
import type {
  Answered,
  Caller,
  Created,
  FileSystemCalls,
  NamePlace,
  Opened,
  TransportOptions,
} from '../transport.ts';
import { xattrKind } from '../xattr-names.ts';
import { Answers } from './answers.ts';
import { MAJOR, MINOR_MIN, OPENED_FLAG } from './protocol.ts';
import { Replier, type Send } from './replier.ts';
import {
  DIRENT_BYTES_MIN,
  initFlags,
  NodeNumbers,
  putAttributesReply,
  putCount,
  putEntries,
  putEntry,
  putInit,
  putLockHolder,
  putNoEntry,
  putOpened,
  putSpace,
} from './replies.ts';
import { decodeHeader, decodeRequest, type Request, type RequestHeader } from './requests.ts';
import type { Signals } from './signals.ts';

export const WRITE_BYTES_MAX = 1024 * 1024;
/** The largest request is a write with its header, and a little room. */
export const REQUEST_BYTES_MAX = WRITE_BYTES_MAX + 4096;

const SEEK_DATA = 3;
const SEEK_HOLE = 4;

export interface SessionOptions extends TransportOptions {
  readonly backgroundMax: number;
  /** Takes back what the kernel was told of the inode's attributes; reports a failure itself. */
  drop(inode: number): Promise<void>;
  /** Of which inodes the lists are not asked for here; null where all are. */
  readonly absentLists: AbsentLists | null;
  readonly signals: Signals;
}

/** One connection with the kernel, from INIT to its end: every request gets exactly one reply, or none where it wants none. */
export class Session {
  readonly numbers: NodeNumbers;
  /** Resolves with the kernel's minor version of the protocol; rejects where it is not spoken here. */
  readonly started: Promise<number>;
  readonly #calls: FileSystemCalls;
  readonly #options: SessionOptions;
  readonly #reply: Replier;
  readonly #answers: Answers;
  readonly #start = Promise.withResolvers<number>();
  readonly #view: KernelView;

  constructor(calls: FileSystemCalls, options: SessionOptions, send: Send) {
    this.#calls = calls;
    this.#options = options;
    this.#reply = new Replier(send);
    this.numbers = new NodeNumbers(calls.root);
    this.started = this.#start.promise;
    this.#answers = new Answers(this.#reply, options);
    const { cache, absentLists, world } = options;
    const drop = (inode: number): Promise<void> => options.drop(inode);
    this.#view = new KernelView(cache, drop, absentLists, () => world.nowMs());
  }

  /** @see KernelView.isInFlight */
  isInFlight(inode: number): boolean {
    return this.#view.isInFlight(inode);
  }

  /** @see CallsUnderWay.readsAnswered */
  readsAnswered(node: number): Promise<void> {
    return this.#answers.readsAnswered(node);
  }

  /** @see MountedTransport.dropAttributes */
  dropAttributes(inode: number): Promise<void> {
    return this.#view.dropAttributes(inode);
  }

  /** @param bytes one request, in memory of its own */
  receive(bytes: Buffer): void {
    const header = decodeHeader(bytes);
    if (header === null) {
      this.#options.log('error', 'the kernel sent what is no request', { sizeBytes: bytes.length });
      return;
    }
    try {
      this.#serve(header, decodeRequest(header, bytes));
    } catch (error) {
      logUnforeseen(this.#options.log, error);
      this.#reply.error(header.unique, errnoName(error));
    }
  }

  /** The mount is gone: nothing is answered any more. */
  stop(): void {
    this.#answers.stop();
  }

  #serve(header: RequestHeader, request: Request): void {
    const calls = this.#calls;
    const { unique } = header;
    const inode = this.numbers.inode(header.node);
    const caller = (killsPrivileges = false): Caller => ({
      uid: header.uid,
      gid: header.gid,
      thread: header.pid,
      killsPrivileges,
      ...('umask' in request ? { umask: request.umask & 0o777 } : {}),
    });
    const entry = (name: string, ask: () => Promise<Answered>): void => {
      this.#answers.answer(header, request, ask, (attributes) =>
        this.#replyEntry(header, { parent: inode, name }, attributes),
      );
    };
    const done = (ask: () => Promise<unknown>): void => {
      this.#answers.answer(header, request, ask, () => this.#reply.done(unique));
    };
    switch (request.kind) {
      case 'init':
        this.#init(unique, request);
        return;
      case 'destroy':
        this.#reply.done(unique);
        return;
      case 'interrupt':
        this.#answers.interrupt(request.unique);
        return;
      case 'forget':
        for (const node of request.nodes) this.#view.forget(this.numbers.inode(node));
        return;
      case 'lookup':
        entry(request.name, () => calls.lookup(inode, request.name, header.pid));
        return;
      case 'attributes':
        this.#attributes(header, request, () => calls.attributes(inode));
        return;
      case 'set-attributes':
        this.#changedAttributes(header, request, () => this.#setAttributes(inode, request, caller));
        return;
      case 'read-link':
        this.#bytes(header, request, async () => Buffer.from(await calls.readLink(inode)));
        return;
      case 'symlink':
        entry(request.name, () => calls.symlink(inode, request.name, request.target, caller()));
        return;
      case 'make-node': {
        const { name, mode, device } = request;
        entry(name, () => calls.makeNode(inode, name, mode, device, caller()));
        return;
      }
      case 'make-directory':
        entry(request.name, () => calls.makeDirectory(inode, request.name, request.mode, caller()));
        return;
      case 'link':
        entry(request.name, () =>
          calls.link(this.numbers.inode(request.of), inode, request.name, header.pid),
        );
        return;
      case 'unlink':
        done(() => calls.unlink(inode, request.name, header.uid));
        return;
      case 'remove-directory':
        done(() => calls.removeDirectory(inode, request.name));
        return;
      case 'rename': {
        const to = { parent: this.numbers.inode(request.toParent), name: request.toName };
        const { name, flags } = request;
        done(() => calls.rename({ parent: inode, name }, to, flags, header.uid, header.gid));
        return;
      }
      case 'open': {
        const { flags, killsPrivileges } = request;
        this.#answers.answer(
          header,
          request,
          async () => {
            const opened = await calls.open(inode, flags, caller(killsPrivileges));
            await this.#view.opening(inode, opened.version);
            return opened;
          },
          (opened) => {
            const openedFlags = this.#openedFlags(inode, opened);
            this.#reply.put(unique, (reply, at) => putOpened(reply, at, opened.handle, openedFlags));
          },
          ({ handle }) => calls.release(handle),
        );
        return;
      }
      case 'create': {
        const { name, mode, flags, killsPrivileges } = request;
        this.#answers.answer(
          header,
          request,
          () => calls.create(inode, name, mode, flags, caller(killsPrivileges)),
          (created) => this.#replyCreated(header, { parent: inode, name }, created),
          ({ handle }) => calls.release(handle),
        );
        return;
      }
      case 'read': {
        const { handle, offset, length } = request;
        this.#answers.answer(
          header,
          request,
          () => calls.read(handle, offset, length),
          (bytes) => {
            this.#reply.bytes(unique, bytes);
            calls.taken(bytes);
          },
        );
        return;
      }
      case 'write': {
        const { handle, offset, bytes, appends, killsPrivileges } = request;
        const by = caller(killsPrivileges);
        this.#count(header, request, () => calls.write(handle, offset, bytes, by, appends));
        return;
      }
      case 'flush':
        done(() => calls.flush(request.handle, request.owner));
        return;
      case 'persist':
        done(() => calls.persist(request.handle));
        return;
      case 'persist-directory':
        done(() => calls.persistDirectory(inode, request.handle));
        return;
      case 'release':
        done(() =>
          request.flockOwner === undefined
            ? calls.release(request.handle)
            : calls.release(request.handle, request.flockOwner),
        );
        return;
      case 'allocate': {
        const { handle, mode, offset, length } = request;
        // Not said by the kernel, which leaves it to the file system: as for a write.
        done(() => calls.allocate(handle, mode, offset, length, caller(header.uid !== 0)));
        return;
      }
      case 'seek':
        this.#seek(header, request);
        return;
      case 'copy-range':
        this.#copyRange(header, request, caller(header.uid !== 0));
        return;
      case 'open-directory':
        this.#answers.answer(
          header,
          request,
          () => calls.openDirectory(inode, request.flags),
          (handle) => this.#reply.put(unique, (reply, at) => putOpened(reply, at, handle, 0)),
          (handle) => calls.releaseDirectory(handle),
        );
        return;
      case 'read-directory':
        this.#readDirectory(header, request);
        return;
      case 'release-directory':
        done(() => calls.releaseDirectory(request.handle));
        return;
      case 'space':
        this.#answers.answer(
          header,
          request,
          () => calls.space(),
          (space) => this.#reply.put(unique, (reply, at) => putSpace(reply, at, space)),
        );
        return;
      case 'xattr':
      case 'xattrs':
      case 'set-xattr':
      case 'remove-xattr':
        this.#xattr(header, inode, request, caller());
        return;
      case 'lock-holder':
      case 'lock':
        this.#lock(header, request);
        return;
      case 'unknown':
        this.#reply.error(unique, 'ENOSYS');
        return;
      default:
        unreachable(request);
    }
  }

  #init(unique: number, request: Request & { readonly kind: 'init' }): void {
    const { major, minor, readAheadBytes, flags } = request;
    if (major < MAJOR || (major === MAJOR && minor < MINOR_MIN)) {
      this.#reply.error(unique, 'EPROTO');
      this.#start.reject(
        new Error(`The kernel speaks version ${major}.${minor} of FUSE; ${MAJOR}.${MINOR_MIN} is needed`),
      );
      return;
    }
    const negotiated = {
      readAheadBytes,
      flags: initFlags(flags, {
        acls: this.#options.acls,
        numbers: this.#calls.findsNumbers === true,
        names: this.#options.cache.nameValidMs !== null,
      }),
      backgroundMax: this.#options.backgroundMax,
      writeBytesMax: WRITE_BYTES_MAX,
    };
    this.#reply.put(unique, (reply, at) => putInit(reply, at, negotiated));
    // A newer major asks again, with ours.
    if (major === MAJOR) this.#start.resolve(minor);
  }

  async #setAttributes(
    inode: number,
    request: Request & { readonly kind: 'set-attributes' },
    caller: (killsPrivileges: boolean) => Caller,
  ): Promise<Answered> {
    const { sizeBytes, isOpen, killsPrivileges, changes } = request;
    if (sizeBytes === undefined) {
      return Object.keys(changes).length === 0
        ? this.#calls.touchStatus(inode, caller(killsPrivileges))
        : this.#calls.setAttributes(inode, changes);
    }
    const attributes = await this.#calls.truncate(inode, sizeBytes, caller(killsPrivileges), !isOpen);
    const { modified, ...others } = changes;
    // The truncate itself has set the present.
    const rest = modified === undefined || modified.kind === 'now' ? others : changes;
    return Object.keys(rest).length === 0 ? attributes : this.#calls.setAttributes(inode, rest);
  }

  #seek(header: RequestHeader, request: Request & { readonly kind: 'seek' }): void {
    const { handle, offset, whence } = request;
    if (whence !== SEEK_DATA && whence !== SEEK_HOLE) {
      this.#reply.error(header.unique, 'EINVAL');
      return;
    }
    this.#count(header, request, () =>
      this.#calls.seek(handle, offset, whence === SEEK_DATA ? 'data' : 'hole'),
    );
  }

  #copyRange(header: RequestHeader, request: Request & { readonly kind: 'copy-range' }, by: Caller): void {
    const { from, fromOffset, to, toOffset, length, flags } = request;
    if (flags !== 0) {
      this.#reply.error(header.unique, 'EINVAL');
      return;
    }
    this.#count(header, request, () => this.#calls.copyRange(from, fromOffset, to, toOffset, length, by));
  }

  #readDirectory(header: RequestHeader, request: Request & { readonly kind: 'read-directory' }): void {
    const { handle, offset, plus } = request;
    const bytesMax = Math.min(request.bytesMax, Replier.bodyBytesMax);
    const countMax = Math.ceil(bytesMax / DIRENT_BYTES_MIN[plus ? 'plus' : 'plain']);
    this.#answers.answer(
      header,
      request,
      () => this.#calls.readDirectory(handle, offset, countMax),
      ({ entries }) =>
        this.#reply.put(header.unique, (reply, at) => {
          if (!plus) return putEntries(reply, at, entries, bytesMax);
          const parent = this.numbers.inode(header.node);
          return putEntries(reply, at, entries, bytesMax, (entryAt, { name, inode }) =>
            this.#putListed(reply, entryAt, { parent, name }, inode),
          );
        }),
    );
  }

  /** What a listing told of a name is as good as a look-up, for as long as it is believed. */
  #putListed(reply: Buffer, at: number, place: NamePlace, inode: number | null): void {
    const stored = this.#calls.listed(place.parent, place.name);
    // `.` and `..` are looked up by nobody, and of what was given away meanwhile the listing knows nothing.
    if (stored === undefined || stored.inode !== inode) {
      putNoEntry(reply, at);
      return;
    }
    const times = this.#view.listed(stored, place);
    putEntry(reply, at, this.numbers.node(stored.inode), this.#options.present(stored), times);
  }

  #xattr(
    header: RequestHeader,
    inode: number,
    request: Request & { readonly kind: 'xattr' | 'xattrs' | 'set-xattr' | 'remove-xattr' },
    caller: Caller,
  ): void {
    const { unique } = header;
    const calls = this.#calls;
    if (!this.#mayHave(request)) {
      // At this answer the kernel does not ask again, for any attribute.
      this.#reply.error(unique, this.#options.xattrs || this.#options.acls ? 'EOPNOTSUPP' : 'ENOSYS');
      return;
    }
    switch (request.kind) {
      case 'xattr':
        this.#sized(header, request, () => calls.xattr(inode, request.name));
        return;
      case 'xattrs':
        this.#sized(header, request, async () =>
          Buffer.from((await calls.xattrs(inode, caller)).map((name) => `${name}\0`).join('')),
        );
        return;
      case 'set-xattr':
        this.#answers.answer(
          header,
          request,
          () =>
            calls
              .setXattr(inode, request.name, request.value, request.flags, request.clearsSetgid)
              // Before it is answered, and also where nobody knows what became of it.
              .finally(() => this.#options.absentLists?.forgetAll()),
          () => this.#reply.done(unique),
        );
        return;
      case 'remove-xattr':
        this.#answers.answer(
          header,
          request,
          () => calls.removeXattr(inode, request.name),
          () => this.#reply.done(unique),
        );
        return;
      default:
        unreachable(request);
    }
  }

  /** @returns whether a file here may have such an attribute */
  #mayHave(request: { readonly kind: string; readonly name?: string }): boolean {
    const { xattrs, acls } = this.#options;
    if (request.name === undefined) return xattrs;
    const kind = xattrKind(request.name);
    return kind === 'acl' ? acls : kind !== 'none' && xattrs;
  }

  /** Bytes for a caller that has room for `bytesMax`, or asks with 0 how many there are. */
  #sized(
    header: RequestHeader,
    request: Request & { readonly kind: 'xattr' | 'xattrs' },
    ask: () => Promise<Uint8Array>,
  ): void {
    const { bytesMax } = request;
    this.#answers.answer(header, request, ask, (bytes) => {
      if (bytesMax === 0) this.#reply.put(header.unique, (reply, at) => putCount(reply, at, bytes.length));
      else if (bytes.length > bytesMax) this.#reply.error(header.unique, 'ERANGE');
      else this.#reply.bytes(header.unique, bytes);
    });
  }

  #lock(header: RequestHeader, request: Request & { readonly kind: 'lock-holder' | 'lock' }): void {
    const calls = this.#calls;
    const { handle, lock } = request;
    if (request.kind === 'lock-holder') {
      this.#answers.answer(
        header,
        request,
        () => calls.lockHolder(handle, lock),
        (holder) => this.#reply.put(header.unique, (reply, at) => putLockHolder(reply, at, holder)),
      );
      return;
    }
    const abort = new AbortController();
    this.#answers.answer(
      header,
      request,
      () => calls.lock(handle, lock, request.waits, abort.signal),
      () => this.#reply.done(header.unique),
      undefined,
      abort,
    );
  }

  #attributes(header: RequestHeader, request: Request, ask: () => Promise<Answered>): void {
    this.#answers.answer(header, request, ask, (attributes) =>
      this.#view.answer(attributes, (times) => this.#replyAttributes(header, attributes, times), header.pid),
    );
  }

  #changedAttributes(header: RequestHeader, request: Request, ask: () => Promise<Answered>): void {
    this.#answers.answer(header, request, ask, (attributes) =>
      this.#view.answerChange(
        attributes,
        (times) => this.#replyAttributes(header, attributes, times),
        header.pid,
      ),
    );
  }

  #replyAttributes({ unique }: RequestHeader, attributes: Answered, { attributesMs }: CacheTimes): void {
    const { present } = this.#options;
    this.#reply.put(unique, (reply, at) => putAttributesReply(reply, at, present(attributes), attributesMs));
  }

  #bytes(header: RequestHeader, request: Request, ask: () => Promise<Uint8Array>): void {
    this.#answers.answer(header, request, ask, (bytes) => this.#reply.bytes(header.unique, bytes));
  }

  #count(header: RequestHeader, request: Request, ask: () => Promise<number>): void {
    this.#answers.answer(header, request, ask, (count) =>
      this.#reply.put(header.unique, (reply, at) => putCount(reply, at, count)),
    );
  }

  #replyEntry({ unique, pid }: RequestHeader, place: NamePlace, stored: Answered): void {
    const node = this.numbers.node(stored.inode);
    const put = (times: CacheTimes): void =>
      this.#reply.put(unique, (reply, at) => putEntry(reply, at, node, this.#options.present(stored), times));
    this.#view.answer(stored, put, pid, place);
  }

  #replyCreated({ unique, pid }: RequestHeader, place: NamePlace, created: Created): void {
    const { attributes } = created;
    const node = this.numbers.node(attributes.inode);
    const openedFlags = this.#openedFlags(attributes.inode, created);
    const put = (times: CacheTimes): void =>
      this.#reply.put(unique, (reply, at) => {
        const next = putEntry(reply, at, node, this.#options.present(attributes), times);
        return putOpened(reply, next, created.handle, openedFlags);
      });
    this.#view.answer(attributes, put, pid, place);
  }

  #openedFlags(inode: number, opened: Opened): number {
    const isSame = this.#view.opened(inode, opened.version);
    if (isSame && !opened.directIo) this.#calls.keptPages(opened.handle);
    // The kernel flushes at each close: it reports errors of writes, and releases locks.
    return opened.directIo ? OPENED_FLAG.directIo : isSame ? OPENED_FLAG.keepCache : 0;
  }
}
