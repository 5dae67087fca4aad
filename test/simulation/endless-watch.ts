/**
 * A thread that receives the name of each test before it begins. If no other begins in time, it prints the name and
 * ends the process: a test that computes without end lets no timer of its own thread run.
 */
import { once } from 'node:events';
import { writeSync } from 'node:fs';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

const STDERR = 2;

/** @param limitMs from the begin of one test to that of the next @returns what is to be called as each test begins */
export async function endlessWatch(limitMs: number): Promise<(name: string) => void> {
  const watch = new Worker(new URL(import.meta.url), { workerData: limitMs });
  // A thread starts only while this one waits.
  await once(watch, 'message');
  watch.unref();
  return (name) => watch.postMessage(name);
}

if (!isMainThread && parentPort !== null) {
  let limit: NodeJS.Timeout | undefined;
  parentPort.on('message', (name: string) => {
    clearTimeout(limit);
    limit = setTimeout(() => {
      writeSync(STDERR, `"${name}" computes without end\n`);
      process.kill(process.pid, 'SIGKILL');
    }, workerData as number);
  });
  parentPort.postMessage('ready');
}
