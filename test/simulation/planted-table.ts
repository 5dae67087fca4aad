/**
 * `npm run planted` plants every bug, looks who notices it, and prints that as a table for each layer; with
 * `--write` the tables become `docs/lease-planted.md` and `docs/replica-planted.md`. `lease` or `replica` plants those
 * of one layer only. Ends with code 1 if anybody who should notice does not.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Planted } from './planted.ts';
import { PLANTED_LEASE } from './planted-all.ts';
import { type Catch, plantedHunt } from './planted-hunt.ts';
import { PLANTED_REPLICA } from './planted-replica.ts';

const LEASE_HEAD = `# The planted bugs of the lease layer

A simulation is worth what it notices. Each row is one line of the real code, changed as it is loaded; who notices is a directed
schedule, a script of \`test/testdata/simulation/lease\` or a case of \`test/simulation/*-cases.ts\`, or the first of the random seeds
1, 2, 3 … that breaks a rule. \`npm test\` demands it of every row and that the unchanged code passes all of it;
\`npm run planted -- --write\` makes this page anew. The lines themselves are in \`test/simulation/planted-*.ts\`.

Some bugs are covered by a second defence, which is taken away with them: "with n more". Where both are *paired*, the schedule
notices neither the bug without its cover nor the lack of the cover alone, which is tested as well.
`;

const REPLICA_HEAD = `# The planted bugs of the replica layer

Each row is one line of the real code, changed as it is loaded. Who notices is one of these: a conversation with one replica, a file
of \`test/testdata/replica\`; a directed schedule of whole servers in \`test/simulation\`, judged by what their clients and disks
show; a test of the servers' storage; or the first of the random seeds 1, 2, 3 … of the system simulation that breaks a rule.
A conversation says that the replica answers otherwise than it should; a schedule or a seed says what comes of it.
\`npm test\` demands it of every row, of those that name a test in tenths, another one with each change of the code (\`PLANTED=all npm test\` at once), and that the
unchanged code passes all of it; \`npm run planted -- replica --write\` makes this page anew. The lines themselves are in \`test/simulation/planted-replica*.ts\`.

Some bugs are covered by a second defence, which is taken away with them: "with n more". Where both are *paired*, nobody
notices either of them alone, which is tested as well.
`;

/** One page, with the bugs it tells of. */
export interface Page {
  readonly layer: 'lease' | 'replica';
  readonly bugs: readonly Planted[];
  readonly head: string;
}

export const PAGES: readonly Page[] = [
  { layer: 'lease', bugs: PLANTED_LEASE, head: LEASE_HEAD },
  { layer: 'replica', bugs: PLANTED_REPLICA, head: REPLICA_HEAD },
];

function pagePath({ layer }: Page): string {
  return fileURLToPath(new URL(`../../docs/${layer}-planted.md`, import.meta.url));
}

/** @returns the page as it is in the repository */
export function pageRead(page: Page): string {
  return readFileSync(pagePath(page), 'utf8');
}

/** What a row says before anything was tried. */
export function rowText(bug: Planted): string {
  const more = bug.also?.length ?? 0;
  const covers = more === 0 ? '' : `with ${more} more${bug.paired ? ', paired' : ''}`;
  return `| ${bug.row} | ${bug.what} | ${covers}`;
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

function catchText({ layer }: Page, bug: Planted, { told, said, seed }: Catch): string {
  const { directed, conversation, seeds, test } = bug.caughtBy;
  const cells = [cellText(directed ?? `${test?.file}, "${test?.name}"`, said)];
  if (layer === 'replica') cells.unshift(cellText(conversation ?? '', told));
  cells.push(seed === undefined ? '' : seed === null ? `NOT in ${seeds}` : String(seed));
  return ` | ${cells.join(' | ')} |`;
}

/** @returns how many bugs nobody noticed */
async function tablePrint(page: Page, write: boolean): Promise<number> {
  const talks = page.layer === 'replica' ? ' conversation, and what differs |' : '';
  const columns = `| bug | what is wrong | covers taken away |${talks} schedule or test, and what it says | seeds |`;
  const lines = [columns, columns.replace(/[^|]+/g, '---')];
  let missed = 0;
  for (const line of lines) console.log(line);
  for (const bug of page.bugs) {
    const caught = await plantedHunt(bug);
    if (caught.told === null || caught.said === null || caught.seed === null) missed++;
    const line = rowText(bug) + catchText(page, bug, caught);
    lines.push(line);
    console.log(line);
  }
  console.log(`${page.bugs.length} bugs, ${missed} of them missed`);
  if (write && missed === 0) writeFileSync(pagePath(page), `${page.head}\n${lines.join('\n')}\n`);
  return missed;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const words = process.argv.slice(2);
  const named = PAGES.filter(({ layer }) => words.includes(layer));
  for (const page of named.length > 0 ? named : PAGES) {
    if ((await tablePrint(page, words.includes('--write'))) > 0) process.exitCode = 1;
  }
}
