import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EXIT_FAILURE, wantedOrExit } from '../command-line.ts';
import { reportText } from '../lease/report.ts';
import { machineHere, machineText } from '../machine.ts';
import { documentWith } from '../replication/document.ts';
import { argumentsOf, USAGE, type Wanted } from './arguments.ts';
import { type Cost, costOf } from './counts.ts';
import { Gluster } from './gluster.ts';
import { CLOSE_ROWS, type SubjectName } from './names.ts';
import { ownSubject, Policies } from './own.ts';
import { bindfsSubject, diskSubject } from './peers.ts';
import { run } from './programs.ts';
import { type Measured, reportOf } from './report.ts';
import { amountsOf, ROWS } from './rows.ts';
import { Missing, type Subject } from './subject.ts';

const DOCUMENT = fileURLToPath(new URL('../../docs/performance.md', import.meta.url));
const TITLE = 'Mounts, and what others would use';

const gluster = new Gluster();
const policies = new Policies();
const STARTS: Readonly<Record<SubjectName, (mounts: number) => Promise<Subject>>> = {
  native: () => ownSubject('native'),
  kernel: () => ownSubject('kernel'),
  'flush-behind': () => ownSubject('flush-behind'),
  ttl: (mounts) => policies.subject('ttl', mounts),
  leases: (mounts) => policies.subject('leases', mounts),
  disk: diskSubject,
  bindfs: bindfsSubject,
  gluster: () => gluster.subject('gluster'),
  'gluster-waits': async () => {
    const subject = await gluster.subject('gluster-waits', [['performance.flush-behind', 'off']]);
    return { ...subject, rows: CLOSE_ROWS };
  },
};

async function measureAll(wanted: Wanted, machine: string): Promise<void> {
  const missing: string[] = [];
  const subjects: Subject[] = [];
  const shared = mkdtempSync(join(tmpdir(), 'leasehold-bench-shared-'));
  try {
    for (const name of wanted.subjects) {
      progress(`starting ${name}`);
      const subject = await orMissing(name, missing, () => STARTS[name](wanted.mounts));
      if (subject !== null) subjects.push(subject);
    }
    const measured = await measureRows(wanted, subjects, shared, missing, (rows) => {
      if (wanted.json !== null) writeFileSync(wanted.json, valuesText(wanted, machine, missing, rows));
    });
    const names = subjects.map(({ name }) => name);
    const report = reportOf(measured, names, missing, wanted.quick);
    process.stdout.write(`\n${reportText(report)}\n`);
    if (wanted.writeDocs) {
      const chapter = { name: '', title: TITLE, report };
      const text = documentWith(readFileSync(DOCUMENT, 'utf8'), machine, [chapter], 'bench:mount');
      writeFileSync(DOCUMENT, text);
    }
  } finally {
    for (const subject of subjects.toReversed()) await subject.stop();
    rmSync(shared, { recursive: true, force: true });
  }
}

function valuesText(
  { quick, part, runs, mounts }: Wanted,
  machine: string,
  missing: readonly string[],
  measured: readonly Measured[],
): string {
  return `${JSON.stringify({ machine, quick, part, runs, mounts, missing, measured }, null, 2)}\n`;
}

/** Measures subjects in turn, so that other load of the machine affects all of them. */
async function measureRows(
  { rows, runs, quick, part }: Wanted,
  subjects: readonly Subject[],
  shared: string,
  missing: string[],
  noted: (measured: readonly Measured[]) => void,
): Promise<Measured[]> {
  const amounts = amountsOf(quick, part);
  const measured: Measured[] = [];
  for (const name of rows) {
    const row = ROWS[name];
    const of = new Map(
      subjects
        .filter(({ rows: own }) => own?.includes(name) ?? true)
        .map((subject) => [
          subject,
          { values: [] as number[], operations: [] as number[], costs: [] as Cost[] },
        ]),
    );
    for (let turn = 0; turn < runs; turn++) {
      for (const [subject, { values, operations, costs }] of of) {
        progress(`${name}, ${subject.name}, run ${turn + 1} of ${runs}`);
        const folder = join(subject.directory, name);
        const others = (subject.others ?? []).map((directory) => join(directory, name));
        const value = await orMissing(`${name} of ${subject.name}`, missing, async () => {
          mkdirSync(folder, { recursive: true });
          const counted = async <Value>(work: () => Promise<Value>): Promise<Value> => {
            for (const other of others) await run('sh', ['-c', 'ls -lR "$0" > /dev/null', other]);
            const { value: result, cost } = await costOf(subject, work);
            costs.push(cost);
            return result;
          };
          return row.measure({
            subject,
            folder,
            folders: [folder, ...others],
            turn,
            amounts,
            shared,
            counted,
          });
        });
        if (value === null) {
          of.delete(subject);
          continue;
        }
        values.push(value);
        operations.push(row.operations(amounts, value));
      }
    }
    for (const subject of subjects) rmSync(join(subject.directory, name), { recursive: true, force: true });
    const bytes = row.bytes?.(amounts) ?? null;
    const figures = [...of].map(([{ name: whose }, figure]) => ({ subject: whose, ...figure }));
    measured.push({ name, bytes, figures });
    noted(measured);
  }
  return measured;
}

/**
 * @returns null if the measurement is not possible on this machine, which is printed; a failure is printed, too, and
 * fails the program
 */
async function orMissing<Value>(
  what: string,
  missing: string[],
  work: () => Promise<Value>,
): Promise<Value | null> {
  try {
    return await work();
  } catch (error) {
    const failed = !(error instanceof Missing);
    if (failed) process.exitCode = EXIT_FAILURE;
    const why = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    missing.push(`Not measured: ${what}: ${failed ? 'failed: ' : ''}${why}.`);
    return null;
  }
}

function progress(text: string): void {
  process.stderr.write(`… ${text}\n`);
}

const wanted = wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE);
const machine = machineText(machineHere());
process.stdout.write(`${machine}\n`);
const how = wanted.quick ? 'quick, so that no figure means anything; ' : '';
process.stdout.write(`${how}${wanted.runs} runs of each, their median and spread\n`);
await measureAll(wanted, machine);
// Servers and connections would keep the process alive; they end with it.
process.exit();
