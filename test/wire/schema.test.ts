import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { matching } from '../../server/http/matching.ts';
import { type Schema, type Static, Type } from '../../wire/schema.ts';

/** Compiles only if the two are one type. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : ['not the same', A, B];

interface Example {
  readonly schema: Schema;
  readonly json: object;
  readonly right: readonly unknown[];
  readonly wrong: readonly unknown[];
}

const name = Type.String();
const EXAMPLES: Readonly<Record<string, Example>> = {
  'a text': {
    schema: name,
    json: { type: 'string' },
    right: ['', 'x', '\0'],
    wrong: [7, null, undefined, ['x'], {}, true],
  },
  'a text of characters, not of bytes or halves of surrogates': {
    schema: Type.String({ minLength: 1, maxLength: 2, description: 'Short' }),
    json: { type: 'string', minLength: 1, maxLength: 2, description: 'Short' },
    right: ['x', 'öß', '😀😀'],
    wrong: ['', 'abc', '😀😀😀'],
  },
  'a text of a form': {
    schema: Type.String({ pattern: '^-?[0-9]{1,3}$' }),
    json: { type: 'string', pattern: '^-?[0-9]{1,3}$' },
    right: ['0', '-999'],
    wrong: ['', '1000', '1\n', ' 1', 1],
  },
  'a number': {
    schema: Type.Number({ exclusiveMinimum: 0 }),
    json: { type: 'number', exclusiveMinimum: 0 },
    right: [0.1, 7, 1e300],
    wrong: [0, -1, Number.NaN, Number.POSITIVE_INFINITY, '1', 1n, null, [1]],
  },
  'an integer': {
    schema: Type.Integer({ minimum: -1, maximum: Number.MAX_SAFE_INTEGER }),
    json: { type: 'integer', minimum: -1, maximum: Number.MAX_SAFE_INTEGER },
    right: [-1, -0, JSON.parse('1.0'), JSON.parse('1e3'), Number.MAX_SAFE_INTEGER],
    wrong: [-2, 0.5, 2 ** 53, Number.NaN, '1', 1n, true, null],
  },
  'true or false': {
    schema: Type.Boolean(),
    json: { type: 'boolean' },
    right: [true, false],
    wrong: ['true', 0, 1, null],
  },
  nothing: {
    schema: Type.Null(),
    json: { type: 'null' },
    right: [null],
    wrong: [undefined, 0, '', {}, false],
  },
  'one text': {
    schema: Type.Literal('in', { description: 'Is in' }),
    json: { type: 'string', const: 'in', description: 'Is in' },
    right: ['in'],
    wrong: ['out', 'IN', '', null, ['in']],
  },
  'only true': {
    schema: Type.Literal(true),
    json: { type: 'boolean', const: true },
    right: [true],
    wrong: [false, 'true', 1],
  },
  'one of several': {
    schema: Type.Union([Type.Integer(), Type.Null()], { description: 'Either' }),
    json: { anyOf: [{ type: 'integer' }, { type: 'null' }], description: 'Either' },
    right: [1, null],
    wrong: ['1', 0.5, undefined, {}],
  },
  'a list': {
    schema: Type.Array(name, { minItems: 1, maxItems: 2 }),
    json: { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: 2 },
    right: [['a'], ['a', 'a']],
    wrong: [[], ['a', 'b', 'c'], [1], ['a', null], 'a', { 0: 'a', length: 1 }],
  },
  'an object of any names': {
    schema: Type.Record(name),
    json: { type: 'object', additionalProperties: { type: 'string' } },
    right: [{}, { a: 'x', 'of two\nlines': 'y' }],
    wrong: [{ a: 1 }, { 'of two\nlines': 1 }, [], null, 'x'],
  },
  'an object passes over what it does not know': {
    schema: Type.Object({ name, size: Type.Optional(Type.Integer()) }),
    json: {
      type: 'object',
      required: ['name'],
      properties: { name: { type: 'string' }, size: { type: 'integer' } },
    },
    right: [{ name: 'x' }, { name: 'x', size: 1 }, { name: 'x', more: true }],
    wrong: [{}, { size: 1 }, { name: 'x', size: null }, { name: 1 }, { name: undefined }, [], null, 'x'],
  },
  'an object that wants no more than it knows': {
    schema: Type.Object({ name: Type.Optional(name) }, { additionalProperties: false }),
    json: { type: 'object', properties: { name: { type: 'string' } }, additionalProperties: false },
    right: [{}, { name: 'x' }],
    wrong: [{ name: 'x', more: true }, JSON.parse('{"__proto__":{"name":"x"}}'), { name: 1 }],
  },
  'what else JSON Schema can say': {
    schema: Type.Unsafe<Uint8Array>({ type: 'string', enum: ['a'] }),
    json: { type: 'string', enum: ['a'] },
    right: ['a'],
    wrong: ['b'],
  },
};

describe('schemas', () => {
  for (const [what, { schema, json, right, wrong }] of Object.entries(EXAMPLES)) {
    test(what, () => {
      assert.deepEqual(schema, json);
      const matched = matching(schema);
      for (const value of right) {
        const before = structuredClone(value);
        assert.equal(matched(value, 'value'), value);
        assert.deepEqual(value, before, 'It is not changed');
      }
      for (const value of wrong) {
        assert.throws(() => matched(value, 'value'), { code: 'bad-request' }, inspect(value));
      }
    });
  }

  test('the compiler knows what they accept', () => {
    const Entry = Type.Object({
      name,
      sizes: Type.Array(Type.Union([Type.Integer(), Type.Null()])),
      state: Type.Optional(Type.Union([Type.Literal('in'), Type.Literal('out')])),
      notes: Type.Optional(Type.Record(Type.Boolean())),
      sealed: Type.Literal(true),
      place: Type.Object({ row: Type.Number(), column: Type.Optional(Type.Number()) }),
      bytes: Type.Unsafe<Uint8Array>({}),
    });
    interface Expected {
      name: string;
      sizes: (number | null)[];
      state?: 'in' | 'out';
      notes?: Record<string, boolean>;
      sealed: true;
      place: { row: number; column?: number };
      bytes: Uint8Array;
    }
    const same: Same<Static<typeof Entry>, Expected> = true;
    assert.ok(same);

    const entry = { name: 'x', sizes: [], sealed: true, place: { row: 1 }, bytes: new Uint8Array() } as const;
    const right: Static<typeof Entry> = { ...entry, sizes: [1] };
    // @ts-expect-error: `name` may not be absent.
    const nameless: Static<typeof Entry> = { ...entry, sizes: [], name: undefined };
    // @ts-expect-error: there is no such state.
    const stateless: Static<typeof Entry> = { ...entry, sizes: [], state: 'over' };
    // @ts-expect-error: no such property is known.
    const surplus: Static<typeof Entry> = { ...entry, sizes: [], more: 1 };
    assert.equal(new Set([right, nameless, stateless, surplus]).size, 4);
  });
});
