import type { ObjectCase } from '../object-case.ts';
import { type Header, STREAMED, STREAMED_TRAILER, STREAMED_UNSIGNED, UNSIGNED } from '../sign.ts';
import { error, get, HOLDS_NOTHING, head, holds, OK, put } from './requests.ts';

/** 1,024 times "A", whose checksums other programs have computed. */
const BODY = 'A'.repeat(1024);
const CHECKSUMS: readonly Header[] = [
  ['x-amz-checksum-crc32', 'tzf7Gg=='],
  ['x-amz-checksum-crc32c', '9mB6kg=='],
  ['x-amz-checksum-crc64nvme', 'Qeh8oXvGiSo='],
  ['x-amz-checksum-sha1', 'dGw/TShsUx4GXor3bgrAhogxxrQ='],
  ['x-amz-checksum-sha256', 'arcu6553sHVAiX4MjW0j7I7vD4w6R+Gz9Ok0Q9lTa+0='],
];
/** The check value of each algorithm, of other contents. */
const OTHERS: Readonly<Record<string, string>> = {
  'x-amz-checksum-crc32': 'y/Q5Jg==',
  'x-amz-checksum-crc32c': '4waSgw==',
  'x-amz-checksum-crc64nvme': 'rosUhgp5mIg=',
  'x-amz-checksum-sha1': '98O8HYCOBHMq32eZZczDTKeuNEE=',
  'x-amz-checksum-sha256': 'FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=',
};
const MD5 = '1HsSe8LeLWh93ILaw1TEFQ==';
const MODE: Header = ['x-amz-checksum-mode', 'ENABLED'];

function otherOf(name: string): string {
  return OTHERS[name] ?? '';
}

