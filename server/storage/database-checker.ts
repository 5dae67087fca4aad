import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';

/** Reads a whole database in a thread of its own. @returns the first damage, or null */
export function damageByThread(file: string): Promise<string | null> {
  const source = new URL(`database-check-thread${extname(import.meta.url)}`, import.meta.url);
  // Only with an environment of its own a thread heeds NODE_OPTIONS, by which an installed package loads TypeScript.
  const thread = new Worker(source, { workerData: file, env: { ...process.env } });
  thread.unref();
  return new Promise((resolve, reject) => {
    thread.once('message', resolve);
    thread.once('error', reject);
    thread.once('exit', (code) => reject(new Error(`The check of ${file} ended with code ${code}`)));
  });
}
