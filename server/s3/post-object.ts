import { Readable } from 'node:stream';
import { Busboy, type BusboyFileStream } from '@fastify/busboy';
import type { FastifyReply } from 'fastify';
import { parseJsonObject } from '../../wire/json.ts';
import { contentTypeOf, isForm } from '../http/form.ts';
import { UPLOAD_IDLE_MS } from '../http/upload.ts';
import { sendXml } from './bucket-operations.ts';
import type { Bucket } from './buckets.ts';
import type { S3Call } from './call.ts';
import { algorithmOf, CHECKSUM_PREFIX, claimedChecksum, PayloadCheck } from './checksums.ts';
import { descriptionOf } from './object-record.ts';
import type { ObjectStore } from './object-store.ts';
import { refuseUnknown } from './refusals.ts';
import { S3Error } from './s3-error.ts';
import { tagsOfXml } from './tags.ts';
import { xmlParse } from './xml.ts';

const FIELD_BYTES_MAX = 64 * 1024;
const FIELDS_MAX = 100;
/** Of all fields, which are read before the form's signature is. */
const FIELDS_BYTES_MAX = 256 * 1024;
/** Fields that a policy need not mention. */
const FREE: ReadonlySet<string> = new Set([
  ...['x-amz-signature', 'awsaccesskeyid', 'signature', 'file', 'policy'],
]);
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z$/;

/** Fields before the file, by their names in lower case; the file. */
interface Form {
  readonly fields: ReadonlyMap<string, string>;
  readonly file: Readable;
  readonly fileName: string;
}

/** What a policy allows. */
export interface Policy {
  readonly lengthMin: number;
  readonly lengthMax: number;
}

/** An upload by a browser's form, whose policy the holder of a key has signed. */
export async function postObject(
  call: S3Call,
  bucket: Bucket,
  objects: ObjectStore,
  nowMs: number,
  authorize: (fields: ReadonlyMap<string, string>, policy: string) => void,
): Promise<FastifyReply> {
  const { request } = call;
  if (!isForm(contentTypeOf(request.raw)))
    throw new S3Error('MalformedPOSTRequest', 'The body of a POST is multipart/form-data');
  request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
  try {
    return await storeForm(call, await receiveFields(call), bucket, objects, nowMs, authorize);
  } catch (error) {
    // The parser waits for a reader of the file: without it the rest is read and dropped.
    request.raw.unpipe();
    throw error;
  }
}

async function storeForm(
  call: S3Call,
  { fields, file, fileName }: Form,
  bucket: Bucket,
  objects: ObjectStore,
  nowMs: number,
  authorize: (fields: ReadonlyMap<string, string>, policy: string) => void,
): Promise<FastifyReply> {
  const { request, reply } = call;
  const policyText = fields.get('policy') ?? '';
  authorize(fields, policyText);
  const key = (fields.get('key') ?? '').replaceAll(/\$\{filename\}/g, fileName);
  if (key === '') throw new S3Error('InvalidArgument', 'The form has no field "key" before the file');
  const { lengthMin, lengthMax } =
    policyText === ''
      ? { lengthMin: 0, lengthMax: Number.POSITIVE_INFINITY }
      : checkPolicy(policyText, { ...Object.fromEntries(fields), bucket: bucket.name, key }, nowMs);
  const claim = claimedChecksum(Object.fromEntries(fields));
  const algorithm = claim?.algorithm ?? algorithmOf(fields.get('x-amz-checksum-algorithm'));
  const check = new PayloadCheck({ md5: null, sha256: null, algorithm, claimed: () => claim });
  refuseUnknown((name) => fields.get(name === 'x-amz-acl' ? 'acl' : name));
  const tagging = fields.get('tagging');
  // Fields are UTF-8, headers bytes.
  const headers = [...fields].map(([name, value]) => [name, Buffer.from(value).toString('latin1')] as const);
  const record = {
    ...descriptionOf(Object.fromEntries(headers)),
    tags: tagging === undefined ? {} : tagsOfXml(xmlParse(Buffer.from(tagging), 'Tagging')),
  };
  const { principal } = request;
  const removal = principal?.kind === 'client' ? { by: principal.grant.name } : {};
  const body = Readable.from(bounded(file, lengthMin, lengthMax), { objectMode: false });
  await objects.put(
    { bucket, key, conditions: { ifMatch: undefined, ifNoneMatch: undefined }, record, removal },
    { body, check, lengthBytes: 0, announcedBytes: null },
  );
  const etag = `"${check.digests.md5.toString('hex')}"`;
  reply.header('etag', etag);
  return answer(call, bucket, key, fields, etag);
}

