import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ChunkSignatures,
  canonicalRequest,
  isSignature,
  signatureOf as serverSignature,
  signingKey,
  stringToSign,
} from '../../platform/s3-signature.ts';
import {
  chunkedBody,
  chunkSigner,
  type Header,
  presign,
  type RawRequest,
  STREAMED,
  STREAMED_TRAILER,
  sha256Hex,
  signHeaders,
  signPolicy,
} from './sign.ts';

/** Of the documentation of S3: "Signature calculations for the Authorization header", "… in multiple chunks". */
const KEY = {
  accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
};
const SCOPE = { amzDate: '20130524T000000Z', region: 'us-east-1', service: 's3' };
const HOST: Header = ['host', 'examplebucket.s3.amazonaws.com'];

function request(method: string, target: string, headers: readonly Header[] = [], body = ''): RawRequest {
  return { method, target, headers: [HOST, ...headers], body: Buffer.from(body) };
}

const EXAMPLES: readonly (readonly [what: string, request: RawRequest, signature: string])[] = [
  [
    'GET of a range',
    request('GET', '/test.txt', [['range', 'bytes=0-9']]),
    'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
  ],
  [
    'PUT',
    request(
      'PUT',
      '/test%24file.text',
      [
        ['date', 'Fri, 24 May 2013 00:00:00 GMT'],
        ['x-amz-storage-class', 'REDUCED_REDUNDANCY'],
      ],
      'Welcome to Amazon S3.',
    ),
    '98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd',
  ],
  [
    'a subresource',
    request('GET', '/?lifecycle'),
    'fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543',
  ],
  [
    'a query',
    request('GET', '/?max-keys=2&prefix=J'),
    '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7',
  ],
];

for (const [what, example, signature] of EXAMPLES)
  test(`${what} has the published signature, here and in the server`, () => {
    const payload = sha256Hex(example.body);
    const signed = signHeaders(example, KEY, SCOPE, payload);
    assert.equal(signed.signature, signature);
    const [path = '', query = ''] = example.target.split('?');
    const names = [...new Set(signed.request.headers.map(([name]) => name))]
      .filter((name) => name !== 'authorization')
      .toSorted();
    const headers = new Map(signed.request.headers);
    const canonical = canonicalRequest({
      method: example.method,
      path,
      query: [...new URLSearchParams(query)],
      headers: names.map((name) => [name, headers.get(name) ?? ''] as const),
      payloadHash: payload,
    });
    const scope = { date: '20130524', region: 'us-east-1', service: 's3' };
    const key = signingKey(KEY.secretAccessKey, scope);
    assert.equal(serverSignature(key, stringToSign(SCOPE.amzDate, scope, canonical)), signature);
  });

test('a presigned URL has the published signature', () => {
  const { target } = presign(request('GET', '/test.txt'), KEY, SCOPE, '86400');
  assert.match(target, /&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404$/);
});

const CHUNKS = [Buffer.alloc(65_536, 'a'), Buffer.alloc(1_024, 'a')];
const CHUNKED = { ...request('PUT', '/examplebucket/chunkObject.txt'), body: Buffer.alloc(0) };

function chunkedHeaders(length: string, more: readonly Header[]): RawRequest {
  const headers: Header[] = [
    ['host', 's3.amazonaws.com'],
    ['x-amz-storage-class', 'REDUCED_REDUNDANCY'],
    ['content-encoding', 'aws-chunked'],
    ['x-amz-decoded-content-length', '66560'],
    ...(length === '' ? [] : [['content-length', length] as const]),
    ...more,
  ];
  return { ...CHUNKED, headers };
}

interface ChunkedExample {
  readonly what: string;
  readonly payload: string;
  readonly request: RawRequest;
  readonly seed: string;
  readonly chunks: readonly string[];
  readonly trailer: string | null;
}

const CHUNKED_EXAMPLES: readonly ChunkedExample[] = [
  {
    what: 'chunks',
    payload: STREAMED,
    request: chunkedHeaders('66824', []),
    seed: '4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9',
    chunks: [
      'ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648',
      '0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497',
      'b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9',
    ],
    trailer: null,
  },
  {
    what: 'chunks and trailers',
    payload: STREAMED_TRAILER,
    request: chunkedHeaders('', [['x-amz-trailer', 'x-amz-checksum-crc32c']]),
    seed: '106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e',
    chunks: [
      'b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2',
      '1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7',
      '2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992',
    ],
    trailer: 'd81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435',
  },
];

for (const { what, payload, request: example, seed, chunks, trailer } of CHUNKED_EXAMPLES)
  test(`${what} have the published signatures, here and in the server`, () => {
    const signed = signHeaders(example, KEY, SCOPE, payload);
    assert.equal(signed.signature, seed);
    const signer = chunkSigner(KEY.secretAccessKey, SCOPE, seed);
    const scope = { date: '20130524', region: 'us-east-1', service: 's3' };
    const key = signingKey(KEY.secretAccessKey, scope);
    const inServer = new ChunkSignatures(key, SCOPE.amzDate, scope, seed);
    for (const [index, expected] of chunks.entries()) {
      const data = CHUNKS[index] ?? Buffer.alloc(0);
      assert.equal(signer.chunk(data), expected);
      assert.equal(inServer.next(sha256Hex(data)), expected);
    }
    if (trailer === null) return;
    const text = 'x-amz-checksum-crc32c:sOO8/Q==\n';
    assert.equal(signer.trailers(text), trailer);
    assert.equal(inServer.ofTrailers(text), trailer);
  });

test('a body in chunks has the published length', () => {
  const signer = chunkSigner(KEY.secretAccessKey, SCOPE, CHUNKED_EXAMPLES[0]?.seed ?? '');
  assert.equal(chunkedBody(CHUNKS, signer).length, 66_824);
});

test('a policy is signed as published', () => {
  const conditions = [
    '{ "expiration": "2015-12-30T12:00:00.000Z",',
    '  "conditions": [',
    '    {"bucket": "sigv4examplebucket"},',
    '    ["starts-with", "$key", "user/user1/"],',
    '    {"acl": "public-read"},',
    '    {"success_action_redirect": "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"},',
    '    ["starts-with", "$Content-Type", "image/"],',
    '    {"x-amz-meta-uuid": "14365123651274"},',
    '    {"x-amz-server-side-encryption": "AES256"},',
    '    ["starts-with", "$x-amz-meta-tag", ""],',
    '',
    '    {"x-amz-credential": "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"},',
    '    {"x-amz-algorithm": "AWS4-HMAC-SHA256"},',
    '    {"x-amz-date": "20151229T000000Z" }',
    '  ]',
    '}',
  ];
  const policy = Buffer.from(conditions.join('\r\n')).toString('base64');
  const scope = { ...SCOPE, amzDate: '20151229T000000Z' };
  assert.equal(
    signPolicy(policy, KEY.secretAccessKey, scope),
    '8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e',
  );
});

test('signatures of another length or character are wrong', () => {
  assert.equal(isSignature('ab', 'ab'), true);
  for (const wrong of ['', 'a', 'abc', 'aB', 'é', '\u0000b']) assert.equal(isSignature(wrong, 'ab'), false);
});
