import type { ErrorCode } from '../../../base/errors.ts';
import { type Schema, Type } from '../../../wire/schema.ts';

export interface Media {
  readonly type: string;
  readonly schema: Schema;
}

export interface AnswerText {
  readonly text: string;
  readonly media?: Media;
  /** Names of headers with text; or their schemas. */
  readonly headers?: readonly string[] | Readonly<Record<string, Schema>>;
}

/** A route's description in `/openapi.json`. */
export interface Operation {
  readonly id: string;
  readonly tag: 'files' | 'uploads' | 'leases' | 'state' | 'cluster' | 'data' | 'catalog';
  readonly summary: string;
  /** Rules that no schema expresses, in Markdown. */
  readonly description?: string;
  /** Schemas of parts of the path that have none for all routes. */
  readonly parameters?: Readonly<Record<string, Schema>>;
  readonly query?: Readonly<Record<string, Schema>>;
  readonly headers?: Readonly<Record<string, Schema>>;
  /** Names of headers that each request has. */
  readonly required?: readonly string[];
  readonly body?: Media;
  readonly answers: Readonly<Record<string, AnswerText>>;
  /** Errors that a client can expect, with what each means here; absent: only the general form is described. */
  readonly errors?: Readonly<Partial<Record<ErrorCode, string>>>;
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
