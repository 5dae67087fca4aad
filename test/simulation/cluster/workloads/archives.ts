import { constants } from 'node:fs';
import { ServiceError } from '../../../../base/errors.ts';
import type { Attributes } from '../../../../wire/catalog-api.ts';
import type { Inode64 } from '../../kernel/messages.ts';
import {
  ArchivedFile,
  type ArchivedRun,
  type Register,
  type Seen,
  type Viewer,
} from '../judges/archived-file.ts';
import type { ClientProgram, MountProgram } from '../program.ts';
import type { Run } from '../run.ts';
import { type SimulatedMachine, TTL_MS } from '../simulated-machine.ts';
import type { Workload } from '../workload.ts';
import { answered, succeeds } from './one-writer-files.ts';
import { perRun, ROOT_OWNS, textOf, turns } from './parts.ts';

const { O_CREAT, O_EXCL, O_RDONLY, O_WRONLY, S_IFMT } = constants;
const ENTRIES_MAX = 8;
const BYTES_MAX = 300;
const THINK_MS_MAX = 60;
/** The longest pause of a slow program, during which the mount sends what it has buffered. */
const SLOW_MS_MAX = 500;
/** Programs query the files that were unpacked last. */
const RECENT_FILES = 6;
const FILES_AT_END_MAX = 60;
const READ_BYTES = 4_096;
/** Modes of one file differ, and let its owner read. */
const MODE_FIRST = 0o400;
const MODES_MAX = 0o377;

class Archives {
  readonly files: { readonly volume: string; readonly file: ArchivedFile; modes: number }[] = [];
  readonly #viewers = new Map<SimulatedMachine, Viewer>();

  viewerOf(machine: SimulatedMachine): Viewer {
    let viewer = this.#viewers.get(machine);
    if (viewer === undefined) {
      viewer = { name: machine.name, ttlNs: machine.cache === 'ttl' ? TTL_MS * 1e6 : null };
      this.#viewers.set(machine, viewer);
    }
    return viewer;
  }

  recent(volume: string): Archives['files'] {
    return this.files.filter((one) => one.volume === volume).slice(-RECENT_FILES);
  }
}

const archivesOf = perRun(() => new Archives());

function judged(run: Run): ArchivedRun {
  return {
    nowNs: () => run.nowNs(),
    violation: (text) => run.violation(text),
    incidentsNs: () => run.cluster.incidents.map(({ atMs }) => atMs * 1e6),
  };
}

/** @returns a mode that the file did not have before; null if there is none left */
function nextMode(one: { modes: number }): number | null {
  return one.modes >= MODES_MAX ? null : MODE_FIRST + ++one.modes;
}

/**
 * Programs on mounts unpack archives, as tar and rsync do: each file is created exclusively, written, gets its owner,
 * mode and times, and is closed. Programs of all mounts and clients query the files meanwhile, and change their modes.
 */
export const archives: Workload = {
  name: 'archives',
  demands: [
    ...['archived file unpacked', 'archived file renamed', 'archived file seen', 'contents of archive read'],
    ...['mode of archive changed elsewhere'],
  ],
  async mount(program) {
    await new ArchiveProgram(program).work();
  },
  client: turns(THINK_MS_MAX, useByClient),
  async settle(run, client) {
    const viewer: Viewer = { name: 'a client, at the end,', ttlNs: null };
    for (const { volume, file } of archivesOf(run).files.slice(-FILES_AT_END_MAX)) {
      const calledNs = run.nowNs();
      const found = await client.resolve(volume, file.path).catch(gone);
      if (found !== null) noteAttributes(file, viewer, calledNs, found, null);
    }
  },
  judge(run) {
    for (const { file } of archivesOf(run).files) file.judge();
  },
};

function gone(error: unknown): null {
  if (error instanceof ServiceError && error.code === 'not-found') return null;
  throw error;
}

function noteAttributes(
  file: ArchivedFile,
  by: Viewer,
  calledNs: number,
  { inode, mode, uid, modifiedNs, live }: Attributes,
  readNs: number | null,
): void {
  if (inode !== file.inode) return;
  // Only the primary of a live file knows its time.
  file.looked(by, calledNs, { mode, uid, ...(live ? {} : { modified: Number(modifiedNs) }) }, readNs);
}

