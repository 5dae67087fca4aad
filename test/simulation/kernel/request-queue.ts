import assert from 'node:assert/strict';
import type { World } from '../../../base/world.ts';
import { OPCODE, OUT_HEADER_BYTES } from '../../../fuse/kernel/protocol.ts';
import { errnoOf, KernelError } from './kernel-error.ts';
import { longs, readLong, requestBytes, words } from './messages.ts';

/** The task that makes a request. */
export interface Task {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  /** Whether a signal is pending that is not blocked. */
  readonly isSignalled: boolean;
  readonly isKilled: boolean;
}

/** Work of the kernel itself, such as writing dirty pages. */
export const KERNEL: Task = { pid: 0, uid: 0, gid: 0, isSignalled: false, isKilled: false };

export interface RequestOptions {
  /** Not even a fatal signal ends the wait. */
  readonly force?: boolean;
  /** No program waits for it, so that no signal is passed on. */
  readonly background?: boolean;
}

interface Waiting {
  readonly unique: number;
  readonly task: Task;
  readonly isBackground: boolean;
  readonly reply: PromiseWithResolvers<Buffer>;
  isSent: boolean;
  isInterrupted: boolean;
}

/** An observed request, for traces and for tests of orders. */
export interface SeenRequest {
  readonly opcode: number;
  readonly unique: number;
  readonly node: number;
  readonly pid: number;
}

export interface QueueOptions {
  /** How long after its reply the caller continues and processes the reply. Notices overtake it meanwhile. */
  readonly wakeMs?: () => number;
  readonly seen?: (request: SeenRequest) => void;
  /** The process of the file system, if it differs from the kernel's: it may be paused, and may end. */
  readonly below?: World;
}

const OPCODE_NAMES = new Map<number, string>(Object.entries(OPCODE).map(([name, opcode]) => [opcode, name]));

export function opcodeName(opcode: number): string {
  return OPCODE_NAMES.get(opcode) ?? String(opcode);
}

/**
 * /dev/fuse: requests in order to the file system, replies to the waiting tasks (fs/fuse/dev.c). A reply to a request
 * for which no task waits is a mistake of the file system.
 */
export class RequestQueue {
  readonly #world: World;
  readonly #options: QueueOptions;
  readonly #below: World;
  readonly #waiting = new Map<number, Waiting>();
  #receive: ((bytes: Buffer) => void) | null = null;
  #unique = 0;
  /** Requests that the file system has not read yet. */
  #unread = 0;
  readonly #forgotten: { readonly node: number; readonly lookups: number }[] = [];
  #forgetBatch = 0;

  constructor(world: World, options: QueueOptions) {
    this.#world = world;
    this.#options = options;
    this.#below = options.below ?? world;
  }

  connect(receive: (bytes: Buffer) => void): void {
    this.#receive = receive;
  }

  get isConnected(): boolean {
    return this.#receive !== null;
  }

  /** The number of requests without a reply. */
  get length(): number {
    return this.#waiting.size;
  }

