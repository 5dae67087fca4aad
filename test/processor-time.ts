/**
 * Loaded before everything else in a test process (`node --import`): prints at its end how much processor time it and
 * the processes that it waited for have used. A mount outlives the command that starts it, so that its time is not in
 * the sum.
 */
import { readFileSync, writeSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

/** Linux counts these times in hundredths of a second; proc(5). */
const TICKS_PER_SECOND = 100;
const STDOUT = 1;
/** `utime`, `stime`, `cutime` and `cstime`, counted from the field after the name. */
const TIMES = [11, 12, 13, 14];

/** Threads load this, too. */
if (isMainThread) process.on('exit', print);

function print(): void {
  const [, fields = ''] = readFileSync('/proc/self/stat', 'utf8').split(') ');
  const all = fields.split(' ');
  const ticks = TIMES.reduce((sum, at) => sum + Number(all[at]), 0);
  writeSync(STDOUT, `ℹ processor_seconds ${(ticks / TICKS_PER_SECOND).toFixed(1)}\n`);
}
