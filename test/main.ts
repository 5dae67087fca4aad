/**
 * `npm test`: runs all test files, or the given ones, several at a time. `npm run test:long` runs their long forms.
 * Files that start no process share processes, since starting a process costs more than most of these files; each other
 * file has its own process. Most files wait for servers, and leave processors idle now and then: files that only
 * compute use that time, at a lower priority. In both queues the long files begin first, so that no processor is idle
 * at the end.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, globSync, rmSync } from 'node:fs';
import { availableParallelism, setPriority } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { KEEP_COMPILED_VARIABLE } from './compiled-script.ts';
import { LAUNCHER_VARIABLE } from './launcher.ts';
import { isLong } from './long.ts';
import { LONG_FILES } from './long-files.ts';

const ROOT = dirname(import.meta.dirname);
/** Files of this run: `npm test` removes those of the run before. */
const CACHE = join(ROOT, 'node_modules/.cache/tests');
/** Servers, mounts and commands with their packages, as test/build.ts builds them. Each run has its own. */
const BUILT = join(ROOT, `node_modules/.cache/tests-build-${process.pid}`);
const ENV: NodeJS.ProcessEnv = {
  ...process.env,
  // Code that Node has compiled for one process is used by the others.
  NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? CACHE,
  [LAUNCHER_VARIABLE]: join(BUILT, 'bin/leasehold.js'),
};
/** Loaded before the tests of a process. */
const PRELOADED = ['resolve-hook.ts', 'processor-time.ts'].map(
  (file) => `--import=${join(import.meta.dirname, file)}`,
);
/**
 * Folders whose tests start no process, mount nothing and set no variable of the process, with the number of processes
 * for each.
 */
const SHARED: Readonly<Record<string, number>> = {
  base: 1,
  catalog: 1,
  client: 1,
  fuse: 1,
  history: 1,
  http: 1,
  lease: 1,
  live: 1,
  membership: 1,
  named: 1,
  replica: 1,
  server: 3,
  storage: 1,
  transport: 1,
  wire: 1,
};
/** Files of these folders that start processes, mount, or set variables of the process. */
const APART: ReadonlySet<string> = new Set([
  'test/client/archive.test.ts',
  'test/client/cli.test.ts',
  'test/client/cluster-client.test.ts',
  'test/client/dev.test.ts',
  'test/client/doctor.test.ts',
  'test/client/free-ports.test.ts',
  'test/client/launcher.test.ts',
  'test/client/mount.test.ts',
  'test/client/mount-log.test.ts',
  'test/client/run-program.test.ts',
  'test/client/secure-commands.test.ts',
  'test/client/server-search.test.ts',
  'test/client/silence.test.ts',
  'test/client/unmount.test.ts',
  'test/fuse/closed-locks.test.ts',
  'test/fuse/holes.test.ts',
  'test/fuse/kernel/device-number.test.ts',
  'test/fuse/kernel/given-pages.test.ts',
  'test/fuse/kernel/kernel-mount.test.ts',
  'test/fuse/kernel/names.test.ts',
  'test/fuse/mount.test.ts',
  'test/named/driver.test.ts',
  'test/named/supervisor.test.ts',
  'test/named/held-lease.test.ts',
  'test/named/lease-command.test.ts',
  'test/storage/crash.test.ts',
  'test/storage/damaged-folder.test.ts',
  'test/storage/data-folder.test.ts',
  'test/storage/local-reads.test.ts',
  'test/storage/power-cut.test.ts',
  'test/storage/power-loss.test.ts',
]);
/** Folders whose tests compute and have no bound in real time. */
const COMPUTES: ReadonlySet<string> = new Set([
  'architecture',
  'catalog',
  'history',
  'lease',
  'planted',
  'simulation',
]);
/** Of files that compute: all others have three times the share of a processor. */
const NICENESS = 5;
const FLAGS: Readonly<Record<string, readonly string[]>> = {
  // Most objects of a simulation are garbage at once: a large nursery saves a tenth of the processor time.
  simulation: [
    ...['--max-semi-space-size=64', '--min-semi-space-size=64'],
    `--import=${join(import.meta.dirname, 'untracked-promises.ts')}`,
  ],
  // Failed tests leave timers and servers.
  'test/simulation/planted.test.ts': ['--test-force-exit'],
};
/** Files and folders sorted by their duration, or by that of the folder's longest file; unlisted ones follow. */
const LONGEST_FIRST = [
  'test/simulation/cluster/cluster.test.ts',
  'test/simulation/cluster/mounts.test.ts',
  'test/simulation/cluster/wholes.test.ts',
  'test/simulation/planted.test.ts',
  'test/simulation/cluster/schedules.test.ts',
  'test/packaging/npm-package.test.ts',
  'test/repair/failed-disk.test.ts',
  'test/fuse/mount.test.ts',
  'test/programs/everyday.test.ts',
  'test/client/dev.test.ts',
  'test/storage/power-loss.test.ts',
  'test/security/revocation.test.ts',
  'test/client/run-program.test.ts',
  'test/client/secure-commands.test.ts',
  'simulation',
  'docs',
  'cluster',
  'server',
  'web',
  'repair',
  'posix',
  'mount',
  'named',
  'packaging',
  'nemesis',
];
/** Most files wait for servers more than they compute. */
const FILES_PER_PROCESSOR = 2.5;
/** In addition; once none is left, half as many more of the others run instead. */
const COMPUTING_PER_PROCESSOR = 1;
/** Each process has mounts of its own: a test that copies all mounts, as a container does, copies those of no other. */
const OWN_MOUNTS: readonly string[] = ownMounts();
const TEST_MS_MAX = 900_000;
/** A process that has not ended by then hangs. */
const PROCESS_MS_MAX = 1_800_000;

