/**
 * `npm run planted` plants every bug, plays all that must detect it, and prints a Markdown table: the rule that the bug
 * breaks, what detected it, its error message, and the processor time. `--row NAME,NAME` restricts it to these bugs,
 * `--by run,schedule` to these kinds (`KINDS`). Exit code 1: something does not detect its bug.
 */
import { parseArgs } from 'node:util';
import { type Mutation, plant } from './plant.ts';
import { type Catch, catchPlay, ignoreUnhandledErrors } from './planted-catches.ts';
import { PLANTED } from './planted-rows.ts';

const CHARACTERS_MAX = 200;

ignoreUnhandledErrors();

async function play(mutations: readonly Mutation[], one: Catch): Promise<string | null> {
  try {
    return await catchPlay(plant(mutations), one);
  } catch (error) {
    console.error(error);
    return null;
  }
}

const { values } = parseArgs({ options: { row: { type: 'string' }, by: { type: 'string' } } });
const [rows, kinds] = [values.row?.split(','), values.by?.split(',')];
const wanted = PLANTED.filter(({ row }) => rows?.includes(row) ?? true);
let missed = 0;
console.log('| bug | rule | noticed by | what it says | CPU s |\n| --- | --- | --- | --- | --- |');
for (const { row, rule, mutations, catches } of wanted) {
  for (const one of catches.filter(({ kind }) => kinds?.includes(kind) ?? true)) {
    const before = process.cpuUsage();
    const said = await play(mutations, one);
    const { user, system } = process.cpuUsage(before);
    if (said === null) missed++;
    const cells = [row, rule, `${one.kind} ${one.text}`, (said ?? '**nothing**').split('\n')[0] as string];
    const line = cells.map((cell) => cell.replaceAll('|', '/').slice(0, CHARACTERS_MAX)).join(' | ');
    console.log(`| ${line} | ${((user + system) / 1e6).toFixed(1)} |`);
  }
}
console.log(`\n${wanted.length} bugs, ${missed} times one was not noticed`);
process.exit(missed > 0 ? 1 : 0);
