import type { Logger } from 'pino';
import { AssertionFailure, assert } from '../../base/assert.ts';
import { type ErrorDetails, isErrorCode, ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import { type FrameRecord, isMethod, PAYLOAD_BYTES_MAX } from './frame.ts';
import type { Pushed } from './outbox.ts';
import { CHANNEL_CALL, CHANNEL_REPLY, type TransportHandlers } from './transport.ts';

const MESSAGE_CHARS_MAX = 2_000;
const UNREACHABLE_MAX = 255;

interface PendingCall {
  readonly to: ServerId;
  readonly method: string;
  readonly timer: Timer;
  resolve(payload: Uint8Array): void;
  reject(error: Error): void;
}

export interface CallLimits {
  readonly callsMax: number;
  readonly servingMax: number;
}

/**
 * Calls over a transport that may lose messages. Every call ends: with the answer, with the peer's error, or with an
 * error that says whether the call can have had an effect (`Transport.call`).
 */
export class CallTable {
  readonly #world: World;
  readonly #limits: CallLimits;
  readonly #serve: TransportHandlers['call'];
  readonly #log: Logger;
  readonly #pending = new Map<number, PendingCall>();
  readonly #callsTo = new Map<ServerId, number>();
  readonly #servingFor = new Map<ServerId, number>();
  #nextId = 1;
  #closed = false;

  constructor(world: World, limits: CallLimits, serve: TransportHandlers['call'], log: Logger) {
    this.#world = world;
    this.#limits = limits;
    this.#serve = serve;
    this.#log = log;
  }

  get pendingCount(): number {
    return this.#pending.size;
  }

  /** Sends a call with `push`, and resolves with the payload of the answer. @throws as `Transport.call` */
  call(
    to: ServerId,
    method: string,
    payload: Uint8Array,
    timeoutMs: number,
    push: (record: FrameRecord) => Pushed | 'disconnected',
  ): Promise<Uint8Array> {
    assert(isMethod(method), 'A method has a short name in ASCII');
    assert(timeoutMs > 0, 'A call has time for its answer');
    const refused = (error: ServiceError): Promise<Uint8Array> => Promise.reject(error);
    if (this.#closed) return refused(notSent(to, method, 'this server is shutting down'));
    const count = this.#callsTo.get(to) ?? 0;
    if (count >= this.#limits.callsMax) {
      return refused(
        new ServiceError(
          'busy',
          `Cannot call ${to} ("${method}"): ${count} calls to it are pending, the maximum; retry later`,
        ),
      );
    }
    const id = this.#nextFreeId();
    const pushed = push({ channel: CHANNEL_CALL, id, method, payload });
    if (pushed === 'disconnected') return refused(notSent(to, method, 'it is not connected'));
    if (pushed === 'full') {
      return refused(
        new ServiceError('busy', `Cannot call ${to} ("${method}"): its send queue is full; retry later`),
      );
    }
    if (pushed === 'too-large') {
      return refused(
        new ServiceError(
          'too-large',
          `Cannot call ${to} ("${method}"): the payload has ` +
            `${payload.length} bytes, more than ${PAYLOAD_BYTES_MAX}`,
        ),
      );
    }
    this.#callsTo.set(to, count + 1);
    return new Promise((resolve, reject) => {
      const timer = this.#world.after(timeoutMs, () => {
        this.#take(id)?.reject(unknownOutcome(to, method, `no answer within ${timeoutMs} ms`));
      });
      this.#pending.set(id, { to, method, timer, resolve, reject });
    });
  }

  /** Serves a call. `push` answers the calling process only: after a restart of the peer the id means another call. */
  receiveCall(
    from: ServerId,
    id: number,
    method: string,
    payload: Uint8Array,
    push: (record: FrameRecord) => Pushed | 'disconnected',
  ): void {
    const serving = this.#servingFor.get(from) ?? 0;
    if (serving >= this.#limits.servingMax) {
      const busy = new ServiceError(
        'busy',
        `Cannot serve "${method}": ${serving} calls of ${from} are being served, the maximum; retry later`,
      );
      push({ channel: CHANNEL_REPLY, id, failed: true, payload: encodeFailure(busy) });
      return;
    }
    this.#servingFor.set(from, serving + 1);
    this.#answer(from, id, method, payload)
      .then((reply) => {
        if (push(reply) !== 'too-large') return;
        const failure = new ServiceError(
          'too-large',
          `Cannot answer "${method}": the answer has too many bytes`,
        );
        push({ channel: CHANNEL_REPLY, id, failed: true, payload: encodeFailure(failure) });
      })
      .finally(() => this.#countDown(this.#servingFor, from));
  }

  /** Ends the call that the reply is for. A reply without a pending call is normal: the call timed out. */
  receiveReply(from: ServerId, id: number, failed: boolean, payload: Uint8Array): void {
    const pending = this.#pending.get(id);
    if (pending === undefined || pending.to !== from) return;
    this.#take(id);
    if (failed) pending.reject(decodeFailure(payload, from));
    else pending.resolve(payload);
  }

  /** Fails all pending calls to `peer`: their answers can no longer arrive. */
  peerLost(peer: ServerId): void {
    for (const [id, pending] of [...this.#pending]) {
      if (pending.to !== peer) continue;
      this.#take(id)?.reject(
        unknownOutcome(peer, pending.method, 'the connection was lost before the answer'),
      );
    }
  }

  close(): void {
    this.#closed = true;
    for (const [id, pending] of [...this.#pending]) {
      this.#take(id)?.reject(unknownOutcome(pending.to, pending.method, 'this server is shutting down'));
    }
  }

  async #answer(from: ServerId, id: number, method: string, payload: Uint8Array): Promise<FrameRecord> {
    try {
      return {
        channel: CHANNEL_REPLY,
        id,
        failed: false,
        payload: await this.#serve(from, method, payload),
      };
    } catch (error) {
      return {
        channel: CHANNEL_REPLY,
        id,
        failed: true,
        payload: encodeFailure(this.#failure(error, from, method)),
      };
    }
  }

  #failure(error: unknown, from: ServerId, method: string): ServiceError {
    if (error instanceof ServiceError) return error;
    if (error instanceof MalformedError) {
      this.#log.warn({ peer: from, method, reason: error.message }, 'refused a malformed call');
      return new ServiceError('bad-request', `Cannot serve "${method}": malformed payload: ${error.message}`);
    }
    // A broken invariant must end the process: throw outside of the promise, to the handler of uncaught exceptions.
    if (error instanceof AssertionFailure) {
      this.#world.soon(() => {
        throw error;
      });
    }
    this.#log.error({ peer: from, method, err: error }, 'call failed unexpectedly');
    return new ServiceError(
      'internal',
      `Cannot serve "${method}": internal error; the reason is in the log of the called server`,
    );
  }

  #nextFreeId(): number {
    // Ids wrap around at 2^32; ids of pending calls are skipped.
    do {
      this.#nextId = (this.#nextId + 1) >>> 0;
    } while (this.#pending.has(this.#nextId));
    return this.#nextId;
  }

  #take(id: number): PendingCall | undefined {
    const pending = this.#pending.get(id);
    if (pending === undefined) return undefined;
    this.#pending.delete(id);
    pending.timer.cancel();
    this.#countDown(this.#callsTo, pending.to);
    return pending;
  }

  #countDown(counts: Map<ServerId, number>, peer: ServerId): void {
    const count = counts.get(peer) ?? 0;
    assert(count > 0, 'A call that ends was counted when it began');
    if (count === 1) counts.delete(peer);
    else counts.set(peer, count - 1);
  }
}

