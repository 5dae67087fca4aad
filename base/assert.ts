/** A broken invariant of this code. It ends the process: a restart is safe, continuing is not. */
export class AssertionFailure extends Error {
  override readonly name = 'AssertionFailure';
}

/** Asserts what holds if this code is right; on in production. Codecs and schemas refuse bad input before. */
export function assert(condition: boolean, claim: string): asserts condition {
  if (!condition) throw new AssertionFailure(claim);
}

/** Closes a `switch` over a union: the compiler refuses a missing case, the process an impossible value. */
export function unreachable(value: never): never {
  throw new AssertionFailure(`Unexpected case ${JSON.stringify(value)}`);
}
