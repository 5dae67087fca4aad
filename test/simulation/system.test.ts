/**
 * Goal: whole servers, with real lease and replica cores, lose no acknowledged operation, do none
 * twice, and show every client a history that one order of operations explains; and once the faults
 * are over, they serve again and become equal.
 * Method: see `system-world.ts` and `system-run.ts`. A failure names its seed: `SEED=17` replays it
 * alone, event for event, and `SEEDS=100000` looks further than every commit does.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { campaign } from './replica-world.ts';
import { runSystem } from './system-run.ts';

const SEEDS_DEFAULT = 1000;
const LINES_SHOWN = 400;

const { SEED: given, SEEDS: many } = process.env;
const first = given === undefined ? 1 : Number(given);
const last = given === undefined ? Number(many ?? SEEDS_DEFAULT) : first;

for (const [name, scenario] of Object.entries(campaign.scenarios)) {
  test(`directed: ${name}`, () => assert.equal(scenario(), null));
}

const marks = new Map<string, number>();
const counts = new Map<string, number>();
const add = (to: Map<string, number>, name: string, count: number) =>
  to.set(name, (to.get(name) ?? 0) + count);

test(`servers that fail, clients that retry (SEED=${first} to ${last})`, () => {
  for (let seed = first; seed <= last; seed++) {
    const report = runSystem(seed);
    if (report.violation !== null) {
      const replayed = runSystem(seed, true);
      const lines = replayed.lines.slice(-LINES_SHOWN).join('\n');
      assert.fail(`SEED=${seed}: ${report.violation}\n${lines}`);
    }
    for (const [mark, count] of report.marks) add(marks, mark, count);
    for (const [name, count] of Object.entries(report.counts)) add(counts, name, count);
  }
});

// A simulation in which nothing happens proves nothing, and is green.
test('the seeds went where it hurts', { skip: given !== undefined }, (context) => {
  const wanted = [
    'active',
    'answered-again',
    'base-fetched',
    'base-own',
    'caught-up',
    'deposed',
    'fetch-failed',
    'gap',
    'joined',
    'late-answer',
    'lease-over',
    'peer-restarted',
    'promised',
    'refused-old-epoch',
    'replaced',
    'reset-abandoned',
    'reset-started',
    'resent',
    'retained-dropped',
    'stamped',
    'stopped',
    'storage-failed',
    'told-unknown',
  ];
  // Marks of what happens to single replicas by mistake of others are demanded in `test/replica/`.
  assert.deepEqual([...marks.keys()].sort(), wanted.sort());
  const runs = last - first + 1;
  const perRun = (name: string) => (counts.get(name) ?? 0) / runs;
  assert.ok(perRun('acknowledged') >= 100, 'Changes were acknowledged');
  assert.ok(perRun('reads') >= 100, 'Reads were answered');
  assert.ok(perRun('epochs') >= 2, 'Primaries were replaced');
  assert.ok(perRun('fetches') >= 1, 'States were fetched');
  assert.ok(perRun('unknownRetried') >= 0.3, 'Unknown outcomes were asked again');
  assert.ok(perRun('crashes') >= 1, 'Servers crashed');
  assert.ok(perRun('waits') >= 1, 'Reads waited for a commit');
  assert.ok((counts.get('twoHeld') ?? 0) > 0, 'Clocks out of bounds give the lease to two at once');
  context.diagnostic(`${JSON.stringify(Object.fromEntries(counts))} in ${runs} runs`);
});
