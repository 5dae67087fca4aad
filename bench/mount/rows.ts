import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Order, perform } from './load.ts';
import type { RowName } from './names.ts';
import { isInstalled, run, secondsOf } from './programs.ts';
import { Missing, type Subject } from './subject.ts';

const MIB = 1024 * 1024;
const SMALL_BYTES = 4096;
const RANDOM_SEED = 0x2545f491;

/** The amount of work in one measurement. */
export interface Amounts {
  readonly sequentialMib: number;
  readonly randomMib: number;
  readonly randomMs: number;
  readonly files: number;
  readonly tarFiles: number;
  readonly listedFiles: number;
  readonly dbenchSeconds: number;
}

const AMOUNTS: Amounts = {
  sequentialMib: 256,
  randomMib: 256,
  randomMs: 5_000,
  files: 500,
  tarFiles: 2_000,
  listedFiles: 10_000,
  dbenchSeconds: 20,
};

const AMOUNTS_QUICK: Amounts = {
  sequentialMib: 4,
  randomMib: 2,
  randomMs: 200,
  files: 10,
  tarFiles: 10,
  listedFiles: 20,
  dbenchSeconds: 2,
};

/** @param part of everything, this part is done */
export function amountsOf(quick: boolean, part: number): Amounts {
  if (quick) return AMOUNTS_QUICK;
  const divided = Object.entries(AMOUNTS).map(([name, amount]) => [name, Math.ceil(amount / part)]);
  return { ...AMOUNTS, ...Object.fromEntries(divided) };
}

/** One measurement of a subject. */
export interface Row {
  readonly title: string;
  readonly unit: string;
  /** Whether less is better (seconds); otherwise more is. */
  readonly less?: boolean;
  /** The kind of its goal: metadata and small files must be twice as fast as GlusterFS. */
  readonly kind: 'data' | 'metadata';
  /** Bytes that one measurement moves, if CPU per byte is to be reported. */
  readonly bytes?: (amounts: Amounts) => number;
  /** @param value as `measure` returned it. @returns the number of operations in one measurement */
  readonly operations: (amounts: Amounts, value: number) => number;
  /**
   * @param at.folder a folder of this row on the subject, which later runs use again
   * @param at.turn the number of the run, from 0
   * @throws Missing if it is not possible on this machine
   */
  readonly measure: (at: Place) => Promise<number>;
}

export interface Place {
  readonly subject: Subject;
  readonly folder: string;
  /** The same folder by each mount; jobs use them in turn. */
  readonly folders: readonly string[];
  readonly turn: number;
  readonly amounts: Amounts;
  /** Runs the measured work, and counts its CPU; preparations are not counted. */
  counted<Value>(work: () => Promise<Value>): Promise<Value>;
  /** A folder on the local disk that all subjects share, for input files. */
  readonly shared: string;
}

const sequential = (amounts: Amounts): number => amounts.sequentialMib * MIB;
const folderOf = ({ folders, folder }: Place, job: number): string => folders[job % folders.length] ?? folder;

function repositoryFiles({ tarFiles }: Amounts): number {
  return Math.ceil(tarFiles / 4);
}

function writing(requestBytes: number, fsync: boolean): Row {
  const size = requestBytes === MIB ? '1 MiB' : '128 KiB';
  return {
    title: `sequential write, ${size} requests, ${fsync ? 'and fsync' : 'close without fsync'}`,
    unit: 'MB/s',
    kind: 'data',
    bytes: sequential,
    operations: (amounts) => sequential(amounts) / requestBytes,
    async measure({ folder, amounts, turn, counted }) {
      const path = join(folder, `f${turn}`);
      const order: Order = { kind: 'write', path, bytes: sequential(amounts), requestBytes, fsync };
      return (await counted(() => perform([order]))) / 1e6;
    },
  };
}

