import { constants } from 'node:fs';
import type { Operation } from '../../../history/operation.ts';
import type { KernelError } from '../../kernel/kernel-error.ts';
import type { FileLock, LockType, Process } from '../../kernel/process.ts';
import { ignoreKernelError, type MountProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';
import { succeeds } from './one-writer-files.ts';

const { O_CREAT, O_RDWR } = constants;
const RECORD_BYTES = 8;
const RECORDS = 3;
/** The search for an order grows with the operations on one record: after so many there is another file. */
const OPERATIONS_MAX = 60;
const HOLD_MS_MAX = 250;
/** Some have a lock for longer than a mount may be away from the cluster without losing it. */
const LONG = 0.15;
const LONG_HOLD_MS_MAX = 12_000;
const WAIT_MS_MAX = 3_000;
const THINK_MS_MAX = 80;
const EMPTY = '\0'.repeat(RECORD_BYTES);

/**
 * Programs change records of a file under `fcntl` locks of their ranges, or under `flock`. A change under an exclusive lock is an
 * atomic exchange of what the holder has read for what it writes: two holders at a time, a change that arrives after its
 * lock was lost, and a holder that does not see what the one before has written leave no order.
 */
export const fileLocks: Workload = {
  name: 'file-locks',
  demands: [
    ...[
      'fcntl exclusive',
      'fcntl shared',
      'flock exclusive',
      'flock shared',
      'lock refused',
      'wait for a lock interrupted',
    ],
    ...['lock ended by close', 'lock ended by exit', 'lock ended by unlock', 'lock lost'],
  ],
  async mount(program) {
    program.process.caught.add('SIGUSR1');
    while (!program.isEnding) {
      await new Section(program).run();
      await program.think(THINK_MS_MAX);
    }
    if (!program.process.hasEnded) await takeOnce(program);
  },
  judge(run) {
    const { sections } = Sections.of(run);
    for (const text of overlaps(sections)) run.violation(text);
  },
};

interface Held {
  readonly name: string;
  readonly path: string;
  readonly kind: 'fcntl' | 'flock';
  readonly type: Exclude<LockType, 'unlock'>;
  readonly first: number;
  readonly last: number;
  readonly grantedNs: number;
  /** The end of it is asked for; Infinity where it never was. */
  releasedNs: number;
  /** Reads and writes that succeeded under it: when they were called. */
  readonly acts: { readonly what: string; readonly calledNs: number }[];
}

/** The file in use, and all that held locks. */
class Sections {
  readonly sections: Held[] = [];
  readonly #files = new Map<string, { readonly path: string; operations: number }>();

  static of(run: Run): Sections {
    return run.state(make);
  }

  /** @returns the file of the volume that is in use now, of one kind of lock: the two do not see each other */
  file({ run, volume }: MountProgram, kind: Held['kind']): string {
    const key = `${kind} ${volume}`;
    const file = this.#files.get(key);
    if (file !== undefined && ++file.operations < OPERATIONS_MAX) return file.path;
    const path = `/${kind}-${run.fresh()}`;
    this.#files.set(key, { path, operations: 1 });
    return path;
  }

  get current(): string[] {
    return [...this.#files.values()].map(({ path }) => path);
  }
}

const make = (): Sections => new Sections();

/** One program has a lock once. */
class Section {
  readonly #program: MountProgram;
  readonly #kind: Held['kind'];
  readonly #type: Held['type'];
  readonly #path: string;
  readonly #first: number;
  readonly #last: number;

  constructor(program: MountProgram) {
    const { draw } = program;
    this.#program = program;
    this.#kind = draw.chance(0.6) ? 'fcntl' : 'flock';
    this.#type = draw.chance(0.7) ? 'exclusive' : 'shared';
    this.#path = Sections.of(program.run).file(program, this.#kind);
    this.#first = this.#kind === 'flock' ? 0 : draw.integer(0, RECORDS - 1);
    this.#last = this.#kind === 'flock' ? RECORDS - 1 : draw.integer(this.#first, RECORDS - 1);
  }

  async run(): Promise<void> {
    const { draw, process, run } = this.#program;
    // A child has the lock where the end of a process is to end it.
    const how = draw.pick(['unlock', 'unlock', 'close', 'exit'] as const);
    const holder = how === 'exit' ? process.fork() : process;
    holder.caught.add('SIGUSR1');
    try {
      const file = await holder.open(this.#path, O_RDWR | O_CREAT);
      let isOpen = true;
      try {
        if (!(await this.#lock(holder, file))) return;
        const held = this.#held();
        const changes = await this.#use(holder, file, held);
        const isSynced = draw.chance(0.5) && changes.length > 0 && (await succeeds(() => holder.fsync(file)));
        held.releasedNs = run.nowNs();
        let isKept = isSynced;
        if (how === 'unlock') isKept = (await succeeds(() => this.#unlock(holder, file))) || isSynced;
        if (how === 'exit') await holder.exit();
        isOpen = how !== 'exit';
        if (how === 'close') {
          isOpen = false;
          isKept = (await succeeds(() => holder.close(file))) || isSynced;
        }
        run.count(`lock ended by ${how}`);
        for (const change of changes)
          if (isKept) Object.assign(change, { status: 'ok', return: run.nowNs() });
      } finally {
        if (isOpen) await holder.close(file).catch(ignoreKernelError);
      }
    } catch (error) {
      ignoreKernelError(error);
      run.count(`locks: ${(error as KernelError).errno}`);
    } finally {
      if (holder !== process) await holder.exit().catch(ignoreKernelError);
    }
  }

  #held(): Held {
    const { name, run } = this.#program;
    const held: Held = {
      ...{ name, path: this.#path, kind: this.#kind, type: this.#type, first: this.#first, last: this.#last },
      ...{ grantedNs: run.nowNs(), releasedNs: Number.POSITIVE_INFINITY, acts: [] },
    };
    Sections.of(run).sections.push(held);
    run.count(`${this.#kind} ${this.#type}`);
    return held;
  }

  get #range(): Omit<FileLock, 'type'> {
    return { start: BigInt(this.#first * RECORD_BYTES), end: BigInt((this.#last + 1) * RECORD_BYTES - 1) };
  }

  async #lock(holder: Process, file: number): Promise<boolean> {
    const { draw, run, world } = this.#program;
    const waits = draw.chance(0.6);
    let isOver = false;
    if (waits) {
      const patienceMs = draw.chance(0.3) ? draw.next() * 300 : draw.next() * WAIT_MS_MAX;
      world.after(patienceMs, () => {
        if (!isOver) holder.signal('SIGUSR1');
      });
    }
    try {
      if (this.#kind === 'flock') await holder.flock(file, this.#type, waits);
      else await holder.lock(file, { type: this.#type, ...this.#range }, waits);
      return true;
    } catch (error) {
      ignoreKernelError(error);
      const { errno } = error as KernelError;
      if (errno === 'EAGAIN') run.count('lock refused');
      if (errno === 'EINTR') run.count('wait for a lock interrupted');
      if (errno !== 'EAGAIN' && errno !== 'EDEADLK') this.#program.failed('lock', error);
      return false;
    } finally {
      isOver = true;
    }
  }

  #unlock(holder: Process, file: number): Promise<void> {
    if (this.#kind === 'flock') return holder.flock(file, 'unlock', false);
    return holder.lock(file, { type: 'unlock', ...this.#range }, false);
  }

  /** Reads the records, and changes them under an exclusive lock. @returns the changes, whose outcomes are not known yet */
  async #use(holder: Process, file: number, held: Held): Promise<object[]> {
    const { draw, name, run, world, volume } = this.#program;
    const changes: object[] = [];
    for (let record = this.#first; record <= this.#last; record++) {
      const key = `entry/${volume}${this.#path}/${record}`;
      const calledNs = run.nowNs();
      const value = await this.#act(held, 'read', async () =>
        (await holder.pread(file, RECORD_BYTES, record * RECORD_BYTES)).toString('latin1'),
      );
      if (value === undefined) return changes;
      const expect = value === '' || value === EMPTY ? null : value;
      const read = {
        client: name,
        op: 'read',
        key,
        input: null,
        output: expect,
        status: 'ok',
        call: calledNs,
      };
      run.history.push({ ...read, return: run.nowNs() } as unknown as Operation);
      run.completed++;
      await world.sleep(draw.next() * (draw.chance(LONG) ? LONG_HOLD_MS_MAX : HOLD_MS_MAX));
      if (this.#type === 'shared') continue;
      const written = run.fresh().padEnd(RECORD_BYTES, '.');
      const change = {
        ...{ client: name, op: 'cas', key, input: { expect, value: written }, output: true },
        ...{ status: 'unknown', call: calledNs, return: null },
      };
      run.history.push(change as unknown as Operation);
      const bytes = Buffer.from(written, 'latin1');
      const isWritten = await this.#act(held, 'write', () =>
        holder.pwrite(file, bytes, record * RECORD_BYTES),
      );
      if (isWritten === undefined) return changes;
      changes.push(change);
    }
    return changes;
  }

  /** @returns undefined where it fails, as it does once the lock was lost */
  async #act<Value>(held: Held, what: string, ask: () => Promise<Value>): Promise<Value | undefined> {
    const { run } = this.#program;
    const calledNs = run.nowNs();
    try {
      const value = await ask();
      held.acts.push({ what, calledNs });
      return value;
    } catch (error) {
      ignoreKernelError(error);
      run.count((error as KernelError).errno === 'EIO' ? 'lock lost' : `act ${(error as KernelError).errno}`);
      return undefined;
    }
  }
}

/** All locks are free again in bounded time: a call that waits for them comes to its end. */
async function takeOnce(program: MountProgram): Promise<void> {
  const { process, run } = program;
  for (const path of Sections.of(run).current) {
    const file = await process.open(path, O_RDWR | O_CREAT).catch(ignoreKernelError);
    if (typeof file !== 'number') continue;
    await process.flock(file, 'exclusive', true).catch(ignoreKernelError);
    await process.flock(file, 'unlock', false).catch(ignoreKernelError);
    const whole = { start: 0n, end: BigInt(RECORDS * RECORD_BYTES) };
    await process.lock(file, { type: 'exclusive', ...whole }, true).catch(ignoreKernelError);
    await process.close(file).catch(ignoreKernelError);
  }
}

/** A call under a lock succeeded although it was called after another program had been granted one that excludes it. */
function overlaps(sections: readonly Held[]): string[] {
  return sections.flatMap((held) =>
    sections.flatMap((later) => {
      if (later.grantedNs <= held.grantedNs || !excludes(held, later)) return [];
      const untilNs = Math.min(held.releasedNs, later.releasedNs);
      const act = held.acts.find(({ calledNs }) => calledNs > later.grantedNs && calledNs < untilNs);
      if (act === undefined) return [];
      return [
        `${held.kind} ${held.path}: ${held.name}, with a lock (${held.type}) since ${ms(held.grantedNs)}, can ${act.what} at ` +
          `${ms(act.calledNs)}, and ${later.name} has its lock (${later.type}) since ${ms(later.grantedNs)}`,
      ];
    }),
  );
}

function excludes(one: Held, other: Held): boolean {
  if (one.path !== other.path || one.kind !== other.kind) return false;
  if (one.type === 'shared' && other.type === 'shared') return false;
  return one.first <= other.last && other.first <= one.last;
}

function ms(ns: number): string {
  return `${(ns / 1e6).toFixed(1)} ms`;
}
