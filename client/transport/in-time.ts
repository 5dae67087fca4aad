import type { Timer, World } from '../../base/world.ts';

const TIMER_MS_MAX = 2 ** 31 - 1;

export interface WaitLimits {
  /** Monotonic, in milliseconds; asked again when it has passed, since it may have moved. */
  deadlineMs(): number;
  readonly signal?: AbortSignal | undefined;
}

/** The limits of a call over all of its attempts. */
export interface CallLimits extends WaitLimits {
  leftMs(): number;
}

/** Awaits `work`, which continues in any case. @throws `late()` after the deadline, or the reason of `signal` */
export async function inTime<Value>(
  world: World,
  work: Promise<Value>,
  { deadlineMs, signal }: WaitLimits,
  late: () => Error,
): Promise<Value> {
  const { promise: over, reject } = Promise.withResolvers<never>();
  let timer: Timer | undefined;
  const wait = (leftMs: number): void => {
    if (leftMs <= TIMER_MS_MAX) timer = world.after(Math.max(0, leftMs), check);
  };
  const check = (): void => {
    const leftMs = deadlineMs() - world.nowMs();
    if (leftMs <= 0) reject(late());
    else wait(leftMs);
  };
  wait(deadlineMs() - world.nowMs());
  const abort = (): void => reject(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  try {
    return await Promise.race([over, work]);
  } finally {
    timer?.cancel();
    signal?.removeEventListener('abort', abort);
  }
}
