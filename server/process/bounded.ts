import type { World } from '../../base/world.ts';

/** Waits for `work` at most `limitMs`; a later result is dropped. @param expired makes the error of the time-out */
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

export function within(world: World, work: Promise<unknown>, limitMs: number): Promise<boolean> {
  const succeeded = work.then(() => true);
  return bounded(world, succeeded, limitMs, () => new Error('too late')).catch(() => false);
}

/** Waits for `work`. If it takes longer than `afterMs`, `look` runs once: an error that it finds ends the wait. */
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

/** Whether this many answers are true; resolves as soon as that is known. A failed one counts as false. */
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