/** What one process runs. */
interface Unit {
  readonly name: string;
  readonly folder: string;
  readonly files: readonly string[];
}

interface Outcome {
  readonly unit: Unit;
  readonly output: string;
  readonly isGood: boolean;
  readonly tookMs: number;
  /** Processor time; that of mounts is not included. */
  readonly usedS: number;
}

function ownMounts(): string[] {
  const wrapper = ['unshare', '--mount', '--propagation', 'private'];
  return spawnSync(wrapper[0] ?? '', [...wrapper.slice(1), 'true']).status === 0 ? wrapper : [];
}

function folderOf(file: string): string {
  return file.split('/')[1] ?? '';
}

function unitsOf(files: readonly string[]): Unit[] {
  const units: Unit[] = [];
  for (const [folder, its] of Map.groupBy(files, folderOf)) {
    const processes = SHARED[folder] ?? 0;
    const isShared = (file: string): boolean => processes > 0 && !APART.has(file);
    for (const file of its) if (!isShared(file)) units.push({ name: file, folder, files: [file] });
    const shared = its.filter(isShared);
    for (let at = 0; at < Math.min(processes, shared.length); at++) {
      units.push({
        name: `test/${folder} (${at + 1} of ${processes})`,
        folder,
        files: shared.filter((_, place) => place % processes === at),
      });
    }
  }
  const rank = ({ name, folder, files }: Unit): number => {
    if (files.length > 1) return -1;
    const place = LONGEST_FIRST.findIndex((one) => one === name || one === folder);
    return place < 0 ? LONGEST_FIRST.length : place;
  };
  return units.sort((a, b) => rank(a) - rank(b) || b.files.length - a.files.length);
}

async function play(unit: Unit): Promise<Outcome> {
  const beganMs = performance.now();
  const flags = [`--test-timeout=${TEST_MS_MAX}`, '--test-reporter=spec'];
  // For several files the program is Node's test runner. It tracks promises before it loads what is to be preloaded.
  if (unit.folder !== 'simulation') flags.push('--test', '--test-isolation=none');
  const argv = [
    ...PRELOADED,
    ...(FLAGS[unit.folder] ?? []),
    ...(FLAGS[unit.name] ?? []),
    ...flags,
    ...unit.files,
  ];
  const [program = '', ...before] = [...OWN_MOUNTS, process.execPath];
  const child = spawn(program, [...before, ...argv], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: ENV,
  });
  if (COMPUTES.has(unit.folder) && child.pid !== undefined) setPriority(child.pid, NICENESS);
  const limit = setTimeout(() => child.kill('SIGKILL'), PROCESS_MS_MAX);
  const [out, err, [code, signal]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>,
  ]);
  clearTimeout(limit);
  const end = signal === null ? '' : `\nEnded by ${signal}\n`;
  // A file without a test proves nothing, and passes.
  const isGood = code === 0 && !/^ℹ tests 0$/m.test(out);
  const usedS = Number(/^ℹ processor_seconds ([\d.]+)$/m.exec(out)?.[1] ?? 0);
  return { unit, output: `${out}${err}${end}`, isGood, tookMs: performance.now() - beganMs, usedS };
}

