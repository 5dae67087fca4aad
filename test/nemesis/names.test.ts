/**
 * Goal: what programs on three mounts see of shared directories is one history during faults of servers and mounts,
 * and each file has one member set.
 * Method: a short run of `npm run nemesis:names` with five servers, so that two majorities of three replicas may be
 * disjoint. A failure names its seed; `SEED` sets another one.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { UsageError } from './command-line.ts';
import { NAMES_FAULTS, namesArgumentsParse } from './names-arguments.ts';

const MAIN = fileURLToPath(new URL('names-faults.ts', import.meta.url));
const EXIT_OBSTACLE = 2;
/** A server and a mount, and two mounts, get faults at the same time. */
const FAULTS = 'server-stop+mount-stop,server-kill+mount-cut+mount-slow,server-cut+mount-kill,server-slow';

test('names on three mounts have one history during faults of servers and mounts', {
  timeout: 600_000,
}, async (t) => {
  const size = ['--servers', '5', '--native', '1', '--lease', '1s', '--for', '10s'];
  const args = [...size, '--faults', FAULTS, '--seed', process.env.SEED ?? '1'];
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  }
  const [code] = (await once(child, 'close')) as [number | null];
  if (code === EXIT_OBSTACLE) return t.skip(said.trim());
  for (const line of said.trimEnd().split('\n')) t.diagnostic(line);
  assert.equal(code, 0, said);
});

test('a mistake on the command line of nemesis:names is named', () => {
  for (const [args, complaint] of [
    [['--cache', 'none'], /"none" is none of ttl, leases, strict/],
    [['--faults', 'mount-stop,flood'], /"flood" is none of server-stop/],
    [['--servers', '2'], /--servers is an integer from 3 to 7/],
  ] as const) {
    assert.throws(
      () => namesArgumentsParse(args),
      (error) => error instanceof UsageError && complaint.test(error.message),
    );
  }
  assert.deepEqual(new Set(namesArgumentsParse([]).faults.flat()), new Set(NAMES_FAULTS));
  assert.deepEqual(namesArgumentsParse(['--faults', 'mount-stop,server-cut+mount-cut']).faults, [
    ['mount-stop'],
    ['server-cut', 'mount-cut'],
  ]);
});
