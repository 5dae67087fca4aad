import type { TokenName } from './secure-s3.ts';
import type { Header, RawRequest } from './sign.ts';

/** How a request is signed; by default as a whole, in the header Authorization, by `admin`. */
export interface Signing {
  readonly as?: TokenName | 'older' | 'unknown';
  readonly by?: 'header' | 'query' | 'nothing';
  /** The value of x-amz-content-sha256, if it is not the body's digest. */
  readonly payload?: string;
  /** How long ago, in seconds. */
  readonly agoS?: number;
  readonly expires?: string;
  readonly region?: string;
  readonly service?: string;
  readonly day?: string;
  readonly amzDate?: string;
  /** Headers that are not signed. */
  readonly except?: readonly string[];
  /** The body is encoded as aws-chunked, in chunks of these sizes, the last one without data. */
  readonly chunks?: readonly number[];
  readonly trailers?: readonly Header[];
  /** Changes the request after it was signed. */
  readonly change?: (request: RawRequest) => RawRequest;
}

/** A form with a policy, as browsers post it. */
export interface FormSent {
  /** Beside those of the policy and its signature. */
  readonly fields: readonly Header[];
  /** Of the policy; those of the signature's fields are added. Null: there is no policy. */
  readonly conditions: readonly unknown[] | null;
  /** Instead of a policy of `conditions`. */
  readonly document?: unknown;
  readonly expiresS?: number;
  /** Instead of a time after `expiresS`; `seconds`: that time without a fraction. */
  readonly expiration?: string | null;
  readonly as?: TokenName | 'unknown';
  /** Of the signature; 4 by default. */
  readonly version?: 4 | 2 | 'none';
  readonly signature?: string;
  /** All fields are sent with names of files. */
  readonly asFiles?: true;
  /** Null: the form has none. */
  readonly file?: string | null;
  /** Null: it has none. */
  readonly fileName?: string | null;
  readonly fileType?: string;
  /** Fields after the file. */
  readonly later?: readonly Header[];
  /** Changes the body. */
  readonly edit?: (text: string) => string;
}

export interface Sent {
  readonly method?: string;
  /** `bucket` by default. */
  readonly bucket?: string;
  /** Below the name of the case; '' is the object of the case itself. */
  readonly key?: string;
  /** The whole key. */
  readonly exactKey?: string;
  /** Instead of bucket and key, encoded. */
  readonly path?: string;
  readonly query?: readonly Header[] | string;
  readonly headers?: readonly Header[];
  readonly body?: string | Buffer;
  /** Instead of a body. */
  readonly form?: FormSent;
  readonly sign?: Signing;
}

/** What must be answered. A text of a header is compared as a whole, `null` must be missing. */
export interface Answered {
  readonly status: number;
  readonly code?: string;
  readonly headers?: Readonly<Record<string, string | RegExp | null>>;
  readonly body?: string | RegExp;
}

/**
 * One row of the table. In texts, `{root}` stands for the key of the row; `{etag}`, `{bare-etag}` and `{date}` for what
 * the last request of `given` with an entity tag was answered.
 */
export interface ObjectCase {
  readonly name: string;
  /** Succeed before, in this order. */
  readonly given?: readonly Sent[];
  readonly send: Sent;
  readonly answer: Answered;
  /** The effect. */
  readonly effect?: readonly (readonly [Sent, Answered])[];
}
