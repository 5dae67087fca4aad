import { chmod, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Prng } from '../../../base/prng.ts';
import type { World } from '../../../base/world.ts';
import type { FileSystemBackend } from '../../../fuse/backend.ts';
import { mountVolume } from '../../../fuse/mount.ts';
import type { FileSystemCalls, Transport } from '../../../fuse/transport.ts';
import { type TransportName, transportNamed } from '../../../fuse/transports.ts';
import { systemWorld } from '../../../world/system-world.ts';
import { MemoryBackend } from '../../fuse/memory-backend.ts';
import { type Outcome, Program, USERS, type UserName } from '../../posix/program.ts';
import { ModelKernel } from './model-kernel.ts';
import { ModelProgram } from './model-program.ts';

/**
 * The same calls of several processes on the model of the kernel and on Linux, above the same mount and the same
 * volume in memory: compares the programs' answers and the requests to the file system.
 */
interface Step {
  readonly process: ProcessName;
  readonly call: string;
  readonly values: readonly (string | number)[];
}

const PROCESSES = ['root', 'alice', 'bob', 'alice-2'] as const;
type ProcessName = (typeof PROCESSES)[number];

/** The result of a step. */
interface Observed extends Outcome {
  /** The requests to the file system meanwhile, in order; background reads are sorted. */
  readonly asked: readonly string[];
}

interface Subject {
  readonly name: string;
  run(step: Step): Promise<Observed>;
  stop(): Promise<void>;
}

type Maker = Pick<Program, 'call' | 'stop'>;

/** No program waits for them. */
const ASYNCHRONOUS = /^release/;
const BACKGROUND = /^read /;
/** Whether the thread that reads requests knows the answer already depends on time. */
const TIMELY = /^xattr \d+ (system\.posix_acl_|security\.capability)/;
/** Linux may drop cached contents and targets of links at any time to free memory, and then asks for them again. */
const RECLAIMABLE = /^(read|readLink) /;
/** Of one run: a model that drops too little shows more often. */
const RECLAIMED_MAX = 2;
/** Long enough for a request for which no program waits. */
const LIMIT_MS = 60_000;

/** Records the calls of a file system. */
function traced(calls: FileSystemCalls, seen: (text: string) => void): FileSystemCalls {
  const silent = new Set<PropertyKey>(['root', 'inodeOf', 'listed', 'taken', 'keptPages', 'space']);
  return new Proxy(calls, {
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      const run = value.bind(target) as (...all: unknown[]) => unknown;
      if (silent.has(key)) return run;
      return (...all: unknown[]) => {
        seen(described(String(key), all));
        return run(...all);
      };
    },
  });
}

function described(call: string, all: readonly unknown[]): string {
  // Buffer sizes and thread numbers may differ, and are not compared.
  const counts = { readDirectory: 2, lookup: 2, link: 3, xattrs: 1, lock: 3 }[call] ?? all.length;
  return [call, ...all.slice(0, counts).map(textOf)].join(' ');
}

function textOf(value: unknown): string {
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (typeof value === 'bigint') return 'owner';
  if (typeof value !== 'object' || value === null) return String(value);
  const { thread: _, pid: __, owner: ___, ...rest } = value as Record<string, unknown>;
  return JSON.stringify(rest, (_key, each: unknown) => (typeof each === 'bigint' ? String(each) : each));
}

/** Errors that Python raises by itself. */
function plain(errno: string): string {
  if (errno.startsWith('KeyError')) return 'EBADF';
  return /^(Value|Index|Type)Error/.test(errno) ? 'EINVAL' : errno;
}

class TracedSubject implements Subject {
  readonly name: string;
  readonly #program: (who: UserName) => Maker;
  readonly #stop: () => Promise<void>;
  readonly #programs = new Map<ProcessName, Maker>();
  #asked: string[] = [];

  constructor(name: string, program: (who: UserName) => Maker, stop: () => Promise<void>) {
    this.name = name;
    this.#program = program;
    this.#stop = stop;
  }

  readonly seen = (text: string): void => {
    if (!TIMELY.test(text) && !ASYNCHRONOUS.test(text)) this.#asked.push(text);
  };

  async run({ process, call, values }: Step): Promise<Observed> {
    let program = this.#programs.get(process);
    if (program === undefined) {
      program = this.#program(process.replace(/-\d$/, '') as UserName);
      this.#programs.set(process, program);
    }
    this.#asked = [];
    const { errno, ...answer } = await program.call(call, ...values);
    const outcome = errno === undefined ? answer : { errno: plain(errno) };
    const asked = [
      ...this.#asked.filter((text) => !BACKGROUND.test(text)),
      ...this.#asked.filter((text) => BACKGROUND.test(text)).sort(),
    ];
    return { ...outcome, asked };
  }

