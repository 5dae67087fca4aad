import { ErrnoError } from './errno.ts';

/**
 * Bounds a wait. What was waited for goes on by itself; only its outcome is no longer looked at.
 *
 * @throws ErrnoError ETIMEDOUT when `limitMs` have passed
 */
export function withDeadline<Value>(promise: Promise<Value>, limitMs: number, what: string): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new ErrnoError('ETIMEDOUT', `${what} took longer than ${limitMs} ms`)),
      limitMs,
    );
    promise.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error: unknown) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