  /** fuse_abort_conn: each waiting task fails, and each later call. */
  abort(): void {
    this.#receive = null;
    for (const { reply } of this.#waiting.values())
      reply.reject(new KernelError('ECONNABORTED', 'The mount has been aborted'));
    this.#waiting.clear();
  }

  /** @returns the body of the reply; @throws KernelError with the error of the reply */
  async request(
    task: Task,
    opcode: number,
    node: number,
    body: readonly Uint8Array[],
    { force = false, background = false }: RequestOptions = {},
  ): Promise<Buffer> {
    if (this.#receive === null) throw new KernelError('ENOTCONN', 'The mount is gone');
    this.#unique += 2;
    const unique = this.#unique;
    const waiting: Waiting = {
      ...{ unique, task, isBackground: background, isSent: false, isInterrupted: false },
      reply: Promise.withResolvers(),
    };
    this.#waiting.set(unique, waiting);
    const bytes = requestBytes(opcode, unique, node, task, body);
    this.#unread++;
    this.#below.soon(() => {
      this.#unread--;
      if (!this.#waiting.has(unique)) return;
      // request_wait_answer: a request that the file system has not read yet is withdrawn.
      if (task.isKilled && !force && !background) {
        this.#waiting.delete(unique);
        waiting.reply.reject(new KernelError('EINTR', 'Killed before the request was sent'));
        return;
      }
      waiting.isSent = true;
      this.#send(bytes, { opcode, unique, node, pid: task.pid });
      if (task.isSignalled) this.#interruptOne(waiting);
    });
    return waiting.reply.promise;
  }

  /** fuse_queue_forget: returns references to a node. There is no reply. */
  forget(node: number, lookups: number): void {
    if (this.#receive === null) return;
    this.#forgotten.push({ node, lookups });
    if (this.#forgotten.length === 1) this.#below.soon(() => this.#readForgotten());
  }

  /**
   * fuse_dev_do_read: FORGET requests have a queue of their own. If other requests wait, up to eight FORGETs overtake
   * them.
   */
  #readForgotten(): void {
    if (this.#unread > 0 && this.#forgetBatch-- <= 0) {
      if (this.#forgetBatch <= -8) this.#forgetBatch = 16;
      this.#below.soon(() => this.#readForgotten());
      return;
    }
    this.#unique += 2;
    const unique = this.#unique;
    const [one, ...more] = this.#forgotten.splice(0);
    assert.ok(one !== undefined, 'It is read while there is one');
    const isBatch = more.length > 0;
    const opcode = isBatch ? OPCODE.batchForget : OPCODE.forget;
    const node = isBatch ? 0 : one.node;
    const all = [one, ...more].map((each) => longs(each.node, each.lookups));
    const body = isBatch ? [words(all.length, 0), ...all] : [longs(one.lookups)];
    this.#send(requestBytes(opcode, unique, node, KERNEL, body), { opcode, unique, node, pid: 0 });
  }

  /** A signal has arrived for the task: the file system learns it, once for each request. */
  interrupt(task: Task): void {
    for (const waiting of this.#waiting.values()) {
      if (waiting.task === task && waiting.isSent) this.#interruptOne(waiting);
    }
  }

  #interruptOne(waiting: Waiting): void {
    if (waiting.isInterrupted || waiting.isBackground) return;
    waiting.isInterrupted = true;
    // FUSE_INT_REQ_BIT: the number of the interrupted request, plus one.
    const { unique } = waiting;
    const bytes = requestBytes(OPCODE.interrupt, unique + 1, 0, KERNEL, [longs(unique)]);
    this.#below.soon(() => {
      if (this.#waiting.has(unique)) this.#send(bytes, { opcode: OPCODE.interrupt, unique, node: 0, pid: 0 });
    });
  }

  /** The file system's writev() on the device: one reply. @returns false if it fails */
  reply(pieces: readonly Uint8Array[]): boolean {
    const bytes = Buffer.concat(pieces);
    assert.equal(bytes.readUInt32LE(0), bytes.length, 'A reply has its own length');
    const unique = readLong(bytes, 8);
    const waiting = this.#waiting.get(unique);
    if (this.#receive === null) return false;
    assert.ok(waiting !== undefined, `A reply to request ${unique}, which waits for none`);
    this.#waiting.delete(unique);
    const error = bytes.readInt32LE(4);
    assert.ok(error <= 0 && error > -512, `A reply with the error ${error}`);
    const wake = (): void => {
      if (error === 0) waiting.reply.resolve(bytes.subarray(OUT_HEADER_BYTES));
      else waiting.reply.reject(new KernelError(errnoOf(-error)));
    };
    // fuse_request_end: the end of a background request, such as a read ahead, runs within this call.
    const wakeMs = waiting.isBackground ? 0 : (this.#options.wakeMs?.() ?? 0);
    if (wakeMs > 0) this.#world.after(wakeMs, wake);
    else this.#world.soon(wake);
    return true;
  }

  #send(bytes: Buffer, seen: SeenRequest): void {
    this.#options.seen?.(seen);
    this.#receive?.(bytes);
  }
}
