import { isRefusal, ServiceError } from '../../base/errors.ts';
import { systemWorld } from '../../world/system-world.ts';
import { temporaryFailure } from '../terminal/failure.ts';
import { formatDuration } from '../terminal/quantities.ts';

export const STEP_TIMEOUT_MS = 60_000;
const POLL_MS = 100;

/** @throws CommandFailure if `promise` is still pending after `STEP_TIMEOUT_MS`; `what` is in its message */
export async function withTimeout<Value>(promise: Promise<Value>, what: string): Promise<Value> {
  const abort = new AbortController();
  const late = systemWorld.sleep(STEP_TIMEOUT_MS, { signal: abort.signal }).then(() => {
    throw temporaryFailure(`Timed out after ${formatDuration(STEP_TIMEOUT_MS)} waiting for ${what}`);
  });
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    abort.abort();
  }
}

/** Polls until there is an answer other than null: the state of other processes sends no events. */
export async function pollUntil<Value>(what: string, query: () => Promise<Value | null>): Promise<Value> {
  const deadlineMs = systemWorld.nowMs() + STEP_TIMEOUT_MS;
  for (;;) {
    try {
      const answer = await query();
      if (answer !== null) return answer;
    } catch (error) {
      if (!(error instanceof ServiceError) || isRefusal(error)) throw error;
    }
    if (systemWorld.nowMs() > deadlineMs) {
      throw temporaryFailure(`Timed out after ${formatDuration(STEP_TIMEOUT_MS)} waiting for ${what}`);
    }
    await systemWorld.sleep(POLL_MS);
  }
}

/** @returns a promise that rejects when `signal` is aborted */
export function rejectOnAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(temporaryFailure(`Stopped by ${String(signal.reason)}`));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
