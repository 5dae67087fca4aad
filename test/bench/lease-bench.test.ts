import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ServerId } from '../../base/ids.ts';
import { argumentsOf } from '../../bench/lease/arguments.ts';
import type { Chart } from '../../bench/lease/chart.ts';
import { groupOf } from '../../bench/lease/group.ts';
import { SECTION_NAMES } from '../../bench/lease/names.ts';
import { protobufField, protobufInteger } from '../../bench/lease/peers/grpc.ts';
import { tableText } from '../../bench/lease/report.ts';
import { scaleOf } from '../../bench/lease/scale.ts';
import { alternate } from '../../bench/lease/section.ts';
import { quantile, spreadText, summarize } from '../../bench/lease/statistics.ts';
import { chartSvg } from '../../bench/lease/svg.ts';

const PROGRAM = fileURLToPath(new URL('../../bench/lease/main.ts', import.meta.url));
const run = promisify(execFile);

test('the median of an even count is the mean of the middle two; the spread is the extremes', () => {
  assert.deepEqual(summarize([40, 10, 30, 20]), { median: 25, min: 10, max: 40, runs: 4 });
  assert.equal(spreadText(summarize([1_234.4])), '1,234');
  assert.equal(spreadText(summarize([1, 3, 2]), 1), '2.0 (1.0 to 3.0)');
});

test('a quantile is interpolated linearly; an empty list has none', () => {
  assert.equal(quantile([1, 2, 3, 4, 5], 0.9), 4.6);
  assert.equal(quantile([7], 0.99), 7);
  assert.throws(() => quantile([], 0.5), RangeError);
});

test('a linear axis begins at zero and ends above the largest value', () => {
  const scale = scaleOf({ label: 'y', scale: 'linear' }, [3, 87], 300, 0);
  assert.deepEqual(scale.ticks, [0, 20, 40, 60, 80, 100]);
  assert.equal(scale.place(0), 300);
  assert.equal(scale.place(50), 150);
});

test('a logarithmic axis encloses its values, and ignores those that are not positive', () => {
  const scale = scaleOf({ label: 'y', scale: 'log' }, [0, 100, 50_000], 0, 270);
  assert.deepEqual(scale.ticks, [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000]);
  assert.equal(scale.place(100), 0);
  assert.ok(Math.abs(scale.place(50_000) - 270) < 1e-9);
  const single = scaleOf({ label: 'y', scale: 'log' }, [100], 0, 10);
  assert.ok(single.ticks.length > 1, 'One value has an axis too');
  assert.throws(() => scaleOf({ label: 'y', scale: 'log' }, [0], 0, 10), RangeError);
});

const CHART: Chart = {
  kind: 'lines',
  title: 'Leases <fast> & cheap',
  x: { label: 'batch', scale: 'log' },
  y: { label: 'leases/s', scale: 'log' },
  series: [
    {
      name: 'ours',
      points: [
        { x: 100, y: 5_000, low: 4_000, high: 6_000 },
        { x: 1_000, y: 20_000 },
      ],
    },
    { name: 'theirs', points: [{ x: 100, y: 500 }] },
  ],
  references: [{ label: 'paper', y: 51_029 }],
};

/** Checks that every opened tag is closed, in order. */
function assertWellFormed(svg: string): void {
  const open: string[] = [];
  for (const [, close, name = '', rest = ''] of svg.matchAll(/<(\/?)([a-z]+)([^>]*)>/g)) {
    if (close === '/') assert.equal(open.pop(), name);
    else if (!rest.endsWith('/')) open.push(name);
  }
  assert.deepEqual(open, []);
  assert.doesNotMatch(svg, /NaN|undefined|Infinity/);
}

test('lines are drawn with a marker and spread for each point, a legend and a reference', () => {
  const svg = chartSvg(CHART);
  assertWellFormed(svg);
  assert.match(svg, /<title>Leases &lt;fast&gt; &amp; cheap<\/title>/);
  assert.equal(svg.match(/<polyline/g)?.length, 2);
  assert.equal(svg.match(/<circle/g)?.length, 3, 'Two points and one in the legend');
  assert.equal(svg.match(/class="spread"/g)?.length, 1);
  for (const label of ['ours', 'theirs', 'paper', 'batch', 'leases/s', '10,000'])
    assert.ok(svg.includes(`>${label}</text>`), label);
});

test('bars stay within the picture, also if a category has no value', () => {
  const svg = chartSvg({
    kind: 'bars',
    title: 'CPU',
    categories: ['holder', 'acceptor'],
    y: { label: '%', scale: 'linear' },
    series: [
      { name: 'a', points: [{ x: 0, y: 30 }] },
      {
        name: 'b',
        points: [
          { x: 0, y: 0 },
          { x: 1, y: 12 },
        ],
      },
    ],
    references: [],
  });
  assertWellFormed(svg);
  const bars = [...svg.matchAll(/<rect [^>]*x="([\d.]+)"[^>]*width="([\d.]+)" height="([\d.]+)"/g)];
  assert.equal(bars.length, 3);
  for (const [, x, width] of bars) assert.ok(Number(x) >= 0 && Number(x) + Number(width) <= 720);
});