function answer(
  call: S3Call,
  bucket: Bucket,
  key: string,
  fields: ReadonlyMap<string, string>,
  etag: string,
): FastifyReply {
  const location = `/${bucket.name}/${encodeURI(key)}`;
  const redirect = fields.get('success_action_redirect') ?? fields.get('redirect');
  const url = redirect !== undefined && URL.canParse(redirect) ? new URL(redirect) : null;
  if (url !== null && /^https?:$/.test(url.protocol)) {
    url.searchParams.set('bucket', bucket.name);
    url.searchParams.set('key', key);
    url.searchParams.set('etag', etag);
    return call.reply.redirect(url.href, 303);
  }
  const status = fields.get('success_action_status');
  call.reply.header('location', location);
  if (status === '201') {
    call.reply.code(201);
    return sendXml(call, 'PostResponse', { Location: location, Bucket: bucket.name, Key: key, ETag: etag });
  }
  return call.reply.code(status === '200' ? 200 : 204).send();
}

/** Reads the fields of a form up to its file, which then flows. */
function receiveFields({ request }: S3Call): Promise<Form> {
  return new Promise((resolve, reject) => {
    // Once the form has failed, nothing reads the file.
    let failure: S3Error | null = null;
    const fields = new Map<string, string>();
    const malformed = (why: string): S3Error =>
      new S3Error('MalformedPOSTRequest', `The form is malformed: ${why}`);
    let parser: InstanceType<typeof Busboy>;
    try {
      parser = new Busboy({
        headers: { 'content-type': contentTypeOf(request.raw) },
        limits: { files: 1, fields: FIELDS_MAX, fieldSize: FIELD_BYTES_MAX },
        preservePath: true,
        // Some clients send all fields with names of files.
        isPartAFile: (field) => field?.toLowerCase() === 'file',
      });
    } catch {
      reject(malformed('its Content-Type has no boundary'));
      return;
    }
    let file: BusboyFileStream | null = null;
    const fail = (error: S3Error): void => {
      failure ??= error;
      file?.destroy(error);
      reject(error);
    };
    const tooLong = (): void => {
      const limits = `${FIELDS_MAX} fields of ${FIELD_BYTES_MAX} bytes`;
      fail(new S3Error('MaxPostPreDataLengthExceeded', `Before its file, a form has at most ${limits}`));
    };
    let fieldBytes = 0;
    parser.on('field', (name: string, value: string, _isNameCut: boolean, isCut: boolean) => {
      // Fields after the file are ignored, as by S3.
      if (file !== null) return;
      fieldBytes += name.length + value.length;
      if (isCut || fieldBytes > FIELDS_BYTES_MAX) {
        tooLong();
        return;
      }
      fields.set(name.toLowerCase(), value);
    });
    parser.on('fieldsLimit', tooLong);
    parser.on('file', (_field: string, stream: BusboyFileStream, name: string | undefined) => {
      file = stream;
      // Without a reader, its error would end the process.
      stream.on('error', () => {});
      if (failure !== null) stream.resume();
      resolve({ fields, file: stream, fileName: (name ?? '').replace(/^.*[/\\]/s, '') });
    });
    parser.on('error', () => fail(malformed('its parts are not well-formed, or it ends within one')));
    parser.on('finish', () => {
      if (file !== null) return;
      const isEmpty = fields.size === 0;
      fail(
        isEmpty
          ? malformed('it has no parts')
          : new S3Error('InvalidArgument', 'The form has no field "file"'),
      );
    });
    request.raw.on('close', () => {
      if (!request.raw.complete) fail(malformed('the connection has ended'));
    });
    request.raw.pipe(parser);
  });
}

