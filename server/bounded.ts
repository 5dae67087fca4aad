import type { World } from '../base/world.ts';

/**
 * Waits for `work`, but no longer than `limitMs`; what comes later is dropped.
 *
 * @param expired makes the error of a wait that was too long
 */
export function bounded<Value>(
  world: World,
  work: Promise<Value>,
  limitMs: number,
  expired: () => Error,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = world.after(limitMs, () => reject(expired()));
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}

/** Waits for `work` to end, in whatever way, but no longer than `limitMs`. @returns whether it succeeded in time */
export function within(world: World, work: Promise<unknown>, limitMs: number): Promise<boolean> {
  const succeeded = work.then(() => true);
  return bounded(world, succeeded, limitMs, () => new Error('too late')).catch(() => false);
}

/**
 * Waits for `work`. If it takes longer than `afterMs`, `look` has its say as well, once: an error that it finds ends
 * the waiting.
 */
export function unlessFirst<Value>(
  world: World,
  work: Promise<Value>,
  afterMs: number,
  look: () => Promise<Error | null>,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = world.after(afterMs, () => {
      look().then((error) => {
        if (error !== null) reject(error);
      }, reject);
    });
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}

/** Whether so many of the answers are yes; resolves as soon as that is known. One that fails is a no. */
export function areSo(answers: readonly Promise<boolean>[], countMin: number): Promise<boolean> {
  return new Promise((resolve) => {
    let yes = 0;
    let left = answers.length;
    const look = (): void => {
      if (yes >= countMin) resolve(true);
      else if (yes + left < countMin) resolve(false);
    };
    const count = (answer: boolean): void => {
      if (answer) yes++;
      left--;
      look();
    };
    for (const answer of answers) answer.then(count, () => count(false));
    look();
  });
}