async function useByClient(program: ClientProgram): Promise<void> {
  const { client, draw, run, name } = program;
  const volume = draw.pick(run.cluster.volumes);
  const recent = archivesOf(run).recent(volume);
  if (recent.length === 0) return;
  const one = draw.pick(recent);
  const viewer: Viewer = { name, ttlNs: 0 };
  const calledNs = run.nowNs();
  const found = await program.attempt('resolve', () => client.resolve(volume, one.file.path).catch(gone));
  if (found === null) return;
  noteAttributes(one.file, viewer, calledNs, found, null);
  run.count('archived file seen');
  run.completed++;
  if (found.inode !== one.file.inode) return;
  if (draw.chance(0.2)) {
    const handle = client.openFile(found.inode, found);
    const readNs = run.nowNs();
    const text = await program.attempt('read', () => textOf(handle, 0, READ_BYTES, program.patience()));
    if (text === null || text === '') return;
    const againNs = run.nowNs();
    const later = await program.attempt('resolve', () => client.resolve(volume, one.file.path).catch(gone));
    if (later !== null) noteAttributes(one.file, viewer, againNs, later, readNs);
  }
  const mode = draw.chance(0.1) ? nextMode(one) : null;
  if (mode === null) return;
  const done = one.file.begin('mode', mode, viewer);
  const change = { kind: 'set-attributes', inode: found.inode, mode } as const;
  if (
    (await program.outcome('chmod', ['not-found'], () => client.command(change, program.patience()))) === true
  ) {
    done();
    run.count('mode of archive changed elsewhere');
  }
}

/** The calls of one program on a file's descriptor; after a call that fails it is not known what was set. */
class ArchiveProgram {
  readonly #program: MountProgram;
  readonly #archives: Archives;
  readonly #viewer: Viewer;

  constructor(program: MountProgram) {
    this.#program = program;
    this.#archives = archivesOf(program.run);
    this.#viewer = this.#archives.viewerOf(program.machine);
  }

  async work(): Promise<void> {
    const program = this.#program;
    while (!program.isEnding) {
      if (program.draw.chance(0.3)) await this.#unpack();
      else await this.#look();
      await program.think(THINK_MS_MAX);
    }
  }

  async #unpack(): Promise<void> {
    const { draw, process, run } = this.#program;
    const directory = `/archive-${run.fresh()}`;
    if (!(await succeeds(() => process.mkdir(directory)))) return;
    for (let left = draw.integer(2, ENTRIES_MAX); left > 0 && !this.#program.isEnding; left--)
      await this.#extract(directory);
  }

