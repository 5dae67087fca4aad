import { constants } from 'node:fs';
import type { MountProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import {
  answered,
  type OwnFile,
  oneWriterFilesOf,
  readAllFiles,
  slackNs,
  succeeds,
} from './one-writer-files.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_TRUNC, O_WRONLY } = constants;
const BURST_MAX = 6;
const FILES_MAX = 14;
const BYTES_MAX = 220;
/** The share of contents that take more than one object. */
const LARGE = 0.1;
const LARGE_BYTES_MAX = 9_000;
const THINK_MS_MAX = 80;
/** The share of written files that another mount reads at once. */
const ELSEWHERE = 0.3;

/**
 * A program fills directories of its own with small files, replaces and removes them, as tar, editors and compilers
 * do, and syncs sometimes; all programs read all files.
 */
export const smallFiles: Workload = {
  name: 'small-files',
  demands: [
    ...['small file created', 'small file rewritten', 'small file renamed over', 'streak of unlinks'],
    ...['directory synced', 'read of contents', 'read of nothing', 'directory listed'],
  ],
  toleratesPowerOfAll: true,
  async mount(program) {
    await new SmallFilesProgram(program).work();
  },
  settle: readAllFiles,
};

/** A directory with the files that its program has created there. */
interface OwnDirectory {
  readonly path: string;
  files: OwnFile[];
}

class SmallFilesProgram {
  readonly #program: MountProgram;
  readonly #files: ReturnType<typeof oneWriterFilesOf>;
  #directory: OwnDirectory | null = null;

  constructor(program: MountProgram) {
    this.#program = program;
    this.#files = oneWriterFilesOf(program.run);
  }

  async work(): Promise<void> {
    const program = this.#program;
    while (!program.isEnding) {
      const directory = this.#directory ?? (await this.#newDirectory());
      if (directory !== null) await this.#turn(directory);
      await program.think(THINK_MS_MAX);
    }
  }

  async #turn(directory: OwnDirectory): Promise<void> {
    const { draw } = this.#program;
    const step = draw.integer(0, 11);
    if (step < 2) await this.#burst(directory);
    else if (step < 3) await this.#rewrite(directory);
    else if (step < 5) await this.#renameOver(directory);
    else if (step < 6 || (step < 7 && directory.files.length > 4)) await this.#streak(directory);
    else if (step < 7) await this.#sync(directory);
    else if (step < 8) await this.#list(directory);
    else if (step < 9 && draw.chance(0.3)) this.#directory = null;
    else await this.#files.readOne(this.#program);
  }

  /** Each name of a run is used once. */
  async #newDirectory(): Promise<OwnDirectory | null> {
    const { process, run, draw } = this.#program;
    const top = `/small-${run.fresh()}`;
    const path = draw.chance(0.3) ? `${top}/inner` : top;
    if (!(await succeeds(() => process.mkdir(top)))) return null;
    if (path !== top && !(await succeeds(() => process.mkdir(path)))) return null;
    this.#directory = { path, files: [] };
    return this.#directory;
  }

  #contents(): Buffer {
    const { draw, run } = this.#program;
    const sizeBytes = draw.integer(0, draw.chance(LARGE) ? LARGE_BYTES_MAX : BYTES_MAX);
    return Buffer.from(`${run.fresh()}:`.repeat(Math.ceil(sizeBytes / 5)).slice(0, sizeBytes), 'latin1');
  }

  /** Creates one file after the other, as unpacking an archive does. */
  async #burst(directory: OwnDirectory): Promise<void> {
    const { draw, process } = this.#program;
    const isExclusive = draw.chance(0.2);
    for (let count = draw.integer(1, BURST_MAX); count > 0; count--) {
      if (directory.files.length >= FILES_MAX) return;
      const path = `${directory.path}/${this.#program.run.fresh()}`;
      const file = this.#files.add(this.#program, path);
      const flags = O_WRONLY | O_CREAT | (isExclusive ? O_EXCL : 0);
      if (!(await this.#write(file, flags))) continue;
      directory.files.push(file);
      this.#program.run.count('small file created');
      if (draw.chance(0.15)) await succeeds(() => process.chmod(path, 0o600));
      if (draw.chance(0.3)) await this.#files.readOne(this.#program);
    }
  }

  /**
   * Opens, writes and closes a file of this program. @returns whether all calls succeeded; otherwise its state is not
   * known
   */
  async #write(own: OwnFile, flags: number): Promise<boolean> {
    const { path, judge } = own;
    const { draw, process } = this.#program;
    const contents = this.#contents();
    const change = judge.begin(contents.toString('latin1'));
    const isSynced = draw.chance(0.2);
    const isWritten = await succeeds(async () => {
      const file = await process.open(path, flags, 0o644);
      try {
        const pieceBytes = draw.chance(0.7) ? contents.length : Math.ceil(contents.length / 3);
        for (let at = 0; at < contents.length; at += pieceBytes)
          await process.write(file, contents.subarray(at, at + pieceBytes));
        if (isSynced) {
          await process.fsync(file, draw.chance(0.3));
          change.done();
          judge.synced('contents');
        }
      } catch (error) {
        await succeeds(() => process.close(file));
        throw error;
      }
      await process.close(file);
    });
    if (!isWritten) change.failed();
    else if (!isSynced) change.done();
    if (isWritten && draw.chance(ELSEWHERE)) this.#files.readElsewhere(this.#program, own);
    return isWritten;
  }

  async #rewrite(directory: OwnDirectory): Promise<void> {
    const file = this.#take(directory);
    if (file === null || !(await this.#write(file, O_WRONLY | O_TRUNC))) return;
    directory.files.push(file);
    this.#program.run.count('small file rewritten');
  }

  /** Removes a file from the list. @returns it */
  #take({ files }: OwnDirectory): OwnFile | null {
    return files.length === 0
      ? null
      : (files.splice(this.#program.draw.integer(0, files.length - 1), 1)[0] ?? null);
  }

  /** As editors do: writes and syncs another file, and renames it over the first one. */
  async #renameOver(directory: OwnDirectory): Promise<void> {
    const { draw, process, run } = this.#program;
    const target = this.#take(directory);
    if (target === null) return;
    const contents = this.#contents();
    const temporary = `${directory.path}/.tmp-${run.fresh()}`;
    const isSynced = draw.chance(0.7);
    const writtenNs = run.nowNs();
    const isMade = await succeeds(() =>
      this.#program.opened(temporary, O_WRONLY | O_CREAT | (draw.chance(0.5) ? O_EXCL : 0), async (file) => {
        await process.write(file, contents);
        if (isSynced) await process.fsync(file);
      }),
    );
    if (!isMade) {
      directory.files.push(target);
      return;
    }
    const change = target.judge.begin(contents.toString('latin1'), {
      isAtomic: true,
      ...(isSynced ? { hasSyncedContents: true } : { writtenNs }),
    });
    if (!(await succeeds(() => process.rename(temporary, target.path)))) return change.failed();
    change.done();
    directory.files.push(target);
    run.count('small file renamed over');
    if (draw.chance(0.5)) await this.#sync(directory);
  }

  /**
   * Removes several files one after the other: the mount may return from the third and later unlinks before the
   * cluster has them. Each descriptor of the directory that was open before reports errors of that.
   */
  async #streak(directory: OwnDirectory): Promise<void> {
    const { draw, process, run, machine } = this.#program;
    if (directory.files.length < 3) return;
    const removed = directory.files.splice(0, draw.integer(1, directory.files.length));
    const isAhead = (atNs: number): boolean => machine.cache !== 'strict' && machine.unmountedNs >= atNs;
    const opened = await Promise.all([this.#opened(directory), this.#opened(directory)]);
    for (const { path, judge } of removed) {
      const change = judge.begin(null, { isAtomic: true, isAhead });
      if (await succeeds(() => process.unlink(path))) change.done();
      else change.failed();
    }
    run.count('streak of unlinks');
    if (draw.chance(0.3)) await this.#list(directory, removed);
    const syncs = draw.chance(0.6);
    let isSynced = syncs;
    for (const file of opened) {
      if (file === null) continue;
      if (syncs) isSynced = (await this.#syncBy(file, directory, removed)) && isSynced;
      await succeeds(() => process.close(file));
    }
    if (!isSynced) this.#directory = null;
  }

  async #opened({ path }: OwnDirectory): Promise<number | null> {
    const file = await answered(() => this.#program.process.open(path, O_RDONLY | O_DIRECTORY));
    return file ?? null;
  }

  async #sync(directory: OwnDirectory): Promise<void> {
    const file = await this.#opened(directory);
    if (file === null) return;
    await this.#syncBy(file, directory);
    await succeeds(() => this.#program.process.close(file));
  }

  /** fsync of the directory: what was answered before survives a loss of power, and is not dropped. */
  async #syncBy(file: number, { files }: OwnDirectory, removed: readonly OwnFile[] = []): Promise<boolean> {
    const { process, run } = this.#program;
    if (!(await succeeds(() => process.fsync(file)))) return false;
    for (const { judge } of [...files, ...removed]) judge.synced('name');
    run.count('directory synced');
    return true;
  }

  /** The listing must have what this program has created there, and nothing that it has removed. */
  async #list({ path, files }: OwnDirectory, removed: readonly OwnFile[] = []): Promise<void> {
    const { name, process, run } = this.#program;
    const calledNs = run.nowNs();
    const entries = await answered(() => process.list(path));
    if (entries === undefined || entries === null) return;
    const names = new Set(entries.map((entry) => entry.name));
    for (const file of [...files, ...removed])
      file.judge.presence(
        `${name}, by a list,`,
        calledNs,
        names.has(file.path.slice(path.length + 1)),
        slackNs(this.#program, file),
      );
    run.completed++;
    run.count('directory listed');
  }
}
