import type { Answered, Sent } from '../object-case.ts';
import type { Header } from '../sign.ts';

/** Short forms of requests on the object of a row. */
export function put(body: string | Buffer, headers: readonly Header[] = [], more: Sent = {}): Sent {
  return { method: 'PUT', body, headers, ...more };
}

export function get(headers: readonly Header[] = [], more: Sent = {}): Sent {
  return { method: 'GET', headers, ...more };
}

export function head(headers: readonly Header[] = [], more: Sent = {}): Sent {
  return { method: 'HEAD', headers, ...more };
}

export function del(headers: readonly Header[] = [], more: Sent = {}): Sent {
  return { method: 'DELETE', headers, ...more };
}

export function error(status: number, code: string): Answered {
  return { status, code };
}

export const OK: Answered = { status: 200 };
export const GONE: Answered = { status: 404, code: 'NoSuchKey' };

/** The contents that are there afterwards. */
export function holds(body: string): readonly [Sent, Answered] {
  return [get(), { status: 200, body }];
}

/** Nothing is there afterwards. */
export const HOLDS_NOTHING: readonly [Sent, Answered] = [get(), GONE];
