import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePorts } from '../../client/dev/free-ports.ts';

const MODULE = fileURLToPath(new URL('../../client/dev/free-ports.ts', import.meta.url));

test('a port that was given out, and is not used yet, is given out to no other process', async () => {
  const [first = 0, second = 0] = await freePorts(2);
  // Processes draw at random, and may draw the same number.
  const script = `
    const { freePorts } = await import(${JSON.stringify(MODULE)});
    const draws = [${first}, ${second}];
    console.log(await freePorts(1, () => draws.shift() ?? 10_000 + Math.floor(Math.random() * 20_000)));
  `;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
  const [, given] = /^\[ (\d+) \]$/m.exec(stdout) ?? [];
  assert.ok(given !== undefined && ![first, second].includes(Number(given)), stdout);
});
