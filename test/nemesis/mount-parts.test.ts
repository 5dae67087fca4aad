import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { UsageError } from './command-line.ts';
import { blockDifference, type FioJob, fioResult, fioVerify, fioWrite, longestPause } from './fio.ts';
import { MOUNT_FAULTS, mountArgumentsParse } from './mount-arguments.ts';
import { canRun } from './system.ts';

test('a mistake on the command line is named', () => {
  for (const [args, complaint] of [
    [['--faults', 'kill,flood'], /"flood" is none of kill, stop/],
    [['--faults', ''], /"" is none of kill, stop/],
    [['--servers', '4'], /--servers is 3 or 5/],
    [['--rounds', '0'], /--rounds is an integer from 1, not "0"/],
    [['--length', '20'], /--length is a number with a unit/],
    [['--what'], /--what/],
  ] as const) {
    assert.throws(
      () => mountArgumentsParse(args),
      (error) => error instanceof UsageError && complaint.test(error.message),
    );
  }
  const { faults, rounds, servers } = mountArgumentsParse([]);
  assert.deepEqual([faults, rounds, servers], [MOUNT_FAULTS, 2 * MOUNT_FAULTS.length, 3]);
});

test('fioResult keeps the errors and the longest call of fio', () => {
  const report = (error: number): string => {
    const lat = (max: number) => ({ lat_ns: { max } });
    return `{\n"jobs": [${JSON.stringify({ error, read: lat(5), write: lat(7_000_000), sync: lat(2_500_000_000) })}]\n}`;
  };
  assert.deepEqual(fioResult(report(0), '', 0), { error: null, stallMs: 2500 });
  const wrong = fioResult(`fio: io_u error on file f\n${report(5)}`, 'verify: bad magic', 1);
  assert.deepEqual(wrong, {
    error: 'exit code 1, error 5: fio: io_u error on file f verify: bad magic',
    stallMs: 2500,
  });
  assert.match(fioResult('', 'fio: no such option', 1).error ?? '', /ended with 1: fio: no such option/);
});

test('longestPause finds the time without reads and writes', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-fio-'));
  try {
    writeFileSync(
      join(folder, 'job_lat.1.log'),
      '3, 5000, 1, 4096, 0\n40, 5000, 1, 4096, 0\n2040, 5000, 1, 4096, 0\n2050, 5000, 0, 4096, 0\n',
    );
    assert.deepEqual(longestPause(join(folder, 'job')), { atMs: 40, ms: 2000 });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('blockDifference finds a block of an earlier seed, which fio accepts', async (t) => {
  if (!canRun('fio', ['--version'])) return t.skip('there is no fio');
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-fio-'));
  const job = (name: string, syncEvery: number): FioJob => {
    return { name, order: 'randwrite', blockBytes: 4096, sizeBytes: 65_536, syncEvery, writeMs: 0 };
  };
  const [one, same, earlier] = [job('one', 0), job('same', 4), job('earlier', 0)];
  const file = ({ name }: FioJob): string => join(folder, name);
  try {
    for (const [what, seed] of [
      [one, 2],
      [same, 2],
      [earlier, 1],
    ] as const)
      assert.equal((await fioWrite(what, folder, seed)).error, null);
    assert.equal((await fioVerify(earlier, folder, 2)).error, null, 'fio does not notice it');
    assert.equal(blockDifference(one, file(one), file(same)), null);
    assert.equal(blockDifference(one, file(earlier), file(same)), 0);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
