import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { argumentsOf } from '../../bench/arguments.ts';
import { argumentsOf as scaleArgumentsOf } from '../../bench/scale/arguments.ts';

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
  ['s3/main.ts', 'bench:s3'],
  ['scale/main.ts', 'bench:scale'],
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

test('each section of bench:scale has its own number of servers', () => {
  const many = scaleArgumentsOf(['many', '--volumes', '20', '--minutes', '3']);
  assert.deepEqual(many, {
    ...{ kind: 'run', files: 100_000, bytes: 200, servers: null, volumes: 20, minutes: 3, idleS: 20 },
    sections: ['many'],
  });
  const few = scaleArgumentsOf(['--servers', '6', 'servers', 'volumes']);
  assert.ok(few.kind === 'run' && few.servers === 6);
  assert.deepEqual(few.sections, ['servers', 'volumes']);
});

test('the files of bench:scale may be empty', () => {
  const empty = scaleArgumentsOf(['files', '--bytes', '0']);
  assert.ok(empty.kind === 'run' && empty.bytes === 0);
  for (const bytes of ['-1', '', '8193'])
    assert.deepEqual(scaleArgumentsOf([`--bytes=${bytes}`]), {
      kind: 'fault',
      message: `--bytes wants a number from 0 to 8192, not "${bytes}"`,
    });
});
