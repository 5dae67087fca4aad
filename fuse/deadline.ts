import type { World } from '../base/world.ts';
import { ErrnoError } from './errno.ts';

/**
 * Bounds a wait. What was waited for goes on by itself; only its outcome is no longer looked at.
 *
 * @throws ErrnoError ETIMEDOUT when `limitMs` have passed
 */
export function withDeadline<Value>(
  world: World,
  promise: Promise<Value>,
  limitMs: number,
  what: string,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = world.after(limitMs, () =>
      reject(new ErrnoError('ETIMEDOUT', `${what} took longer than ${limitMs} ms`)),
    );
    promise.then(
      (value) => {
        timer.cancel();
        resolve(value);
      },
      (error: unknown) => {
        timer.cancel();
        reject(error);
      },
    );
  });
}
