import type { ObjectCase, Signing } from '../object-case.ts';
import type { Header, RawRequest } from '../sign.ts';
import { del, error, get, HOLDS_NOTHING, head, holds, OK, put } from './requests.ts';

const DENIED = error(403, 'AccessDenied');
const UNFIT = error(403, 'SignatureDoesNotMatch');
const UNKNOWN = error(403, 'InvalidAccessKeyId');

/** Replaces the header Authorization. */
function authorized(change: (text: string) => string): Signing {
  return { change: (request) => withHeader(request, 'authorization', change) };
}

function withHeader(request: RawRequest, changed: string, change: (text: string) => string): RawRequest {
  const headers = request.headers.map(
    ([name, value]): Header => [name, name === changed ? change(value) : value],
  );
  return { ...request, headers };
}

function without(request: RawRequest, removed: string): RawRequest {
  return { ...request, headers: request.headers.filter(([name]) => name !== removed) };
}

function adding(...headers: readonly Header[]): Signing {
  return { change: (request) => ({ ...request, headers: [...request.headers, ...headers] }) };
}

function retargeted(change: (target: string) => string): NonNullable<Signing['change']> {
  return (request) => ({ ...request, target: change(request.target) });
}

function amzDate(date: string): Signing {
  return { amzDate: date, day: date.slice(0, 8) };
}

