/** Prepares up to `most` values ahead of their turn, and yields the results in the order of the values. */
export async function* prefetch<Value, Prepared>(
  values: AsyncIterable<Value> | Iterable<Value>,
  most: number,
  prepare: (value: Value) => Promise<Prepared>,
): AsyncGenerator<Prepared, void, undefined> {
  const waiting: Promise<Prepared>[] = [];
  try {
    for await (const value of values) {
      const preparing = prepare(value);
      // A failure is thrown in its turn; until then it must not count as unhandled.
      preparing.catch(() => undefined);
      waiting.push(preparing);
      if (waiting.length >= most) yield await (waiting.shift() as Promise<Prepared>);
    }
    while (waiting.length > 0) yield await (waiting.shift() as Promise<Prepared>);
  } finally {
    await Promise.allSettled(waiting);
  }
}
