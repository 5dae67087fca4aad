/**
 * Waits for `work`, but no longer than `limitMs`; what comes later is dropped.
 *
 * @param expired makes the error of a wait that was too long
 */
export function bounded<Value>(work: Promise<Value>, limitMs: number, expired: () => Error): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(expired()), limitMs);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Waits for `work` to end, in whatever way, but no longer than `limitMs`. @returns whether it succeeded in time */
export function within(work: Promise<unknown>, limitMs: number): Promise<boolean> {
  const succeeded = work.then(() => true);
  return bounded(succeeded, limitMs, () => new Error('too late')).catch(() => false);
}

/**
 * Waits for `work`. If it takes longer than `afterMs`, `look` has its say as well, once: an error that it finds ends
 * the waiting.
 */
export function unlessFirst<Value>(
  work: Promise<Value>,
  afterMs: number,
  look: () => Promise<Error | null>,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      look().then((error) => {
        if (error !== null) reject(error);
      }, reject);
    }, afterMs);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
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
