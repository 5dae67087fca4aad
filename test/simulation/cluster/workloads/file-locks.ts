import { constants } from 'node:fs';
import type { Operation } from '../../../history/operation.ts';
import { ignoreKernelError, type KernelError } from '../../kernel/kernel-error.ts';
import type { FileLock, LockType, Process } from '../../kernel/process.ts';
import type { MountProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import { succeeds } from './one-writer-files.ts';
import { perRun, Rotation } from './parts.ts';

const { O_CREAT, O_RDWR } = constants;
const RECORD_BYTES = 8;
const RECORDS = 3;
/** The search for an order grows with the operations on one record: after so many another file is used. */
const OPERATIONS_MAX = 60;
/** The most locks that a program takes one after the other through one descriptor. */
const LOCKS_MAX = 5;
const HOLD_MS_MAX = 60;
/** The share of locks that are held longer than a mount may be disconnected without losing them. */
const LONG = 0.04;
const LONG_HOLD_MS_MAX = 12_000;
const WAIT_MS_MAX = 3_000;
const THINK_MS_MAX = 40;
const SYNCED = 0.2;
/** The descriptor stays open for so long after a close of another one has ended the lock. */
const OPEN_MS_MAX = 400;
/** Without faults, the grant and the end of a lock reach the program, and the primary, within this time. */
const NOTICE_NS = 150e6;
const EMPTY = '\0'.repeat(RECORD_BYTES);
const NEVER = Number.POSITIVE_INFINITY;

/**
 * Programs change records of a file under `fcntl` locks of their ranges, or under `flock`. A change under an exclusive
 * lock atomically replaces what the holder has read by what it writes. Two holders at a time, a change that arrives
 * after its lock was lost, and a holder that does not see the change of the one before leave no possible order.
 */
export const fileLocks: Workload = {
  name: 'file-locks',
  demands: [
    ...['fcntl exclusive', 'fcntl shared', 'flock exclusive', 'flock shared', 'lock refused', 'lock lost'],
    ...['lock ended by close', 'lock ended by exit', 'lock ended by unlock', 'wait for a lock interrupted'],
    ...['lock ended by close of another descriptor', 'lock refused without faults'],
  ],
  async mount(program) {
    program.process.caught.add('SIGUSR1');
    while (!program.isEnding) {
      await new LockUser(program).run();
      await program.think(THINK_MS_MAX);
    }
    if (!program.process.hasEnded) await takeOnce(program);
  },
  judge(run) {
    const { sections, refusals, interrupted } = sectionsOf(run);
    for (const text of overlaps(sections)) run.violation(text);
    for (const text of unfounded(refusals, [...sections, ...interrupted])) run.violation(text);
  },
};

/** A lock that a program has, or requests. */
interface Wanted {
  readonly name: string;
  readonly path: string;
  readonly kind: 'fcntl' | 'flock';
  readonly type: Exclude<LockType, 'unlock'>;
  readonly first: number;
  readonly last: number;
}

interface Held extends Wanted {
  readonly grantedNs: number;
  /** When its end was requested; Infinity before. */
  releasedNs: number;
  /** When the call that ends it succeeded; Infinity if that is not known. */
  endedNs: number;
  /** Reads and writes that succeeded under it, with their call times. */
  readonly acts: { readonly what: string; readonly calledNs: number }[];
}

/** A lock that was refused to a program that does not wait, before the first fault of the run. */
interface Refusal extends Wanted {
  readonly calledNs: number;
  readonly returnedNs: number;
}

/** The file in use, and all sections under locks. */
class Sections {
  readonly sections: Held[] = [];
  readonly refusals: Refusal[] = [];
  /** Requests that a signal ended, perhaps just after the grant. */
  readonly interrupted: Held[] = [];
  /** The files in use now: locks of one kind do not conflict with those of the other. */
  readonly files = new Rotation<string>();
}

const sectionsOf = perRun(() => new Sections());

const ENDS = {
  fcntl: ['unlock', 'unlock', 'close', 'close of another descriptor', 'exit'],
  flock: ['unlock', 'unlock', 'close', 'exit'],
} as const;

/** One program that has a file open, and takes locks on it. */
class LockUser {
  readonly #program: MountProgram;
  readonly #kind: Wanted['kind'];
  readonly #path: string;
  #wanted: Wanted;

  constructor(program: MountProgram) {
    this.#program = program;
    this.#kind = program.draw.chance(0.6) ? 'fcntl' : 'flock';
    this.#path = sectionsOf(program.run).files.current(
      `${this.#kind} ${program.volume}`,
      OPERATIONS_MAX,
      () => `/${this.#kind}-${program.run.fresh()}`,
    );
    this.#wanted = this.#drawn();
  }

  #drawn(): Wanted {
    const { draw, name } = this.#program;
    const type = draw.chance(0.7) ? 'exclusive' : 'shared';
    const first = this.#kind === 'flock' ? 0 : draw.integer(0, RECORDS - 1);
    const last = this.#kind === 'flock' ? RECORDS - 1 : draw.integer(first, RECORDS - 1);
    return { name, path: this.#path, kind: this.#kind, type, first, last };
  }

  async run(): Promise<void> {
    const { draw, process, run } = this.#program;
    const how = draw.pick(ENDS[this.#kind]);
    // A child takes the lock if the exit of a process is to end it.
    const holder = how === 'exit' ? process.fork() : process;
    holder.caught.add('SIGUSR1');
    let file: number | null = null;
    try {
      file = await holder.open(this.#path, O_RDWR | O_CREAT);
      for (let left = draw.integer(0, LOCKS_MAX - 1); left > 0 && !this.#program.isEnding; left--)
        await this.#section(holder, file, 'unlock');
      await this.#section(holder, file, how);
      if (how === 'close' || how === 'exit') file = null;
    } catch (error) {
      ignoreKernelError(error);
      run.count(`locks: ${(error as KernelError).errno}`);
    } finally {
      if (file !== null) await holder.close(file).catch(ignoreKernelError);
      if (holder !== process) await holder.exit().catch(ignoreKernelError);
    }
  }

  /** Takes one lock, and ends it as `how` says. */
  async #section(holder: Process, file: number, how: string): Promise<void> {
    const { draw, run, world } = this.#program;
    this.#wanted = this.#drawn();
    const isGranted = await this.#lock(holder, file);
    const held = isGranted ? this.#held(sectionsOf(run).sections) : null;
    if (held !== null) run.count(`${held.kind} ${held.type}`);
    const changes = held === null ? [] : await this.#use(holder, file, held);
    const syncs = draw.chance(SYNCED) && changes.length > 0;
    const isSynced = syncs && (await succeeds(() => holder.fsync(file)));
    if (held !== null) held.releasedNs = run.nowNs();
    const isEnded =
      (held !== null || how !== 'unlock') && (await succeeds(() => this.#end(holder, file, how)));
    if (held === null) return;
    if (isEnded) held.endedNs = run.nowNs();
    run.count(`lock ended by ${how}`);
    // An exit reports no error; a close of another descriptor none from before it was opened; a call none that an
    // fsync has reported.
    const isReported = how !== 'exit' && how !== 'close of another descriptor' && !syncs;
    const isKept = isSynced || (isEnded && isReported);
    for (const change of changes) if (isKept) Object.assign(change, { status: 'ok', return: run.nowNs() });
    if (how === 'close of another descriptor') await world.sleep(draw.next() * OPEN_MS_MAX);
  }

  async #end(holder: Process, file: number, how: string): Promise<void> {
    if (how === 'exit') return holder.exit();
    if (how === 'close') return holder.close(file);
    if (how === 'close of another descriptor') return holder.close(await holder.open(this.#path, O_RDWR));
    if (this.#kind === 'flock') return holder.flock(file, 'unlock', false);
    return holder.lock(file, { type: 'unlock', ...this.#range }, false);
  }

  #held(list: Held[], endedNs = NEVER): Held {
    const grantedNs = this.#program.run.nowNs();
    const held: Held = { ...this.#wanted, grantedNs, acts: [], releasedNs: NEVER, endedNs };
    list.push(held);
    return held;
  }

  get #range(): Omit<FileLock, 'type'> {
    const { first, last } = this.#wanted;
    return { start: BigInt(first * RECORD_BYTES), end: BigInt((last + 1) * RECORD_BYTES - 1) };
  }

  async #lock(holder: Process, file: number): Promise<boolean> {
    const { draw, run, world } = this.#program;
    const { type } = this.#wanted;
    const waits = draw.chance(0.6);
    let isOver = false;
    if (waits) {
      const patienceMs = draw.chance(0.3) ? draw.next() * 300 : draw.next() * WAIT_MS_MAX;
      world.after(patienceMs, () => {
        if (!isOver) holder.signal('SIGUSR1');
      });
    }
    const calledNs = run.nowNs();
    try {
      if (this.#kind === 'flock') await holder.flock(file, type, waits);
      else await holder.lock(file, { type, ...this.#range }, waits);
      return true;
    } catch (error) {
      ignoreKernelError(error);
      const { errno } = error as KernelError;
      if (errno === 'EAGAIN') this.#refused(calledNs);
      if (errno === 'EINTR') {
        run.count('wait for a lock interrupted');
        this.#held(sectionsOf(run).interrupted, run.nowNs());
      }
      if (errno !== 'EAGAIN' && errno !== 'EDEADLK') this.#program.failed('lock', error);
      return false;
    } finally {
      isOver = true;
    }
  }

  #refused(calledNs: number): void {
    const { run } = this.#program;
    run.count('lock refused');
    if (run.cluster.incidents.length > 0) return;
    run.count('lock refused without faults');
    sectionsOf(run).refusals.push({ ...this.#wanted, calledNs, returnedNs: run.nowNs() });
  }

  /**
   * Reads the records, and changes them under an exclusive lock. @returns the changes, whose outcomes are not known
   * yet
   */
  async #use(holder: Process, file: number, held: Held): Promise<object[]> {
    const { draw, name, run, world, volume } = this.#program;
    const changes: object[] = [];
    const holdMsMax = draw.chance(LONG) ? LONG_HOLD_MS_MAX : HOLD_MS_MAX;
    for (let record = held.first; record <= held.last; record++) {
      const key = `entry/${volume}${this.#path}/${record}`;
      const calledNs = run.nowNs();
      const value = await this.#act(held, 'read', async () =>
        (await holder.pread(file, RECORD_BYTES, record * RECORD_BYTES)).toString('latin1'),
      );
      if (value === undefined) return changes;
      const expect = value === '' || value === EMPTY ? null : value;
      const common = { client: name, key, call: calledNs };
      const read = { ...common, op: 'read', input: null, output: expect, status: 'ok', return: run.nowNs() };
      run.history.push(read as unknown as Operation);
      run.completed++;
      if (draw.chance(0.7)) await world.sleep(draw.next() * holdMsMax);
      if (held.type === 'shared') continue;
      const written = run.fresh().padEnd(RECORD_BYTES, '.');
      const input = { expect, value: written };
      const change = { ...common, op: 'cas', input, output: true, status: 'unknown', return: null };
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

  /** @returns undefined if it fails, as it does once the lock was lost */
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

/** Asserts that all locks become free in bounded time: a call that waits for them ends. */
async function takeOnce(program: MountProgram): Promise<void> {
  const { process, run } = program;
  for (const path of sectionsOf(run).files.all) {
    const file = await process.open(path, O_RDWR | O_CREAT).catch(ignoreKernelError);
    if (typeof file !== 'number') continue;
    await process.flock(file, 'exclusive', true).catch(ignoreKernelError);
    await process.flock(file, 'unlock', false).catch(ignoreKernelError);
    const whole = { start: 0n, end: BigInt(RECORDS * RECORD_BYTES) };
    await process.lock(file, { type: 'exclusive', ...whole }, true).catch(ignoreKernelError);
    await process.close(file).catch(ignoreKernelError);
  }
}

/** Finds calls under a lock that succeeded although they were called after a conflicting lock had been granted. */
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

/** Finds refusals of locks although no other program had, or was about to get, a conflicting one. */
function unfounded(refusals: readonly Refusal[], sections: readonly Held[]): string[] {
  return refusals.flatMap((refusal) => {
    const isFounded = sections.some(
      (held) =>
        excludes(held, refusal) &&
        held.grantedNs - NOTICE_NS <= refusal.returnedNs &&
        held.endedNs + NOTICE_NS >= refusal.calledNs,
    );
    if (isFounded) return [];
    const { kind, path, name, type, calledNs } = refusal;
    return [
      `${kind} ${path}: ${name} is refused a lock (${type}) at ${ms(calledNs)}, and no program has one`,
    ];
  });
}

function excludes(one: Wanted, other: Wanted): boolean {
  if (one.path !== other.path || one.kind !== other.kind) return false;
  if (one.type === 'shared' && other.type === 'shared') return false;
  return one.first <= other.last && other.first <= one.last;
}

function ms(ns: number): string {
  return `${(ns / 1e6).toFixed(1)} ms`;
}
