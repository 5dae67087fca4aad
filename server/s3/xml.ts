import { utf8Text } from '../../base/utf8.ts';
import { childText, XmlFault, type XmlNode, xmlRead } from '../../platform/s3-xml.ts';
import { S3Error } from './s3-error.ts';

/** @throws S3Error `MalformedXML` unless the bytes are a document with this root */
export function xmlParse(bytes: Uint8Array, root: string): XmlNode {
  const text = utf8Text(bytes);
  if (text === null) throw malformed('it is not UTF-8');
  try {
    return xmlRead(text, root);
  } catch (error) {
    if (error instanceof XmlFault) throw malformed(error.message);
    throw error;
  }
}

/** @throws S3Error `MalformedXML` if the element is missing */
export function requiredText(node: XmlNode, name: string): string {
  const text = childText(node, name);
  if (text === undefined) throw malformed(`<${node.name}> has no <${name}>`);
  return text;
}

function malformed(why: string): S3Error {
  return new S3Error('MalformedXML', `The XML document is malformed: ${why}`);
}