function notSent(peer: ServerId, method: string, why: string): ServiceError {
  return new ServiceError('no-majority', `Cannot call ${peer} ("${method}"): ${why}`, {
    unreachable: [peer],
  });
}

function unknownOutcome(peer: ServerId, method: string, why: string): ServiceError {
  return new ServiceError('unknown', `Call "${method}" to ${peer} has an unknown outcome: ${why}`, {
    unreachable: [peer],
  });
}

function encodeFailure(error: ServiceError): Uint8Array {
  const { unreachable = [], primary = '', retryAfterMs } = error.details;
  const listed = unreachable.slice(0, UNREACHABLE_MAX);
  const writer = new ByteWriter().text(error.code).text(error.message.slice(0, MESSAGE_CHARS_MAX));
  writer.uint8(listed.length);
  for (const server of listed) writer.text(server);
  return writer
    .text(primary)
    .float64(retryAfterMs ?? -1)
    .finish();
}

/** Returns the peer's error, or `unknown` if its code is not one of ours or its bytes are malformed. */
function decodeFailure(bytes: Uint8Array, from: ServerId): ServiceError {
  try {
    const reader = new ByteReader(bytes);
    const code = reader.text();
    const message = reader.text();
    const unreachable: string[] = [];
    for (let count = reader.uint8(); count > 0; count--) unreachable.push(reader.text());
    const primary = reader.text();
    const retryAfterMs = reader.float64();
    reader.end();
    const details: ErrorDetails = {
      ...(unreachable.length > 0 && { unreachable }),
      ...(primary !== '' && { primary }),
      ...(retryAfterMs >= 0 && { retryAfterMs }),
    };
    return new ServiceError(isErrorCode(code) ? code : 'unknown', message, details);
  } catch (cause) {
    if (!(cause instanceof MalformedError)) throw cause;
    return new ServiceError('unknown', `Server ${from} sent a malformed error`, {}, { cause });
  }
}
