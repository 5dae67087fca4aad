import { Ajv, type DefinedError, type ValidateFunction } from 'ajv';
import { ServiceError } from '../../base/errors.ts';
import type { Schema, Static } from '../../wire/schema.ts';

/** Returns the value with its type. @throws ServiceError `bad-request` with what is wrong and where */
export type Matching<Value> = (value: unknown, what: string) => Value;

/**
 * Converts, adds and removes nothing, and stops at the first fault. `verbose` lets a fault list all missing names.
 * Optimizing the code would take longer than all the rest and gain nothing. A test validates the schemas.
 */
const compiler = new Ajv({ meta: false, validateSchema: false, verbose: true, code: { optimize: false } });

/** Returns a validator, which compiles the schema when first used: that takes about a millisecond. */
export function matching<Of extends Schema>(schema: Of): Matching<Static<Of>> {
  let matches: ValidateFunction<Static<Of>> | null = null;
  return (value, what) => {
    matches ??= compiler.compile<Static<Of>>(schema);
    if (matches(value)) return value;
    const faults = (matches.errors ?? []) as DefinedError[];
    throw new ServiceError('bad-request', `The ${what} is malformed${faultText(faults)}`);
  };
}

function faultText(faults: readonly DefinedError[]): string {
  const [first] = faults;
  return first === undefined ? '' : ` at ${first.instancePath || '/'}: ${faultDetail(first, faults)}`;
}

function faultDetail(first: DefinedError, faults: readonly DefinedError[]): string {
  switch (first.keyword) {
    case 'required': {
      const given = first.data as Readonly<Record<string, unknown>>;
      return `must have ${listed((first.schema as string[]).filter((name) => given[name] === undefined))}`;
    }
    case 'additionalProperties':
      return `must not have ${listed([first.params.additionalProperty])}`;
    case 'const': {
      // None of several allowed texts.
      const ways = faults.filter(({ keyword }) => keyword !== 'anyOf');
      const texts = ways.flatMap((fault) => (fault.keyword === 'const' ? [fault.params.allowedValue] : []));
      if (texts.length === ways.length) return `must be ${texts.length > 1 ? 'one of ' : ''}${listed(texts)}`;
      break;
    }
  }
  return first.message ?? 'is invalid';
}

function listed(values: readonly unknown[]): string {
  return values.map((value) => JSON.stringify(value)).join(', ');
}
