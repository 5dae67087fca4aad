/** A test that never ends, and has started a program that does not either: for the test of who hunts planted bugs. */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';

test('it hangs', async () => {
  const child = spawn('sleep', ['3600'], { stdio: 'inherit' });
  writeFileSync(process.env.HANGING_PID as string, `${child.pid}`);
  await new Promise((_resolve) => setInterval(() => undefined, 60_000));
});
