import { childrenOf, type XmlElements, type XmlNode } from '../../platform/s3-xml.ts';
import { keyCompare } from './keys.ts';
import { S3Error } from './s3-error.ts';
import { requiredText } from './xml.ts';

export type Tags = Readonly<Record<string, string>>;

const TAGS_MAX = 10;
const KEY_LENGTH_MAX = 128;
const VALUE_LENGTH_MAX = 256;

/** The tags of the header `x-amz-tagging`. @throws S3Error `InvalidArgument`, `InvalidTag` */
export function tagsOfHeader(text: string | undefined): Tags {
  if (text === undefined || text === '') return {};
  return checked([...new URLSearchParams(text)], TAGS_MAX);
}

/** The tags in a `Tagging` document. @throws S3Error `MalformedXML`, `InvalidTag` */
export function tagsOfXml(document: XmlNode, countMax: number = TAGS_MAX): Tags {
  const [set] = childrenOf(document, 'TagSet');
  if (set === undefined) throw new S3Error('MalformedXML', 'The document has no <TagSet>');
  const tags = childrenOf(set, 'Tag');
  return checked(
    tags.map((tag) => [requiredText(tag, 'Key'), requiredText(tag, 'Value')] as const),
    countMax,
  );
}

/** In the order of their keys, in which clients compare them. */
export function tagsXml(tags: Tags): XmlElements {
  const sorted = Object.entries(tags).toSorted(([one], [other]) => keyCompare(one, other));
  return { TagSet: { Tag: sorted.map(([Key, Value]) => ({ Key, Value })) } };
}

function checked(pairs: readonly (readonly [string, string])[], countMax: number): Tags {
  if (pairs.length > countMax) throw new S3Error('InvalidTag', `There may be at most ${countMax} tags`);
  const tags = new Map(pairs);
  if (tags.size < pairs.length) throw new S3Error('InvalidTag', 'Two tags have the same key');
  for (const [key, value] of tags)
    if (key === '' || key.length > KEY_LENGTH_MAX || value.length > VALUE_LENGTH_MAX)
      throw new S3Error(
        'InvalidTag',
        `A tag's key has 1 to ${KEY_LENGTH_MAX} characters, its value at most ${VALUE_LENGTH_MAX}`,
      );
  return Object.fromEntries(tags);
}
