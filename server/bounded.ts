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