/** Digests of contents in headers. */
export const DIGESTS: readonly ObjectCase[] = [
  ...CHECKSUMS.flatMap(([name, value]): ObjectCase[] => [
    {
      name: `${name} is checked and returned`,
      send: put(BODY, [[name, value]]),
      answer: { status: 200, headers: { [name]: value, 'x-amz-checksum-type': 'FULL_OBJECT' } },
      effect: [
        [head([MODE]), { status: 200, headers: { [name]: value } }],
        [get([MODE]), { status: 200, headers: { [name]: value }, body: BODY }],
        [head(), { status: 200, headers: { [name]: null } }],
        [get([MODE, ['range', 'bytes=0-1']]), { status: 206, headers: { [name]: null } }],
        [
          get([MODE, ['if-none-match', '*']]),
          { status: 304, headers: { [name]: null, 'x-amz-checksum-type': null } },
        ],
      ],
    },
    {
      name: `a wrong ${name} is refused`,
      given: [put('before')],
      send: put(BODY, [[name, otherOf(name)]]),
      answer: error(400, 'BadDigest'),
      effect: [holds('before')],
    },
    {
      name: `a malformed ${name} is that of no contents`,
      send: put(BODY, [[name, 'bad']]),
      answer: error(400, 'BadDigest'),
      effect: [HOLDS_NOTHING],
    },
    {
      name: `${name} in a trailer is checked and returned`,
      send: put(BODY, [], {
        sign: { payload: STREAMED_UNSIGNED, chunks: [1000, 24], trailers: [[name, value]] },
      }),
      answer: { status: 200, headers: { [name]: value } },
      effect: [holds(BODY), [head([MODE]), { status: 200, headers: { [name]: value } }]],
    },
    {
      name: `a wrong ${name} in a trailer is refused`,
      send: put(BODY, [], {
        sign: { payload: STREAMED_UNSIGNED, chunks: [1024], trailers: [[name, otherOf(name)]] },
      }),
      answer: error(400, 'BadDigest'),
      effect: [HOLDS_NOTHING],
    },
  ]),
  {
    name: 'a checksum is computed for its algorithm alone',
    send: put(BODY, [['x-amz-sdk-checksum-algorithm', 'SHA256']]),
    answer: { status: 200, headers: { 'x-amz-checksum-sha256': CHECKSUMS[4]?.[1] ?? '' } },
  },
  {
    name: 'an unknown algorithm',
    send: put(BODY, [['x-amz-sdk-checksum-algorithm', 'MD6']]),
    answer: error(400, 'InvalidRequest'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'two checksums',
    send: put(BODY, [CHECKSUMS[0] as Header, CHECKSUMS[1] as Header]),
    answer: error(400, 'InvalidRequest'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'Content-MD5 is checked',
    send: put(BODY, [['content-md5', MD5]]),
    answer: OK,
    effect: [holds(BODY)],
  },
  {
    name: 'a wrong Content-MD5',
    given: [put('before')],
    send: put(BODY, [['content-md5', 'rL0Y20xC+Fzt72VPzMSk2A==']]),
    answer: error(400, 'BadDigest'),
    effect: [holds('before')],
  },
  {
    name: 'a short Content-MD5',
    send: put(BODY, [['content-md5', 'YWJyYWNhZGFicmE=']]),
    answer: error(400, 'InvalidDigest'),
  },
  {
    name: 'an empty Content-MD5',
    send: put(BODY, [['content-md5', '']]),
    answer: error(400, 'InvalidDigest'),
  },
  {
    name: 'a malformed Content-MD5',
    send: put(BODY, [['content-md5', 'AWS4 HAHAHA']]),
    answer: error(400, 'InvalidDigest'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'the signed digest of another body',
    given: [put('before')],
    send: put(BODY, [], {
      sign: { change: (request) => ({ ...request, body: Buffer.from('B'.repeat(1024)) }) },
    }),
    answer: error(400, 'XAmzContentSHA256Mismatch'),
    effect: [holds('before')],
  },
  {
    name: 'the signed digest of a longer body',
    send: put('bar', [], {
      sign: { change: (request) => ({ ...request, body: Buffer.from('ba') }) },
    }),
    answer: error(400, 'XAmzContentSHA256Mismatch'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a body that is not signed',
    send: put(BODY, [], { sign: { payload: UNSIGNED } }),
    answer: OK,
    effect: [holds(BODY)],
  },
  {
    name: 'a signed digest that is none',
    send: put(BODY, [], { sign: { payload: 'abc' } }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'chunks that are signed by a curve',
    send: put(BODY, [], { sign: { payload: 'STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD' } }),
    answer: error(501, 'NotImplemented'),
  },
];

const CRC32: readonly Header[] = [CHECKSUMS[0] as Header];
const INCOMPLETE = error(400, 'IncompleteBody');
const UNFIT = error(403, 'SignatureDoesNotMatch');

/** Changes the text of an encoded body. */
function edited(edit: (text: string) => string): NonNullable<ReturnType<typeof put>['sign']> {
  return {
    change: (request) => ({ ...request, body: Buffer.from(edit(request.body.toString('latin1')), 'latin1') }),
  };
}

function chunked(
  payload: string,
  chunks: readonly number[],
  edit: ((text: string) => string) | null = null,
  trailers: readonly Header[] = [],
  headers: readonly Header[] = [],
): ReturnType<typeof put> {
  const change = edit === null ? {} : edited(edit);
  return put(BODY, headers, { sign: { payload, chunks, trailers, ...change } });
}

/** Bodies as aws-chunked. */
export const CHUNKS: readonly ObjectCase[] = [
  { name: 'signed chunks', send: chunked(STREAMED, [1000, 24]), answer: OK, effect: [holds(BODY)] },
  {
    name: 'chunks of single bytes',
    send: chunked(STREAMED, [1, 1, 1, 1021]),
    answer: OK,
    effect: [holds(BODY)],
  },
  {
    name: 'signed chunks of nothing',
    send: put('', [], { sign: { payload: STREAMED, chunks: [] } }),
    answer: OK,
    effect: [holds('')],
  },
  {
    name: 'signed chunks and trailers',
    send: chunked(STREAMED_TRAILER, [1024], null, CRC32),
    answer: { status: 200, headers: { 'x-amz-checksum-crc32': CRC32[0]?.[1] ?? '' } },
    effect: [holds(BODY)],
  },
  {
    name: 'chunks without signatures and without trailers',
    send: chunked(STREAMED_UNSIGNED, [1024]),
    answer: OK,
    effect: [holds(BODY)],
  },
  {
    name: 'sizes of chunks in upper case, with zeros before',
    send: chunked(STREAMED_UNSIGNED, [30, 994], (text) => text.replace('1e\r\n', '0001E\r\n')),
    answer: OK,
    effect: [holds(BODY)],
  },
  {
    name: 'an extension of a chunk that is not known',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('400\r\n', '400;a=b\r\n')),
    answer: OK,
    effect: [holds(BODY)],
  },
  {
    name: 'trailers with spaces and in upper case',
    send: chunked(
      STREAMED_UNSIGNED,
      [1024],
      (text) => text.replace('x-amz-checksum-crc32:', 'X-Amz-Checksum-CRC32 : '),
      CRC32,
    ),
    answer: OK,
  },
  {
    name: 'a wrong signature of a chunk',
    given: [put('before')],
    send: chunked(STREAMED, [1000, 24], (text) => text.replace(/(18;chunk-signature=)./, '$1g')),
    answer: UNFIT,
    effect: [holds('before')],
  },
  {
    name: 'a wrong signature of the last chunk',
    send: chunked(STREAMED, [1024], (text) => text.replace(/(\r\n0;chunk-signature=)./, '$1g')),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a chunk without its signature',
    send: chunked(STREAMED, [1024], (text) => text.replace(/^400;chunk-signature=\w+/, '400')),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'other data than signed',
    send: chunked(STREAMED, [1024], (text) => text.replace('AAAA', 'AABA')),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'chunks in another order',
    send: chunked(STREAMED, [512, 512], (text) => {
      const [first = '', second = '', ...last] = text.split(/(?=200;chunk)|(?<=A\r\n)(?=0;chunk)/);
      return [second, first, ...last].join('');
    }),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a chunk is missing',
    send: chunked(STREAMED, [512, 512], (text) => text.replace(/^200;.*?\r\nA+\r\n/s, '')),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'the last chunk is missing',
    send: chunked(STREAMED, [1024], (text) => text.replace(/0;chunk.*$/s, '')),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a body that ends within a chunk',
    send: chunked(STREAMED, [1024], (text) => text.slice(0, 500)),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a body that ends within the head of a chunk',
    send: chunked(STREAMED, [1024], (text) => text.slice(0, 20)),
    answer: INCOMPLETE,
  },
  {
    name: 'an empty body instead of chunks',
    send: chunked(STREAMED, [1024], () => ''),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a chunk that is longer than it says',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('400\r\n', '3ff\r\n')),
    answer: INCOMPLETE,
  },
  {
    name: 'a chunk that is shorter than it says',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('400\r\n', '401\r\n')),
    answer: INCOMPLETE,
  },
  {
    name: 'a size that is no number',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('400\r\n', '4x0\r\n')),
    answer: INCOMPLETE,
  },
  {
    name: 'a negative size',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('400\r\n', '-400\r\n')),
    answer: INCOMPLETE,
  },
  {
    name: 'a huge size',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('400\r\n', 'ffffffffffffffff\r\n')),
    answer: INCOMPLETE,
  },
  {
    name: 'a line that does not end',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => `400;${'a'.repeat(9000)}${text}`),
    answer: INCOMPLETE,
  },
  {
    name: 'lines that end without a carriage return',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replaceAll('\r', '')),
    answer: INCOMPLETE,
  },
  {
    name: 'bytes after the trailers',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => `${text}more`),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'more data than announced',
    send: chunked(STREAMED, [1024], null, [], [['x-amz-decoded-content-length', '1000']]),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'less data than announced',
    send: chunked(STREAMED, [1024], null, [], [['x-amz-decoded-content-length', '2000']]),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a decoded length that is no number',
    send: chunked(STREAMED, [1024], null, [], [['x-amz-decoded-content-length', '1e3']]),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'chunks without a decoded length',
    send: put(BODY, [], { sign: { payload: STREAMED } }),
    answer: error(411, 'MissingContentLength'),
  },
  {
    name: 'an announced trailer is missing',
    send: chunked(
      STREAMED_UNSIGNED,
      [1024],
      (text) => text.replace(/x-amz-checksum.*\r\n\r\n$/, '\r\n'),
      CRC32,
    ),
    answer: error(400, 'MalformedTrailerError'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a trailer that was not announced',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) =>
      text.replace(/\r\n$/, `${CRC32[0]?.join(':')}\r\n\r\n`),
    ),
    answer: error(400, 'MalformedTrailerError'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a trailer without a colon',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace('crc32:', 'crc32'), CRC32),
    answer: error(400, 'MalformedTrailerError'),
  },
  {
    name: 'too many trailers',
    send: chunked(STREAMED_UNSIGNED, [1024], (text) => text.replace(/\r\n$/, `${'a:b\r\n'.repeat(100)}\r\n`)),
    answer: error(400, 'MalformedTrailerError'),
  },
  {
    name: 'signed trailers without their signature',
    send: chunked(
      STREAMED_TRAILER,
      [1024],
      (text) => text.replace(/x-amz-trailer-sig.*\r\n\r\n$/, '\r\n'),
      CRC32,
    ),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a wrong signature of trailers',
    send: chunked(STREAMED_TRAILER, [1024], (text) => text.replace('signature:', 'signature:0'), CRC32),
    answer: UNFIT,
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a body that is no chunks',
    send: chunked(STREAMED, [1024], () => BODY),
    answer: INCOMPLETE,
    effect: [HOLDS_NOTHING],
  },
];
