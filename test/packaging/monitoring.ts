import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { type Family, metricsRead, promqlRead } from './promql.ts';

export const RULES = fileURLToPath(new URL('../../packaging/prometheus/alerts.yml', import.meta.url));
const DASHBOARD = fileURLToPath(new URL('../../packaging/grafana/dashboard.json', import.meta.url));
const MIRROR_RULES = new URL('../../packaging/prometheus/mirror-alerts.yml', import.meta.url);
const ROOT = new URL('../../', import.meta.url);

/** Labels that Prometheus itself adds to each series. */
const SCRAPED = ['instance', 'job'];
/** Metrics of Prometheus itself. */
const OF_PROMETHEUS = ['up'];

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook: string };
}

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string; readonly legendFormat: string }[];
}

export function alertRules(): readonly Rule[] {
  return rulesOf(RULES);
}

/** Those for the metrics of mirrors, which no server exports. */
export function mirrorRules(): readonly Rule[] {
  return rulesOf(MIRROR_RULES);
}

function rulesOf(file: string | URL): readonly Rule[] {
  const { groups } = parse(readFileSync(file, 'utf8')) as { groups: { rules: Rule[] }[] };
  return groups.flatMap(({ rules }) => rules);
}

export function dashboardPanels(): readonly Panel[] {
  return (JSON.parse(readFileSync(DASHBOARD, 'utf8')) as { panels: Panel[] }).panels;
}

/** Label placeholders in a text: `{{ $labels.peer }}` of a rule, `{{peer}}` of a legend. */
function labelsNamed(text: string): string[] {
  return [...text.matchAll(/\{\{\s*(?:\$labels\.)?([a-z_]+)[^}]*\}\}/g)].map(([, label]) => label ?? '');
}

/** Asserts that the metrics of an expression are in the output of servers. */
export function assertAnswered(
  expression: string,
  families: ReadonlyMap<string, Family>,
  shown: string,
): void {
  // Grafana replaces these.
  const text = expression.replaceAll('$__rate_interval', '1m').replaceAll('$instance', '.*');
  const { selectors, groupings } = promqlRead(text);
  assert.ok(selectors.length > 0, `${expression}: it uses no metric`);
  const known = new Set(SCRAPED);
  for (const { name, matchers } of selectors) {
    if (OF_PROMETHEUS.includes(name)) continue;
    const family = families.get(name) ?? families.get(name.replace(/_(?:bucket|sum|count)$/, ''));
    assert.ok(family !== undefined, `${expression}: no server has ${name}`);
    const series = family.series.filter((labels) => labels.get('') === name);
    assert.ok(series.length > 0, `${expression}: ${name} has no value`);
    for (const labels of series) for (const label of labels.keys()) known.add(label);
    for (const { label, op, value } of matchers) {
      assert.ok(known.has(label), `${expression}: ${name} has no label ${label}`);
      if (op !== '=' || SCRAPED.includes(label)) continue;
      assert.ok(
        series.some((labels) => labels.get(label) === value),
        `${expression}: no series of ${name} has ${label}="${value}"`,
      );
    }
  }
  for (const label of [...groupings, ...labelsNamed(shown)]) {
    assert.ok(known.has(label), `${expression}: no metric has a label ${label}`);
  }
}

/** Asserts that the output of all servers together follows Prometheus's conventions. */
export function assertConventions(families: ReadonlyMap<string, Family>): void {
  for (const [name, { type, help, series }] of families) {
    assert.ok(['counter', 'gauge', 'histogram', 'summary'].includes(type), `${name} has a type`);
    assert.ok(help.length > 5, `${name} has a help text`);
    if (!name.startsWith('leasehold_')) continue;
    assert.equal(name.endsWith('_total'), type === 'counter', `${name} is a ${type}`);
    assert.doesNotMatch(name, /_(?:ms|millis|kib|mib|minutes)(?:_|$)/, `${name} is in base units`);
    for (const labels of series) {
      for (const [label, value] of labels) {
        if (label === '' || label === 'route') continue;
        assert.doesNotMatch(value, /\//, `${name} has a path in ${label}`);
      }
      const route = labels.get('route') ?? 'none';
      assert.ok(route === 'none' || /^\/[a-z0-9./:*_-]*$/i.test(route), `${name} has a route: ${route}`);
    }
  }
}

/** All servers' output as one. */
export function metricsTogether(texts: readonly string[]): ReadonlyMap<string, Family> {
  const all = new Map<string, Family>();
  for (const text of texts) {
    for (const [name, family] of metricsRead(text)) {
      const known = all.get(name);
      all.set(name, known === undefined ? family : { ...known, series: [...known.series, ...family.series] });
    }
  }
  return all;
}

/** Asserts that each alert has its section, which says what to do. */
/** @param document that has a section for each alert */
export function assertRunbooks(rules: readonly Rule[], document = 'docs/operations.md'): void {
  const sections = new Map(
    readFileSync(new URL(document, ROOT), 'utf8')
      .split(/^#{2,4} /m)
      .map((section) => [section.split('\n')[0] ?? '', section] as const),
  );
  for (const { alert, annotations, labels } of rules) {
    assert.ok((sections.get(alert) ?? '').split('\n').slice(1).join('').length > 80, `${alert}: what to do`);
    assert.equal(annotations.runbook, `${document}#${alert.toLowerCase()}`);
    assert.ok(['warning', 'critical'].includes(labels.severity), alert);
  }
  const alerts = rules.map(({ alert }) => alert);
  const described = [...sections.keys()].filter((title) => /^Leasehold[A-Z]/.test(title));
  assert.deepEqual(described.sort(), alerts.toSorted(), 'Sections of existing alerts');
}
