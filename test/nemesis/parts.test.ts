import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { historyCheck } from '../history/checker.ts';
import { historyOf } from '../history/conversation.ts';
import { historyParse } from '../history/operation.ts';
import { usableFaults } from './abilities.ts';
import { argumentsParse, FAULTS } from './arguments.ts';
import { isOfFullDisk } from './cluster.ts';
import { UsageError } from './command-line.ts';
import { Keys } from './keys.ts';
import { LoopbackNetwork } from './network.ts';
import { Recorder } from './recorder.ts';
import { runFaults } from './report.ts';

test('a mistake on the command line is named', () => {
  for (const [args, complaint] of [
    [[], /--out FILE is missing/],
    [['--out', 'x', '--faults', 'kill,flood'], /"flood" is none of kill, stop/],
    [['--out', 'x', '--for', '60'], /--for is a number with a unit/],
    [['--out', 'x', '--servers', '2'], /--servers is an integer from 3 to 9/],
    [['--out', 'x', '--what'], /--what/],
  ] as const) {
    assert.throws(
      () => argumentsParse(args),
      (error) => error instanceof UsageError && complaint.test(error.message),
    );
  }
  const { faults, loadMs, servers } = argumentsParse(['--out', 'x', '--for', '10m']);
  assert.deepEqual([faults, loadMs, servers], [FAULTS, 600_000, 5]);
});

test('a mistake ends either program with 2, and the message names the option and the help', () => {
  for (const [file, name] of [
    ['main.ts', 'nemesis'],
    ['mount-faults.ts', 'nemesis:mount'],
  ]) {
    const program = join(import.meta.dirname, file as string);
    const wrong = spawnSync(process.execPath, [program, '--sede', '3'], { encoding: 'utf8' });
    assert.equal(wrong.status, 2);
    const complaint = `${name}: Unknown option '--sede'; "npm run ${name} -- --help" says what there is\n`;
    assert.equal(wrong.stderr, complaint);
    const help = spawnSync(process.execPath, [program, '--help'], { encoding: 'utf8' });
    assert.equal(help.status, 0);
    assert.match(help.stdout, new RegExp(`npm run ${name} -- --`));
  }
});

test('without namespaces partitions are skipped with a reason, and killing is not', () => {
  const { faults, skipped } = usableFaults(['kill', 'partition'], new LoopbackNetwork('no root'));
  assert.deepEqual(faults, ['kill']);
  assert.deepEqual(skipped, ['partition: no root']);
});

test('a key with too many unknown outcomes is replaced, and not changed until then', async () => {
  let number = 0;
  let isUp = true;
  const keys = new Keys(['list'], () => Promise.resolve(isUp ? ++number : null));
  await keys.fill();
  const [first] = keys.writable('list');
  assert.ok(first !== undefined);
  isUp = false;
  for (let times = 0; times < 6; times++) keys.changed(first, true);
  assert.deepEqual(keys.writable('list'), []);
  assert.deepEqual(keys.of('list'), [first], 'it is still read');
  await new Promise((resolve) => setImmediate(resolve));
  isUp = true;
  keys.changed(first, false);
  await new Promise((resolve) => setImmediate(resolve));
  keys.end();
  assert.deepEqual(keys.files(), [1, 2]);
});

/** A run that has had all operations and a failover; `text` is the history of an object. */
async function runOf(text: string, change: (recorder: Recorder) => void = () => undefined) {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-recorder-'));
  const file = join(folder, 'history.jsonl');
  const recorder = new Recorder(file);
  const others = [
    ...historyOf('entry/1', '1 2 a cas - x -> true\n3 4 a delete -> x'),
    ...historyOf('list/1', '1 2 a append x'),
    ...historyOf(
      'file/1',
      '1 2 a pwrite 0 a\n3 4 a fappend b\n5 6 a truncate 1\n7 8 a pread 0 1 -> a\n9 9 a size -> 1',
    ),
  ];
  for (const operation of [...historyOf('object/1', text), ...others]) recorder.record(operation);
  recorder.answeredBy('1', { primary: 's1', epoch: 1 });
  recorder.answeredBy('1', { primary: 's2', epoch: 2 });
  change(recorder);
  await recorder.close();
  assert.deepEqual(historyParse(readFileSync(file, 'utf8')).length, recorder.operations.length);
  rmSync(folder, { recursive: true });
  const verdict = historyCheck(recorder.operations);
  const faults = new Map([['kill', 1]]);
  return {
    verdict,
    recorder,
    faults,
    deaths: [],
    untold: [],
    catalogFailovers: 0,
    snapshots: { snapshots: 1, snapshotReads: 1, snapshotsRemoved: 0, filesBorne: 1 },
    ofSnapshots: [],
  };
}

const GOOD = '1 2 a write x\n3 4 r read -> x';

test('a linearizable history with failovers passes', async () => {
  assert.deepEqual(runFaults(await runOf(GOOD)), []);
});

test('a run fails for what did not happen, or should not have', async () => {
  const good = await runOf(GOOD);
  assert.deepEqual(runFaults({ ...good, faults: new Map() }), ['no fault was made']);
  assert.deepEqual(runFaults({ ...good, untold: ['list 3 at s1'] }), ['not in time: list 3 at s1']);
  const death = { id: 's1', how: 'exit code 1', log: 'last words' };
  assert.match(
    runFaults({ ...good, deaths: [death] }).join(),
    /s1 ended by itself \(exit code 1\):\nlast words/,
  );
  const broken = await runOf(GOOD, (recorder) => recorder.problem('integrity'));
  assert.deepEqual(runFaults(broken), ['1 times "integrity"']);
  const calm = await runOf(GOOD);
  calm.recorder.failovers = 0;
  assert.deepEqual(runFaults(calm), ['no primary was ever replaced']);
});

test('a full disk excuses the end of a server, but not an internal error', () => {
  const death = (log: string) => ({ id: 's1', how: 'exit code 1', log });
  assert.ok(isOfFullDisk(death('the log of the index: ENOSPC')));
  assert.ok(
    !isOfFullDisk(death('a replica fails: disk is full\nserver stops: internal error; please report it')),
  );
  assert.ok(!isOfFullDisk(death('no such file')));
});

test('if servers report who answered, a run without local reads fails', async () => {
  const reads = Array.from({ length: 40 }, (_, index) => `${index * 2} ${index * 2 + 1} r read -> -`);
  const localAt = (count: number, tellsServed: boolean) =>
    runOf(`90 91 a write x\n${reads.join('\n')}`, (recorder) => {
      recorder.served.set('local', count);
      recorder.served.set('redirected', 200 - count);
      recorder.tellsServed = tellsServed;
    });
  assert.deepEqual(runFaults(await localAt(1, true)), ['only 1 of 200 reads were local']);
  assert.deepEqual(runFaults(await localAt(20, true)), []);
  assert.deepEqual(runFaults(await localAt(0, false)), [], 'Earlier servers do not report it');
});

test('stale reads are distinguished from lost writes', async () => {
  const stale = '1 2 a write x\n3 4 a write y\n5 6 r read -> x\n7 8 last1 read -> y';
  assert.match(runFaults(await runOf(stale)).join(), /object\/1 is not linearizable: reads alone are wrong/);
  const lost = '1 2 a write x\n3 4 a write y\n7 8 last1 read -> x';
  assert.match(runFaults(await runOf(lost)).join(), /object\/1 is not linearizable: WRITES are wrong/);
});
