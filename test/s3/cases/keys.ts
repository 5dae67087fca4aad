import type { ObjectCase } from '../object-case.ts';
import { del, error, GONE, get, head, OK, put } from './requests.ts';

/** Keys that are stored, read and listed as they are. */
const NAMES: readonly string[] = [
  ...[
    ' ',
    '  two  ',
    'plus+plus',
    '%',
    '%41',
    '100%25',
    '"',
    "'",
    '<&>',
    '$',
    '_ _',
    '\\',
    '*?[x]',
    '~',
    ';a=b',
  ],
  ...[
    '#',
    '?versionId=1',
    'a:b',
    '@',
    ',',
    '(1)!',
    '..a',
    'a..',
    '...',
    '-',
    'caf\u00e9',
    'cafe\u0301',
    '世界',
  ],
  ...[
    '\u{1f600}',
    '\u{10ffff}',
    '\ufffd',
    '\u0001',
    '\u001f',
    '\u007f',
    'tab\t',
    'line\nline',
    '\u0085',
    '\u2028',
  ],
  ...['x'.repeat(255), 'a b/c+d/e%f/\u{1f600}'],
];

/** Keys that no file can have, and why. */
const IMPOSSIBLE: readonly (readonly [what: string, key: string, code: string])[] = [
  ['an empty part at the beginning', '/a', 'InvalidArgument'],
  ['an empty part between', 'a//b', 'InvalidArgument'],
  ['an empty part at the end', 'a//', 'InvalidArgument'],
  ['the part "."', 'a/./b', 'InvalidArgument'],
  ['the part ".."', 'a/../b', 'InvalidArgument'],
  ['a zero byte', 'a\0b', 'InvalidArgument'],
  ['a part of more than 255 bytes', 'x'.repeat(256), 'KeyTooLongError'],
  ['a part of more than 255 bytes in UTF-8', '世'.repeat(86), 'KeyTooLongError'],
];

