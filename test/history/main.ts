/** Checks a recorded history: `npm run history -- FILE`. Exits with 0 if it is linearizable, else with 1. */
import { readFileSync } from 'node:fs';
import { historyCheck } from './checker.ts';
import { HistoryError, historyParse } from './operation.ts';
import { verdictText } from './report.ts';

const [file] = process.argv.slice(2);
if (file === undefined) {
  process.stderr.write('usage: npm run history -- FILE (one operation a line: docs/history-format.md)\n');
  process.exitCode = 2;
} else {
  try {
    const verdict = historyCheck(historyParse(readFileSync(file, 'utf8')));
    process.stdout.write(`${verdictText(verdict)}\n`);
    process.exitCode = verdict.violations.length === 0 && verdict.undecided.length === 0 ? 0 : 1;
  } catch (error) {
    if (!(error instanceof HistoryError)) throw error;
    process.stderr.write(`${file}: ${error.message}\n`);
    process.exitCode = 2;
  }
}
