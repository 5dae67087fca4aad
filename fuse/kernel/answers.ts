import { usualDeadline } from '../deadline.ts';
import { type ErrnoName, errnoName } from '../errno.ts';
import { logUnforeseen } from '../log.ts';
import { RecentTimeouts } from '../transport/recent-timeouts.ts';
import { TimedOutCallers } from '../transport/timed-out-callers.ts';
import type { TransportOptions } from '../transport.ts';
import { type CallUnderWay, PendingCalls } from './pending-calls.ts';
import { ROOT_NODE } from './protocol.ts';
import type { Replier } from './replier.ts';
import type { Request, RequestHeader } from './requests.ts';
import type { Signals } from './signals.ts';

/** Calls without a time limit here: their limits count from the last progress, or there is none. */
const UNLIMITED: ReadonlySet<Request['kind']> = new Set([
  'write',
  'flush',
  'persist',
  'persist-directory',
  'release',
  'allocate',
  'copy-range',
  // Setting flags first flushes pending operations.
  'ioctl',
  'lock',
]);

export interface AnswerOptions extends Pick<TransportOptions, 'world' | 'limitMs' | 'deadlineOf' | 'log'> {
  readonly signals: Signals;
}

/** Sends the outcome of each call to the kernel: exactly once, in time, and always at least an error. */
export class Answers {
  readonly underWay: PendingCalls;
  readonly #reply: Replier;
  readonly #options: AnswerOptions;
  readonly #recentTimeouts: RecentTimeouts;
  readonly #timedOutCallers: TimedOutCallers;

  constructor(reply: Replier, options: AnswerOptions) {
    this.#reply = reply;
    this.#options = options;
    this.#recentTimeouts = new RecentTimeouts(options.world);
    this.#timedOutCallers = new TimedOutCallers(options.world, options.limitMs);
    this.underWay = new PendingCalls(
      options.world,
      (call, errno) => this.#failed(call, errno),
      options.signals,
    );
  }

  /**
   * Sends the outcome of a call, unless the kernel has an answer already.
   * @param late handles a value that comes after that
   * @param abort for calls that can be interrupted
   */
  answer<Value>(
    header: RequestHeader,
    request: Request,
    ask: () => Promise<Value>,
    reply: (value: Value) => void,
    late?: (value: Value) => Promise<unknown>,
    abort?: AbortController,
  ): void {
    if (this.#isRepetition(header, request) || this.#hasCallerTimedOut(header, request)) {
      this.#reply.error(header.unique, 'ETIMEDOUT');
      return;
    }
    const beganMs = this.#options.world.nowMs();
    const { limitMs, deadlineOf = usualDeadline } = this.#options;
    const lateAtMs = (): number =>
      UNLIMITED.has(request.kind) ? Number.POSITIVE_INFINITY : deadlineOf(beganMs, limitMs);
    const call: CallUnderWay = { header, request, lateAtMs, ...(abort === undefined ? {} : { abort }) };
    this.underWay.begin(call);
    let asked: Promise<Value>;
    try {
      asked = Promise.resolve(ask());
    } catch (error) {
      asked = Promise.reject(error);
    }
    asked.then(
      (value) => {
        const isAwaited = this.underWay.end(call);
        if (!isAwaited) {
          // The caller got ETIMEDOUT or EINTR.
          late?.(value).catch((error: unknown) => logUnforeseen(this.#options.log, error));
          return;
        }
        this.#replied(header, () => reply(value));
        if (request.kind === 'attributes' && header.node === ROOT_NODE)
          this.#timedOutCallers.rootAnswered(header.pid, beganMs);
      },
      (error: unknown) => {
        // The reply comes first: it must not depend on the log.
        if (this.underWay.end(call)) this.#failed(call, errnoName(error));
        logUnforeseen(this.#options.log, error);
      },
    );
  }

  /** Sends the reply; if it cannot be encoded, an error. */
  #replied(header: RequestHeader, reply: () => void): void {
    try {
      reply();
    } catch (error) {
      this.#reply.error(header.unique, 'EIO');
      logUnforeseen(this.#options.log, error);
    }
  }

  #failed(call: CallUnderWay, errno: ErrnoName): void {
    const question = errno === 'ETIMEDOUT' ? repeatedQuestion(call.header, call.request) : undefined;
    if (question !== undefined) this.#recentTimeouts.add(question);
    this.#reply.error(call.header.unique, errno);
  }

  /** Whether the caller's limit is used up. `statfs` always gets an answer, even if its path took the whole limit. */
  #hasCallerTimedOut({ pid }: RequestHeader, { kind }: Request): boolean {
    return kind !== 'space' && !UNLIMITED.has(kind) && this.#timedOutCallers.has(pid);
  }

  #isRepetition(header: RequestHeader, request: Request): boolean {
    if (this.#recentTimeouts.isEmpty) return false;
    const question = repeatedQuestion(header, request);
    return question !== undefined && this.#recentTimeouts.has(question);
  }
}

/** A key for requests that the kernel repeats after a failure; undefined for all others. */
function repeatedQuestion({ node }: RequestHeader, request: Request): string | undefined {
  switch (request.kind) {
    case 'lookup':
      return `${node}/${request.name}`;
    case 'attributes':
      return String(node);
    case 'read':
      return `read ${request.handle}`;
    default:
      return undefined;
  }
}
