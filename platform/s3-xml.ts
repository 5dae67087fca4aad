import { SaxesParser } from 'saxes';

/** Documents of S3, as its servers and clients write and read them. */
const NAMESPACE = 'http://s3.amazonaws.com/doc/2006-03-01/';

/** Contents of an element: text, or elements in their order. A list stands for several elements of its name. */
export type XmlContents = string | number | boolean | XmlElements | XmlAttributed;
export interface XmlElements {
  readonly [name: string]: XmlContents | readonly XmlContents[] | undefined;
}

/** An element with attributes. */
export class XmlAttributed {
  readonly attributes: string;
  readonly contents: XmlContents;

  /** @param attributes as they stand in the tag */
  constructor(attributes: string, contents: XmlContents) {
    this.attributes = attributes;
    this.contents = contents;
  }
}

export const XML_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n';

export function xmlDocument(root: string, contents: XmlContents): string {
  return XML_DECLARATION + xmlRoot(root, contents);
}

export function xmlRoot(root: string, contents: XmlContents): string {
  return `<${root} xmlns="${NAMESPACE}">${xmlText(contents)}</${root}>`;
}

/** The error's document, which has no namespace. */
export function xmlError(fields: XmlElements): string {
  return `${XML_DECLARATION}<Error>${xmlText(fields)}</Error>`;
}

function xmlText(contents: XmlContents): string {
  if (contents instanceof XmlAttributed) return xmlText(contents.contents);
  if (typeof contents !== 'object') return escaped(String(contents));
  let text = '';
  for (const [name, value] of Object.entries(contents)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? (value as readonly XmlContents[]) : [value as XmlContents]) {
      const attributes = one instanceof XmlAttributed ? ` ${one.attributes}` : '';
      text += `<${name}${attributes}>${xmlText(one)}</${name}>`;
    }
  }
  return text;
}

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Characters that XML 1.0 forbids are written as references, as S3 does: `encoding-type=url` avoids them. */
function escaped(text: string): string {
  return text.replaceAll(/[&<>"\p{Cc}\ufffe\uffff]/gu, (character) =>
    character === '\t' || character === '\n'
      ? character
      : (ESCAPES[character] ?? `&#x${character.codePointAt(0)?.toString(16)};`),
  );
}

/** An element that was read. */
export interface XmlNode {
  readonly name: string;
  readonly text: string;
  readonly children: readonly XmlNode[];
}

interface OpenNode extends XmlNode {
  text: string;
  readonly children: OpenNode[];
}

const DEPTH_MAX = 16;

/** A text that is not the wanted document: its message completes `The XML document is malformed: `. */
export class XmlFault extends Error {
  override readonly name = 'XmlFault';
}

/** @throws XmlFault unless the text is a document with one of these roots */
export function xmlRead(text: string, ...roots: readonly string[]): XmlNode {
  const parser = new SaxesParser();
  const open: OpenNode[] = [{ name: '', text: '', children: [] }];
  parser.on('error', (error) => {
    throw new XmlFault(error.message);
  });
  parser.on('doctype', () => {
    throw new XmlFault('it has a document type, whose entities are not read');
  });
  parser.on('opentag', ({ name }) => {
    if (open.length > DEPTH_MAX) throw new XmlFault('its elements are too deep');
    const node = { name: name.replace(/^.*:/, ''), text: '', children: [] };
    open.at(-1)?.children.push(node);
    open.push(node);
  });
  parser.on('closetag', () => open.pop());
  const addText = (more: string): void => {
    const node = open.at(-1);
    if (node !== undefined) node.text += more;
  };
  parser.on('text', addText);
  parser.on('cdata', addText);
  parser.write(text).close();
  const found = open[0]?.children[0];
  if (found !== undefined && roots.includes(found.name)) return found;
  throw new XmlFault(`its root is not <${roots.join('> or <')}>`);
}

export function childText({ children }: XmlNode, name: string): string | undefined {
  return children.find((one) => one.name === name)?.text;
}

export function childrenOf({ children }: XmlNode, name: string): readonly XmlNode[] {
  return children.filter((one) => one.name === name);
}
