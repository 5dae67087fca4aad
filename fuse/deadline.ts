import type { World } from '../base/world.ts';
import { ErrnoError } from './errno.ts';

/** Bounds a wait; the operation continues, and its outcome is ignored. @throws ErrnoError ETIMEDOUT after `limitMs` */
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
