import { errnoName } from '../errno.ts';
import type { InodesWithoutAcls } from '../kernel-view/inodes-without-acls.ts';
import { InodeView, type Notices } from '../kernel-view/kernel-view.ts';
import { logUnforeseen } from '../log.ts';
import type { FileSystemCalls, TransportOptions } from '../transport.ts';
import { xattrKind } from '../xattr-names.ts';
import { Answers } from './answers.ts';
import { type Handlers, handlersOf } from './handlers.ts';
import type { PendingCalls } from './pending-calls.ts';
import { MAJOR, MINOR_EXPIRES, MINOR_MIN } from './protocol.ts';
import { Replier, type Send } from './replier.ts';
import { initFlags, NodeNumbers, putInit } from './replies.ts';
import { type DecodedRequest, RequestAnswers, type RequestOf } from './request-answers.ts';
import { decodeHeader, decodeRequest, type Request, type RequestHeader } from './requests.ts';
import type { Signals } from './signals.ts';

export const WRITE_BYTES_MAX = 1024 * 1024;
export const REQUEST_BYTES_MAX = WRITE_BYTES_MAX + 4096;

export interface SessionOptions extends TransportOptions {
  readonly backgroundMax: number;
  /** Drop what the kernel has cached; they report failures themselves. */
  readonly notices: Notices;
  readonly absentLists: InodesWithoutAcls | null;
  readonly signals: Signals;
}

/** One connection with the kernel, from INIT to its end. Sends exactly one reply to each request that expects one. */
export class Session {
  readonly numbers: NodeNumbers;
  readonly view: InodeView;
  readonly underWay: PendingCalls;
  /** Resolves with the kernel's minor version of the protocol; rejects if it is not supported. */
  readonly started: Promise<number>;
  readonly #calls: FileSystemCalls;
  readonly #options: SessionOptions;
  readonly #reply: Replier;
  readonly #handlers: Handlers;
  readonly #start = Promise.withResolvers<number>();

  constructor(calls: FileSystemCalls, options: SessionOptions, send: Send) {
    this.#calls = calls;
    this.#options = options;
    this.#reply = new Replier(send);
    this.numbers = new NodeNumbers(calls.root);
    this.started = this.#start.promise;
    const outcomes = new Answers(this.#reply, options);
    this.underWay = outcomes.underWay;
    const { cache, absentLists, present, notices, world } = options;
    this.view = new InodeView(cache, notices, absentLists, world);
    const answers = new RequestAnswers(
      ...([calls, present, this.#reply, outcomes, this.view, this.numbers] as const),
    );
    this.#handlers = {
      init: ({ header, request }) => this.#init(header.unique, request),
      destroy: ({ header }) => this.#reply.done(header.unique),
      interrupt: ({ request }) => this.underWay.interrupt(request.unique),
      forget: ({ request }) => {
        for (const { node, lookups } of request.forgotten)
          this.view.forget(this.numbers.inode(node), lookups);
      },
      unknown: ({ header }) => this.#reply.error(header.unique, 'ENOSYS'),
      ...handlersOf(calls, answers, this.numbers, () => absentLists?.forgetAll()),
    };
  }

  receive(bytes: Buffer): void {
    const header = decodeHeader(bytes);
    if (header === null) {
      this.#options.log('error', 'the kernel sent a malformed request', { sizeBytes: bytes.length });
      return;
    }
    try {
      this.#serve(header, decodeRequest(header, bytes));
    } catch (error) {
      this.#reply.error(header.unique, errnoName(error));
      logUnforeseen(this.#options.log, error);
    }
  }

  #serve<Kind extends Request['kind']>(header: RequestHeader, request: RequestOf<Kind>): void {
    if (this.#requestsCreationTime(request) && !this.#options.creationTimes) {
      // The kernel then requests the other attributes, and the creation time never again.
      this.#reply.error(header.unique, 'ENOSYS');
      return;
    }
    if (!this.#isXattrAllowed(request)) {
      // After ENOSYS the kernel requests no extended attribute any more.
      this.#reply.error(header.unique, this.#options.xattrs || this.#options.acls ? 'EOPNOTSUPP' : 'ENOSYS');
      return;
    }
    const handle: (asked: DecodedRequest<RequestOf<Kind>>) => void = this.#handlers[request.kind as Kind];
    handle({ header, request, inode: this.numbers.inode(header.node) });
  }

  #requestsCreationTime(request: Request): boolean {
    return request.kind === 'attributes' && request.withCreation === true;
  }

  #isXattrAllowed(request: Request): boolean {
    const { xattrs, acls } = this.#options;
    switch (request.kind) {
      case 'xattrs':
        return xattrs;
      case 'xattr':
      case 'set-xattr':
      case 'remove-xattr': {
        const kind = xattrKind(request.name);
        return kind === 'acl' ? acls : kind !== 'none' && xattrs;
      }
      default:
        return true;
    }
  }

  #init(unique: number, request: Request & { readonly kind: 'init' }): void {
    const { major, minor, readAheadBytes, flags } = request;
    if (major < MAJOR || (major === MAJOR && minor < MINOR_MIN)) {
      this.#reply.error(unique, 'EPROTO');
      this.#start.reject(
        new Error(`The kernel has version ${major}.${minor} of FUSE; ${MAJOR}.${MINOR_MIN} is needed`),
      );
      return;
    }
    if (minor < MINOR_EXPIRES) this.view.cannotExpire();
    const negotiated = {
      readAheadBytes,
      flags: initFlags(flags, {
        acls: this.#options.acls,
        numbers: this.#calls.findsNumbers === true,
        names: this.view.cachesNames,
      }),
      backgroundMax: this.#options.backgroundMax,
      writeBytesMax: WRITE_BYTES_MAX,
    };
    this.#reply.put(unique, (reply, at) => putInit(reply, at, negotiated));
    // A newer major version sends INIT again, with this one.
    if (major === MAJOR) this.#start.resolve(minor);
  }
}
