/** Resolves when all of them have. @throws the first error of any, once none is under way any more */
export async function allDone(promises: readonly Promise<unknown>[]): Promise<void> {
  for (const outcome of await Promise.allSettled(promises)) {
    if (outcome.status === 'rejected') throw outcome.reason;
  }
}
