/**
 * `npm run simulate:schedule -- FILE … [--trace]` runs directed schedules. Exit code 1: one does not happen as it
 * says.
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { scheduleParse, schedulePlay } from './language.ts';

const words = process.argv.slice(2);
const onNote = words.includes('--trace')
  ? (line: string) => void process.stdout.write(`${line}\n`)
  : undefined;
let failed = 0;
for (const file of words.filter((word) => !word.startsWith('--'))) {
  try {
    await schedulePlay(scheduleParse(readFileSync(file, 'utf8'), basename(file)), onNote);
    process.stdout.write(`${basename(file)}: happened\n`);
  } catch (error) {
    failed++;
    process.stdout.write(`${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}\n`);
    if (error instanceof Error && error.name !== 'ScriptError') process.stdout.write(`${error.stack}\n`);
  }
}
process.exit(failed > 0 ? 1 : 0);
