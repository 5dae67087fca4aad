import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { argumentsOf } from '../../bench/mount/arguments.ts';
import { ROW_NAMES, type RowName, SUBJECT_NAMES, type SubjectName } from '../../bench/mount/names.ts';
import { type Measured, reportOf } from '../../bench/mount/report.ts';
import { documentWith } from '../../bench/replication/document.ts';

const PROGRAM = fileURLToPath(new URL('../../bench/mount/main.ts', import.meta.url));
const run = promisify(execFile);

test('rows and subjects are selected by name, in the order of their lists', () => {
  const all = {
    rows: ROW_NAMES,
    subjects: SUBJECT_NAMES,
    mounts: 1,
    quick: false,
    part: 1,
    runs: 3,
    json: null,
    writeDocs: false,
  };
  assert.deepEqual(argumentsOf([]), { kind: 'run', ...all });
  assert.deepEqual(argumentsOf(['--quick', '--rows', 'unlink,create', '--subjects', 'gluster,native']), {
    kind: 'run',
    ...all,
    rows: ['create', 'unlink'],
    subjects: ['native', 'gluster'],
    quick: true,
    runs: 1,
  });
  const faults = [
    ['--rows', 'creat'],
    ['--subjects', 'nfs'],
    ['--runs', '0'],
  ].map((words) => argumentsOf(words).kind);
  assert.deepEqual(faults, ['fault', 'fault', 'fault']);
});

function measuredOf(
  name: RowName,
  bytes: number | null,
  values: Partial<Record<SubjectName, number[]>>,
): Measured {
  const figures = Object.entries(values).map(([subject, each]) => {
    const costs = each.map(() => ({ cpuMs: { mount: 1_500, programs: 500 }, requests: { '/v1': 20 } }));
    return { subject: subject as SubjectName, values: each, operations: each.map(() => 10), costs };
  });
  return { name, bytes, figures };
}

test('goals compare with peers, for seconds inversely, and not with a subject that was not measured', () => {
  const measured = [
    measuredOf('create', null, { native: [300, 100, 200], gluster: [90, 100, 110] }),
    measuredOf('untar', null, { native: [4], gluster: [4] }),
    measuredOf('read-1m-cold', 1e9, { native: [120], disk: [1_000], bindfs: [300] }),
    measuredOf('read-1m-cached', 1e9, { native: [400], disk: [1_000] }),
  ];
  const report = reportOf(measured, ['native', 'kernel', 'disk'], ['Not measured: kernel.'], false);
  assert.deepEqual(
    report.goals.map(({ wanted, measured: reached, met }) => [wanted, reached, met]),
    [
      ['2 times gluster or better', '2.00 times', true],
      ['2 times gluster or better', '1.00 times', false],
      ['0.6 times bindfs or better', '0.40 times', false],
      ['0.5 times disk or better', '0.40 times', false],
    ],
  );
  const place = report.table.rows.findIndex(([title]) => title?.startsWith('sequential read'));
  assert.deepEqual(report.table.rows.slice(place, place + 2), [
    ['sequential read, 1 MiB requests, nothing cached, MB/s', '120 (0.12)', '–', '1,000'],
    ['… CPU, s/GB', '2.00', '–', '2.00'],
  ]);
  assert.equal(report.notes.at(-1), 'Not measured: kernel.');
  assert.deepEqual(reportOf(measured, ['native'], [], true).goals, [], 'a quick run meets no goal');
});

test('cache policies are compared by speed, CPU and requests per operation', () => {
  const measured = [measuredOf('untar', null, { ttl: [4], leases: [5] })];
  const { table } = reportOf(measured, ['ttl', 'leases'], [], true);
  assert.deepEqual(table.columns, ['', 'ttl', 'leases', 'leases : ttl']);
  assert.deepEqual(table.rows, [
    ['tar -x of many small files, s', '4.00', '5.00', '0.80'],
    ['… CPU, ms per operation', '200', '200', '1.00'],
    ['… … mount', '150', '150', '1.00'],
    ['… … programs', '50.0', '50.0', '1.00'],
    ['… requests per operation', '2.00', '2.00', '1.00'],
  ]);
});

test('each measuring program has its own section of the document', () => {
  const report = reportOf([measuredOf('create', null, { disk: [5] })], ['disk'], [], true);
  const chapter = { name: '', title: 'Mounts', report };
  const once = documentWith('# Performance\n', 'a machine', [chapter], 'bench:mount');
  assert.match(
    once,
    /<!-- written by npm run bench:mount -->\n\n### Mounts\n\n`npm run bench:mount` on a machine\./,
  );
  assert.equal(documentWith(once, 'a machine', [chapter], 'bench:mount'), once);
});

test('a quick run of one row on the local disk succeeds with all values, and leaves no files', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-test-bench-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const json = join(folder, 'values.json');
  const words = ['--quick', '--subjects', 'disk', '--rows', 'write-1m,create', '--json', json];
  const { stdout } = await run(process.execPath, [PROGRAM, ...words], {
    env: { ...process.env, TMPDIR: folder },
  });
  assert.match(stdout, /sequential write, 1 MiB requests, close without fsync, MB\/s +[\d,.]+\n/);
  const { missing, measured } = JSON.parse(readFileSync(json, 'utf8')) as {
    missing: string[];
    measured: Measured[];
  };
  assert.deepEqual(missing, []);
  assert.deepEqual(
    measured.map(({ name, figures }) => [name, figures.map(({ values }) => values.length)]),
    [
      ['write-1m', [1]],
      ['create', [1]],
    ],
  );
});
