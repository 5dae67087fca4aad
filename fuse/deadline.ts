import type { Timer, World } from '../base/world.ts';
import { ErrnoError } from './errno.ts';

/** When a call is late that began at `beganMs`: later than usual if its volume moves to another catalog meanwhile. */
export type DeadlineOf = (beganMs: number, limitMs: number) => number;

export const usualDeadline: DeadlineOf = (beganMs, limitMs) => beganMs + limitMs;

/** Bounds a wait; the operation continues, and its outcome is ignored. @throws ErrnoError ETIMEDOUT after `limitMs` */
export function withDeadline<Value>(
  world: World,
  promise: Promise<Value>,
  limitMs: number,
  what: string,
  deadlineOf: DeadlineOf = usualDeadline,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const beganMs = world.nowMs();
    const wait = (waitedMs: number, ms: number): Timer =>
      world.after(ms, () => {
        const untilMs = waitedMs + ms;
        const leftMs = deadlineOf(beganMs, limitMs) - (beganMs + untilMs);
        if (leftMs > 0) timer = wait(untilMs, leftMs);
        else reject(new ErrnoError('ETIMEDOUT', `${what} took longer than ${untilMs} ms`));
      });
    let timer = wait(0, limitMs);
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