function reading(requestBytes: number, cold: boolean): Row {
  const size = requestBytes === MIB ? '1 MiB' : '128 KiB';
  return {
    title: `sequential read, ${size} requests, ${cold ? 'nothing cached' : 'cached'}`,
    unit: 'MB/s',
    kind: 'data',
    bytes: sequential,
    operations: (amounts) => sequential(amounts) / requestBytes,
    async measure({ folder, amounts, turn, counted }) {
      const path = join(folder, 'file');
      const bytes = sequential(amounts);
      if (turn === 0) await perform([{ kind: 'write', path, bytes, requestBytes: MIB, fsync: true }]);
      if (cold) await dropCaches();
      else await perform([{ kind: 'read', path, bytes, requestBytes }]);
      return (await counted(() => perform([{ kind: 'read', path, bytes, requestBytes }]))) / 1e6;
    },
  };
}

function random(writes: boolean, jobs: number): Row {
  return {
    title: `4 KiB random ${writes ? 'writes, then fsync' : 'reads, nothing cached'}, ${jobs === 1 ? '1 job' : `${jobs} jobs`}`,
    unit: '/s',
    kind: 'data',
    operations: ({ randomMs }, value) => (value * randomMs) / 1000,
    async measure(at) {
      const { folder, amounts, turn, counted } = at;
      const bytes = amounts.randomMib * MIB;
      const path = join(folder, 'file');
      if (turn === 0) await perform([{ kind: 'write', path, bytes, requestBytes: MIB, fsync: true }]);
      await dropCaches();
      const orders = Array.from({ length: jobs }, (_, job): Order => {
        return {
          kind: 'random',
          path: join(folderOf(at, job), 'file'),
          bytes,
          writes,
          forMs: amounts.randomMs,
          seed: RANDOM_SEED + 7_919 * job,
        };
      });
      return counted(() => perform(orders));
    },
  };
}

function creating(jobs: number): Row {
  return {
    title: `create, write 4 KiB, close, ${jobs === 1 ? '1 job' : `${jobs} jobs`}`,
    unit: 'files/s',
    kind: 'metadata',
    operations: ({ files }) => files,
    async measure(at) {
      const { amounts, turn, counted } = at;
      const count = Math.ceil(amounts.files / jobs);
      const orders = Array.from({ length: jobs }, (_, job): Order => {
        return {
          kind: 'create',
          folder: join(folderOf(at, job), `d${turn}`),
          from: job * count,
          count,
          bytes: SMALL_BYTES,
        };
      });
      return counted(() => perform(orders));
    },
  };
}

/** Stats existing files, or removes them. */
function eachFile(kind: 'stat' | 'unlink'): Row {
  return {
    title: kind === 'stat' ? 'stat, nothing cached' : 'unlink',
    unit: 'files/s',
    kind: 'metadata',
    operations: ({ files }) => files,
    async measure({ folder, amounts, turn, counted }) {
      const files = { folder: join(folder, `d${turn}`), from: 0, count: amounts.files };
      await perform([{ kind: 'create', ...files, bytes: 0 }]);
      await dropCaches();
      return counted(() => perform([{ kind, ...files }]));
    },
  };
}

