/**
 * Directed schedules of the lease layer, scripts in `test/testdata/simulation/lease`: each is the smallest schedule
 * that detects one planted bug, and passes with the code as it is. One lease is 1000 ms, the skew 100 ms, a ballot
 * interval 900 ms, the recovery wait 1200 ms.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type LeaseScript, scriptParse, scriptPlay } from './lease-script.ts';

const FOLDER = join(import.meta.dirname, '../testdata/simulation/lease');

/** @throws ScriptError with the line */
export function scriptRead(path: string): LeaseScript {
  return scriptParse(readFileSync(path, 'utf8'), path);
}

export const LEASE_SCENARIOS: Readonly<Record<string, () => string | null>> = Object.fromEntries(
  readdirSync(FOLDER)
    .filter((file) => file.endsWith('.txt'))
    .sort()
    .map((file) => {
      const script = scriptRead(join(FOLDER, file));
      return [basename(file, '.txt'), () => scriptPlay(script).violation];
    }),
);
