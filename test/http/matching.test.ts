import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Ajv } from 'ajv';
import { matching } from '../../server/http/matching.ts';
import * as catalogApi from '../../wire/catalog-api.ts';
import * as lockApi from '../../wire/lock-api.ts';
import * as namedLeaseApi from '../../wire/named-lease-api.ts';
import * as birthNumbers from '../../wire/reserved-numbers.ts';
import { Type } from '../../wire/schema.ts';

const SCHEMAS: Readonly<Record<string, unknown>> = {
  ...birthNumbers,
  ...catalogApi,
  ...lockApi,
  ...namedLeaseApi,
};

describe('validation of requests', () => {
  test('the schemas are schemas, without a word that validators do not know', () => {
    const strict = new Ajv({ strict: true });
    let seen = 0;
    for (const [name, schema] of Object.entries(SCHEMAS)) {
      if (typeof schema !== 'object' || schema === null) continue;
      seen++;
      assert.doesNotThrow(() => strict.compile(schema), name);
    }
    assert.ok(seen >= 15);
  });

  const Place = Type.Object({ parent: Type.Integer({ minimum: 1 }), name: Type.String() });
  const Body = Type.Object(
    {
      place: Type.Optional(Type.Union([Place, Type.Object({ path: Type.String({ maxLength: 3 }) })])),
      mode: Type.Union([Type.Literal('set'), Type.Literal('create')]),
      kind: Type.Literal('xattr'),
      files: Type.Optional(Type.Array(Place, { minItems: 1 })),
    },
    { additionalProperties: false },
  );
  const matched = matching(Body);
  const right = { kind: 'xattr', mode: 'set' };
  const file = { parent: 1, name: 'a' };
  const faults: readonly (readonly [unknown, string])[] = [
    [7, '/: must be object'],
    [undefined, '/: must be object'],
    [{}, '/: must have "mode", "kind"'],
    [{ kind: 'xattr' }, '/: must have "mode"'],
    [{ ...right, more: 1 }, '/: must not have "more"'],
    [{ ...right, kind: 'x' }, '/kind: must be "xattr"'],
    [{ ...right, mode: 'replace' }, '/mode: must be one of "set", "create"'],
    [{ ...right, files: [] }, '/files: must NOT have fewer than 1 items'],
    [{ ...right, files: [file, file, { parent: 0, name: 'a' }] }, '/files/2/parent: must be >= 1'],
    [{ ...right, files: [file, { parent: 1 }] }, '/files/1: must have "name"'],
    [{ ...right, place: { parent: 1.5, name: 'a' } }, '/place/parent: must be integer'],
    [{ ...right, place: {} }, '/place: must have "parent", "name"'],
  ];
  for (const [value, fault] of faults) {
    test(`${JSON.stringify(value)} is refused: ${fault}`, () => {
      assert.throws(() => matched(value, 'command "xattr"'), {
        code: 'bad-request',
        message: `The command "xattr" is malformed at ${fault}`,
      });
      assert.equal(matched(right, 'command'), right, 'A valid value is still accepted');
    });
  }

  test('the check of a long invalid body stops at the first fault', () => {
    const files = Array.from({ length: 100_000 }, () => ({}));
    assert.throws(() => matched({ ...right, files }, 'body'), {
      message: 'The body is malformed at /files/0: must have "parent", "name"',
    });
  });
});
