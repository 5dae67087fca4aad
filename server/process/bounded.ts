import type { World } from '../../base/world.ts';

/** Waits for `work` at most `limitMs`; a later result is dropped. @param expired creates the error of the time-out */
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

/** @returns whether `work` succeeds within `limitMs` */
export function succeedsWithin(world: World, work: Promise<unknown>, limitMs: number): Promise<boolean> {
  const succeeded = work.then(() => true);
  return bounded(world, succeeded, limitMs, () => new Error('too late')).catch(() => false);
}

/** Waits for `work`, without limit. After `afterMs`, `check` runs once: if it returns an error, the wait fails. */
export function withLateCheck<Value>(
  world: World,
  work: Promise<Value>,
  afterMs: number,
  check: () => Promise<Error | null>,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = world.after(afterMs, () => {
      check().then((error) => {
        if (error !== null) reject(error);
      }, reject);
    });
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}

/** @returns whether at least `countMin` answers are true, as soon as that is known. A failed one counts as false. */
export function atLeastTrue(answers: readonly Promise<boolean>[], countMin: number): Promise<boolean> {
  return new Promise((resolve) => {
    let trueCount = 0;
    let pendingCount = answers.length;
    const settleIfKnown = (): void => {
      if (trueCount >= countMin) resolve(true);
      else if (trueCount + pendingCount < countMin) resolve(false);
    };
    const count = (answer: boolean): void => {
      if (answer) trueCount++;
      pendingCount--;
      settleIfKnown();
    };
    for (const answer of answers) answer.then(count, () => count(false));
    settleIfKnown();
  });
}