  async stop(): Promise<void> {
    for (const program of this.#programs.values()) await program.stop();
    await this.#stop();
  }
}

interface SubjectOptions {
  readonly ageMaxMs: number;
  readonly backend?: FileSystemBackend;
}

/**
 * The mount's clock stands still: if its thread waits for a processor for 20 ms while it answers, it drops what the
 * kernel may cache (`InodeView`), and the kernel asks once more.
 */
const world: World = { ...systemWorld, nowMs: () => 0 };

const SOURCE = {
  world,
  source: 'leasehold:compared',
  limitMs: LIMIT_MS,
  xattrs: true,
  log: () => undefined,
} as const;

async function modelSubject({ ageMaxMs, backend = new MemoryBackend() }: SubjectOptions): Promise<Subject> {
  const sysctl = async (name: string): Promise<number> =>
    Number(await readFile(`/proc/sys/fs/${name}`, 'utf8'));
  const kernel = new ModelKernel(world, {
    protectedFifos: await sysctl('protected_fifos'),
    protectedRegular: await sysctl('protected_regular'),
  });
  const subject = new TracedSubject(
    'model',
    (who) => new ModelProgram(kernel, USERS[who]),
    () => mounted.unmount(),
  );
  const transport: Transport = (directory, calls, options) =>
    kernel.transport(directory, traced(calls, subject.seen), options);
  const mounted = await mountVolume(backend, transport, { ...SOURCE, directory: '/', ageMaxMs });
  return subject;
}

/** The kernel of this machine, above the same mount in this process. */
async function linuxSubject(
  over: TransportName,
  { ageMaxMs, backend = new MemoryBackend() }: SubjectOptions,
): Promise<Subject> {
  const above = await mkdtemp(join(tmpdir(), 'leasehold-compared-'));
  await chmod(above, 0o755);
  const directory = join(above, 'mount');
  await mkdir(directory);
  const subject = new TracedSubject(
    over,
    (who) => new RootedProgram(directory, who),
    async () => {
      await mounted.unmount();
      await rm(above, { recursive: true });
    },
  );
  const transport: Transport = (at, calls, options) =>
    transportNamed(over)(at, traced(calls, subject.seen), options);
  const mounted = await mountVolume(backend, transport, { ...SOURCE, directory, ageMaxMs });
  return subject;
}

/** A program whose root directory is the directory. */
class RootedProgram implements Maker {
  readonly #directory: string;
  readonly #program: Program;

  constructor(directory: string, who: UserName) {
    this.#directory = directory;
    this.#program = new Program(USERS[who]);
  }

  call(call: string, ...values: readonly (string | number)[]): Promise<Outcome> {
    const isLink = call === 'symlink';
    const rooted = values.map((value, index) =>
      typeof value === 'string' && value.startsWith('/') && !(isLink && index === 0)
        ? `${this.#directory}${value}`
        : value,
    );
    return this.#program.call(call, ...rooted);
  }

  stop(): Promise<void> {
    return this.#program.stop();
  }
}

// What is drawn.

const FOLDERS = ['', '/d', '/e', '/d/s'] as const;
const NAMES = ['a', 'b', 'c'] as const;
const HANDLES = ['f', 'g'] as const;
const MODES = ['0644', '0600', '0666', '0755', '0777', '0700', '1777', '2775', '4755', '0000'] as const;
const FIELDS = 'type,mode,links,uid,gid,size';
const FLAGS = [
  ...['rdonly', 'wronly', 'rdwr', 'rdwr|creat', 'wronly|creat|excl', 'wronly|trunc', 'rdwr|creat|trunc'],
  ...['wronly|append', 'rdwr|append|creat', 'rdonly|directory', 'rdonly|nofollow', 'rdwr|sync|creat'],
] as const;
const LOCKS = ['shared', 'exclusive', 'unlock'] as const;

/** Draws one call. */
type Draw = (random: Draws) => Omit<Step, 'process'>;

class Draws extends Prng {
  below(limit: number): number {
    return this.integer(0, limit - 1);
  }

  /** The path of a file, a directory, or nothing. */
  path(): string {
    const folder = this.below(12) === 0 ? this.folder() : '';
    return folder === '' ? `${this.folder()}/${this.pick(NAMES)}` : folder;
  }

  /** Also the root, which has no name in the mount. */
  anyPath(): string {
    return this.below(12) === 0 ? '/' : this.path();
  }

  folder(): string {
    return this.pick(FOLDERS);
  }

  handle(): string {
    return this.pick(HANDLES);
  }

  offset(): number {
    return this.pick([0, 0, 1, 5, 100, 4095, 4096, 5000, 8192, 20_000]);
  }

  length(): number {
    return this.pick([1, 3, 10, 100, 4096, 5000, 9000]);
  }