/** Sums of what the runs print at their ends: tests, pass, fail, skipped … */
function countsOf(outcomes: readonly Outcome[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { output } of outcomes) {
    for (const [, what = '', count] of output.matchAll(
      /^ℹ (tests|suites|pass|fail|cancelled|skipped|todo) (\d+)$/gm,
    )) {
      counts.set(what, (counts.get(what) ?? 0) + Number(count));
    }
  }
  return counts;
}

const { values, positionals } = parseArgs({
  options: { jobs: { type: 'string' } },
  allowPositionals: true,
});
const jobs = Number(values.jobs ?? Math.ceil(FILES_PER_PROCESSOR * availableParallelism()));
const computingJobs = Math.ceil(COMPUTING_PER_PROCESSOR * availableParallelism());
const patterns = positionals.length > 0 ? positionals : ['test/**/*.test.ts'];
const found = globSync(patterns, { cwd: ROOT })
  .map((file) => relative(ROOT, join(ROOT, file)))
  .sort();
for (const file of Object.entries(LONG_FILES).flat(2)) {
  if (!existsSync(join(ROOT, file))) throw new Error(`There is no ${file}, which test/long-files.ts names`);
}
// Files named on the command line always run.
const files = found.filter((file) => isLong || positionals.includes(file) || !(file in LONG_FILES));
if (files.length === 0) throw new Error(`No test file is ${patterns.join(' or ')}`);
process.on('exit', () => rmSync(BUILT, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));
execFileSync(process.execPath, [join(ROOT, 'test/build.ts'), BUILT], { stdio: 'inherit' });
const units = unitsOf(files);
const outcomes: Outcome[] = [];
const beganMs = performance.now();
/** Runs the remaining units, in their order, so many at a time. */
async function playAll(left: Iterable<Unit>, atATime: number): Promise<void> {
  await Promise.all(
    Array.from({ length: atATime }, async () => {
      for (const unit of left) {
        const outcome = await play(unit);
        outcomes.push(outcome);
        const seconds = (outcome.tookMs / 1000).toFixed(1);
        const at = ((performance.now() - beganMs) / 1000).toFixed(0);
        // The output of one process stays together.
        process.stdout.write(
          `${outcome.isGood ? '' : 'FAILED: '}${unit.name} (${seconds} s, ${outcome.usedS} of processor, at ${at} s)\n${outcome.output}\n`,
        );
      }
    }),
  );
}

const queueOf = (computes: boolean): Iterable<Unit> =>
  units.filter(({ folder }) => COMPUTES.has(folder) === computes).values();
const [computing, waiting] = [queueOf(true), queueOf(false)];
/** Compiles servers, mounts and commands of tests once, by running them. Tests work without it, only slower. */
async function compile(): Promise<void> {
  const env = { ...ENV, [KEEP_COMPILED_VARIABLE]: '1' };
  const script = join(import.meta.dirname, 'compile.ts');
  const [code] = await once(spawn(process.execPath, [script], { env, stdio: 'inherit' }), 'exit');
  if (code !== 0) console.log(`The programs were not compiled beforehand: ${script} ended with ${code}`);
}

const compiled = compile();
await Promise.all([
  compiled.then(() => playAll(waiting, jobs)),
  playAll(computing, computingJobs)
    .then(() => compiled)
    .then(() => playAll(waiting, Math.ceil(computingJobs / 2))),
]);
const bad = outcomes.filter(({ isGood }) => !isGood);
for (const { unit, output } of bad) {
  const failing = output.indexOf('✖ failing tests:');
  process.stdout.write(
    `\nFAILED: ${unit.name}\n${failing < 0 ? output.slice(-4_000) : output.slice(failing)}\n`,
  );
}
const counts = [...countsOf(outcomes)].map(([what, count]) => `${count} ${what}`).join(', ');
const seconds = ((performance.now() - beganMs) / 1000).toFixed(0);
const used = outcomes.reduce((sum, { usedS }) => sum + usedS, 0).toFixed(0);
console.log(
  `${files.length} files in ${units.length} processes, ${jobs} and ${computingJobs} at a time: ${counts}; ${seconds} s, ${used} of processor`,
);
for (const { unit } of bad) console.log(`FAILED: ${unit.name}`);
if (bad.length > 0) process.exitCode = 1;
