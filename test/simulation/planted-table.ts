/**
 * `npm run planted` plants every bug, runs the tests that must notice it, and prints a Markdown table for each layer.
 * `lease` or `replica` restricts the run to that layer, `--row NAME,NAME` to these bugs, `--runs` to those that runs of
 * composed servers, clients and mounts must notice, and to these runs. The exit code is 1 when a test does not notice its bug.
 *
 * Each row is one expression or statement of the real code, changed as it is loaded. A row names the tests that notice it: a conversation
 * with one replica (`test/testdata/replica`), a directed schedule (`test/testdata/simulation`, `test/simulation/*-cases.ts`),
 * a test of the servers, or the first of the random seeds 1, 2, 3 … that breaks a rule, and the processor's time that it took. "with n more": the second
 * defences that cover the bug are taken away with it; *paired*: neither is noticed alone, which is tested as well.
 */

import { parseArgs } from 'node:util';
import type { Planted } from './planted.ts';
import { type Catch, type CaughtRun, plantedHunt } from './planted-hunt.ts';
import { PLANTED } from './planted-rows.ts';

/** The planted bugs of one layer. */
interface Page {
  readonly layer: 'lease' | 'replica';
  readonly bugs: readonly Planted[];
}

const PAGES: readonly Page[] = [
  { layer: 'lease', bugs: PLANTED.filter(({ layer }) => layer !== 'replica') },
  { layer: 'replica', bugs: PLANTED.filter(({ layer }) => layer === 'replica') },
];

/** What a row says before anything was tried. */
function rowText(bug: Planted): string {
  const more = bug.also?.length ?? 0;
  const covers = more === 0 ? '' : `with ${more} more${bug.paired ? ', paired' : ''}`;
  return `| ${bug.row} | ${bug.rule} | ${covers}`;
}

/** One line without bars; which file a script is was said by its name, and lives are drawn. */
function cellText(name: string, said: string | null | undefined): string {
  if (said === undefined) return '';
  if (said === null) return `NOT by ${name}`;
  const [line] = said.split('\n') as [string];
  const rule = line
    .replace(/^(?!Expected)\w+: /, '')
    .replace(/^(.*) \S+\.txt:(\d+)/, '$1 line $2')
    .replace(/^\S+\.txt:(\d+)/, 'line $1')
    .replace(/^\S+\.txt: /, '')
    .replace(/(@\w+)\.\d+/g, '$1')
    .replaceAll('|', '/');
  return `${name}: ${rule}`;
}

function catchText({ layer }: Page, bug: Planted, { told, said, seed, run }: Catch): string {
  const { directed, conversation, seeds, test, schedule, run: runs } = bug.caughtBy;
  const cells = [cellText(directed ?? schedule ?? `${test?.file}, "${test?.name}"`, said)];
  if (layer === 'replica') cells.unshift(cellText(conversation ?? '', told));
  cells.push(seed === undefined ? '' : seed === null ? `NOT in ${seeds}` : String(seed));
  if (runs !== undefined) cells.push(runText(runs.seeds, run));
  return ` | ${cells.join(' | ')} |`;
}

function runText(seeds: number, run: CaughtRun | null | undefined): string {
  if (run === undefined || run === null) return `NOT in ${seeds} runs`;
  const { seed, violation, cpuS } = run;
  return `run of seed ${seed}, ${cpuS.toFixed(1)} CPU s: ${violation.replaceAll('|', '/').slice(0, 200)}`;
}

/** @returns how many bugs were not noticed */
async function tablePrint(page: Page): Promise<number> {
  const talks = page.layer === 'replica' ? ' conversation, and what differs |' : '';
  const columns = `| bug | rule that it breaks | covers taken away |${talks} schedule or test, and what it says | seeds |`;
  console.log(`## The planted bugs of the ${page.layer} layer\n`);
  console.log(columns);
  console.log(columns.replace(/[^|]+/g, '---'));
  let missed = 0;
  for (const bug of page.bugs) {
    const caught = await plantedHunt(bug);
    if (Object.values(caught).includes(null)) missed++;
    console.log(rowText(bug) + catchText(page, bug, caught));
  }
  console.log(`\n${page.bugs.length} bugs, ${missed} of them missed\n`);
  return missed;
}

/** The runs of composed servers alone are to notice a bug. */
function byRunAlone({ caughtBy: { run }, ...bug }: Planted): Planted[] {
  return run === undefined ? [] : [{ ...bug, caughtBy: { run } }];
}

const { values, positionals } = parseArgs({
  options: { row: { type: 'string' }, runs: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const rows = values.row?.split(',');
for (const { layer, bugs } of PAGES) {
  if (positionals.length > 0 && !positionals.includes(layer)) continue;
  const chosen = bugs.filter(({ row }) => rows?.includes(row) ?? true);
  const page = { layer, bugs: values.runs ? chosen.flatMap(byRunAlone) : chosen };
  if (page.bugs.length > 0 && (await tablePrint(page)) > 0) process.exitCode = 1;
}
