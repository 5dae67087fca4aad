/**
 * Directed schedules for the lease layer, scripts in `test/testdata/simulation/lease`: each is the
 * smallest story in which one planted bug shows. On the code as it is they pass. One lease is 1000 ms,
 * the skew 100 ms, a ballot interval 900 ms, the silence after a start 1200 ms.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type LeaseScript, scriptParse, scriptPlay } from './lease-script.ts';

const FOLDER = join(import.meta.dirname, '../testdata/simulation/lease');

/** @throws ScriptError naming the line */
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
