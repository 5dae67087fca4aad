/** Resolves when all have settled. @throws the first error, once none is under way any more */
export async function allDone(promises: readonly Promise<unknown>[]): Promise<void> {
  for (const outcome of await Promise.allSettled(promises)) {
    if (outcome.status === 'rejected') throw outcome.reason;
  }
}
