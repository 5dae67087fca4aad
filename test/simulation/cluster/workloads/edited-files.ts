import { constants } from 'node:fs';
import { ignoreKernelError, type KernelError } from '../../kernel/kernel-error.ts';
import { O_PATH, type Process } from '../../kernel/process.ts';
import type { Change } from '../judges/one-writer.ts';
import type { MountProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import { type OwnFile, oneWriterFilesOf, readAllFiles, succeeds } from './one-writer-files.ts';

const { O_APPEND, O_CREAT, O_RDWR, O_SYNC } = constants;
const STEPS_MAX = 14;
const SIZE_MAX = 20_000;
const PIECE_MAX = 6_000;
const THINK_MS_MAX = 60;
/** The longest pause after a sync, in which all servers may lose their power. */
const AFTER_SYNC_MS_MAX = 300;
/** The share of closes and syncs after which another mount reads the file at once. */
const ELSEWHERE = 0.6;
/** The share of changes after which the program reads the whole file at once. */
const READ_AFTER = 0.3;
/** The share of files that are in a directory of their program. */
const IN_DIRECTORY = 0.5;
const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const FALLOC_FL_ZERO_RANGE = 0x10;

/**
 * A program has a file open and changes it in all ways: at any offset, through a mapping, by truncation, with holes,
 * through copies of the descriptor and by a child. It reads exactly what it has written, also after an unlink, and so
 * does each other program after a close or sync.
 */
export const editedFiles: Workload = {
  name: 'edited-files',
  demands: [
    ...['edited file closed', 'edited file synced', 'edited by a child', 'edited without a name'],
    ...['edited through a mapping', 'a hole punched', 'edited with O_SYNC', 'edited by an append'],
    ...['edited by a reference', 'edited by a reference that was kept'],
  ],
  toleratesPowerOfAll: true,
  async mount(program) {
    const files = oneWriterFilesOf(program.run);
    const directory = `/edits-${program.run.fresh()}`;
    const hasDirectory = await succeeds(() => program.process.mkdir(directory));
    while (!program.isEnding) {
      const isInside = hasDirectory && program.draw.chance(IN_DIRECTORY);
      const path = `${isInside ? directory : ''}/edited-${program.run.fresh()}`;
      const edited = new EditedFile(program, files.add(program, path));
      for (let uses = program.draw.integer(1, 4); uses > 0 && !program.isEnding; uses--) {
        const isKnown = await edited.use(files);
        await program.think(THINK_MS_MAX);
        if (!isKnown) break;
        await files.readOne(program);
      }
      await edited.end();
    }
  },
  settle: readAllFiles,
};

/** A file as its program knows it. */
class EditedFile {
  readonly #program: MountProgram;
  readonly #own: OwnFile;
  #bytes: Buffer = Buffer.alloc(0);
  #change: Change | null = null;
  #isMade = false;
  /** The file was unlinked: later changes are only for programs that have it open. */
  #isRemoved = false;
  #isSync = false;
  /** A descriptor of O_PATH, which the program keeps while it has the file closed. */
  #reference: number | null = null;
  /** A write of this program that a read did not find, and for which no call has returned an error yet. */
  #missing: string | null = null;

  constructor(program: MountProgram, own: OwnFile) {
    this.#program = program;
    this.#own = own;
  }

  /** Opens it, changes it several times, closes it. @returns whether the outcome of all calls is known */
  async use(files: ReturnType<typeof oneWriterFilesOf>): Promise<boolean> {
    const { draw, process, run } = this.#program;
    this.#isSync = draw.chance(0.15);
    this.#begin();
    try {
      // A file that lost its name is not created again: it would not have the same contents.
      const how = (this.#isMade ? 0 : O_CREAT) | (this.#isSync ? O_SYNC : 0);
      const file = await this.#open(O_RDWR | how);
      this.#isMade = true;
      let isClosed = false;
      try {
        for (let steps = draw.integer(1, STEPS_MAX); steps > 0 && !this.#program.isEnding; steps--) {
          await this.#step(file);
          if (draw.chance(0.2)) await files.readOne(this.#program);
          if (draw.chance(0.3)) await this.#program.think(THINK_MS_MAX);
        }
        isClosed = true;
        await process.close(file);
      } finally {
        if (!isClosed) await process.close(file).catch(ignoreKernelError);
      }
      this.#done();
      if (draw.chance(ELSEWHERE)) files.readElsewhere(this.#program, this.#own);
      run.count('edited file closed');
      return !this.#isRemoved;
    } catch (error) {
      ignoreKernelError(error);
      const { errno } = error as KernelError;
      run.count(`edited file: ${errno}`);
      if (errno === 'ENOENT' && this.#isMade && !this.#isRemoved && !this.#hasLostPower)
        run.violation(
          `${this.#own.judge.name}: ${this.#program.name} does not find the file that it has made`,
        );
      this.#change?.failed();
      return false;
    }
  }

  async #open(how: number): Promise<number> {
    const { draw, process, run } = this.#program;
    if (this.#reference === null) {
      const file = await process.open(this.#own.path, how);
      if (draw.chance(0.3)) this.#reference = await process.open(this.#own.path, O_PATH);
      return file;
    }
    const file = await process.reopen(this.#reference, how);
    run.count('edited by a reference that was kept');
    return file;
  }

  /** Makes no further changes. */
  async end(): Promise<void> {
    if (this.#reference !== null && !this.#program.process.hasEnded)
      await this.#program.process.close(this.#reference);
  }

  #begin(): void {
    if (this.#isRemoved) return;
    this.#change ??= this.#own.judge.begin(undefined, { isPart: true });
  }

  #done(): void {
    this.#assertWhole();
    this.#change?.done(this.#bytes.toString('latin1'));
    this.#change = null;
    this.#program.run.completed++;
  }

  #synced(): void {
    this.#assertWhole();
    if (this.#isRemoved) return;
    this.#done();
    this.#own.judge.synced('contents');
  }

  async #step(file: number): Promise<void> {
    const { draw } = this.#program;
    const at = draw.integer(0, SIZE_MAX);
    const length = draw.integer(1, draw.chance(0.7) ? 200 : PIECE_MAX);
    const { does, isChange = false } = draw.pick(STEPS);
    await does(this, file, at, length);
    if (isChange && draw.chance(READ_AFTER)) await this.readWhole(file);
  }

  write(file: number, at: number, length: number): Promise<void> {
    const { draw, process } = this.#program;
    this.#begin();
    const sizeBytes = this.#bytes.length;
    return this.#write(process, file, draw.pick([at % (sizeBytes + 1), Math.min(at, sizeBytes), at]), length);
  }

  /** The child inherits the descriptor, and exits after its write. */
  async writeByChild(file: number, at: number, length: number): Promise<void> {
    const { process, run } = this.#program;
    this.#begin();
    const child = process.fork();
    try {
      await this.#write(child, file, at, length);
      run.count('edited by a child');
    } finally {
      await child.exit();
    }
  }

  /** Through a descriptor of its own, which bypasses the page cache. */
  async append(length: number): Promise<void> {
    const { process, run } = this.#program;
    if (this.#isRemoved) return;
    this.#begin();
    const file = await process.open(this.#own.path, O_RDWR | O_APPEND);
    try {
      const data = this.#data(length);
      const count = await process.write(file, data);
      this.#put(data.subarray(0, count), this.#bytes.length);
      await this.readWhole(file);
      run.count('edited by an append');
    } finally {
      await process.close(file);
    }
  }

  /** Opens its open file again (/proc/self/fd), also after an unlink. */
  async reopen(file: number, at: number, length: number): Promise<void> {
    const { process, run } = this.#program;
    const from = this.#isRemoved ? process.dup(file) : await process.open(this.#own.path, O_PATH);
    try {
      this.#begin();
      const again = await process.reopen(from, O_RDWR | (this.#isSync ? O_SYNC : 0));
      try {
        await this.#write(process, again, at, length);
        await this.readWhole(again);
      } finally {
        await process.close(again);
      }
      run.count('edited by a reference');
    } finally {
      await process.close(from);
    }
  }

  async truncate(file: number, sizeBytes: number): Promise<void> {
    this.#begin();
    await this.#program.process.ftruncate(file, sizeBytes);
    this.#resize(sizeBytes);
  }

  /** Bytes that were cut off must not show again when the file grows. */
  async regrow(file: number, at: number, length: number): Promise<void> {
    const { draw, process } = this.#program;
    await this.truncate(file, draw.integer(0, this.#bytes.length));
    await this.#write(process, file, this.#bytes.length + (at % PIECE_MAX), length);
  }

  async punch(file: number, at: number, length: number): Promise<void> {
    const { process, run } = this.#program;
    if (this.#bytes.length === 0) return;
    this.#begin();
    const from = at % this.#bytes.length;
    await process.fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, length);
    this.#bytes.fill(0, from, Math.min(from + length, this.#bytes.length));
    run.count('a hole punched');
  }

  async zero(file: number, at: number, length: number): Promise<void> {
    this.#begin();
    await this.#program.process.fallocate(file, FALLOC_FL_ZERO_RANGE, at, length);
    if (at + length > this.#bytes.length) this.#resize(at + length);
    this.#bytes.fill(0, at, at + length);
  }

  /** Copies from the first half to the second one. */
  async copy(file: number, length: number): Promise<void> {
    const { draw, process } = this.#program;
    const to = Math.ceil(this.#bytes.length / 2);
    const from = draw.integer(0, Math.max(0, to - 1));
    const count = Math.min(length, to - from);
    if (count <= 0) return;
    this.#begin();
    const copied = await process.copyRange(file, from, file, to, count);
    if (to + copied > this.#bytes.length) this.#resize(to + copied);
    this.#bytes.copy(this.#bytes, to, from, from + copied);
  }

  async sync(file: number): Promise<void> {
    const { draw, process, run } = this.#program;
    await process.fsync(file, draw.chance(0.5));
    this.#synced();
    run.count('edited file synced');
    if (!this.#isRemoved && draw.chance(ELSEWHERE))
      oneWriterFilesOf(run).readElsewhere(this.#program, this.#own);
    if (draw.chance(0.5)) await this.#program.think(AFTER_SYNC_MS_MAX);
  }

  /** The close of a copied descriptor stores what was written, as each close does. */
  async duplicate(file: number): Promise<void> {
    const { process } = this.#program;
    await process.close(process.dup(file));
    if (!this.#isRemoved) this.#done();
  }

  async size(file: number): Promise<void> {
    const { sizeBytes } = await this.#program.process.fstat(file);
    this.#expect('fstat', String(sizeBytes), String(this.#bytes.length));
  }

  async read(file: number, at: number, length: number): Promise<void> {
    const expected = this.#bytes.subarray(at, at + length);
    let read = await this.#program.process.pread(file, length, at);
    // Linux returns what is before an unreadable page: the next read returns its error, or nothing at the end of the
    // file.
    while (read.length > 0 && read.length < expected.length) {
      const more = await this.#program.process.pread(file, length - read.length, at + read.length);
      if (more.length === 0) break;
      read = Buffer.concat([read, more]);
    }
    this.#expect(`pread of ${length} at ${at}`, read, expected);
  }

  readWhole(file: number): Promise<void> {
    return this.read(file, 0, this.#bytes.length + 1);
  }

  #resize(sizeBytes: number): void {
    const bytes = Buffer.alloc(sizeBytes);
    this.#bytes.copy(bytes);
    this.#bytes = bytes;
  }

  #data(length: number): Buffer {
    return Buffer.from(
      `${this.#program.run.fresh()}.`.repeat(Math.ceil(length / 5)).slice(0, length),
      'latin1',
    );
  }

  #put(data: Buffer, at: number): void {
    if (at + data.length > this.#bytes.length) this.#resize(at + data.length);
    data.copy(this.#bytes, at);
  }

  async #write(process: Process, file: number, at: number, length: number): Promise<void> {
    const data = this.#data(length);
    const count = await process.pwrite(file, data, at);
    this.#put(data.subarray(0, count), at);
    if (!this.#isSync) return;
    this.#synced();
    this.#program.run.count('edited with O_SYNC');
  }

  async writeMapped(file: number, at: number, length: number): Promise<void> {
    const { draw, process, run } = this.#program;
    if (this.#bytes.length === 0) return;
    const start = at % this.#bytes.length;
    const data = Buffer.from(run.fresh().repeat(Math.ceil(length / 4)), 'latin1');
    const part = data.subarray(0, Math.min(length, this.#bytes.length - start));
    this.#begin();
    const mapping = await process.mmap(file);
    try {
      await mapping.write(start, part);
      part.copy(this.#bytes, start);
      if (draw.chance(0.5)) await mapping.sync();
      const read = await mapping.read(0, this.#bytes.length);
      this.#expect('a mapping', read, this.#bytes);
    } finally {
      await mapping.unmap();
    }
    run.count('edited through a mapping');
  }

  async remove(): Promise<void> {
    const { draw, process, run } = this.#program;
    if (this.#isRemoved || !draw.chance(0.3)) return;
    this.#change?.failed();
    this.#change = null;
    if (this.#own.judge.isUncertain) {
      await process.unlink(this.#own.path);
    } else {
      const change = this.#own.judge.begin(null, { isAtomic: true, isOpen: true });
      await process.unlink(this.#own.path).catch((error: unknown) => {
        change.failed();
        throw error;
      });
      change.done();
    }
    this.#isRemoved = true;
    run.count('edited without a name');
  }

  #expect(what: string, read: Buffer | string, expected: Buffer | string): void {
    const isSame = typeof read === 'string' ? read === expected : read.equals(expected as Buffer);
    if (isSame || this.#hasLostPower) return;
    this.#missing ??= `${what}: ${differenceOf(read, expected)}`;
  }

  /** After lost bytes the next sync or close must fail; without them both succeed. */
  #assertWhole(): void {
    if (this.#missing === null) return;
    this.#program.run.violation(
      `${this.#own.judge.name}: ${this.#program.name} has written it, has got no error, and finds by ${this.#missing}`,
    );
    this.#missing = null;
  }

  /** What was not synced may be lost. */
  get #hasLostPower(): boolean {
    return this.#program.run.cluster.lossesNs.length > 0;
  }
}

function differenceOf(read: Buffer | string, expected: Buffer | string): string {
  if (typeof read === 'string' || typeof expected === 'string') return `${read}, not ${expected}`;
  const at = Array.from(expected).findIndex((byte, index) => read[index] !== byte);
  const place = at < 0 ? Math.min(read.length, expected.length) : at;
  const some = (bytes: Buffer): string => JSON.stringify(bytes.toString('latin1', place, place + 12));
  return `${read.length} bytes, not ${expected.length}; at ${place} ${some(read)}, not ${some(expected)}`;
}

interface Step {
  readonly isChange?: true;
  does(edited: EditedFile, file: number, at: number, length: number): Promise<void>;
}

const WRITE: Step = { isChange: true, does: (edited, ...place) => edited.write(...place) };
const READ: Step = { does: (edited, ...place) => edited.read(...place) };
const STEPS: readonly Step[] = [
  ...[WRITE, WRITE, WRITE, WRITE, READ, READ],
  { does: (edited, file) => edited.size(file) },
  { isChange: true, does: (edited, file, at) => edited.truncate(file, at) },
  { isChange: true, does: (edited, ...place) => edited.regrow(...place) },
  { isChange: true, does: (edited, ...place) => edited.punch(...place) },
  { isChange: true, does: (edited, ...place) => edited.zero(...place) },
  { isChange: true, does: (edited, file, _at, length) => edited.copy(file, length) },
  { isChange: true, does: (edited, ...place) => edited.writeByChild(...place) },
  { isChange: true, does: (edited, ...place) => edited.reopen(...place) },
  { does: (edited, _file, _at, length) => edited.append(length) },
  { does: (edited, ...place) => edited.writeMapped(...place) },
  { does: (edited, file) => edited.sync(file) },
  { does: (edited, file) => edited.duplicate(file) },
  { does: (edited) => edited.remove() },
];
