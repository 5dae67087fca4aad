import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

/** Goal: a test that computes without end is named, and ends its process. */
const ENDLESS = `
import { endlessWatch } from './test/simulation/endless-watch.ts';
const begins = await endlessWatch(300);
begins('ends');
begins('spins');
for (;;);
`;

test('a test that computes without end ends its process, which says its name', () => {
  const ended = spawnSync(process.execPath, ['--no-warnings', '--eval', ENDLESS], {
    encoding: 'utf8',
    timeout: 60_000,
    killSignal: 'SIGTERM',
  });
  assert.deepEqual([ended.signal, ended.stderr], ['SIGKILL', '"spins" computes without end\n']);
});
