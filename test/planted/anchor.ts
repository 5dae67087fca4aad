/**
 * Finds an expression or a statement in a function by its structure, and returns the source with another text in its
 * place: planted bugs are made this way. Layout, comments, types and the names of variables do not matter.
 */
import { stripTypeScriptTypes } from 'node:module';
import { type AnyNode, type Node, parse } from 'acorn';

/** The place of a change, and its replacement. */
export interface Anchor {
  /** `name` of a function or constant, `Class`, or `Class.member`; the whole file if absent. */
  readonly in?: string;
  /**
   * One expression or statement, without types. An identifier that begins with `$` matches any expression, the same one
   * wherever it occurs; everything else matches as written.
   */
  readonly find: string;
  /** The replacement, with the matches of each `$`; an empty text removes the place. */
  readonly replace: string;
}

/** A value of a node's property: a child, a list of them, or a leaf. */
type Part = unknown;

interface Match {
  readonly node: Node;
  /** Source text, by the name that begins with `$`. */
  readonly bindings: ReadonlyMap<string, string>;
}

/** The position of a node is not part of its structure. */
const POSITIONS = new Set(['start', 'end']);

/**
 * @param path names the file in errors
 * @returns the source without types, with the changes
 * @throws Error if the place of a change is missing, or there are several
 */
export function anchoredSource(source: string, anchors: readonly Anchor[], path: string): string {
  return anchors.reduce((text, anchor) => changedSource(text, anchor, path), stripTypeScriptTypes(source));
}

function changedSource(source: string, anchor: Anchor, path: string): string {
  const file = parse(source, { ecmaVersion: 'latest', sourceType: 'module' });
  const scopes = anchor.in === undefined ? [file] : scopesNamed(file, anchor.in, source);
  const pattern = patternOf(anchor.find);
  const found = scopes.flatMap((scope) => matchesIn(scope, pattern, source));
  const [match] = found;
  if (match === undefined || found.length > 1) {
    const place = anchor.in === undefined ? path : `${anchor.in} of ${path}`;
    throw new Error(`"${anchor.find}" occurs ${found.length} times in ${place}, not once`);
  }
  const text = anchor.replace.replace(/\$\w+/g, (name) => match.bindings.get(name) ?? name);
  return source.slice(0, match.node.start) + text + source.slice(match.node.end);
}

/** @returns the only expression or statement of a text; private names need a class around them */
function patternOf(given: string): Node {
  // A statement that begins with a brace would be a block.
  const text = given.startsWith('{') ? `(${given})` : given;
  const source = `class Pattern extends Object { async *pattern() { for (;;) { ${text} } } }`;
  const privates = new Set(text.match(/#\w+/g) ?? []);
  const declared = [...privates].map((name) => `${name};`).join('');
  const file = parse(source.replace('Object {', `Object { ${declared}`), { ecmaVersion: 'latest' });
  const [loop] = nodesOfType(file, 'ForStatement') as unknown as [{ body: { body: readonly Node[] } }];
  const [statement, ...others] = loop.body.body;
  if (statement === undefined || others.length > 0)
    throw new Error(`"${text}" is not one expression or statement`);
  if (statement.type !== 'ExpressionStatement' || text.trimEnd().endsWith(';')) return statement;
  return (statement as unknown as { expression: Node }).expression;
}

function nodesOfType(root: Node, type: string): Node[] {
  const found: Node[] = [];
  walk(root, (node) => {
    if (node.type === type) found.push(node);
    return true;
  });
  return found;
}

/** Calls `visit` for the node and those below it, as long as it returns true. */
function walk(node: Node, visit: (node: Node) => boolean): void {
  if (!visit(node)) return;
  for (const child of childrenOf(node)) walk(child, visit);
}

function childrenOf(node: Node): Node[] {
  return Object.values(node as unknown as Record<string, Part>)
    .flat()
    .filter((part): part is Node => isNode(part));
}

function isNode(part: Part): part is Node {
  return typeof part === 'object' && part !== null && typeof (part as Partial<Node>).type === 'string';
}

/** Functions, constants, classes and members of that name; declarations inside functions are not found by name. */
function scopesNamed(file: Node, name: string, source: string): Node[] {
  const found: Node[] = [];
  const visit = (node: Node, inside: string): void => {
    const own = nameOf(node as AnyNode, source);
    const full = own === null ? inside : inside === '' ? own : `${inside}.${own}`;
    if (own !== null && full === name) found.push(node);
    else if (own === null || name.startsWith(`${full}.`)) {
      for (const child of childrenOf(node)) visit(child, full);
    }
  };
  visit(file, '');
  return found;
}

function nameOf(node: AnyNode, source: string): string | null {
  switch (node.type) {
    case 'FunctionDeclaration':
    case 'ClassDeclaration':
      return node.id?.name ?? null;
    case 'MethodDefinition':
    case 'PropertyDefinition':
      return source.slice(node.key.start, node.key.end);
    case 'VariableDeclarator':
      return node.id.type === 'Identifier' ? node.id.name : null;
    default:
      return null;
  }
}

function matchesIn(scope: Node, pattern: Node, source: string): Match[] {
  const found: Match[] = [];
  walk(scope, (node) => {
    const bindings = new Map<string, string>();
    if (isMatch(pattern, node, bindings, source)) found.push({ node, bindings });
    return true;
  });
  return found;
}

function isMatch(pattern: Part, part: Part, bindings: Map<string, string>, source: string): boolean {
  if (typeof pattern !== 'object' || pattern === null) return pattern === part;
  if (typeof part !== 'object' || part === null) return false;
  if (isHole(pattern) && isNode(part)) {
    const text = source.slice(part.start, part.end);
    const bound = bindings.get(pattern.name) ?? text;
    bindings.set(pattern.name, bound);
    return bound === text;
  }
  if (pattern instanceof RegExp) return String(pattern) === String(part);
  const there = part as Readonly<Record<string, Part>>;
  const wanted = Object.entries(pattern).filter(([key]) => !POSITIONS.has(key));
  return (
    wanted.every(([key, value]) => isMatch(value, there[key], bindings, source)) &&
    (!Array.isArray(pattern) || pattern.length === (part as readonly Part[]).length)
  );
}

/** Whether a node of a pattern matches any expression. */
function isHole(pattern: object): pattern is { readonly name: string } {
  const { type, name } = pattern as { readonly type?: string; readonly name?: string };
  return type === 'Identifier' && name !== undefined && name.startsWith('$');
}
