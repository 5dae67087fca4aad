/**
 * JSON Schemas and the types that they accept, as plain objects; nothing is validated here.
 *
 *     export const Person = Type.Object({ name: Type.String(), age: Type.Optional(Type.Integer()) });
 *     export type Person = Static<typeof Person>; // { name: string; age?: number }
 */

declare const VALUE: unique symbol;

/** A JSON Schema. Only the compiler knows what it accepts: the member does not exist. */
export interface Schema<Value = unknown> {
  readonly [VALUE]?: Value;
  readonly description?: string;
}

export type Static<Of extends Schema> = Of extends Schema<infer Value> ? Value : never;

export interface Optional<Of extends Schema = Schema> {
  readonly optional: Of;
}

type Properties = Readonly<Record<string, Schema | Optional>>;
type OptionalNames<Of> = { [Name in keyof Of]: Of[Name] extends Optional ? Name : never }[keyof Of];
type Bare<Of> = Of extends Optional<infer Inner> ? Inner : Of;
type ValueOf<Of> = Bare<Of> extends Schema<infer Value> ? Value : never;
type Flat<Of> = { [Name in keyof Of]: Of[Name] };
type ObjectValue<Of extends Properties> = Flat<
  { -readonly [Name in Exclude<keyof Of, OptionalNames<Of>>]: ValueOf<Of[Name]> } & {
    -readonly [Name in OptionalNames<Of>]?: ValueOf<Of[Name]>;
  }
>;

export interface ObjectSchema<Of extends Properties> extends Schema<ObjectValue<Of>> {
  readonly type: 'object';
  readonly required?: readonly string[];
  readonly properties: { readonly [Name in keyof Of]: Bare<Of[Name]> };
}

export interface UnionSchema<Of extends readonly Schema[]> extends Schema<Static<Of[number]>> {
  readonly anyOf: Of;
}

export interface LiteralSchema<Value extends string | boolean> extends Schema<Value> {
  readonly type: string;
  readonly const: Value;
}

interface Described {
  readonly description?: string;
}

interface StringLimits extends Described {
  /** In characters, not bytes. */
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly format?: string;
}

interface NumberLimits extends Described {
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
}

interface ArrayLimits {
  readonly minItems?: number;
  readonly maxItems?: number;
}

interface ObjectLimits {
  /** False: unnamed properties are refused; else they are ignored. */
  readonly additionalProperties?: boolean;
}

export const Type = {
  String: (limits: StringLimits = {}) => schemaOf<string>({ type: 'string', ...limits }),
  Number: (limits: NumberLimits = {}) => schemaOf<number>({ type: 'number', ...limits }),
  /** Also 1.0 and 1e3, which are the same in JSON. */
  Integer: (limits: NumberLimits = {}) => schemaOf<number>({ type: 'integer', ...limits }),
  Boolean: () => schemaOf<boolean>({ type: 'boolean' }),
  Null: () => schemaOf<null>({ type: 'null' }),

  Literal: <const Value extends string | boolean>(
    value: Value,
    described: Described = {},
  ): LiteralSchema<Value> => ({ type: typeof value, const: value, ...described }),

  Union: <const Of extends readonly Schema[]>(anyOf: Of, described: Described = {}): UnionSchema<Of> => ({
    anyOf,
    ...described,
  }),

  Array: <Of extends Schema>(items: Of, limits: ArrayLimits = {}) =>
    schemaOf<Static<Of>[]>({ type: 'array', items, ...limits }),

  Record: <Of extends Schema>(values: Of) =>
    schemaOf<Record<string, Static<Of>>>({ type: 'object', additionalProperties: values }),

  Optional: <Of extends Schema>(optional: Of): Optional<Of> => ({ optional }),

  Object: <const Of extends Properties>(properties: Of, limits: ObjectLimits = {}): ObjectSchema<Of> => {
    const entries = Object.entries(properties);
    const required = entries.flatMap(([name, property]) => (isOptional(property) ? [] : [name]));
    const bare = entries.map(([name, property]) => [
      name,
      isOptional(property) ? property.optional : property,
    ]);
    return {
      type: 'object',
      ...(required.length === 0 ? {} : { required }),
      properties: Object.fromEntries(bare) as ObjectSchema<Of>['properties'],
      ...limits,
    };
  },

  /** Any other JSON Schema; the caller guarantees the type. */
  Unsafe: <Value>(schema: object) => schemaOf<Value>(schema),
};

function schemaOf<Value>(schema: object): Schema<Value> {
  return schema;
}

function isOptional(property: Schema | Optional): property is Optional {
  return 'optional' in property;
}
