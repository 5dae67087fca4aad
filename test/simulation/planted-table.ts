/**
 * `npm run planted` plants every bug of the lease layer, looks who notices it, and prints that as a table;
 * with `--write` it becomes `docs/lease-planted.md`. Ends with code 1 if anybody who should notice does not.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Planted } from './planted.ts';
import { PLANTED_LEASE } from './planted-all.ts';
import { type Catch, plantedHunt } from './planted-hunt.ts';

const DOCUMENT = fileURLToPath(new URL('../../docs/lease-planted.md', import.meta.url));

const HEAD = `# The planted bugs of the lease layer

A simulation is worth what it notices. Each row is one line of the real code, changed in a copy; who notices is a directed
schedule, a script of \`test/testdata/simulation/lease\` or a case of \`test/simulation/*-cases.ts\`, or the first of the random seeds
1, 2, 3 … that breaks a rule. \`npm test\` demands it of every row and that the unchanged code passes all of it;
\`npm run planted -- --write\` makes this page anew. The lines themselves are in \`test/simulation/planted-*.ts\`.

Some bugs are covered by a second defence, which is taken away with them: "with n more". Where both are *paired*, the schedule
notices neither the bug without its cover nor the lack of the cover alone, which is tested as well.

`;

/** @returns the page as it is in the repository */
export function documentRead(): string {
  return readFileSync(DOCUMENT, 'utf8');
}

/** What a row says before anything was tried. */
export function rowText(bug: Planted): string {
  const more = bug.also?.length ?? 0;
  const covers = more === 0 ? '' : `with ${more} more${bug.paired ? ', paired' : ''}`;
  return `| ${bug.row} | ${bug.what} | ${covers}`;
}

function catchText(bug: Planted, { said, seed }: Catch): string {
  const { directed, seeds } = bug.caughtBy;
  const rule = said?.replace(/^\w+: /, '').replace(/ \S+\.txt:(\d+)/, ' line $1');
  const script = said === undefined ? '' : said === null ? `NOT by ${directed}` : `${directed}: ${rule}`;
  const random = seed === undefined ? '' : seed === null ? `NOT in ${seeds}` : String(seed);
  return ` | ${script} | ${random} |`;
}

async function tablePrint(write: boolean): Promise<number> {
  const copies = mkdtempSync(join(tmpdir(), 'leasehold-planted-'));
  const lines = [
    '| bug | what is wrong | covers taken away | schedule, and what it says | seeds |',
    '|---|---|---|---|---|',
  ];
  let missed = 0;
  try {
    for (const line of lines) console.log(line);
    for (const bug of PLANTED_LEASE) {
      const caught = await plantedHunt(copies, bug);
      if (caught.said === null || caught.seed === null) missed++;
      const line = rowText(bug) + catchText(bug, caught);
      lines.push(line);
      console.log(line);
    }
  } finally {
    rmSync(copies, { recursive: true, force: true });
  }
  console.log(`${PLANTED_LEASE.length} bugs, ${missed} of them missed`);
  if (write && missed === 0) writeFileSync(DOCUMENT, `${HEAD}${lines.join('\n')}\n`);
  return missed === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.exitCode = await tablePrint(process.argv.includes('--write'));
}
