import type { ObjectCase } from '../object-case.ts';
import type { Header } from '../sign.ts';
import { error, get, HOLDS_NOTHING, head, OK, put } from './requests.ts';

/** "é" as its byte of Latin-1, and as its two bytes of UTF-8, in the characters that HTTP has for bytes. */
const LATIN = 'caf\u00e9';
const UTF8 = 'caf\u00c3\u00a9';

/** Content headers and user metadata. */
export const METADATA: readonly ObjectCase[] = [
  ...(
    [
      ['cache-control', 'public, max-age=14400'],
      ['content-disposition', 'attachment; filename="a b.txt"'],
      ['content-encoding', 'gzip'],
      ['content-encoding', 'deflate, gzip'],
      ['content-language', 'de-AT'],
      ['content-type', 'text/html; charset=utf-8'],
      ['content-type', 'odd'],
      ['expires', 'Thu, 01 Dec 2033 16:00:00 GMT'],
      ['expires', 'not a date'],
    ] satisfies Header[]
  ).map(
    ([name, value]): ObjectCase => ({
      name: `${name}: ${value}`,
      given: [put('bar', [[name, value]])],
      send: head(),
      answer: { status: 200, headers: { [name]: value } },
    }),
  ),
  ...(
    [
      ['gzip, aws-chunked', 'gzip'],
      ['aws-chunked, gzip', 'gzip'],
      ['deflate, gzip,aws-chunked', 'deflate, gzip'],
      ['aws-chunked', null],
      ['aws-chunked, aws-chunked', null],
    ] satisfies (readonly [string, string | null])[]
  ).map(
    ([sent, stored]): ObjectCase => ({
      name: `the encoding of the transfer is none of the contents: ${sent}`,
      given: [put('bar', [['content-encoding', sent]])],
      send: head(),
      answer: { status: 200, headers: { 'content-encoding': stored } },
    }),
  ),
  {
    name: 'an empty type is none',
    given: [put('bar', [['content-type', '']])],
    send: head(),
    answer: { status: 200, headers: { 'content-type': 'binary/octet-stream' } },
  },
  {
    name: 'metadata is returned',
    given: [put('bar', [['x-amz-meta-meta1', 'mymeta']])],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-meta1': 'mymeta' } },
  },
  {
    name: 'metadata may be empty',
    given: [put('bar', [['x-amz-meta-meta1', '']])],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-meta1': '' } },
  },
  {
    name: 'names of metadata are in lower case',
    given: [put('bar', [['X-Amz-Meta-CamelCase', 'Value']])],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-camelcase': 'Value' } },
  },
  {
    name: 'white space around metadata is none of it',
    given: [put('bar', [['x-amz-meta-a', '  two  words  ']])],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-a': 'two  words' } },
  },
  {
    name: 'metadata of one name is joined',
    given: [
      put('bar', [
        ['x-amz-meta-a', '1'],
        ['x-amz-meta-a', '2'],
      ]),
    ],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-a': /^1, ?2$/ } },
  },
  {
    name: 'a byte of Latin-1 in metadata, signed as its character, returns as it was',
    given: [put('bar', [['x-amz-meta-a', LATIN]])],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-a': LATIN } },
  },
  {
    name: 'UTF-8 in metadata, signed as its bytes, returns as it was',
    given: [
      put('bar', [['x-amz-meta-a', 'café']], {
        sign: {
          change: (request) => ({
            ...request,
            headers: request.headers.map(([name, value]) => [name, name === 'x-amz-meta-a' ? UTF8 : value]),
          }),
        },
      }),
    ],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-a': UTF8 } },
  },
  {
    name: 'metadata may be called like a property',
    given: [put('bar', [['x-amz-meta-__proto__', 'own']])],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-__proto__': 'own' } },
  },
  {
    name: 'metadata has 2048 bytes',
    send: put('bar', [['x-amz-meta-a', 'x'.repeat(2047)]]),
    answer: OK,
  },
  {
    name: 'metadata has no more than 2048 bytes',
    send: put('bar', [['x-amz-meta-a', 'x'.repeat(2048)]]),
    answer: error(400, 'MetadataTooLarge'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a PUT replaces metadata',
    given: [put('bar', [['x-amz-meta-meta1', 'bar']]), put('bar')],
    send: get(),
    answer: { status: 200, headers: { 'x-amz-meta-meta1': null } },
  },
  {
    name: 'a query replaces the headers of an answer',
    given: [put('bar', [['content-type', 'text/plain']])],
    send: get([], {
      query: [
        ['response-cache-control', 'no-cache'],
        ['response-content-disposition', 'bla'],
        ['response-content-encoding', 'aaa'],
        ['response-content-language', 'esperanto'],
        ['response-content-type', 'foo/bar'],
        ['response-expires', 'Thu, 01 Jan 1970 00:02:03 GMT'],
      ],
    }),
    answer: {
      status: 200,
      headers: {
        'cache-control': 'no-cache',
        'content-disposition': 'bla',
        'content-encoding': 'aaa',
        'content-language': 'esperanto',
        'content-type': 'foo/bar',
        expires: 'Thu, 01 Jan 1970 00:02:03 GMT',
      },
      body: 'bar',
    },
    effect: [[head(), { status: 200, headers: { 'content-type': 'text/plain', 'cache-control': null } }]],
  },
  {
    name: 'a query adds no line to the head of an answer',
    given: [put('bar')],
    send: get([], { query: 'response-content-type=a%0d%0aset-cookie:%20b' }),
    answer: { ...error(400, 'InvalidArgument'), headers: { 'set-cookie': null } },
  },
  {
    name: 'a query replaces headers by other characters, too',
    given: [put('bar')],
    send: get([], { query: [['response-content-disposition', 'filename=caf\u00e9 \u4e16']] }),
    answer: {
      status: 200,
      headers: { 'content-disposition': Buffer.from('filename=café 世').toString('latin1') },
    },
  },
];
