import type { FormSent, ObjectCase, Sent } from '../object-case.ts';
import type { Header } from '../sign.ts';
import { error, get, HOLDS_NOTHING, head, holds, put } from './requests.ts';

const KEY: Header = ['key', '{root}'];
/** Stands for the name of the file. */
const FILE_NAME = '$' + '{filename}';
const BUCKET = { bucket: 'bucket' };
const ANY_KEY = ['starts-with', '$key', 'c'];
const DENIED = error(403, 'AccessDenied');
const INVALID = error(400, 'InvalidPolicyDocument');
const NO_CONTENT = { status: 204, body: '' };

function form(form: FormSent, more: Sent = {}): Sent {
  return { method: 'POST', path: '/bucket', sign: { by: 'nothing' }, form, ...more };
}

function simple(more: Partial<FormSent> = {}): Sent {
  return form({ fields: [KEY], conditions: [BUCKET, ANY_KEY], ...more });
}

function refused(name: string, more: Partial<FormSent>, answer: ObjectCase['answer']): ObjectCase {
  return { name: `form: ${name}`, send: simple(more), answer, effect: [HOLDS_NOTHING] };
}

function accepted(name: string, more: Partial<FormSent>, body = 'bar'): ObjectCase {
  return { name: `form: ${name}`, send: simple(more), answer: NO_CONTENT, effect: [holds(body)] };
}