/** What keys mean as paths. */
export const KEYS: readonly ObjectCase[] = [
  ...NAMES.map(
    (name): ObjectCase => ({
      name: `the key ${JSON.stringify(name.length > 40 ? `${name.slice(0, 5)}…` : name)}`,
      given: [put('bar', [], { key: name })],
      send: get([], { key: name }),
      answer: { status: 200, body: 'bar' },
      effect: [
        [del([], { key: name }), { status: 204 }],
        [get([], { key: name }), GONE],
      ],
    }),
  ),
  ...IMPOSSIBLE.flatMap(([what, key, code]): ObjectCase[] => [
    {
      name: `no PUT of a key with ${what}`,
      send: put('bar', [], { key }),
      answer: error(400, code),
    },
    {
      name: `no GET of a key with ${what}`,
      send: get([], { key }),
      answer: GONE,
      effect: [[del([], { key }), { status: 204 }]],
    },
  ]),
  {
    name: 'composed and decomposed characters are two keys',
    given: [put('one', [], { key: 'caf\u00e9' })],
    send: get([], { key: 'cafe\u0301' }),
    answer: GONE,
  },
  {
    name: 'upper and lower case are two keys',
    given: [put('one', [], { key: 'Name' })],
    send: get([], { key: 'name' }),
    answer: GONE,
  },
  {
    name: 'an encoded slash is a slash',
    given: [put('bar', [], { key: 'a/b' })],
    send: get([], { path: '/bucket/{root}%2fa%2Fb' }),
    answer: { status: 200, body: 'bar' },
  },
  {
    name: 'a plus in a path is a plus',
    given: [put('bar', [], { key: 'a+b' })],
    send: get([], { path: '/bucket/{root}/a b'.replace(' ', '+') }),
    answer: { status: 200, body: 'bar' },
    effect: [[get([], { key: 'a b' }), GONE]],
  },
  {
    name: 'a key of 1,024 bytes',
    send: put('bar', [], {
      exactKey: `${'d'.repeat(204)}/${'e'.repeat(204)}/${'f'.repeat(204)}/${'g'.repeat(204)}/${'h'.repeat(204)}`,
    }),
    answer: OK,
  },
  {
    name: 'a key of 1,025 bytes',
    send: put('bar', [], {
      exactKey: `${'d'.repeat(204)}/${'e'.repeat(204)}/${'f'.repeat(204)}/${'g'.repeat(204)}/${'h'.repeat(205)}`,
    }),
    answer: error(400, 'KeyTooLongError'),
  },
  {
    name: 'the folder of unfinished uploads has no objects',
    send: put('bar', [], { exactKey: '.s3-uploads/a' }),
    answer: error(400, 'InvalidArgument'),
    effect: [[get([], { exactKey: '.s3-uploads/a' }), GONE]],
  },
  {
    name: 'a key below an object',
    given: [put('bar', [], { key: 'a' })],
    send: put('soup', [], { key: 'a/b' }),
    answer: error(409, 'ConflictingKey'),
    effect: [[get([], { key: 'a' }), { status: 200, body: 'bar' }]],
  },
  {
    name: 'a key that is the beginning of others',
    given: [put('bar', [], { key: 'a/b' })],
    send: put('soup', [], { key: 'a' }),
    answer: error(409, 'ConflictingKey'),
    effect: [[get([], { key: 'a/b' }), { status: 200, body: 'bar' }]],
  },
  {
    name: 'a directory is no object',
    given: [put('bar', [], { key: 'a/b' })],
    send: get([], { key: 'a' }),
    answer: GONE,
    effect: [
      [get([], { key: 'a/' }), GONE],
      [del([], { key: 'a' }), { status: 204 }],
      [get([], { key: 'a/b' }), { status: 200, body: 'bar' }],
    ],
  },
  {
    name: 'an object is no directory',
    given: [put('bar', [], { key: 'a' })],
    send: get([], { key: 'a/' }),
    answer: GONE,
    effect: [
      [get([], { key: 'a/b' }), GONE],
      [del([], { key: 'a/b' }), { status: 204 }],
      [del([], { key: 'a/' }), { status: 204 }],
      [get([], { key: 'a' }), { status: 200, body: 'bar' }],
    ],
  },
  {
    name: 'a directory that was put is an object',
    given: [put('', [['x-amz-meta-a', 'b']], { key: 'd/' })],
    send: head([], { key: 'd/' }),
    answer: {
      status: 200,
      headers: { 'content-length': '0', etag: '"d41d8cd98f00b204e9800998ecf8427e"', 'x-amz-meta-a': 'b' },
    },
    effect: [
      [del([], { key: 'd/' }), { status: 204 }],
      [head([], { key: 'd/' }), { status: 404 }],
    ],
  },
  {
    name: 'a directory has no contents',
    send: put('bar', [], { key: 'd/' }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'a directory with a body in chunks that is empty',
    send: put('', [], { key: 'd/', sign: { payload: 'STREAMING-UNSIGNED-PAYLOAD-TRAILER', chunks: [] } }),
    answer: OK,
    effect: [[head([], { key: 'd/' }), OK]],
  },
  {
    name: 'a directory under a condition that does not hold',
    given: [put('', [], { key: 'd/' })],
    send: put('', [['if-none-match', '*']], { key: 'd/' }),
    answer: error(412, 'PreconditionFailed'),
  },
  {
    name: 'a directory that has not changed',
    given: [put('', [], { key: 'd/' })],
    send: get([['if-none-match', '"d41d8cd98f00b204e9800998ecf8427e"']], { key: 'd/' }),
    answer: { status: 304, body: '' },
  },
  {
    name: 'a directory that has another tag',
    given: [put('', [], { key: 'd/' })],
    send: get([['if-match', '"0"']], { key: 'd/' }),
    answer: error(412, 'PreconditionFailed'),
  },
  {
    name: 'a range of a directory',
    given: [put('', [], { key: 'd/' })],
    send: get([['range', 'bytes=0-1']], { key: 'd/' }),
    answer: error(416, 'InvalidRange'),
  },
  {
    name: 'a directory under a condition is not deleted',
    given: [put('', [], { key: 'd/' })],
    send: del([['if-match', '"0"']], { key: 'd/' }),
    answer: error(412, 'PreconditionFailed'),
    effect: [[head([], { key: 'd/' }), OK]],
  },
  {
    name: 'a deleted directory stays for the objects in it',
    given: [put('', [], { key: 'd/' }), put('bar', [], { key: 'd/e' })],
    send: del([], { key: 'd/' }),
    answer: { status: 204 },
    effect: [
      [head([], { key: 'd/' }), { status: 404 }],
      [get([], { key: 'd/e' }), { status: 200, body: 'bar' }],
    ],
  },
  {
    name: 'the directories of a key go with the last object in them',
    given: [put('bar', [], { key: 'd/e/f' })],
    send: del([], { key: 'd/e/f' }),
    answer: { status: 204 },
    effect: [
      [put('soup', [], { key: 'd' }), OK],
      [get([], { key: 'd' }), { status: 200, body: 'soup' }],
    ],
  },
  {
    name: 'a directory that was put stays',
    given: [put('', [], { key: 'd/' }), put('bar', [], { key: 'd/e' })],
    send: del([], { key: 'd/e' }),
    answer: { status: 204 },
    effect: [[head([], { key: 'd/' }), OK]],
  },
];
