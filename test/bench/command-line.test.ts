import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { argumentsOf } from '../../bench/arguments.ts';

const BENCH = join(import.meta.dirname, '../../bench');

/** What a measurement prints on a machine where it cannot run. */
function said(program: string, word: string) {
  return spawnSync(process.execPath, [join(BENCH, program), word], { encoding: 'utf8' });
}

for (const [program, name] of [
  ['main.ts', 'bench'],
  ['lease/main.ts', 'bench:lease'],
  ['replication/main.ts', 'bench:replication'],
  ['mount/main.ts', 'bench:mount'],
] as const) {
  test(`a typing error ends ${name} with code 2 and a message above the usage`, () => {
    const help = said(program, '--help');
    assert.deepEqual([help.status, help.stderr], [0, '']);
    assert.ok(help.stdout.startsWith(`npm run ${name} -- [`), help.stdout);
    const option = said(program, '--rnus');
    assert.deepEqual([option.status, option.stdout], [2, '']);
    assert.equal(option.stderr, `Unknown option '--rnus'\n\n${help.stdout}`);
    const section = said(program, 'raeds');
    assert.equal(section.status, 2);
    assert.match(section.stderr, /^[^\n]*raeds[^\n]*\n\nnpm run /);
  });
}

test('the counts of a full measurement have numbers as defaults', () => {
  assert.deepEqual(argumentsOf(['--runs', '1']), { kind: 'run', mib: 256, files: 300, kills: 3, runs: 1 });
  assert.deepEqual(argumentsOf(['--mib', 'many']), {
    kind: 'fault',
    message: '--mib wants a number from 1 to 1000000, not "many"',
  });
});
