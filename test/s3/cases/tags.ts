import type { ObjectCase, Sent } from '../object-case.ts';
import type { Header } from '../sign.ts';
import { del, error, get, HOLDS_NOTHING, head, OK, put } from './requests.ts';

function tagging(pairs: readonly Header[]): string {
  const tags = pairs.map(([key, value]) => `<Tag><Key>${key}</Key><Value>${value}</Value></Tag>`);
  return `<Tagging xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><TagSet>${tags.join('')}</TagSet></Tagging>`;
}

function numbered(count: number): Header[] {
  return Array.from({ length: count }, (_, index) => [String(index), String(index)] as const);
}

const TAGS: Sent = { query: 'tagging' };
const NO_TAGS = { status: 200, body: /<TagSet><\/TagSet>/ };

function putTags(document: string): Sent {
  return put(document, [], TAGS);
}

/** Tags of objects, and their attributes. */
export const TAGGING: readonly ObjectCase[] = [
  {
    name: 'tags are set and returned',
    given: [put('bar'), putTags(tagging(numbered(2)))],
    send: get([], TAGS),
    answer: {
      status: 200,
      body: /<TagSet><Tag><Key>0<\/Key><Value>0<\/Value><\/Tag><Tag><Key>1<\/Key><Value>1<\/Value><\/Tag><\/TagSet>/,
    },
    effect: [[head(), { status: 200, headers: { 'x-amz-tagging-count': '2', etag: '{etag}' } }]],
  },
  { name: 'an object without tags', given: [put('bar')], send: get([], TAGS), answer: NO_TAGS },
  { name: 'ten tags', given: [put('bar')], send: putTags(tagging(numbered(10))), answer: OK },
  {
    name: 'no more than ten tags',
    given: [put('bar')],
    send: putTags(tagging(numbered(11))),
    answer: error(400, 'InvalidTag'),
    effect: [[get([], TAGS), NO_TAGS]],
  },
  {
    name: 'a key of 128 and a value of 256 characters',
    given: [put('bar')],
    send: putTags(tagging([['k'.repeat(128), 'v'.repeat(256)]])),
    answer: OK,
  },
  {
    name: 'a key of a tag that is too long',
    given: [put('bar')],
    send: putTags(tagging([['k'.repeat(129), 'v']])),
    answer: error(400, 'InvalidTag'),
  },
  {
    name: 'a value of a tag that is too long',
    given: [put('bar')],
    send: putTags(tagging([['k', 'v'.repeat(257)]])),
    answer: error(400, 'InvalidTag'),
  },
  {
    name: 'a tag without a key',
    given: [put('bar')],
    send: putTags(tagging([['', 'v']])),
    answer: error(400, 'InvalidTag'),
  },
  {
    name: 'two tags of one key',
    given: [put('bar')],
    send: putTags(
      tagging([
        ['k', '1'],
        ['k', '2'],
      ]),
    ),
    answer: error(400, 'InvalidTag'),
  },
  {
    name: 'a tag called like a property',
    given: [put('bar'), putTags(tagging([['__proto__', 'own']]))],
    send: get([], TAGS),
    answer: { status: 200, body: /<Key>__proto__<\/Key><Value>own<\/Value>/ },
  },
  {
    name: 'tags of all characters',
    given: [put('bar'), putTags(tagging([['&lt;k&gt;', '\u{1f600} &amp; &quot;v&quot;']]))],
    send: get([], TAGS),
    answer: { status: 200, body: /<Key>&lt;k&gt;<\/Key><Value>\u{1f600} &amp; &quot;v&quot;<\/Value>/u },
  },
  {
    name: 'later tags replace earlier ones',
    given: [put('bar'), putTags(tagging(numbered(2))), putTags(tagging([['key3', 'val3']]))],
    send: get([], TAGS),
    answer: { status: 200, body: /<TagSet><Tag><Key>key3<\/Key><Value>val3<\/Value><\/Tag><\/TagSet>/ },
  },
  {
    name: 'tags are removed',
    given: [put('bar'), putTags(tagging(numbered(2)))],
    send: del([], TAGS),
    answer: { status: 204 },
    effect: [
      [get([], TAGS), NO_TAGS],
      [get(), { status: 200, headers: { etag: '{etag}' }, body: 'bar' }],
    ],
  },
  { name: 'tags of a missing key', send: get([], TAGS), answer: error(404, 'NoSuchKey') },
  { name: 'no tags of a missing key are set', send: putTags(tagging([])), answer: error(404, 'NoSuchKey') },
  {
    name: 'tags of another version',
    given: [put('bar')],
    send: get([], { query: 'tagging&versionId=abc' }),
    answer: error(404, 'NoSuchVersion'),
  },
  {
    name: 'tags in a header',
    given: [put('bar', [['x-amz-tagging', 'foo=bar&bar&caf%C3%A9+x=%26']])],
    send: get([], TAGS),
    answer: {
      status: 200,
      body: /<Key>bar<\/Key><Value><\/Value>.*<Key>café x<\/Key><Value>&amp;<.*<Key>foo<\/Key><Value>bar</,
    },
  },
  {
    name: 'too many tags in a header',
    send: put('bar', [
      [
        'x-amz-tagging',
        numbered(11)
          .map((pair) => pair.join('='))
          .join('&'),
      ],
    ]),
    answer: error(400, 'InvalidTag'),
    effect: [HOLDS_NOTHING],
  },
  {
    name: 'a PUT replaces tags',
    given: [put('bar', [['x-amz-tagging', 'a=b']]), put('bar')],
    send: get([], TAGS),
    answer: NO_TAGS,
  },
  ...(
    [
      ['no document', ''],
      ['a document of another root', '<TagSet/>'],
      ['a document that does not end', '<Tagging><TagSet>'],
      ['a document with a type', '<!DOCTYPE t [<!ENTITY a "b">]><Tagging><TagSet/></Tagging>'],
      ['a document with an entity', '<Tagging><TagSet><Tag><Key>&a;</Key><Value/></Tag></TagSet></Tagging>'],
      ['a tag without a value', '<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>'],
      ['a document that is not UTF-8', '\u00ff'],
      ['a document of many levels', `${'<a>'.repeat(1000)}${'</a>'.repeat(1000)}`],
      ['no set of tags', '<Tagging/>'],
    ] satisfies (readonly [string, string])[]
  ).map(
    ([what, document]): ObjectCase => ({
      name: `tags: ${what}`,
      given: [put('bar')],
      send: put(Buffer.from(document, 'latin1'), [], TAGS),
      answer: error(400, 'MalformedXML'),
      effect: [[get([], TAGS), NO_TAGS]],
    }),
  ),
  {
    name: 'a document of tags that is too long',
    given: [put('bar')],
    send: put(Buffer.alloc(200_000, ' '), [], TAGS),
    answer: error(400, 'EntityTooLarge'),
  },
  {
    name: 'a document of tags of another digest',
    given: [put('bar')],
    send: put(tagging(numbered(1)), [['content-md5', 'rL0Y20xC+Fzt72VPzMSk2A==']], TAGS),
    answer: error(400, 'BadDigest'),
    effect: [[get([], TAGS), NO_TAGS]],
  },
  {
    name: 'attributes of an object',
    given: [put('bar', [['x-amz-checksum-crc32', 'dv+Mqg==']])],
    send: get([['x-amz-object-attributes', 'ETag,Checksum,ObjectParts,StorageClass,ObjectSize']], {
      query: 'attributes',
    }),
    answer: {
      status: 200,
      headers: { 'last-modified': /GMT$/ },
      body: /<ETag>37b51d194a7513e45b56f6524f2d51f2<\/ETag><Checksum><ChecksumCRC32>dv\+Mqg==<\/ChecksumCRC32>.*<StorageClass>STANDARD<\/StorageClass><ObjectSize>3<\/ObjectSize>/,
    },
  },
  {
    name: 'only the attributes that are asked for',
    given: [put('bar')],
    send: get([['x-amz-object-attributes', 'ObjectSize']], { query: 'attributes' }),
    answer: {
      status: 200,
      body: /^<\?xml[^>]*>\s*<GetObjectAttributesResponse[^>]*><ObjectSize>3<\/ObjectSize><\/Get/,
    },
  },
  {
    name: 'attributes in several headers',
    given: [put('bar')],
    send: get(
      [
        ['x-amz-object-attributes', 'ObjectSize'],
        ['x-amz-object-attributes', 'StorageClass'],
      ],
      { query: 'attributes' },
    ),
    answer: { status: 200, body: /<StorageClass>STANDARD<\/StorageClass><ObjectSize>3</ },
  },
  {
    name: 'no attributes',
    given: [put('bar')],
    send: get([], { query: 'attributes' }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'an unknown attribute',
    given: [put('bar')],
    send: get([['x-amz-object-attributes', 'ETag,Color']], { query: 'attributes' }),
    answer: error(400, 'InvalidArgument'),
  },
  {
    name: 'attributes of a missing key',
    send: get([['x-amz-object-attributes', 'ETag']], { query: 'attributes' }),
    answer: error(404, 'NoSuchKey'),
  },
];