  text(): string {
    return this.pick([...'abcdefghij']).repeat(this.length());
  }
}

const made = (call: string, ...values: readonly (string | number)[]): Omit<Step, 'process'> => ({
  call,
  values,
});

const DRAWS: readonly (readonly [number, Draw])[] = [
  [8, (d) => made('open', d.handle(), d.anyPath(), d.pick(FLAGS), d.pick(['0644', '0666', '0600']))],
  [3, (d) => made('open', d.handle(), d.anyPath(), d.pick(['path', 'path|nofollow', 'path|directory']))],
  [
    5,
    (d) =>
      made('reopen', d.handle(), d.handle(), d.pick(['rdonly', 'rdwr', 'wronly|trunc', 'rdonly|directory'])),
  ],
  [5, (d) => made('close', d.handle())],
  [3, (d) => made('put', d.path(), d.text())],
  [4, (d) => made('get', d.anyPath())],
  [4, (d) => made('write', d.handle(), d.text())],
  [4, (d) => made('pwrite', d.handle(), d.text(), d.offset())],
  [4, (d) => made('read', d.handle(), d.length())],
  [5, (d) => made('pread', d.handle(), d.length(), d.offset())],
  [2, (d) => made('lseek', d.handle(), d.offset(), d.below(5))],
  [4, (d) => made('fstat', d.handle(), FIELDS)],
  [1, (d) => made('fsync', d.handle())],
  [2, (d) => made('ftruncate', d.handle(), d.offset())],
  [2, (d) => made('truncate', d.anyPath(), d.offset())],
  [2, (d) => made('fallocate', d.handle(), d.pick([0, 1, 3, 16, 17]), d.offset(), d.length())],
  [1, (d) => made('copy', d.handle(), d.offset(), d.handle(), d.offset(), d.length())],
  [1, (d) => made('dup', d.handle(), d.handle())],
  [1, (d) => made('set-flags', d.handle(), d.pick(['append', 'rdonly']))],
  [2, (d) => made('mapped-read', d.path(), d.offset(), d.length())],
  [2, (d) => made('mapped-write', d.path(), 0, d.pick(['x', 'yy', 'z'.repeat(100)]))],
  [6, (d) => made('lstat', d.anyPath(), FIELDS)],
  [4, (d) => made('stat', d.anyPath(), FIELDS)],
  [4, (d) => made('list', d.folder() || '/')],
  [3, (d) => made('access', d.anyPath(), d.below(8))],
  [5, (d) => made('mkdir', d.pick(['/d', '/e', '/d/s', d.path()]), d.pick(MODES))],
  [2, (d) => made('rmdir', d.path())],
  [3, (d) => made('create', d.path(), d.pick(MODES))],
  [1, (d) => made('make', d.path(), d.pick(['character', 'socket', 'block']))],
  [3, (d) => made('symlink', d.pick(['a', 'b', 's/../a', 's', 'd', 'nowhere']), d.path())],
  [2, (d) => made('readlink', d.path())],
  [3, (d) => made('link', d.path(), d.path(), d.pick(['nofollow', 'follow']))],
  [5, (d) => made('unlink', d.path())],
  [5, (d) => made('rename', d.path(), d.path())],
  [3, (d) => made('rename-with', d.path(), d.path(), d.pick([1, 2, 3, 4, 5, 6]))],
  [4, (d) => made('chmod', d.anyPath(), d.pick(MODES))],
  [1, (d) => made('fchmod', d.handle(), d.pick(MODES))],
  [2, (d) => made('chown', d.anyPath(), d.pick([-1, 0, 1001, 1002]), d.pick([-1, 0, 1001, 1002]))],
  [1, (d) => made('lchown', d.path(), d.pick([-1, 1001]), d.pick([-1, 1001]))],
  [2, (d) => made('utimens', d.anyPath(), d.pick(['now', 'omit', '5.5']), d.pick(['now', 'omit', '7']))],
  [1, (d) => made('chdir', d.pick(['/', '/d', '/e', '/d/s']))],
  [2, (d) => made('lstat', d.pick(['.', 'a', 'b/', './a', 'd/../a', 'a/b', 's/./a']), FIELDS)],
  [1, (d) => made('umask', d.pick(['0022', '0077', '0000']))],
  [2, (d) => made('setxattr', d.anyPath(), d.pick(['user.x', 'trusted.x', 'security.x']), 'v', d.below(3))],
  [2, (d) => made('getxattr', d.anyPath(), d.pick(['user.x', 'trusted.x']))],
  [1, (d) => made('setcap', d.anyPath())],
  [1, (d) => made('listxattr', d.anyPath())],
  [1, (d) => made('removexattr', d.path(), 'user.x')],
  [3, (d) => made('lock', d.handle(), d.pick(LOCKS), d.pick([0, 5, 10]), d.pick([0, 5, 10]), 'no')],
  [
    2,
    (d) =>
      made('lock-holder', d.handle(), d.pick(['shared', 'exclusive']), d.pick([0, 5, 10]), d.pick([0, 5])),
  ],
  [2, (d) => made('flock', d.handle(), d.pick(LOCKS), 'no')],
];

/** libfuse has no flags. */
const KERNEL_DRAWS: typeof DRAWS = [
  ...DRAWS,
  [1, (d) => made('chattr', d.path(), d.pick(['immutable', 'append-only']))],
  [3, (d) => made('chattr', d.path())],
  [1, (d) => made('lsattr', d.path())],
];

/** Calls of each process at the begin: it changes to a directory where it may write. */
const OPENING: readonly Step[] = [
  { process: 'root', call: 'chmod', values: ['/', '0777'] },
  { process: 'root', call: 'mkdir', values: ['/d', '0777'] },
  { process: 'alice', call: 'mkdir', values: ['/e', '0755'] },
  ...PROCESSES.map((process) => ({ process, call: 'chdir', values: ['/'] })),
];

function drawProgram(seed: number, count: number, all: typeof DRAWS): Step[] {
  const draws = new Draws(seed);
  const sum = all.reduce((total, [weight]) => total + weight, 0);
  const drawn = Array.from({ length: count }, (): Step => {
    let left = draws.below(sum);
    const draw = all.find(([weight]) => {
      left -= weight;
      return left < 0;
    });
    if (draw === undefined) throw new Error('Weights add up');
    return { process: draws.pick(PROCESSES), ...draw[1](draws) };
  });
  return [...OPENING, ...drawn];
}

interface Difference {
  readonly index: number;
  readonly reason: string;
}

export interface Form {
  readonly seed: number;
  readonly steps: number;
  readonly over: TransportName;
  /** How long names and attributes are valid: 0, or for ever. Anything between depends on time. */
  readonly ageMaxMs: number;
}

/** @returns the first step at which the model and Linux differ, as text; or null */
export async function differenceOf({ seed, steps: count, over, ageMaxMs }: Form): Promise<string | null> {
  const steps = drawProgram(seed, count, over === 'kernel' ? KERNEL_DRAWS : DRAWS);
  const subjects = [await modelSubject({ ageMaxMs }), await linuxSubject(over, { ageMaxMs })] as const;
  try {
    const difference = await compare(steps, subjects, over === 'kernel');
    return difference === null ? null : story(steps, difference);
  } finally {
    for (const subject of subjects) await subject.stop();
  }
}

/** @param traces whether the requests to the file system are compared, too, which is not possible over libfuse */
async function compare(
  steps: readonly Step[],
  [model, linux]: readonly [Subject, Subject],
  traces: boolean,
): Promise<Difference | null> {
  let reclaimed = 0;
  for (const [index, step] of steps.entries()) {
    const [is, should] = await Promise.all([model.run(step), linux.run(step)]);
    const answers = [is, should].map(({ value, errno }) => errno ?? brief(value ?? ''));
    if (answers[0] !== answers[1])
      return { index, reason: `${model.name} answers ${answers[0]}, ${linux.name} ${answers[1]}` };
    if (!traces) continue;
    const again = askedAgain(is.asked, should.asked);
    reclaimed += again ?? 0;
    const asked = [is, should].map((observed) => observed.asked.join('\n    '));
    if (again === null || reclaimed > RECLAIMED_MAX)
      return {
        index,
        reason: `${model.name} asks for\n    ${asked[0]}\n  ${linux.name} for\n    ${asked[1]}`,
      };
  }
  return null;
}

/** @returns how many requests Linux makes in addition for what it may have dropped; null if others differ */
function askedAgain(model: readonly string[], linux: readonly string[]): number | null {
  let place = 0;
  for (const text of linux) {
    if (text === model[place]) place += 1;
    else if (!RECLAIMABLE.test(text)) return null;
  }
  return place === model.length ? linux.length - place : null;
}

function brief(value: string): string {
  return value.length < 200
    ? value
    : `${value.length}: ${value.replaceAll(/(.)\1{5,}/g, (run, one) => `${one}×${run.length}`)}`;
}

function story(steps: readonly Step[], { index, reason }: Difference): string {
  const lines = steps.slice(0, index + 1).map(({ process, call, values }, at) => {
    const texts = values.map((value) =>
      String(value).length > 40 ? `${String(value).slice(0, 3)}×${String(value).length}` : value,
    );
    return `${at} ${process}: ${call} ${texts.join(' ')}`;
  });
  return `${lines.join('\n')}\n  ${reason}`;
}
