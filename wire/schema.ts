/**
 * JSON Schemas of what travels in JSON, together with the types of what they accept:
 *
 *     export const Person = Type.Object({ name: Type.String(), age: Type.Optional(Type.Integer()) });
 *     export type Person = Static<typeof Person>; // { name: string; age?: number }
 *
 * A schema is a plain object, as validators and OpenAPI want it; nothing is checked here.
 */

declare const VALUE: unique symbol;

/** A JSON Schema. What it accepts is only known to the compiler: there is no such member. */
export interface Schema<Value = unknown> {
  readonly [VALUE]?: Value;
  readonly description?: string;
}

/** The type of what a schema accepts. */
export type Static<Of extends Schema> = Of extends Schema<infer Value> ? Value : never;

/** A property that may be absent. */
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
  /** Of characters, not of bytes. */
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
  /** False: properties that are not named here are refused; else they are passed over. */
  readonly additionalProperties?: boolean;
}

/** What schemas are built of. */
export const Type = {
  String: (limits: StringLimits = {}) => schemaOf<string>({ type: 'string', ...limits }),
  Number: (limits: NumberLimits = {}) => schemaOf<number>({ type: 'number', ...limits }),
  /** Also what is written 1.0 or 1e3: to JSON that is the same. */
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

  /** An object of any names, each with a value of one kind. */
  Record: <Of extends Schema>(values: Of) =>
    schemaOf<Record<string, Static<Of>>>({ type: 'object', additionalProperties: values }),

  /** A property of an object that may be absent. */
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

  /** Any other JSON Schema; that it accepts values of this type, the caller has to know. */
  Unsafe: <Value>(schema: object) => schemaOf<Value>(schema),
};

function schemaOf<Value>(schema: object): Schema<Value> {
  return schema;
}

function isOptional(property: Schema | Optional): property is Optional {
  return 'optional' in property;
}
