import assert from 'node:assert/strict';
import type { Answered, FormSent, ObjectCase, Sent, Signing } from './object-case.ts';
import type { Answer, SecureS3 } from './secure-s3.ts';
import {
  ALGORITHM,
  amzDateOf,
  type Credentials,
  chunkedBody,
  chunkSigner,
  encodedPath,
  encodedQuery,
  type Header,
  presign,
  type RawRequest,
  type Scope,
  scopeOf,
  sha256Hex,
  signHeaders,
  signPolicy,
  signPolicyOld,
  UNSIGNED,
} from './sign.ts';

const UNKNOWN: Credentials = { accessKeyId: 'LHS3000000000000', secretAccessKey: 'secret' };

const BOUNDARY = 'a-boundary';
const FORM_TYPE = `multipart/form-data; boundary=${BOUNDARY}`;

/** Plays rows of a table against a server. */
export class ObjectPlayer {
  readonly #server: SecureS3;

  constructor(server: SecureS3) {
    this.#server = server;
  }

  /** @param root of the keys of the case */
  async play({ given = [], send, answer, effect = [] }: ObjectCase, root: string): Promise<void> {
    let earlier: Answer | null = null;
    for (const one of given) {
      const got = await this.#send(one, root, earlier);
      assert.ok(got.status >= 200 && got.status < 300, `given: ${got.status} ${got.body.toString()}`);
      if (got.headers.has('etag') || earlier === null) earlier = got;
    }
    this.#check(send, await this.#send(send, root, earlier), answer, root, earlier);
    for (const [sent, answered] of effect)
      this.#check(sent, await this.#send(sent, root, earlier), answered, root, earlier);
  }

