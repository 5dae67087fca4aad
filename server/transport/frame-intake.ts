import type { ClientRequestArgs } from 'node:http';
import { connect, isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { PAGE_BYTES, PAGE_MEMORY_BYTES_MAX } from '../../base/page-memory.ts';
import { releasableMemory, releasablePages } from '../../base/releasable-memory.ts';
import { WRITE_HEAD_BYTES } from '../../wire/file-operation.ts';
import { FRAME_BYTES_MAX, PAYLOAD_LARGE_BYTES } from './frame.ts';

const SCRATCH_BYTES = 64 * 1024;
const HEAD_BYTES_MAX = 64 * 1024;
const HEAD_END = Buffer.from('\r\n\r\n');
const SWITCHING = 'HTTP/1.1 101 ';
const NOTHING = Buffer.alloc(0);

/** Largest first frame of a large message that is taken: it carries the record's header. */
const FIRST_FRAME_BYTES_MAX = 4 * 1024;
/** Payloads of at least this size are read into page-aligned buffers, which all have the largest payload's size. */
const PAGES_BYTES_MIN = 2 * 1024 * 1024;

/** [RFC 6455] 5.2 */
const FIN = 0x80;
const RESERVED = 0x70;
const OPCODE = 0x0f;
const CONTINUATION = 0x0;
const BINARY = 0x2;
const CONTROL = 0x8;
const MASKED = 0x80;

/** Options with which the WebSocket library would connect. */
type DialedOptions = TcpNetConnectOpts & ConnectionOptions & { readonly host: string };

interface Gathering {
  readonly target: Buffer;
  filled: number;
  readonly onFilled: () => void;
}

/**
 * Takes large messages out of the byte stream between a dialed connection and its WebSocket: the system reads them
 * directly into their final memory. The WebSocket library would read pieces of 64 KiB and copy each.
 *
 * A large message is exactly two frames (`encodeLarge`): a small first one, and one with all of the rest. All other
 * bytes go to the WebSocket unchanged, which also validates them.
 */
export class FrameIntake {
  /** Called with each large message, in order with the others; while it is null, all go to the WebSocket. */
  deliver: ((fragments: readonly Uint8Array[]) => void) | null = null;
  readonly #scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  #socket: Socket | null = null;
  /** `passing`: the handshake failed, and all bytes go to the WebSocket library. */
  #stage: 'handshake' | 'frames' | 'passing' = 'handshake';
  /** An incomplete head, of the handshake or of a frame. */
  #incompleteHead: Buffer = NOTHING;
  #gathering: Gathering | null = null;
  /** Bytes of the current frame that still go to the WebSocket. */
  #passingBytes = 0;
  /** The first frame of what may become a large message, and where its payload begins. */
  #firstFrame: { readonly bytes: Buffer; readonly payloadAt: number } | null = null;

  /** Returns the `createConnection` for the WebSocket library; it connects as the library would. */
  connector(isSecure: boolean): (options: ClientRequestArgs) => Socket {
    return (options) => this.#connect(options as DialedOptions, isSecure);
  }

  #connect(options: DialedOptions, isSecure: boolean): Socket {
    const onread = {
      buffer: (): Uint8Array => this.#nextBuffer(),
      callback: (count: number, buffer: Uint8Array): boolean => {
        this.#received(count, buffer as Buffer);
        return true;
      },
    };
    const { path: _ofRequest, ...others } = options;
    const to = { ...others, onread };
    const servername = to.servername ?? (isIP(to.host) === 0 ? to.host : '');
    this.#socket = isSecure ? connectTls({ ...to, servername }) : connect(to);
    return this.#socket;
  }

  #nextBuffer(): Uint8Array {
    return this.#gathering === null ? this.#scratch : this.#gathering.target.subarray(this.#gathering.filled);
  }

  #received(count: number, buffer: Buffer): void {
    const gathering = this.#gathering;
    if (gathering === null || buffer.buffer !== gathering.target.buffer) {
      this.#take(buffer.subarray(0, count));
      return;
    }
    gathering.filled += count;
    this.#gathered(gathering);
  }

  #take(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0) {
      switch (this.#stage) {
        case 'handshake':
          rest = this.#takeHandshake(rest);
          break;
        case 'frames':
          rest = this.#takeFrames(rest);
          break;
        case 'passing':
          this.#pass(rest);
          return;
      }
    }
  }

  #takeHandshake(bytes: Buffer): Buffer {
    const all = Buffer.concat([this.#incompleteHead, bytes]);
    const end = all.indexOf(HEAD_END);
    const isOver = end >= 0 || all.length > HEAD_BYTES_MAX;
    this.#incompleteHead = isOver ? NOTHING : all;
    if (!isOver) return NOTHING;
    const isSwitching = end >= 0 && all.toString('latin1', 0, SWITCHING.length) === SWITCHING;
    this.#stage = isSwitching ? 'frames' : 'passing';
    const headBytes = isSwitching ? end + HEAD_END.length : all.length;
    this.#pass(all.subarray(0, headBytes));
    return all.subarray(headBytes);
  }

  /** Passes frames to the WebSocket, up to the first frame of a large message. @returns the bytes after them */
  #takeFrames(bytes: Buffer): Buffer {
    const gathering = this.#gathering;
    if (gathering !== null) {
      const part = bytes.subarray(0, gathering.target.length - gathering.filled);
      gathering.target.set(part, gathering.filled);
      gathering.filled += part.length;
      this.#gathered(gathering);
      return bytes.subarray(part.length);
    }
    let all = bytes;
    if (this.#incompleteHead.length > 0) {
      all = Buffer.concat([this.#incompleteHead, bytes]);
      this.#incompleteHead = NOTHING;
    }
    let at = Math.min(this.#passingBytes, all.length);
    this.#passingBytes -= at;
    while (at < all.length) {
      const head = frameHead(all, at);
      if (head === null) {
        this.#incompleteHead = Buffer.from(all.subarray(at));
        break;
      }
      if (this.#isPartOfLarge(head)) {
        this.#pass(all.subarray(0, at));
        this.#gather(head, all.subarray(at, at + head.headBytes));
        return all.subarray(at + head.headBytes);
      }
      if (this.#firstFrame !== null && head.opcode < CONTROL) {
        // The message does not continue as a large one does: the held frame goes to the WebSocket first.
        this.#pass(all.subarray(0, at));
        this.#pass(this.#firstFrame.bytes);
        this.#firstFrame = null;
        all = all.subarray(at);
        at = 0;
      }
      const end = at + head.headBytes + head.length;
      this.#passingBytes = Math.max(0, end - all.length);
      at = Math.min(end, all.length);
    }
    this.#pass(all.subarray(0, at));
    return NOTHING;
  }

  /** Whether the frame begins, or ends, a large message in two frames, which is gathered here without a copy. */
  #isPartOfLarge({ isPlain, isFinal, opcode, length }: FrameHead): boolean {
    if (!isPlain || this.deliver === null) return false;
    if (this.#firstFrame === null) return opcode === BINARY && !isFinal && length <= FIRST_FRAME_BYTES_MAX;
    const wholeBytes = this.#firstFrame.bytes.length - this.#firstFrame.payloadAt + length;
    return (
      opcode === CONTINUATION && isFinal && length >= PAYLOAD_LARGE_BYTES && wholeBytes <= FRAME_BYTES_MAX
    );
  }

  /** Reads the frame's rest into its own memory: a first frame's until the next one, a second one's as the payload. */
  #gather({ headBytes, length }: FrameHead, head: Buffer): void {
    const firstFrame = this.#firstFrame;
    if (firstFrame === null) {
      const bytes = Buffer.allocUnsafeSlow(headBytes + length);
      bytes.set(head);
      const onFilled = (): void => {
        this.#firstFrame = { bytes, payloadAt: headBytes };
      };
      this.#gathering = { target: bytes, filled: headBytes, onFilled };
    } else {
      const target = memoryOfLarge(length);
      const onFilled = (): void => {
        this.#firstFrame = null;
        this.deliver?.([firstFrame.bytes.subarray(firstFrame.payloadAt), target]);
      };
      this.#gathering = { target, filled: 0, onFilled };
    }
    this.#gathered(this.#gathering);
  }

  #gathered(gathering: Gathering): void {
    if (gathering.filled < gathering.target.length) return;
    this.#gathering = null;
    gathering.onFilled();
  }

  /** Passes a copy to the WebSocket library, which keeps the bytes, while the scratch buffer is reused. */
  #pass(bytes: Buffer): void {
    if (bytes.length > 0) this.#socket?.emit('data', Buffer.from(bytes));
  }
}

