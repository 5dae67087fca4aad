import { AssertionFailure } from '../../base/assert.ts';

/** A rule of the protocol is broken. */
export class Violation extends Error {
  override readonly name = 'Violation';
}

/** @returns the violation of `run`, or null. Other errors are mistakes of the test. */
export function violationOf(run: () => void): string | null {
  try {
    run();
    return null;
  } catch (error) {
    if (error instanceof Violation || error instanceof AssertionFailure) {
      return `${error.name}: ${error.message}`;
    }
    throw error;
  }
}

/** @returns the rule that a violation breaks, without the names and numbers of this case */
export function violationKind(violation: string): string {
  const rule = /\bL\d\b/.exec(violation);
  return rule === null ? violation.replaceAll(/\b[a-z]\b|\d+/g, '·') : rule[0];
}