async function* bounded(source: Readable, lengthMin: number, lengthMax: number): AsyncGenerator<Buffer> {
  let received = 0;
  for await (const part of source) {
    received += (part as Buffer).length;
    if (received > lengthMax)
      throw new S3Error('EntityTooLarge', `The policy allows at most ${lengthMax} bytes`);
    yield part as Buffer;
  }
  if (received < lengthMin)
    throw new S3Error('EntityTooSmall', `The policy demands at least ${lengthMin} bytes`);
}

/** Checks fields of a form by its policy, in base64. @throws S3Error `AccessDenied`, `InvalidPolicyDocument` */
export function checkPolicy(base64: string, fields: Readonly<Record<string, string>>, nowMs: number): Policy {
  const invalid = (why: string): S3Error =>
    new S3Error('InvalidPolicyDocument', `The policy is invalid: ${why}`);
  const policy = parseJsonObject(Buffer.from(base64, 'base64').toString());
  const { expiration, conditions } = (policy ?? {}) as Readonly<Record<string, unknown>>;
  const isTime = typeof expiration === 'string' && ISO_TIME.test(expiration);
  const endMs = isTime ? Date.parse(expiration) : Number.NaN;
  if (Number.isNaN(endMs)) throw invalid('"expiration" is no time');
  if (endMs <= nowMs) throw new S3Error('AccessDenied', 'The policy has expired');
  if (!Array.isArray(conditions) || conditions.length === 0) throw invalid('"conditions" is no list');
  const mentioned = new Set<string>();
  let [lengthMin, lengthMax] = [0, Number.POSITIVE_INFINITY];
  for (const condition of conditions as unknown[]) {
    const rules = Array.isArray(condition) ? [condition as unknown[]] : equalities(condition, invalid);
    if (rules.length === 0) throw invalid('a condition is empty');
    for (const [operation, name, value] of rules) {
      const operator = typeof operation === 'string' ? operation.toLowerCase() : null;
      if (operator === 'content-length-range') {
        [lengthMin, lengthMax] = [lengthOf(name), lengthOf(value)];
        if (!(lengthMin >= 0 && lengthMax >= lengthMin)) throw invalid('a range of lengths is malformed');
        continue;
      }
      if (typeof name !== 'string' || !name.startsWith('$') || typeof value !== 'string')
        throw invalid(`a condition is ${JSON.stringify(condition)}`);
      const field = name.slice(1).toLowerCase();
      mentioned.add(field);
      const given = fields[field] ?? '';
      const fits =
        operator === 'eq' ? given === value : operator === 'starts-with' ? given.startsWith(value) : null;
      if (fits === null) throw invalid(`the operator ${JSON.stringify(operator)} is unknown`);
      if (!fits)
        throw new S3Error('AccessDenied', `The policy does not allow this value of the field "${field}"`);
    }
  }
  // Also the bucket: otherwise the policy would be valid for all of them.
  const extra = Object.keys(fields).find((name) => !mentioned.has(name) && !isFree(name));
  if (extra !== undefined)
    throw new S3Error('AccessDenied', `The policy does not mention the field "${extra}"`);
  return { lengthMin, lengthMax };
}

/** A checksum says nothing but what the contents are. */
function isFree(field: string): boolean {
  return FREE.has(field) || field.startsWith('x-ignore-') || field.startsWith(CHECKSUM_PREFIX);
}

function lengthOf(value: unknown): number {
  const isNumber = typeof value === 'number' || (typeof value === 'string' && /^\d+$/.test(value));
  return isNumber ? Number(value) : Number.NaN;
}

function equalities(condition: unknown, invalid: (why: string) => S3Error): unknown[][] {
  if (typeof condition !== 'object' || condition === null) throw invalid('a condition is no object');
  return Object.entries(condition).map(([name, value]) => ['eq', `$${name}`, value]);
}