/** Allocates memory for a payload. Contents of a large one, usually a direct write, begin at a page (decision 0061). */
function memoryOfLarge(length: number): Buffer<ArrayBuffer> {
  const isPages =
    length >= PAGES_BYTES_MIN && length <= PAGE_MEMORY_BYTES_MAX - PAGE_BYTES + WRITE_HEAD_BYTES;
  return isPages ? releasablePages(length, WRITE_HEAD_BYTES) : releasableMemory(length);
}

interface FrameHead {
  readonly opcode: number;
  readonly isFinal: boolean;
  /** Neither masked nor with an extension. */
  readonly isPlain: boolean;
  readonly headBytes: number;
  readonly length: number;
}

function frameHead(bytes: Buffer, at: number): FrameHead | null {
  if (bytes.length < at + 2) return null;
  const first = bytes.readUInt8(at);
  const second = bytes.readUInt8(at + 1);
  const short = second & ~MASKED;
  const isMasked = (second & MASKED) !== 0;
  const headBytes = 2 + (short === 127 ? 8 : short === 126 ? 2 : 0) + (isMasked ? 4 : 0);
  if (bytes.length < at + headBytes) return null;
  let length = short;
  if (short === 126) length = bytes.readUInt16BE(at + 2);
  if (short === 127) length = Number(bytes.readBigUInt64BE(at + 2));
  const isPlain = !isMasked && (first & RESERVED) === 0;
  return { opcode: first & OPCODE, isFinal: (first & FIN) !== 0, isPlain, headBytes, length };
}
