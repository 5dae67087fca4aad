import { Ajv, type DefinedError, type ValidateFunction } from 'ajv';
import { ServiceError } from '../../base/errors.ts';
import type { Schema, Static } from '../../wire/schema.ts';

/** @returns the value, which is of the schema's type. @throws ServiceError `bad-request`, with what is wrong and where */
export type Matching<Value> = (value: unknown, what: string) => Value;

/**
 * Left as it is, it converts nothing, fills nothing in and takes nothing away, and ends with the first fault: of a long body that is wrong,
 * not all is looked through. `verbose` has faults tell all names that are required. Code is not made shorter, for that takes longer than all
 * the rest, and it runs no faster. Whether the schemas are schemas is for a test to see.
 */
const compiler = new Ajv({ meta: false, validateSchema: false, verbose: true, code: { optimize: false } });

/**
 * @returns what takes values that match the schema, and refuses others. The schema is made code when the first of them comes: that
 *   takes about a millisecond, and few processes see a command of every kind.
 */
export function matching<Of extends Schema>(schema: Of): Matching<Static<Of>> {
  let matches: ValidateFunction<Static<Of>> | null = null;
  return (value, what) => {
    matches ??= compiler.compile<Static<Of>>(schema);
    if (matches(value)) return value;
    const faults = (matches.errors ?? []) as DefinedError[];
    throw new ServiceError('bad-request', `The ${what} is malformed${faultText(faults)}`);
  };
}

/** @param faults the first, and where there are several ways to be right, one or more for each */
function faultText(faults: readonly DefinedError[]): string {
  const [first] = faults;
  return first === undefined ? '' : ` at ${first.instancePath || '/'}: ${wordsOf(first, faults)}`;
}

function wordsOf(first: DefinedError, faults: readonly DefinedError[]): string {
  switch (first.keyword) {
    case 'required': {
      const given = first.data as Readonly<Record<string, unknown>>;
      return `must have ${listed((first.schema as string[]).filter((name) => given[name] === undefined))}`;
    }
    case 'additionalProperties':
      return `must not have ${listed([first.params.additionalProperty])}`;
    case 'const': {
      // One of several texts: the fault is that it is none of them.
      const ways = faults.filter(({ keyword }) => keyword !== 'anyOf');
      const texts = ways.flatMap((fault) => (fault.keyword === 'const' ? [fault.params.allowedValue] : []));
      if (texts.length === ways.length) return `must be ${texts.length > 1 ? 'one of ' : ''}${listed(texts)}`;
      break;
    }
  }
  return first.message ?? 'is wrong';
}

function listed(values: readonly unknown[]): string {
  return values.map((value) => JSON.stringify(value)).join(', ');
}