  #check(sent: Sent, got: Answer, wanted: Answered, root: string, earlier: Answer | null): void {
    const text = got.body.toString();
    const what = `${sent.method ?? 'GET'} ${sent.path ?? sent.exactKey ?? sent.key ?? ''}`;
    const [, code] = /<Code>(\w+)<\/Code>/.exec(text) ?? [];
    const all = JSON.stringify([...got.headers]);
    assert.equal(got.status, wanted.status, `${what}: ${text.slice(0, 600)} ${all}`);
    if (wanted.code !== undefined) assert.equal(code, wanted.code, `${what}: ${text.slice(0, 600)}`);
    for (const [name, expected] of Object.entries(wanted.headers ?? {})) {
      const value = got.headers.get(name) ?? null;
      if (expected instanceof RegExp) assert.match(value ?? '', expected, `${what}: ${name} of ${all}`);
      else
        assert.equal(
          value,
          expected === null ? null : filled(expected, root, earlier),
          `${what}: ${name} of ${all}`,
        );
    }
    if (typeof wanted.body === 'string') assert.equal(text, filled(wanted.body, root, earlier), what);
    else if (wanted.body !== undefined) assert.match(text, wanted.body, what);
  }

  #send(sent: Sent, root: string, earlier: Answer | null): Promise<Answer> {
    return this.#server.send(this.request(sent, root, earlier));
  }

  request(sent: Sent, root: string, earlier: Answer | null): RawRequest {
    const { method = 'GET', bucket = 'bucket', key, exactKey, path, query = '', sign = {} } = sent;
    const below = key === undefined || key === '' ? root : `${root}/${key}`;
    const name = exactKey === undefined ? below : filled(exactKey, root, earlier);
    const search = filled(typeof query === 'string' ? query : encodedQuery(query), root, earlier);
    const target = filled(path ?? encodedPath(bucket, name), root, earlier);
    const headers = (sent.headers ?? []).map(
      ([header, value]): Header => [header, filled(value, root, earlier)],
    );
    const hasHost = headers.some(([header]) => header.toLowerCase() === 'host');
    const given = sent.form === undefined ? (sent.body ?? '') : this.#form(sent.form, root);
    const body = typeof given === 'string' ? Buffer.from(filled(given, root, earlier)) : given;
    const type: Header[] = sent.form === undefined ? [] : [['content-type', FORM_TYPE]];
    const request = this.#signed(
      {
        method,
        target: search === '' ? target : `${target}?${search}`,
        headers: [...(hasHost ? [] : [['host', this.#server.host] as const]), ...headers, ...type],
        body,
      },
      sign,
    );
    return sign.change?.(request) ?? request;
  }

  #credentials(as: NonNullable<Signing['as']>): Credentials {
    if (as === 'unknown') return UNKNOWN;
    return as === 'older' ? this.#server.older : this.#server.credentials(as);
  }

  /** The body of a form. */
  #form(form: FormSent, root: string): string {
    const {
      fields,
      file = 'bar',
      fileName = 'file.txt',
      fileType = 'application/octet-stream',
      later = [],
    } = form;
    const dispositionOf = (name: string, ofFile: string | null): string =>
      `content-disposition: form-data; name="${name}"${ofFile === null ? '' : `; filename="${ofFile}"`}`;
    const field = ([name, value]: Header): string => {
      const disposition = dispositionOf(name, form.asFiles ? name : null);
      return `--${BOUNDARY}\r\n${disposition}\r\n\r\n${filled(value, root, null)}\r\n`;
    };
    const disposition = dispositionOf('file', fileName);
    const part = `--${BOUNDARY}\r\n${disposition}\r\ncontent-type: ${fileType}\r\n\r\n${file}\r\n`;
    const all = [...fields, ...this.#policyFields(form, root)].map(field);
    const text = [...all, file === null ? '' : part, ...later.map(field), `--${BOUNDARY}--\r\n`].join('');
    return form.edit?.(text) ?? text;
  }

  /** The fields of the policy and its signature. */
  #policyFields(form: FormSent, root: string): Header[] {
    const { conditions, document, expiresS = 60, expiration, as = 'admin', version = 4 } = form;
    const { accessKeyId, secretAccessKey } = this.#credentials(as);
    const scope: Scope = { amzDate: amzDateOf(Date.now()), region: 'us-east-1', service: 's3' };
    const byVersion: Readonly<Record<string, readonly Header[]>> = {
      4: [
        ['x-amz-algorithm', ALGORITHM],
        ['x-amz-credential', `${accessKeyId}/${scopeOf(scope)}`],
        ['x-amz-date', scope.amzDate],
      ],
      2: [['AWSAccessKeyId', accessKeyId]],
      none: [],
    };
    const ofSignature = byVersion[version] ?? [];
    if (conditions === null && document === undefined) return [...ofSignature];
    const end = new Date(Date.now() + expiresS * 1000).toISOString();
    const until =
      expiration === 'seconds' ? end.replace(/\.\d+/, '') : expiration === undefined ? end : expiration;
    const own = version === 4 ? ofSignature.map(([name, value]) => ({ [name]: value })) : [];
    const policy = document ?? {
      ...(until === null ? {} : { expiration: until }),
      conditions: [...(conditions ?? []), ...own],
    };
    const text = Buffer.from(filled(JSON.stringify(policy), root, null)).toString('base64');
    const signature: Readonly<Record<string, readonly Header[]>> = {
      4: [['x-amz-signature', form.signature ?? signPolicy(text, secretAccessKey, scope)]],
      2: [['signature', form.signature ?? signPolicyOld(text, secretAccessKey)]],
      none: [],
    };
    return [...ofSignature, ['policy', text], ...(signature[version] ?? [])];
  }

  #signed(request: RawRequest, sign: Signing): RawRequest {
    const { by = 'header', as = 'admin', agoS = 0, region = 'us-east-1', service = 's3', except = [] } = sign;
    if (by === 'nothing') return request;
    const credentials = this.#credentials(as);
    const amzDate = sign.amzDate ?? amzDateOf(Date.now() - agoS * 1000);
    const scope: Scope = { amzDate, region, service, ...(sign.day === undefined ? {} : { day: sign.day }) };
    const isSigned = (name: string): boolean => !except.includes(name);
    if (by === 'query') return presign(request, credentials, scope, sign.expires ?? '60', isSigned);
    if (sign.chunks === undefined) {
      const payload = sign.payload ?? sha256Hex(request.body);
      return signHeaders(request, credentials, scope, payload, isSigned).request;
    }
    return this.#inChunks(request, sign, credentials, scope, isSigned);
  }

  #inChunks(
    request: RawRequest,
    { payload = UNSIGNED, chunks = [], trailers = [] }: Signing,
    credentials: Credentials,
    scope: Scope,
    isSigned: (name: string) => boolean,
  ): RawRequest {
    const names = trailers.map(([name]) => name).join(',');
    const headers: Header[] = [
      ...request.headers,
      ['content-encoding', 'aws-chunked'],
      ...(request.headers.some(([name]) => name === 'x-amz-decoded-content-length')
        ? []
        : [['x-amz-decoded-content-length', String(request.body.length)] as const]),
      ...(names === '' ? [] : [['x-amz-trailer', names] as const]),
    ];
    const signed = signHeaders({ ...request, headers }, credentials, scope, payload, isSigned);
    const isUnsigned = payload.startsWith('STREAMING-UNSIGNED');
    const signer = isUnsigned ? null : chunkSigner(credentials.secretAccessKey, scope, signed.signature);
    let at = 0;
    const parts = chunks.map((size) => {
      at += size;
      return request.body.subarray(at - size, at);
    });
    return { ...signed.request, body: chunkedBody(parts, signer, trailers) };
  }
}

/** Fills in what was answered before. */
function filled(text: string, root: string, earlier: Answer | null): string {
  return text
    .replaceAll('{root}', root)
    .replaceAll('{etag}', earlier?.headers.get('etag') ?? '{etag}')
    .replaceAll('{bare-etag}', earlier?.headers.get('etag')?.replaceAll('"', '') ?? '{bare-etag}')
    .replaceAll('{date}', earlier?.headers.get('last-modified') ?? '{date}');
}
