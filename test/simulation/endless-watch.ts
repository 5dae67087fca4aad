/**
 * A thread that is told what each test is, before it runs, and ends the process and says its name if no other begins in
 * time: a test that computes without end lets no timer of its own thread run.
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
