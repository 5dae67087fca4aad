import type { FastifyReply, FastifyRequest } from 'fastify';
import { childrenOf, childText, type XmlElements, type XmlNode } from '../../platform/s3-xml.ts';
import { S3Error } from './s3-error.ts';

/** A rule of a bucket about the web pages of other origins. */
export interface CorsRule {
  readonly id?: string;
  readonly origins: readonly string[];
  readonly methods: readonly string[];
  readonly headers: readonly string[];
  readonly exposed: readonly string[];
  readonly maxAgeS?: number;
}

/** Attribute of a bucket's directory. */
export const CORS_XATTR = 'user.s3.cors';
const METHODS: ReadonlySet<string> = new Set(['GET', 'PUT', 'POST', 'DELETE', 'HEAD']);
const RULES_MAX = 100;

/** @throws S3Error `MalformedXML`, `InvalidRequest` */
export function corsOfXml(document: XmlNode): CorsRule[] {
  const rules = childrenOf(document, 'CORSRule').map((rule) => {
    const texts = (name: string): string[] => childrenOf(rule, name).map(({ text }) => text);
    const [id, maxAge] = [childText(rule, 'ID'), childText(rule, 'MaxAgeSeconds')];
    const methods = texts('AllowedMethod');
    const origins = texts('AllowedOrigin');
    const wrong = methods.find((method) => !METHODS.has(method));
    if (wrong !== undefined)
      throw new S3Error('InvalidRequest', `Unsupported HTTP method in a rule of CORS: ${wrong}`);
    if (methods.length === 0 || origins.length === 0)
      throw new S3Error('MalformedXML', 'A rule of CORS has AllowedMethod and AllowedOrigin');
    if ([...origins, ...texts('AllowedHeader')].some((text) => text.split('*').length > 2))
      throw new S3Error('InvalidRequest', 'An origin or header of a rule of CORS has one "*" at most');
    return {
      ...(id === undefined ? {} : { id }),
      ...{ origins, methods, headers: texts('AllowedHeader'), exposed: texts('ExposeHeader') },
      ...(maxAge === undefined ? {} : { maxAgeS: Number(maxAge) }),
    };
  });
  if (rules.length > 0 && rules.length <= RULES_MAX) return rules;
  throw new S3Error('MalformedXML', `A configuration of CORS has 1 to ${RULES_MAX} rules`);
}

export function corsXml(rules: readonly CorsRule[]): XmlElements {
  return {
    CORSRule: rules.map(({ id, origins, methods, headers, exposed, maxAgeS }) => ({
      ID: id,
      AllowedOrigin: origins,
      AllowedMethod: methods,
      AllowedHeader: headers,
      ExposeHeader: exposed,
      MaxAgeSeconds: maxAgeS,
    })),
  };
}

export function encodeCors(rules: readonly CorsRule[]): string {
  return Buffer.from(JSON.stringify(rules)).toString('base64');
}

/** A user of a mount may have written anything there. */
export function decodeCors(base64: string): CorsRule[] {
  try {
    const rules = JSON.parse(Buffer.from(base64, 'base64').toString()) as unknown;
    return Array.isArray(rules) ? rules.filter(isRule) : [];
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

function isRule(value: unknown): value is CorsRule {
  const rule = value as Readonly<Record<string, unknown>> | null;
  const lists = ['origins', 'methods', 'headers', 'exposed'].map((name) => rule?.[name]);
  return lists.every(
    (list) =>
      Array.isArray(list) && list.every((text) => typeof text === 'string' && /^[\x20-\x7e]*$/.test(text)),
  );
}

/** Adds what the page of another origin may read; nothing if no rule fits. @returns whether a rule fits */
export function addCorsHeaders(
  rules: readonly CorsRule[],
  { headers }: FastifyRequest,
  reply: FastifyReply,
  method: string,
): boolean {
  const { origin } = headers;
  if (origin === undefined) return false;
  const wanted = String(headers['access-control-request-headers'] ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '');
  const rule = rules.find(
    (one) =>
      one.methods.includes(method) &&
      one.origins.some((pattern) => matches(pattern, origin)) &&
      wanted.every((name) => one.headers.some((pattern) => matches(pattern.toLowerCase(), name))),
  );
  if (rule === undefined) return false;
  const isAny = rule.origins.includes('*');
  reply.header('access-control-allow-origin', isAny ? '*' : origin);
  reply.header('access-control-allow-methods', rule.methods.join(', '));
  reply.header('vary', 'Origin, Access-Control-Request-Headers, Access-Control-Request-Method');
  if (!isAny) reply.header('access-control-allow-credentials', 'true');
  if (wanted.length > 0) reply.header('access-control-allow-headers', wanted.join(', '));
  if (rule.exposed.length > 0) reply.header('access-control-expose-headers', rule.exposed.join(', '));
  if (rule.maxAgeS !== undefined) reply.header('access-control-max-age', String(rule.maxAgeS));
  return true;
}

function matches(pattern: string, text: string): boolean {
  const [begin = '', end] = pattern.split('*');
  if (end === undefined) return pattern === text;
  return text.length >= begin.length + end.length && text.startsWith(begin) && text.endsWith(end);
}