/** Forms that browsers post, with a signed policy. */
export const FORMS: readonly ObjectCase[] = [
  accepted('a signed policy', {}),
  accepted('a policy that is signed by version 2', { version: 2 }),
  accepted('a large file', { file: 'x'.repeat(3_000_000) }, 'x'.repeat(3_000_000)),
  accepted('an empty file', { file: '' }, ''),
  accepted('fields that are sent as files', { asFiles: true, version: 2 }),
  accepted('a file without a name', { fileName: null }),
  accepted('the time of its answer may have no fraction', { expiration: 'seconds' }),
  {
    name: 'form: headers and metadata',
    send: form({
      fields: [
        KEY,
        ['Content-Type', 'text/plain'],
        ['Cache-Control', 'no-store'],
        ['x-amz-meta-foo', 'barclamp'],
      ],
      conditions: [
        BUCKET,
        ANY_KEY,
        ['starts-with', '$Content-Type', 'text/'],
        ['eq', '$Cache-Control', 'no-store'],
        ['starts-with', '$x-amz-meta-foo', 'bar'],
      ],
    }),
    answer: {
      status: 204,
      headers: { etag: '"37b51d194a7513e45b56f6524f2d51f2"', location: '/bucket/{root}' },
    },
    effect: [
      [
        head(),
        {
          status: 200,
          headers: {
            'content-type': 'text/plain',
            'cache-control': 'no-store',
            'x-amz-meta-foo': 'barclamp',
          },
        },
      ],
    ],
  },
  {
    name: 'form: the name of the file in the key',
    send: form({
      fields: [['key', `{root}/${FILE_NAME}`]],
      conditions: [BUCKET, ANY_KEY],
      fileName: 'C:\\folder\\foo.txt',
    }),
    answer: NO_CONTENT,
    effect: [[get([], { key: 'foo.txt' }), { status: 200, body: 'bar' }]],
  },
  {
    name: 'form: a name of a file that is a path stays below its key',
    send: form({
      fields: [['key', `{root}/${FILE_NAME}`]],
      conditions: [BUCKET, ANY_KEY],
      fileName: '../../etc/passwd',
    }),
    answer: NO_CONTENT,
    effect: [[get([], { key: 'passwd' }), { status: 200, body: 'bar' }]],
  },
  {
    name: 'form: the name of a file outside of what the policy allows',
    send: form({
      fields: [['key', FILE_NAME]],
      conditions: [BUCKET, ANY_KEY],
      fileName: 'elsewhere.txt',
    }),
    answer: DENIED,
  },
  accepted('fields that are ignored', { fields: [KEY, ['x-ignore-foo', 'bar']] }),
  {
    name: 'form: names and operators in any case',
    send: form({
      fields: [
        ['kEy', '{root}'],
        ['aCl', 'private'],
        ['Content-Type', 'text/plain'],
      ],
      conditions: [
        { bUcKeT: 'bucket' },
        ['StArTs-WiTh', '$KeY', 'c'],
        { AcL: 'private' },
        ['StArTs-WiTh', '$CoNtEnT-TyPe', 'text/plain'],
      ],
      version: 2,
    }),
    answer: NO_CONTENT,
    effect: [holds('bar')],
  },
  {
    name: 'form: a dollar in a value',
    send: form({
      fields: [['key', '{root}/\\$foo.txt']],
      conditions: [BUCKET, ['starts-with', '$key', '{root}/\\$foo']],
    }),
    answer: NO_CONTENT,
    effect: [[get([], { key: '\\$foo.txt' }), { status: 200, body: 'bar' }]],
  },
  accepted('any value of a field', {
    fields: [KEY, ['x-amz-meta-a', 'anything']],
    conditions: [BUCKET, ANY_KEY, ['starts-with', '$x-amz-meta-a', '']],
  }),
  accepted('a length in the range', { conditions: [BUCKET, ANY_KEY, ['content-length-range', 3, 3]] }),
  accepted('a checksum that the policy does not mention', {
    fields: [KEY, ['x-amz-checksum-crc32', 'dv+Mqg==']],
  }),
  refused(
    'a wrong checksum',
    { fields: [KEY, ['x-amz-checksum-crc32', 'AAAAAA==']] },
    error(400, 'BadDigest'),
  ),
  refused(
    'a malformed checksum',
    { fields: [KEY, ['x-amz-checksum-sha256', 'sailorjerry']] },
    error(400, 'BadDigest'),
  ),
  {
    name: 'form: status 201 with a document',
    send: form({
      fields: [KEY, ['success_action_status', '201']],
      conditions: [BUCKET, ANY_KEY, { success_action_status: '201' }],
    }),
    answer: {
      status: 201,
      headers: { 'content-type': 'application/xml', location: '/bucket/{root}' },
      body: /<PostResponse.*<Bucket>bucket<\/Bucket><Key>c\d+<\/Key><ETag>&quot;37b51d194a7513e45b56f6524f2d51f2&quot;/,
    },
  },
  {
    name: 'form: status 200',
    send: form({
      fields: [KEY, ['success_action_status', '200']],
      conditions: [BUCKET, ANY_KEY, { success_action_status: '200' }],
    }),
    answer: { status: 200, body: '' },
  },
  {
    name: 'form: another status is 204',
    send: form({
      fields: [KEY, ['success_action_status', '404']],
      conditions: [BUCKET, ANY_KEY, { success_action_status: '404' }],
    }),
    answer: NO_CONTENT,
  },
  {
    name: 'form: a redirection',
    send: form({
      fields: [KEY, ['success_action_redirect', 'https://example.org/done?a=b']],
      conditions: [BUCKET, ANY_KEY, ['eq', '$success_action_redirect', 'https://example.org/done?a=b']],
    }),
    answer: {
      status: 303,
      headers: {
        location:
          'https://example.org/done?a=b&bucket=bucket&key={root}&etag=%2237b51d194a7513e45b56f6524f2d51f2%22',
      },
    },
    effect: [holds('bar')],
  },
  {
    name: 'form: no redirection to a program',
    send: form({
      fields: [KEY, ['redirect', 'javascript:alert(1)']],
      conditions: [BUCKET, ANY_KEY, ['starts-with', '$redirect', '']],
    }),
    answer: { status: 204, headers: { location: '/bucket/{root}' } },
  },
  {
    name: 'form: tags',
    send: form({
      fields: [
        KEY,
        ['tagging', '<Tagging><TagSet><Tag><Key>0</Key><Value>1</Value></Tag></TagSet></Tagging>'],
      ],
      conditions: [BUCKET, ANY_KEY, ['starts-with', '$tagging', '']],
    }),
    answer: NO_CONTENT,
    effect: [[get([], { query: 'tagging' }), { status: 200, body: /<Key>0<\/Key><Value>1</ }]],
  },
  {
    name: 'form: malformed tags',
    send: form({
      fields: [KEY, ['tagging', '<Tagging>']],
      conditions: [BUCKET, ANY_KEY, ['starts-with', '$tagging', '']],
    }),
    answer: error(400, 'MalformedXML'),
    effect: [HOLDS_NOTHING],
  },
  refused('no policy', { conditions: null }, DENIED),
  refused('no policy and no signature', { conditions: null, version: 'none' }, DENIED),
  refused('a policy without a signature', { version: 'none' }, error(400, 'InvalidArgument')),
  refused('another signature', { signature: '0'.repeat(64) }, error(403, 'SignatureDoesNotMatch')),
  refused(
    'another signature of version 2',
    { version: 2, signature: 'wrong' },
    error(403, 'SignatureDoesNotMatch'),
  ),
  refused('an unknown key', { as: 'unknown' }, error(403, 'InvalidAccessKeyId')),
  refused('an unknown key of version 2', { as: 'unknown', version: 2 }, error(403, 'InvalidAccessKeyId')),
  refused('a token that has ended', { as: 'ended' }, error(403, 'InvalidAccessKeyId')),
  refused('a reader', { as: 'reader' }, DENIED),
  {
    name: 'form: a token of another volume',
    send: form({ fields: [KEY], conditions: [{ bucket: 'other' }, ANY_KEY], as: 'one' }, { path: '/other' }),
    answer: DENIED,
    effect: [[get([], { bucket: 'other' }), error(404, 'NoSuchKey')]],
  },
  refused('an expired policy', { expiresS: -60 }, DENIED),
  refused('a policy that never expires', { expiration: null }, INVALID),
  refused('a time of another form', { expiration: '2099-01-01 00:00:00.123456+00:00' }, INVALID),
  refused(
    'a time of another case',
    { document: { EXPIRATION: '2099-01-01T00:00:00Z', conditions: [BUCKET] } },
    INVALID,
  ),
  refused('a policy without conditions', { document: { expiration: '2099-01-01T00:00:00Z' } }, INVALID),
  refused(
    'conditions of another case',
    { document: { expiration: '2099-01-01T00:00:00Z', CONDITIONS: [BUCKET, ANY_KEY] } },
    INVALID,
  ),
  refused('an empty condition', { conditions: [{}] }, INVALID),
  refused('a condition that is a number', { conditions: [BUCKET, ANY_KEY, 1] }, INVALID),
  refused('a condition of two parts', { conditions: [BUCKET, ['eq', '$key']] }, INVALID),
  refused('an unknown operator', { conditions: [BUCKET, ['ends-with', '$key', 'a']] }, INVALID),
  refused('a condition on no field', { conditions: [BUCKET, ['eq', 'key', 'a']] }, INVALID),
  refused('a policy that is no JSON', { document: 'no policy' }, INVALID),
  refused('a policy for another bucket', { conditions: [{ bucket: 'other' }, ANY_KEY] }, DENIED),
  refused('a policy for any bucket', { conditions: [ANY_KEY] }, DENIED),
  refused(
    'the field of another bucket',
    { fields: [KEY, ['bucket', 'other']], conditions: [{ bucket: 'other' }, ANY_KEY] },
    DENIED,
  ),
  refused('another key', { conditions: [BUCKET, ['eq', '$key', 'other']] }, DENIED),
  refused('a key with another beginning', { conditions: [BUCKET, ['starts-with', '$key', 'user/']] }, DENIED),
  refused('a field that the policy does not mention', { fields: [KEY, ['x-amz-meta-a', 'b']] }, DENIED),
  refused(
    'a type that the policy does not mention',
    { fields: [KEY, ['content-type', 'text/html']] },
    DENIED,
  ),
  refused(
    'a field that the policy demands',
    { conditions: [BUCKET, ANY_KEY, ['starts-with', '$x-amz-meta-foo', 'bar']] },
    DENIED,
  ),
  refused(
    'a value that must be empty',
    { fields: [KEY, ['x-amz-meta-foo', 'b']], conditions: [BUCKET, ANY_KEY, ['eq', '$x-amz-meta-foo', '']] },
    DENIED,
  ),
  refused(
    'a file that is too long',
    { conditions: [BUCKET, ANY_KEY, ['content-length-range', 0, 2]] },
    error(400, 'EntityTooLarge'),
  ),
  refused(
    'a file that is too short',
    { conditions: [BUCKET, ANY_KEY, ['content-length-range', 512, 1000]] },
    error(400, 'EntityTooSmall'),
  ),
  refused('a range of one length', { conditions: [BUCKET, ANY_KEY, ['content-length-range', 0]] }, INVALID),
  refused('a negative range', { conditions: [BUCKET, ANY_KEY, ['content-length-range', -1, 0]] }, INVALID),
  refused('a range backwards', { conditions: [BUCKET, ANY_KEY, ['content-length-range', 9, 3]] }, INVALID),
  refused('a range of null', { conditions: [BUCKET, ANY_KEY, ['content-length-range', null, 9]] }, INVALID),
  refused('no key', { fields: [], conditions: [BUCKET] }, error(400, 'InvalidArgument')),
  refused('no file', { file: null }, error(400, 'InvalidArgument')),
  refused(
    'a key that is a directory',
    { fields: [['key', '{root}/']], file: 'bar' },
    error(400, 'InvalidArgument'),
  ),
  {
    name: 'form: an empty file as a directory',
    send: simple({ fields: [['key', '{root}/d/']], file: '' }),
    answer: NO_CONTENT,
    effect: [[head([], { key: 'd/' }), { status: 200, headers: { 'content-length': '0' } }]],
  },
  refused(
    'a public list',
    { fields: [KEY, ['acl', 'public-read']], conditions: [BUCKET, ANY_KEY, { acl: 'public-read' }] },
    error(501, 'NotImplemented'),
  ),
  refused(
    'a key of encryption',
    {
      fields: [KEY, ['x-amz-server-side-encryption', 'AES256']],
      conditions: [BUCKET, ANY_KEY, { 'x-amz-server-side-encryption': 'AES256' }],
    },
    error(501, 'NotImplemented'),
  ),
  refused(
    'a form that ends within its file',
    { edit: (text) => text.slice(0, -60) },
    error(400, 'MalformedPOSTRequest'),
  ),
  refused(
    'a form that ends within its fields',
    { edit: (text) => text.slice(0, 40) },
    error(400, 'MalformedPOSTRequest'),
  ),
  refused('a form without parts', { edit: () => '' }, error(400, 'MalformedPOSTRequest')),
  refused(
    'a form of another boundary',
    { edit: (text) => text.replaceAll('boundary', 'other') },
    error(400, 'MalformedPOSTRequest'),
  ),
  refused(
    'a field that is too long',
    { fields: [KEY, ['x-ignore-a', 'x'.repeat(70_000)]] },
    error(400, 'MaxPostPreDataLengthExceeded'),
  ),
  refused(
    'too many fields',
    { fields: [KEY, ...Array.from({ length: 101 }, (_, index): Header => [`x-ignore-${index}`, ''])] },
    error(400, 'MaxPostPreDataLengthExceeded'),
  ),
  {
    name: 'form: metadata of any characters',
    send: simple({
      fields: [KEY, ['x-amz-meta-a', 'café 世']],
      conditions: [BUCKET, ANY_KEY, ['eq', '$x-amz-meta-a', 'café 世']],
    }),
    answer: NO_CONTENT,
    effect: [
      [head(), { status: 200, headers: { 'x-amz-meta-a': Buffer.from('café 世').toString('latin1') } }],
    ],
  },
  refused(
    'metadata of two lines',
    {
      fields: [KEY, ['x-amz-meta-a', 'b\r\nset-cookie: c']],
      conditions: [BUCKET, ANY_KEY, ['starts-with', '$x-amz-meta-a', '']],
    },
    error(400, 'InvalidArgument'),
  ),
  refused(
    'metadata whose name is no name',
    {
      fields: [KEY, ['x-amz-meta-a b:', 'c']],
      conditions: [BUCKET, ANY_KEY, ['starts-with', '$x-amz-meta-a b:', '']],
    },
    error(400, 'InvalidArgument'),
  ),
  {
    name: 'form: fields after the file count for nothing',
    send: simple({ later: [['x-amz-meta-late', 'b']] }),
    answer: NO_CONTENT,
    effect: [[head(), { status: 200, headers: { 'x-amz-meta-late': null } }]],
  },
  {
    name: 'form: the type of the file is not that of the object, unless the policy allows it',
    send: simple({ fileType: 'text/html' }),
    answer: NO_CONTENT,
    effect: [[head(), { status: 200, headers: { 'content-type': 'binary/octet-stream' } }]],
  },
  {
    name: 'form: a form to a bucket that does not exist',
    send: form({ fields: [KEY], conditions: [{ bucket: 'missing' }, ANY_KEY] }, { path: '/missing' }),
    answer: error(404, 'NoSuchBucket'),
  },
  {
    name: 'form: the same field twice, of which the policy allows only one',
    send: simple({ fields: [['key', 'elsewhere/{root}'], KEY, ['key', 'elsewhere/{root}']] }),
    answer: DENIED,
    effect: [[get([], { exactKey: 'elsewhere/{root}' }), error(404, 'NoSuchKey')]],
  },
  {
    name: 'form: a POST that is no form',
    send: { method: 'POST', path: '/bucket', body: 'a=b', headers: [['content-type', 'text/plain']] },
    answer: error(405, 'MethodNotAllowed'),
  },
  {
    name: 'form: a replaced object has what the form says',
    given: [put('before', [['x-amz-meta-a', 'b']])],
    send: simple({}),
    answer: NO_CONTENT,
    effect: [[get(), { status: 200, headers: { 'x-amz-meta-a': null }, body: 'bar' }]],
  },
];
