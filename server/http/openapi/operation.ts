import { type Schema, Type } from '../../../wire/schema.ts';

export interface Media {
  readonly type: string;
  readonly schema: Schema;
}

export interface AnswerText {
  readonly text: string;
  readonly media?: Media;
  readonly headers?: readonly string[];
}

/** A route's description in `/openapi.json`. */
export interface Operation {
  readonly id: string;
  readonly tag: 'files' | 'uploads' | 'leases' | 'state' | 'cluster' | 'data' | 'catalog';
  readonly summary: string;
  readonly query?: Readonly<Record<string, Schema>>;
  readonly headers?: Readonly<Record<string, Schema>>;
  readonly body?: Media;
  readonly answers: Readonly<Record<string, AnswerText>>;
}

/** By method and path, such as `GET /v1/leases/:name`. */
export type Operations = Readonly<Record<string, Operation>>;

export const json = (schema: Schema = Type.Object({})): Media => ({ type: 'application/json', schema });
export const octets: Media = {
  type: 'application/octet-stream',
  schema: Type.Unsafe<Uint8Array>({ type: 'string', format: 'binary' }),
};

export const text = (description: string): Schema => Type.String({ description });
export const count = (description: string): Schema => Type.Integer({ minimum: 0, description });
export const flag = (description: string): Schema =>
  Type.Union([Type.Literal('true'), Type.Literal('false')], { description });
export const switched = (description: string): Schema => Type.Literal('', { description });

export const done: AnswerText = { text: 'Done' };
export const jsonAnswer = (what: string, schema?: Schema): AnswerText => ({
  text: what,
  media: json(schema),
});
