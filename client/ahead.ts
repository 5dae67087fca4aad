/**
 * Does `prepare` for values before their turn comes, some at a time, and yields what it gave in the order of the values.
 *
 * @param values each is taken when there is room for it
 * @param most values that are being prepared, or wait for their turn
 */
export async function* ahead<Value, Prepared>(
  values: AsyncIterable<Value> | Iterable<Value>,
  most: number,
  prepare: (value: Value) => Promise<Prepared>,
): AsyncGenerator<Prepared, void, undefined> {
  const waiting: Promise<Prepared>[] = [];
  try {
    for await (const value of values) {
      const preparing = prepare(value);
      // A failure is looked at when its turn comes; until then it is not an unhandled one.
      preparing.catch(() => undefined);
      waiting.push(preparing);
      if (waiting.length >= most) yield await (waiting.shift() as Promise<Prepared>);
    }
    while (waiting.length > 0) yield await (waiting.shift() as Promise<Prepared>);
  } finally {
    await Promise.allSettled(waiting);
  }
}
