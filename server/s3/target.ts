import type { FastifyRequest } from 'fastify';
import type { Target } from './authentication.ts';
import type { S3Target } from './call.ts';
import { S3Error } from './s3-error.ts';

/** A request's target: what is signed, and what it names. */
export interface ParsedTarget extends S3Target, Target {
  /** The first value of each parameter. */
  readonly parameters: ReadonlyMap<string, string>;
}

/**
 * Parses a target: `/BUCKET/KEY`, or `/KEY` at a host that is BUCKET before one of `domains`.
 * @throws S3Error `InvalidURI`
 */
export function parseTarget(
  { originalUrl, headers }: FastifyRequest,
  domains: readonly string[],
): ParsedTarget {
  const mark = originalUrl.indexOf('?');
  const path = mark < 0 ? originalUrl : originalUrl.slice(0, mark);
  const query = parseQuery(mark < 0 ? '' : originalUrl.slice(mark + 1));
  const parameters = new Map(query.toReversed());
  const ofHost = bucketOfHost(headers.host ?? '', domains);
  const decoded = decode(path.slice(1));
  if (ofHost !== null)
    return { path, query, parameters, bucket: ofHost, key: decoded === '' ? null : decoded };
  const slash = decoded.indexOf('/');
  const bucket = slash < 0 ? decoded : decoded.slice(0, slash);
  const key = slash < 0 ? '' : decoded.slice(slash + 1);
  return { path, query, parameters, bucket: bucket === '' ? null : bucket, key: key === '' ? null : key };
}

function bucketOfHost(host: string, domains: readonly string[]): string | null {
  const name = host.replace(/:\d+$/, '').toLowerCase();
  const domain = domains.find((one) => name.endsWith(`.${one}`));
  return domain === undefined ? null : name.slice(0, -domain.length - 1);
}

function parseQuery(text: string): (readonly [string, string])[] {
  return text
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const equals = pair.indexOf('=');
      const [name, value] = equals < 0 ? [pair, ''] : [pair.slice(0, equals), pair.slice(equals + 1)];
      return [decode(name.replaceAll('+', ' ')), decode(value.replaceAll('+', ' '))] as const;
    });
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (cause) {
    throw new S3Error('InvalidURI', 'The URI is not percent-encoded UTF-8', { cause });
  }
}