test('a figure shows up to six series', () => {
  const series = Array.from({ length: 7 }, (_, index) => ({ name: `${index}`, points: [{ x: 1, y: 1 }] }));
  assert.throws(() => chartSvg({ ...CHART, series } as Chart), RangeError);
});

test('a table aligns its numbers', () => {
  assert.equal(
    tableText({
      columns: ['what', 'n'],
      rows: [
        ['a', '1'],
        ['longer', '1,000'],
      ],
    }),
    ['what        n', '------  -----', 'a           1', 'longer  1,000'].join('\n'),
  );
});

test('contenders alternate, and each round begins with another one', async () => {
  const order: string[] = [];
  const turn = (name: string) => async (): Promise<number> => order.push(name);
  const measured = await alternate({ a: turn('a'), b: turn('b'), c: turn('c') }, 2);
  assert.deepEqual(order, ['a', 'b', 'c', 'b', 'c', 'a']);
  assert.deepEqual(measured, { a: [1, 6], b: [2, 4], c: [3, 5] });
});

test('groups rotate their proposer, so that all members have the same load', () => {
  const members = ['s1', 's2', 's3', 's4', 's5'] as ServerId[];
  const votes = new Map<ServerId, number>();
  for (let cell = 0; cell < 400; cell++) {
    const group = groupOf(cell, 's2' as ServerId, members, 3);
    assert.equal(new Set(group).size, 3);
    for (const member of group) votes.set(member, (votes.get(member) ?? 0) + 1);
  }
  assert.deepEqual([...votes].toSorted(), [
    ['s1', 200],
    ['s2', 400],
    ['s3', 200],
    ['s4', 200],
    ['s5', 200],
  ]);
  assert.throws(() => groupOf(1, 's1' as ServerId, members, 6), RangeError);
});

test('protobuf integers are found among other fields', () => {
  const inner = protobufField(1, 'text');
  const message = Buffer.concat([
    protobufField(1, inner),
    protobufField(2, 2n ** 62n),
    protobufField(3, 300),
  ]);
  assert.deepEqual(protobufField(3, 300), Buffer.from([0x18, 0xac, 0x02]));
  assert.equal(protobufInteger(message, 2), 2n ** 62n);
  assert.equal(protobufInteger(message, 3), 300n);
  assert.equal(protobufInteger(message, 4), 0n, 'An absent field is 0');
});

test('the command line accepts sections and options, and rejects unknown ones', () => {
  const plain = argumentsOf([]);
  assert.ok(plain.kind === 'run');
  assert.deepEqual(plain.sections, SECTION_NAMES);
  assert.equal(plain.runs, 5);
  const chosen = argumentsOf(['single', 'batches', 'single', '--quick', '--json', 'x', '--write-docs']);
  assert.deepEqual(chosen, {
    kind: 'run',
    sections: ['batches', 'single'],
    quick: true,
    runs: 2,
    algorithm: 'flease',
    json: 'x',
    writeDocs: true,
  });
  assert.equal(argumentsOf(['--help', 'batches']).kind, 'help');
  for (const [words, message] of [
    [['bathces'], /no section "bathces"/],
    [['--quik'], /--quik/],
    [['--runs', '0'], /--runs wants a number from 1 to 100, not "0"/],
    [['--runs', 'many'], /"many"/],
    [['--algorithm', 'raft'], /flease or paxoslease, not "raft"/],
    [['--json'], /--json/],
  ] as const) {
    const fault = argumentsOf(words);
    assert.ok(fault.kind === 'fault', words.join(' '));
    assert.match(fault.message, message);
  }
});

test('real processes acquire leases, and every figure is a number', { timeout: 120_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-bench-test-'));
  try {
    const path = join(folder, 'values.json');
    const { stdout } = await run(process.execPath, [PROGRAM, '--quick', '--json', path, 'batches', 'single']);
    assert.match(stdout, /cores.*Node/);
    for (const title of ['batches: ', 'single: ', 'goals']) assert.ok(stdout.includes(`\n${title}`), title);
    const { sections } = JSON.parse(readFileSync(path, 'utf8')) as {
      sections: {
        batches: { data: { batches: { size: number; perSecond: number[] }[] }; goals: unknown[] };
        single: { data: Record<string, number>; figures: { chart: Chart }[] };
      };
    };
    assert.deepEqual(Object.keys(sections), ['batches', 'single']);
    const { batches } = sections.batches.data;
    assert.deepEqual(
      batches.map(({ size, perSecond }) => [size, perSecond.length]),
      [
        [100, 2],
        [1_000, 2],
      ],
    );
    for (const { perSecond } of batches) assert.ok(perSecond.every((rate) => rate > 0));
    const { p50Ms = Number.NaN, p99Ms = Number.NaN } = sections.single.data;
    assert.ok(p50Ms > 0 && p99Ms >= p50Ms);
    for (const { chart } of sections.single.figures) assertWellFormed(chartSvg(chart));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
