/** An invariant of ours is broken. It ends the process: restarting is safe, going on is not. */
export class AssertionFailure extends Error {
  override readonly name = 'AssertionFailure';
}

/**
 * States what must hold if our own code is right. Stays on in production. Input from outside is
 * refused by codecs and schemas and never reaches an assertion.
 */
export function assert(condition: boolean, claim: string): asserts condition {
  if (!condition) throw new AssertionFailure(claim);
}

/** Closes a `switch` over a union: the compiler refuses a missing case, the process a corrupt one. */
export function unreachable(value: never): never {
  throw new AssertionFailure(`Unexpected case ${JSON.stringify(value)}`);
}