/** Signatures in headers. */
export const SIGNATURES: readonly ObjectCase[] = [
  { name: 'a request without a signature', send: get([], { sign: { by: 'nothing' } }), answer: DENIED },
  {
    name: 'a PUT without a signature',
    send: put('bar', [], { sign: { by: 'nothing' } }),
    answer: DENIED,
    effect: [HOLDS_NOTHING],
  },
  { name: 'an unknown access key', send: get([], { sign: { as: 'unknown' } }), answer: UNKNOWN },
  {
    name: 'the access key of a token that has ended',
    send: get([], { sign: { as: 'ended' } }),
    answer: UNKNOWN,
  },
  {
    name: 'the secret of an older key of the token file',
    send: put('bar', [], { sign: { as: 'older' } }),
    answer: OK,
  },
  {
    name: 'another secret',
    given: [put('before')],
    send: put('bar', [], {
      sign: authorized((text) => text.replace(/Signature=.{8}/, 'Signature=00000000')),
    }),
    answer: UNFIT,
    effect: [holds('before')],
  },
  {
    name: 'a signature in upper case',
    send: get([], {
      sign: authorized((text) => text.replace(/(?<=Signature=)\w+/, (hex) => hex.toUpperCase())),
    }),
    answer: UNFIT,
  },
  {
    name: 'a signature that is too short',
    send: get([], { sign: authorized((text) => text.slice(0, -1)) }),
    answer: UNFIT,
  },
  { name: 'an empty header Authorization', send: get([], { sign: authorized(() => '') }), answer: DENIED },
  {
    name: 'a header Authorization of another kind',
    send: get([], { sign: authorized(() => 'AWS4 HAHAHA') }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'a malformed signature of version 2',
    send: get([], { sign: authorized(() => 'AWS HAHAHA') }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'a signature of version 2',
    send: get([], { sign: authorized(() => 'AWS AKIAIGR7ZNNBHC5BKSUB:FWeDfwojDSdS2Ztmpfeubhd9isU=') }),
    answer: error(400, 'InvalidRequest'),
  },
  {
    name: 'a password',
    send: get([], { sign: authorized(() => 'Basic YTpi') }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'a header Authorization without a scope',
    send: get([], { sign: authorized(() => 'AWS4-HMAC-SHA256 Credential=HAHAHA') }),
    answer: error(400, 'AuthorizationHeaderMalformed'),
  },
  {
    name: 'a header Authorization without a signature',
    send: get([], { sign: authorized((text) => text.replace(/, Signature.*/, '')) }),
    answer: error(400, 'AuthorizationHeaderMalformed'),
  },
  {
    name: 'an unknown access key of another day',
    send: put('bar', [], {
      sign: authorized(
        () =>
          'AWS4-HMAC-SHA256 Credential=AKIAIGR7ZNNBHC5BKSUB/20150930/us-east-1/s3/aws4_request,SignedHeaders=host;user-agent,Signature=FWeDfwojDSdS2Ztmpfeubhd9isU=',
      ),
    }),
    answer: UNKNOWN,
  },
  {
    name: 'a header Authorization without spaces',
    send: get([], { sign: authorized((text) => text.replaceAll(', ', ',')) }),
    answer: error(404, 'NoSuchKey'),
  },
  { name: 'a clock that is 14 minutes slow', send: put('bar', [], { sign: { agoS: 14 * 60 } }), answer: OK },
  {
    name: 'a clock that is 16 minutes slow',
    send: put('bar', [], { sign: { agoS: 16 * 60 } }),
    answer: error(403, 'RequestTimeTooSkewed'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a clock that is 16 minutes fast',
    send: get([], { sign: { agoS: -16 * 60 } }),
    answer: error(403, 'RequestTimeTooSkewed'),
  },
  { name: 'a time before 1970', send: get([], { sign: amzDate('19500707T215304Z') }), answer: DENIED },
  {
    name: 'a time after 9999',
    send: get([], { sign: amzDate('99990707T215304Z') }),
    answer: error(403, 'RequestTimeTooSkewed'),
  },
  { name: 'no time', send: get([], { sign: { ...amzDate('Bad Date'), day: '20200101' } }), answer: DENIED },
  { name: 'an empty time', send: get([], { sign: { amzDate: '', day: '20200101' } }), answer: DENIED },
  {
    name: 'a time that is not signed',
    send: get([], { sign: { change: (request) => without(request, 'x-amz-date') } }),
    answer: DENIED,
  },
  {
    name: 'the header Date counts for nothing beside x-amz-date',
    send: put('bar', [['date', 'Bad Date']]),
    answer: OK,
  },
  {
    name: 'a credential of another day',
    send: get([], { sign: { day: '20200101' } }),
    answer: error(400, 'AuthorizationHeaderMalformed'),
  },
  {
    name: 'a credential of another service',
    send: get([], { sign: { service: 'iam' } }),
    answer: error(400, 'AuthorizationHeaderMalformed'),
  },
  {
    name: 'a credential of any region',
    send: put('bar', [], { sign: { region: 'eu-central-1' } }),
    answer: OK,
  },
  {
    name: 'a header x-amz-* that is not signed',
    send: put('bar', [], { sign: adding(['x-amz-meta-a', 'b']) }),
    answer: DENIED,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a source of a copy that is not signed',
    given: [put('bar', [], { key: 'source' })],
    send: put('', [], { sign: adding(['x-amz-copy-source', '/bucket/secret']) }),
    answer: DENIED,
  },
  { name: 'a host that is not signed', send: get([], { sign: { except: ['host'] } }), answer: DENIED },
  {
    name: 'another header that is not signed',
    send: put('bar', [], { sign: adding(['user-agent', 'proxy']) }),
    answer: OK,
  },
  {
    name: 'a signed header that was changed',
    send: put('bar', [['user-agent', 'one']], {
      sign: { change: (request) => withHeader(request, 'user-agent', () => 'two') },
    }),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a signed header that was removed',
    send: put('bar', [['user-agent', 'one']], {
      sign: { change: (request) => without(request, 'user-agent') },
    }),
    answer: UNFIT,
  },
  {
    name: 'a signed header that came twice',
    send: put('bar', [['x-amz-meta-a', 'b']], { sign: adding(['x-amz-meta-a', 'c']) }),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'another host than signed',
    send: get([], { sign: { change: (request) => withHeader(request, 'host', () => 'other.example') } }),
    answer: UNFIT,
  },
  {
    name: 'another method than signed',
    given: [put('bar')],
    send: get([], { sign: { change: (request) => ({ ...request, method: 'DELETE' }) } }),
    answer: UNFIT,
    effect: [holds('bar')],
  },
  {
    name: 'another key than signed',
    given: [put('bar')],
    send: get([], { sign: { change: retargeted((target) => `${target}x`) } }),
    answer: UNFIT,
  },
  {
    name: 'a parameter that is not signed',
    given: [put('bar')],
    send: get([], { sign: { change: retargeted((target) => `${target}?tagging`) } }),
    answer: UNFIT,
  },
  {
    name: 'no digest of the body',
    send: put('bar', [], { sign: { change: (request) => without(request, 'x-amz-content-sha256') } }),
    answer: error(400, 'InvalidRequest'),
  },
  {
    name: 'a signature in headers and one in the query',
    send: get([], { query: 'X-Amz-Signature=0&X-Amz-Algorithm=AWS4-HMAC-SHA256' }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'parameters in any order, some without values, and twice',
    given: [put('bar')],
    send: get([], { query: 'z=1&a&response-content-type=text/x&z=0&b=%2F+%7e' }),
    answer: { status: 200, headers: { 'content-type': 'text/x' } },
  },
  {
    name: 'a path with more encoded than need be',
    given: [put('bar', [], { exactKey: 'encoded-{root}' })],
    send: get([], { path: '/bucket/%65ncoded%2D{root}' }),
    answer: { status: 200, body: 'bar' },
  },
  {
    name: 'a path with less encoded than usual',
    given: [put('bar', [], { key: "a!(b)*'c;d:e@f&g=h+i$j,k" })],
    send: get([], { path: "/bucket/{root}/a!(b)*'c;d:e@f&g=h+i$j,k" }),
    answer: { status: 200, body: 'bar' },
  },
  {
    name: 'a path whose percent signs end nothing',
    send: get([], { path: '/bucket/a%zz', sign: { by: 'nothing' } }),
    answer: error(400, 'InvalidURI'),
  },
  {
    name: 'a path that is not UTF-8',
    send: get([], { path: '/bucket/a%ff', sign: { by: 'nothing' } }),
    answer: error(400, 'InvalidURI'),
  },
];

/** Roles and volumes of tokens. */
export const TOKENS: readonly ObjectCase[] = [
  {
    name: 'a reader reads',
    given: [put('bar')],
    send: get([], { sign: { as: 'reader' } }),
    answer: { status: 200, body: 'bar' },
  },
  {
    name: 'a reader writes nothing',
    given: [put('bar')],
    send: put('soup', [], { sign: { as: 'reader' } }),
    answer: DENIED,
    effect: [holds('bar')],
  },
  {
    name: 'a reader deletes nothing',
    given: [put('bar')],
    send: del([], { sign: { as: 'reader' } }),
    answer: DENIED,
    effect: [holds('bar')],
  },
  {
    name: 'a reader copies nothing',
    given: [put('bar', [], { key: 'source' })],
    send: put('', [['x-amz-copy-source', 'bucket/{root}/source']], { sign: { as: 'reader' } }),
    answer: DENIED,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a reader sets no tags',
    given: [put('bar')],
    send: put('<Tagging><TagSet/></Tagging>', [], { query: 'tagging', sign: { as: 'reader' } }),
    answer: DENIED,
  },
  {
    name: 'a reader begins no upload',
    send: { method: 'POST', query: 'uploads', sign: { as: 'reader' } },
    answer: DENIED,
  },
  {
    name: 'a writer writes',
    send: put('bar', [], { sign: { as: 'writer' } }),
    answer: OK,
    effect: [holds('bar')],
  },
  { name: 'a token of one volume uses it', send: put('bar', [], { sign: { as: 'one' } }), answer: OK },
  {
    name: 'a token of one volume reads no other',
    given: [put('bar', [], { bucket: 'other' })],
    send: get([], { bucket: 'other', sign: { as: 'one' } }),
    answer: DENIED,
  },
  {
    name: 'a token of one volume does not learn whether another exists',
    send: get([], { bucket: 'missing', sign: { as: 'one' } }),
    answer: DENIED,
  },
  {
    name: 'a token of one volume writes to no other',
    send: put('bar', [], { bucket: 'other', sign: { as: 'one' } }),
    answer: DENIED,
    effect: [[get([], { bucket: 'other' }), error(404, 'NoSuchKey')]],
  },
  {
    name: 'a token of one volume copies from no other',
    given: [put('secret', [], { bucket: 'other' })],
    send: put('', [['x-amz-copy-source', 'other/{root}']], { sign: { as: 'one' } }),
    answer: DENIED,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'the host of another bucket does not help a token of one volume',
    given: [put('secret', [], { bucket: 'other' })],
    send: get([['host', 'other.s3.test']], { path: '/{root}', sign: { as: 'one' } }),
    answer: DENIED,
  },
  { name: 'HEAD as a reader', given: [put('bar')], send: head([], { sign: { as: 'reader' } }), answer: OK },
];

const EXPIRES: Signing = { by: 'query' };

function presigned(more: Signing = {}): Signing {
  return { ...EXPIRES, ...more };
}

function refusedUrl(name: string, sign: Signing, answer: ObjectCase['answer']): ObjectCase {
  return { name, given: [put('bar')], send: get([], { sign }), answer };
}

/** Signatures in queries. */
export const PRESIGNED: readonly ObjectCase[] = [
  {
    name: 'a presigned URL of a GET',
    given: [put('bar')],
    send: get([], { sign: presigned() }),
    answer: { status: 200, body: 'bar' },
  },
  {
    name: 'a presigned URL of a PUT takes any body',
    send: put('bar', [], { sign: presigned() }),
    answer: OK,
    effect: [holds('bar')],
  },
  {
    name: 'a presigned URL of a DELETE',
    given: [put('bar')],
    send: del([], { sign: presigned() }),
    answer: { status: 204 },
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a presigned URL with a parameter',
    given: [put('bar')],
    send: get([], { query: 'response-content-type=text/x', sign: presigned() }),
    answer: { status: 200, headers: { 'content-type': 'text/x' } },
  },
  {
    name: 'a presigned URL with a signed header',
    send: put('bar', [['x-amz-acl', 'private']], { sign: presigned() }),
    answer: OK,
  },
  {
    name: 'metadata in a presigned URL',
    send: put('bar', [], { query: 'x-amz-meta-a=b&x-amz-tagging=k%3Dv', sign: presigned() }),
    answer: OK,
    effect: [[head(), { status: 200, headers: { 'x-amz-meta-a': 'b', 'x-amz-tagging-count': '1' } }]],
  },
  {
    name: 'a public list in a presigned URL',
    send: put('bar', [], { query: 'x-amz-acl=public-read', sign: presigned() }),
    answer: error(501, 'NotImplemented'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a digest in a presigned URL is not that of the signature',
    send: put('bar', [], {
      sign: presigned({
        change: (request) => ({
          ...request,
          headers: [...request.headers, ['x-amz-content-sha256', '0'.repeat(64)]],
        }),
      }),
    }),
    answer: UNFIT,
  },
  { ...refusedUrl('a presigned URL that has expired', presigned({ agoS: 120, expires: '60' }), DENIED) },
  refusedUrl('a presigned URL of no time', presigned({ expires: '0', agoS: 2 }), DENIED),
  refusedUrl('a presigned URL of a time before', presigned({ expires: '-7' }), DENIED),
  refusedUrl('a presigned URL of more than a week', presigned({ expires: '609901' }), DENIED),
  refusedUrl('a presigned URL of an unknown time', presigned({ expires: '1e3' }), DENIED),
  refusedUrl('a presigned URL of tomorrow', presigned({ agoS: -86_400 }), DENIED),
  refusedUrl(
    'a presigned URL without its time',
    presigned({ change: retargeted((target) => target.replace(/&X-Amz-Expires=\d+/, '')) }),
    DENIED,
  ),
  refusedUrl(
    'a presigned URL that was prolonged',
    presigned({ change: retargeted((target) => target.replace('Expires=60', 'Expires=600')) }),
    UNFIT,
  ),
  refusedUrl(
    'a presigned URL of another key',
    presigned({ change: retargeted((target) => target.replace('?', 'x?')) }),
    UNFIT,
  ),
  refusedUrl(
    'a presigned URL with one more parameter',
    presigned({ change: retargeted((target) => `${target}&versionId=null`) }),
    UNFIT,
  ),
  refusedUrl(
    'a presigned URL with two signatures',
    presigned({ change: retargeted((target) => `${target}&X-Amz-Signature=0`) }),
    error(400, 'AuthorizationQueryParametersError'),
  ),
  refusedUrl(
    'a presigned URL with two times',
    presigned({ change: retargeted((target) => `${target}&X-Amz-Expires=600`) }),
    error(400, 'AuthorizationQueryParametersError'),
  ),
  refusedUrl(
    'a presigned URL of another algorithm',
    presigned({ change: retargeted((target) => target.replace('HMAC-SHA256', 'HMAC-SHA1')) }),
    error(400, 'AuthorizationQueryParametersError'),
  ),
  refusedUrl(
    'a presigned URL of another service',
    presigned({ service: 'iam' }),
    error(400, 'AuthorizationQueryParametersError'),
  ),
  refusedUrl('a presigned URL of an unknown key', presigned({ as: 'unknown' }), UNKNOWN),
  refusedUrl('a presigned URL of a token that has ended', presigned({ as: 'ended' }), UNKNOWN),
  refusedUrl(
    'a presigned URL with a header x-amz-* that is not signed',
    presigned(adding(['x-amz-checksum-mode', 'ENABLED'])),
    DENIED,
  ),
  refusedUrl(
    'a presigned URL for another method',
    presigned({ change: (request) => ({ ...request, method: 'DELETE' }) }),
    UNFIT,
  ),
  {
    name: 'a presigned URL without its signed header',
    send: put('bar', [['x-amz-foo', 'bar']], {
      sign: presigned({ change: (request) => without(request, 'x-amz-foo') }),
    }),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a presigned URL of version 2',
    send: get([], { query: 'AWSAccessKeyId=a&Expires=2000000000&Signature=b', sign: { by: 'nothing' } }),
    answer: error(400, 'InvalidRequest'),
  },
  {
    name: 'a presigned PUT as a reader',
    send: put('bar', [], { sign: presigned({ as: 'reader' }) }),
    answer: DENIED,
    effect: [HOLDS_NOTHING],
  },
];
