import type { ObjectCase, Sent } from '../object-case.ts';
import type { Header } from '../sign.ts';
import { error, GONE, get, HOLDS_NOTHING, head, holds, OK, put } from './requests.ts';

const SOURCE: Header = ['x-amz-copy-source', 'bucket/{root}/source'];
const FAILED = error(412, 'PreconditionFailed');

function copy(headers: readonly Header[] = [SOURCE], more: Sent = {}): Sent {
  return put('', headers, more);
}

function source(headers: readonly Header[] = [], key = 'source'): Sent {
  return put('bar', headers, { key });
}

function target(more: Sent = {}): Sent {
  return { key: 'target', ...more };
}

function targetHolds(body: string): readonly [Sent, ObjectCase['answer']] {
  return [get([], target()), { status: 200, body }];
}

const TARGET_HOLDS_NOTHING: readonly [Sent, ObjectCase['answer']] = [get([], target()), GONE];

function conditional(name: string, header: Header, isCopied: boolean): ObjectCase {
  return {
    name,
    given: [source()],
    send: copy([SOURCE, header], target()),
    answer: isCopied ? OK : FAILED,
    effect: [isCopied ? targetHolds('bar') : TARGET_HOLDS_NOTHING],
  };
}

/** CopyObject. */
export const COPIES: readonly ObjectCase[] = [
  {
    name: 'a copy has the tag of its source',
    given: [source()],
    send: copy([SOURCE], target()),
    answer: {
      status: 200,
      body: /<CopyObjectResult.*<ETag>&quot;37b51d194a7513e45b56f6524f2d51f2&quot;<\/ETag>/,
    },
    effect: [
      targetHolds('bar'),
      [head([], target()), { status: 200, headers: { etag: '"37b51d194a7513e45b56f6524f2d51f2"' } }],
    ],
  },
  {
    name: 'a copy of nothing but its length',
    given: [put('', [], { key: 'source' })],
    send: copy([SOURCE], target()),
    answer: OK,
    effect: [targetHolds('')],
  },
  {
    name: 'a copy of an object of two MiB',
    given: [put(Buffer.alloc(2_097_153, 'z'), [], { key: 'source' })],
    send: copy([SOURCE], target()),
    answer: OK,
    effect: [[head([], target()), { status: 200, headers: { 'content-length': '2097153', etag: '{etag}' } }]],
  },
  {
    name: 'a copy from another bucket',
    given: [put('bar', [], { bucket: 'other' })],
    send: copy([['x-amz-copy-source', '/other/{root}']]),
    answer: OK,
    effect: [holds('bar')],
  },
  {
    name: 'a copy keeps headers, metadata and tags',
    given: [
      source([
        ['content-type', 'audio/ogg'],
        ['cache-control', 'no-store'],
        ['x-amz-meta-key1', 'value1'],
        ['x-amz-tagging', 'a=b'],
      ]),
    ],
    send: copy([SOURCE, ['content-type', 'text/plain'], ['x-amz-meta-key1', 'ignored']], target()),
    answer: OK,
    effect: [
      [
        head([], target()),
        {
          status: 200,
          headers: {
            'content-type': 'audio/ogg',
            'cache-control': 'no-store',
            'x-amz-meta-key1': 'value1',
            'x-amz-tagging-count': '1',
          },
        },
      ],
    ],
  },
  {
    name: 'a copy replaces headers and metadata',
    given: [
      source([
        ['content-type', 'audio/ogg'],
        ['cache-control', 'no-store'],
        ['x-amz-meta-key1', 'value1'],
      ]),
    ],
    send: copy(
      [
        SOURCE,
        ['x-amz-metadata-directive', 'REPLACE'],
        ['content-type', 'audio/mpeg'],
        ['x-amz-meta-key3', 'value3'],
      ],
      target(),
    ),
    answer: OK,
    effect: [
      [
        head([], target()),
        {
          status: 200,
          headers: {
            'content-type': 'audio/mpeg',
            'cache-control': null,
            'x-amz-meta-key1': null,
            'x-amz-meta-key3': 'value3',
          },
        },
      ],
    ],
  },
  {
    name: 'a copy replaces tags',
    given: [source([['x-amz-tagging', 'a=b']])],
    send: copy([SOURCE, ['x-amz-tagging-directive', 'REPLACE'], ['x-amz-tagging', 'c=d&e=f']], target()),
    answer: OK,
    effect: [[get([], target({ query: 'tagging' })), { status: 200, body: /<Key>c<.*<Key>e</ }]],
  },
  {
    name: 'a copy keeps the checksum of its source',
    given: [source([['x-amz-checksum-crc32', 'dv+Mqg==']])],
    send: copy([SOURCE], target()),
    answer: { status: 200, body: /<ChecksumCRC32>dv\+Mqg==<\/ChecksumCRC32>/ },
    effect: [
      [
        head([['x-amz-checksum-mode', 'ENABLED']], target()),
        { status: 200, headers: { 'x-amz-checksum-crc32': 'dv+Mqg==' } },
      ],
    ],
  },
  {
    name: 'a copy to itself changes nothing',
    given: [put('bar')],
    send: copy([['x-amz-copy-source', 'bucket/{root}']]),
    answer: error(400, 'InvalidRequest'),
  },
  {
    name: 'a copy to itself with other metadata',
    given: [put('bar')],
    send: copy([
      ['x-amz-copy-source', 'bucket/{root}'],
      ['x-amz-metadata-directive', 'REPLACE'],
      ['x-amz-meta-foo', 'bar'],
    ]),
    answer: OK,
    effect: [[get(), { status: 200, headers: { 'x-amz-meta-foo': 'bar', etag: '{etag}' }, body: 'bar' }]],
  },
  {
    name: 'a copy of a missing key',
    send: copy([SOURCE], target()),
    answer: error(404, 'NoSuchKey'),
    effect: [TARGET_HOLDS_NOTHING],
  },
  {
    name: 'a copy from a missing bucket',
    send: copy([['x-amz-copy-source', 'missing/a']]),
    answer: error(404, 'NoSuchBucket'),
  },
  {
    name: 'a copy to a missing bucket',
    given: [source()],
    send: copy([SOURCE], { bucket: 'missing' }),
    answer: error(404, 'NoSuchBucket'),
  },
  {
    name: 'a source without a key',
    send: copy([['x-amz-copy-source', 'bucket']]),
    answer: error(400, 'InvalidArgument'),
  },
  { name: 'an empty source', send: copy([['x-amz-copy-source', '']]), answer: error(400, 'InvalidArgument') },
  {
    name: 'a source that is not encoded well',
    send: copy([['x-amz-copy-source', 'bucket/a%zz']]),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'a source with encoded characters',
    given: [source([], 'a b?c+d%é/\u{1f600}')],
    send: copy([['x-amz-copy-source', 'bucket/{root}/a%20b%3Fc%2Bd%25%C3%A9/%F0%9F%98%80']], target()),
    answer: OK,
    effect: [targetHolds('bar')],
  },
  {
    name: 'an encoded slash in a source',
    given: [source()],
    send: copy([['x-amz-copy-source', 'bucket%2F{root}%2Fsource']], target()),
    answer: OK,
  },
  {
    name: 'the version "null" of a source',
    given: [source()],
    send: copy([['x-amz-copy-source', 'bucket/{root}/source?versionId=null']], target()),
    answer: OK,
  },
  {
    name: 'another version of a source',
    given: [source()],
    send: copy([['x-amz-copy-source', 'bucket/{root}/source?versionId=abc']], target()),
    answer: error(404, 'NoSuchVersion'),
    effect: [TARGET_HOLDS_NOTHING],
  },
  {
    name: 'an unknown directive',
    given: [source()],
    send: copy([SOURCE, ['x-amz-metadata-directive', 'MERGE']], target()),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'a copy does not create an encrypted object',
    given: [source()],
    send: copy([SOURCE, ['x-amz-server-side-encryption', 'aws:kms']], target()),
    answer: error(501, 'NotImplemented'),
    effect: [TARGET_HOLDS_NOTHING],
  },
  {
    name: 'the expected owner of a source',
    given: [source()],
    send: copy([SOURCE, ['x-amz-source-expected-bucket-owner', '111122223333']], target()),
    answer: error(403, 'AccessDenied'),
    effect: [TARGET_HOLDS_NOTHING],
  },
  conditional('a copy if the tag matches', ['x-amz-copy-source-if-match', '{etag}'], true),
  conditional('a copy if another tag matches', ['x-amz-copy-source-if-match', 'ABCORZ'], false),
  conditional('a copy unless the tag matches', ['x-amz-copy-source-if-none-match', '{etag}'], false),
  conditional('a copy unless another tag matches', ['x-amz-copy-source-if-none-match', 'ABCORZ'], true),
  conditional(
    'a copy if modified since a time before',
    ['x-amz-copy-source-if-modified-since', 'Sat, 29 Oct 1994 19:43:31 GMT'],
    true,
  ),
  conditional(
    'a copy if modified since a time after',
    ['x-amz-copy-source-if-modified-since', 'Thu, 29 Jul 2100 19:43:31 GMT'],
    false,
  ),
  conditional(
    'a copy unless modified since a time before',
    ['x-amz-copy-source-if-unmodified-since', 'Sat, 29 Oct 1994 19:43:31 GMT'],
    false,
  ),
  {
    name: 'a copy if nothing is at its target, but something is',
    given: [put('before', [], target()), source()],
    send: copy([SOURCE, ['if-none-match', '*']], target()),
    answer: FAILED,
    effect: [targetHolds('before')],
  },
  {
    name: 'a copy if the target has the tag',
    given: [source(), put('before', [], target())],
    send: copy([SOURCE, ['if-match', '{etag}']], target()),
    answer: OK,
    effect: [targetHolds('bar')],
  },
  {
    name: 'a copy of a directory',
    given: [put('', [], { key: 'd/' })],
    send: copy([['x-amz-copy-source', 'bucket/{root}/d/']], target()),
    answer: error(400, 'InvalidArgument'),
    effect: [HOLDS_NOTHING],
  },
];
