/**
 * Goal: what proves a rule of a protocol detects a bug that breaks the rule.
 * Method: loads the product with one expression changed, and runs what must detect it
 * (`test/planted/planted-rows.ts`). The unchanged code must pass the same: tests and schedules have files of their
 * own, scenarios run here. `npm run planted` runs what takes long.
 */
import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { plant, plantedSources } from '../planted/plant.ts';
import { catchPlay, ignoreUnhandledErrors, KINDS, RUN_WORDS } from '../planted/planted-catches.ts';
import { PLANTED, plantedRead } from '../planted/planted-rows.ts';
import { wantedOf } from './cluster/arguments.ts';
import { endlessWatch } from './endless-watch.ts';
import { SCENARIOS } from './scenarios.ts';

const TEST_MS_MAX = 120_000;
/** The reporter has written everything by then. */
const EXIT_MS = 2_000;

/** Longer than a test may take: only code that computes without end, which no timer of this thread ends. */
const ENDLESS_MS = TEST_MS_MAX + 30_000;

before(ignoreUnhandledErrors);
const begins = await endlessWatch(ENDLESS_MS);
// Timers and servers of planted code may keep the process alive, so it exits by itself; Node may not have set its exit
// code by then.
let [begun, passed] = [0, 0];
after(() => void setTimeout(() => process.exit(begun > passed ? 1 : undefined), EXIT_MS));

function prove(name: string, run: (context: TestContext) => unknown): void {
  test(name, { timeout: TEST_MS_MAX }, async (context) => {
    begun++;
    begins(name);
    await run(context);
    passed++;
  });
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  prove(`scenario ${name}`, () => assert.equal(scenario(), null));
}

for (const { row, rule, mutations, catches } of PLANTED) {
  const short = catches.filter(({ kind }) => !KINDS[kind]?.isLong);
  if (short.length === 0)
    prove(`${row} has its place in the code: ${rule}`, () => void plantedSources(mutations));
  for (const one of short) {
    prove(`${row} is noticed by ${one.kind} ${one.text}: ${rule}`, async (context) => {
      const said = await catchPlay(plant(mutations), one);
      assert.notEqual(said, null);
      context.diagnostic(said ?? '');
    });
  }
}

prove('runs that are to notice a bug are asked for in words that are known', () => {
  for (const { row, catches } of PLANTED) {
    for (const { text } of catches.filter(({ kind }) => kind === 'run')) {
      const words = text.replace(/^.*?: /, '').split(' ');
      assert.equal(wantedOf([...RUN_WORDS, ...words]).kind, 'run', row);
    }
  }
});

prove('no two bugs have one name', () => {
  const names = PLANTED.map(({ row }) => row);
  assert.equal(new Set(names).size, names.length);
});

prove('a row is read as it says', () => {
  const text = `# Of halves.
half  A majority is more than half.
  in base/quorum.ts majority
  - Math.floor($count / 2)
  - + 1
  + $count
  in base/quorum.ts
  - isMajority()
  test test/base/quorum.test.ts: a majority: more than half
  run 4 seeds: --workload quotas --for 10s
`;
  assert.deepEqual(plantedRead(text, 'claim.txt'), [
    {
      row: 'half',
      rule: 'A majority is more than half.',
      mutations: [
        { file: 'base/quorum.ts', in: 'majority', find: 'Math.floor($count / 2) + 1', replace: '$count' },
        { file: 'base/quorum.ts', find: 'isMajority()', replace: '' },
      ],
      catches: [
        { kind: 'test', text: 'test/base/quorum.test.ts: a majority: more than half' },
        { kind: 'run', text: '4 seeds: --workload quotas --for 10s' },
      ],
    },
  ]);
});

const ROW = 'half  A majority is more than half.\n';
const CHANGE = '  in base/quorum.ts majority\n  - 1\n';
const MISTAKES: Readonly<Record<string, RegExp>> = {
  'half A majority.': /^lease\.txt:1: a row begins with NAME, two spaces and a rule/,
  '  seeds 4': /^lease\.txt:1: this belongs to no row/,
  [`${ROW}  - 1`]: /^lease\.txt:2: "-" comes after "in"/,
  [`${ROW}  scenario halves`]: /^lease\.txt:1: half does not say what it changes/,
  [`${ROW}${CHANGE}`]: /^lease\.txt:1: half does not say what notices it/,
  [`${ROW}${CHANGE}  caught halves`]: /^lease\.txt:4: "caught" is none of in, -, \+, scenario, /,
  [`${ROW}${CHANGE}  seeds lease many`]: /^lease\.txt:4: "lease many" does not read like seeds lease 40/,
  [`${ROW}${CHANGE}  test quorum.test.ts`]: /^lease\.txt:4: "quorum.test.ts" does not read like test /,
};

prove('a mistake in a row is reported with its file and line', () => {
  for (const [text, message] of Object.entries(MISTAKES)) {
    assert.throws(() => plantedRead(text, 'lease.txt'), { name: 'ScriptError', message }, text);
  }
});