export const ROWS: Readonly<Record<RowName, Row>> = {
  'write-1m': writing(MIB, false),
  'write-128k': writing(128 * 1024, false),
  'write-1m-fsync': writing(MIB, true),
  'write-128k-fsync': writing(128 * 1024, true),
  'read-1m-cold': reading(MIB, true),
  'read-128k-cold': reading(128 * 1024, true),
  'read-1m-cached': reading(MIB, false),
  'random-read-1': random(false, 1),
  'random-read-8': random(false, 8),
  'random-write-1': random(true, 1),
  'random-write-8': random(true, 8),
  create: creating(1),
  'create-8': creating(8),
  stat: eachFile('stat'),
  unlink: eachFile('unlink'),
  untar: {
    title: 'tar -x of many small files',
    unit: 's',
    less: true,
    kind: 'metadata',
    operations: ({ tarFiles }) => tarFiles,
    async measure({ folder, shared, amounts, turn, counted }) {
      await needs('tar');
      const archive = join(shared, 'files.tar');
      await once(archive, () => makeArchive(shared, archive, amounts.tarFiles));
      const target = join(folder, `t${turn}`);
      mkdirSync(target);
      return counted(() => secondsOf(() => run('tar', ['-C', target, '-xf', archive])));
    },
  },
  'git-clone': {
    title: 'git clone of a local repository',
    unit: 's',
    less: true,
    kind: 'metadata',
    operations: repositoryFiles,
    async measure({ folder, shared, amounts, turn, counted }) {
      await needs('git');
      const repository = join(shared, 'repository');
      await once(repository, () => makeRepository(repository, repositoryFiles(amounts)));
      const target = join(folder, `c${turn}`);
      return counted(() => secondsOf(() => run('git', ['clone', '--quiet', `file://${repository}`, target])));
    },
  },
  dbench: {
    title: 'dbench, 10 clients',
    unit: 'MB/s',
    kind: 'metadata',
    // One operation is a megabyte.
    operations: ({ dbenchSeconds }, value) => dbenchSeconds * value,
    async measure({ folder, amounts, counted }) {
      await needs('dbench');
      const seconds = `${amounts.dbenchSeconds}`;
      const text = await counted(() => run('dbench', ['-D', folder, '-t', seconds, '10']));
      const found = /^Throughput ([\d.]+) MB\/sec/m.exec(text);
      if (found === null) throw new Error(`dbench said no throughput: ${text.slice(-500)}`);
      return Number(found[1]);
    },
  },
  list: {
    title: 'ls -lR of many files, nothing cached',
    unit: 's',
    less: true,
    kind: 'metadata',
    operations: ({ listedFiles }) => listedFiles,
    async measure({ folder, amounts, turn, counted }) {
      const count = Math.ceil(amounts.listedFiles / 10);
      if (turn === 0) {
        const orders = Array.from({ length: 10 }, (_, part): Order => {
          return { kind: 'create', folder: join(folder, `d${part}`), from: 0, count, bytes: 0 };
        });
        await perform(orders);
      }
      await dropCaches();
      return counted(() => secondsOf(() => run('sh', ['-c', 'ls -lR "$0" > /dev/null', folder])));
    },
  },
};

async function needs(program: string): Promise<void> {
  if (!(await isInstalled(program))) throw new Missing(`${program} is not installed`);
}

/** Drops the kernel's caches of files and names, for all subjects. */
async function dropCaches(): Promise<void> {
  await run('sync', []);
  try {
    await writeFile('/proc/sys/vm/drop_caches', '3\n');
  } catch {
    throw new Missing('only root can make the kernel forget what it has cached');
  }
}

const made = new Set<string>();

async function once(path: string, make: () => Promise<void>): Promise<void> {
  if (made.has(path)) return;
  await make();
  made.add(path);
}

async function makeArchive(shared: string, archive: string, count: number): Promise<void> {
  const source = join(shared, 'tar');
  fill(source, count);
  await run('tar', ['-C', source, '-cf', archive, '.']);
  rmSync(source, { recursive: true });
}

async function makeRepository(repository: string, count: number): Promise<void> {
  fill(repository, count);
  const git = (...words: string[]) =>
    run('git', ['-C', repository, '-c', 'user.name=Bench', '-c', 'user.email=bench@example.org', ...words]);
  await git('init', '--quiet', '--initial-branch=main');
  await git('add', '.');
  await git('commit', '--quiet', '--message=All of it');
}

/** Creates files of one to about eight KiB in folders of a hundred, as in a source tree. */
function fill(folder: string, count: number): void {
  for (let number = 0; number < count; number++) {
    const place = join(folder, `d${Math.floor(number / 100)}`);
    if (number % 100 === 0) mkdirSync(place, { recursive: true });
    writeFileSync(join(place, `f${number}.txt`), `${number}\n`.repeat(200 + ((number * 37) % 1_500)));
  }
}
