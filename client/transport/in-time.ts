import type { World } from '../../base/world.ts';

const TIMER_MS_MAX = 2 ** 31 - 1;

export interface WaitLimits {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** Awaits `work`, which continues in any case. @throws `late()` after `timeoutMs`, or the reason of `signal` */
export async function inTime<Value>(
  world: World,
  work: Promise<Value>,
  { timeoutMs, signal }: WaitLimits,
  late: () => Error,
): Promise<Value> {
  signal?.throwIfAborted();
  const { promise: over, reject } = Promise.withResolvers<never>();
  const timer = timeoutMs > TIMER_MS_MAX ? undefined : world.after(timeoutMs, () => reject(late()));
  const abort = (): void => reject(signal?.reason);
  signal?.addEventListener('abort', abort);
  try {
    return await Promise.race([work, over]);
  } finally {
    timer?.cancel();
    signal?.removeEventListener('abort', abort);
  }
}