  async #extract(directory: string): Promise<void> {
    const { draw, process, run, volume } = this.#program;
    const path = `${directory}/${run.fresh()}`;
    const isRenamed = draw.chance(0.25);
    const temporary = isRenamed ? `${directory}/.tmp-${run.fresh()}` : path;
    const calledNs = run.nowNs();
    const descriptor = await answered(() => process.open(temporary, O_WRONLY | O_CREAT | O_EXCL, MODE_FIRST));
    if (descriptor == null) return;
    const found = await answered(() => process.fstat(descriptor));
    if (found == null) return void (await succeeds(() => process.close(descriptor)));
    const created = { path: temporary, inode: found.inode, by: this.#viewer, calledNs };
    const initial = { mode: MODE_FIRST, uid: ROOT_OWNS.uid, modified: 0 };
    const one = { volume, file: new ArchivedFile(judged(run), created, initial), modes: 0 };
    this.#archives.files.push(one);
    if (!(await this.#fill(descriptor, one))) {
      one.file.lost();
      this.#refused();
      return void (await succeeds(() => process.close(descriptor)));
    }
    if (!(await succeeds(() => process.close(descriptor)))) {
      one.file.lost();
      return this.#refused();
    }
    one.file.committed();
    run.count('archived file unpacked');
    run.completed++;
    if (isRenamed && (await succeeds(() => process.rename(temporary, path)))) {
      one.file.path = path;
      run.count('archived file renamed');
    }
    if (draw.chance(0.1)) await this.#chmod(one);
  }

  /** @returns whether all calls have succeeded */
  async #fill(descriptor: number, one: Archives['files'][number]): Promise<boolean> {
    const { draw, process, run } = this.#program;
    const { file } = one;
    const isSlow = draw.chance(0.1);
    const set = (register: Register, value: number, call: () => Promise<unknown>) => async () => {
      const done = file.begin(register, value, this.#viewer);
      if (!(await succeeds(call))) return false;
      done();
      return true;
    };
    const uid = 1_000 + run.freshNumber();
    const seconds = run.freshNumber();
    const mode = nextMode(one) ?? MODE_FIRST;
    const bytes = Buffer.alloc(draw.integer(1, BYTES_MAX), 'a');
    const write = () => succeeds(() => process.write(descriptor, bytes));
    const own = [
      set('uid', uid, () => process.fchown(descriptor, uid, -1)),
      set('mode', mode, () => process.fchmod(descriptor, mode)),
    ];
    if (draw.chance(0.5)) own.reverse();
    const timesNs = BigInt(seconds) * 1_000_000_000n;
    const times = set('modified', Number(timesNs), () => process.futimens(descriptor, timesNs, timesNs));
    const steps = draw.chance(0.8) ? [write, ...own, times] : [...own, write, times];
    if (draw.chance(0.15))
      steps.splice(draw.integer(1, 3), 0, () => succeeds(() => process.fsync(descriptor)));
    for (const step of steps) {
      if (!(await step())) return false;
      if (isSlow) await this.#program.think(SLOW_MS_MAX);
    }
    return true;
  }

  /** Without faults, and if all other clients recall what this mount buffers, no call may be refused. */
  #refused(): void {
    const { machine, run, name } = this.#program;
    const { incidents, shape } = run.cluster;
    run.count('archived file refused');
    if (incidents.length === 0 && shape.clients === 0 && machine.cache !== 'ttl' && !run.isEnding)
      run.violation(`${name}: a file cannot be unpacked, though nothing has happened`);
  }

  async #look(): Promise<void> {
    const { draw, process, run, volume } = this.#program;
    const recent = this.#archives.recent(volume);
    if (recent.length === 0) return;
    const one = draw.pick(recent);
    const { path } = one.file;
    const calledNs = run.nowNs();
    const found = await answered(() => process.stat(path));
    if (found == null) return;
    this.#note(one.file, calledNs, found, null);
    run.count('archived file seen');
    run.completed++;
    if (found.inode !== one.file.inode) return;
    if (draw.chance(0.3)) await this.#read(one.file, path);
    if (draw.chance(0.1)) await this.#chmod(one);
  }

  async #read(file: ArchivedFile, path: string): Promise<void> {
    const { process, run } = this.#program;
    const readNs = run.nowNs();
    const descriptor = await answered(() => process.open(path, O_RDONLY));
    if (descriptor == null) return;
    const bytes = await answered(() => process.read(descriptor, READ_BYTES));
    const againNs = run.nowNs();
    const found = await answered(() => process.fstat(descriptor));
    if (bytes != null && bytes.length > 0 && found != null) {
      this.#note(file, againNs, found, readNs);
      run.count('contents of archive read');
    }
    await succeeds(() => process.close(descriptor));
  }

  async #chmod(one: Archives['files'][number]): Promise<void> {
    const { process, run } = this.#program;
    const mode = nextMode(one);
    if (mode === null) return;
    const done = one.file.begin('mode', mode, this.#viewer);
    const { path } = one.file;
    if (!(await succeeds(() => process.chmod(path, mode)))) return;
    done();
    if (one.file.by !== this.#viewer) run.count('mode of archive changed elsewhere');
  }

  #note(file: ArchivedFile, calledNs: number, found: Inode64, readNs: number | null): void {
    if (found.inode !== file.inode) return;
    const { mode, uid, modifiedNs } = found;
    const seen: Seen = { mode: mode & ~S_IFMT, uid, modified: Number(modifiedNs) };
    file.looked(this.#viewer, calledNs, seen, readNs);
  }
}
