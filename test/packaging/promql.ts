import { parser } from '@prometheus-io/lezer-promql';

/** What an expression uses: names of metrics, and the labels that it matches or groups by. */
export interface Selected {
  readonly name: string;
  readonly matchers: readonly { readonly label: string; readonly op: string; readonly value: string }[];
}

export interface Expression {
  readonly selectors: readonly Selected[];
  readonly groupings: readonly string[];
}

/**
 * Parses an expression of Prometheus's query language with its own grammar.
 * @throws Error if it is invalid
 */
export function promqlRead(text: string): Expression {
  const selectors: { name: string; matchers: { label: string; op: string; value: string }[] }[] = [];
  const groupings: string[] = [];
  let within: 'grouping' | 'matcher' = 'grouping';
  let label = '';
  let op = '';
  parser.parse(text).iterate({
    enter(node) {
      const words = text.slice(node.from, node.to);
      if (node.type.isError) throw new Error(`${text}: not understood at ${node.from}, near "${words}"`);
      const last = selectors.at(-1);
      if (node.name === 'VectorSelector') selectors.push({ name: '', matchers: [] });
      else if (node.name === 'Identifier' && last !== undefined) last.name = words;
      else if (node.name === 'GroupingLabels') within = 'grouping';
      else if (node.name === 'UnquotedLabelMatcher') within = 'matcher';
      else if (node.name === 'LabelName' && within === 'grouping') groupings.push(words);
      else if (node.name === 'LabelName') label = words;
      else if (node.name === 'MatchOp') op = words;
      else if (node.name === 'StringLiteral') last?.matchers.push({ label, op, value: words.slice(1, -1) });
    },
  });
  return { selectors, groupings };
}

/** Families of metrics in the text format, each with its type and its series' labels. */
export interface Family {
  readonly type: string;
  readonly help: string;
  readonly series: ReadonlyMap<string, string>[];
}

const SERIES = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
/** A mean of no values is no number. */
const SAMPLE = /^(?:[+-]?[0-9.]+(?:e[+-]?[0-9]+)?|[+-]?inf|nan)$/i;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)/gy;

/** @throws Error if a line is neither comment nor sample, or a sample belongs to no family */
export function metricsRead(text: string): ReadonlyMap<string, Family> {
  const families = new Map<string, { type: string; help: string; series: Map<string, string>[] }>();
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const [, what, name, rest] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (what !== undefined && name !== undefined && rest !== undefined) {
      const family = families.get(name) ?? { type: '', help: '', series: [] };
      if (what === 'TYPE') family.type = rest;
      else family.help = rest;
      families.set(name, family);
      continue;
    }
    const [, sample = '', labels = '', value = ''] = SERIES.exec(line) ?? [];
    const family = families.get(sample) ?? families.get(sample.replace(/_(?:bucket|sum|count)$/, ''));
    if (family === undefined || !SAMPLE.test(value)) throw new Error(`No sample of a metric: ${line}`);
    const read = [...labels.matchAll(LABEL)];
    if (read.reduce((length, [pair]) => length + pair.length, 0) !== labels.length)
      throw new Error(`Labels that cannot be read: ${line}`);
    family.series.push(
      new Map([['', sample], ...read.map(([, key, text]) => [key ?? '', text ?? ''] as const)]),
    );
  }
  return families;
}
