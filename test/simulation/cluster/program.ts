import { constants } from 'node:fs';
import { ServiceError } from '../../../base/errors.ts';
import type { Prng } from '../../../base/prng.ts';
import type { ClusterClient } from '../../../client/cluster/cluster-client.ts';
import type { Operation } from '../../history/operation.ts';
import { ignoreKernelError, KernelError } from '../kernel/kernel-error.ts';
import { Mutex } from '../kernel/kernel-locks.ts';
import type { Process } from '../kernel/process.ts';
import type { Run } from './run.ts';
import type { SimulatedMachine } from './simulated-machine.ts';
import type { SimulatedProcess } from './simulated-process.ts';

/** An operation while it is recorded. */
type Recorded = { -readonly [Field in keyof Operation]: Operation[Field] };

/** The probability that a program abandons an operation early, and makes another one. */
const IMPATIENT = 0.25;
const IMPATIENT_MS_MAX = 1_500;
const CHANGE_TIMEOUT_MS = 20_000;
export const READ_TIMEOUT_MS = 8_000;
/** The pause after an operation with an unknown outcome. */
const AFTER_UNKNOWN_MS = 100;

/** Codes that no client may receive, whatever happens. */
const FAULTS_OF_SERVERS: ReadonlySet<string> = new Set(['internal', 'integrity', 'bad-request']);
/** Errors of system calls whose outcome is unknown. */
const UNKNOWN_ERRNOS: ReadonlySet<string> = new Set([
  ...['ETIMEDOUT', 'EIO', 'EINTR', 'ENOTCONN', 'ECONNABORTED', 'ESRCH', 'ENOSPC'],
]);

/**
 * The mount has dropped an uncommitted file: another client created the name after the mount's cache session had
 * ended, and calls on the descriptor fail.
 */
class DroppedFileError extends KernelError {
  constructor(errno: 'EEXIST' | 'ESTALE') {
    super(errno, 'The new file was dropped: another client has made the name');
  }
}

/** The output that each error code or errno stands for, if it is an answer about the state. */
export type Refusals = Readonly<Record<string, Operation['output']>>;

/** One thread of a simulated program, which makes one operation after the other. */
abstract class Program {
  /** Includes the life of its machine. */
  readonly name: string;
  readonly world: SimulatedProcess;
  readonly draw: Prng;
  readonly run: Run;

  constructor(name: string, world: SimulatedProcess, draw: Prng, run: Run) {
    this.name = name;
    this.world = world;
    this.draw = draw;
    this.run = run;
  }

  get isEnding(): boolean {
    return this.run.isEnding;
  }

  /** @returns the code of an error of the product or of Linux; `isSurprise`: it must not happen */
  protected abstract codeOf(error: unknown): { readonly code: string; readonly isSurprise: boolean };

  think(msMax: number): Promise<void> {
    return this.world.sleep(1 + this.draw.next() * msMax);
  }

  /**
   * Makes an operation and records it in the history: its call at once, even if the process ends meanwhile, and its
   * outcome when it is known.
   */
  async operation(
    op: Operation['op'],
    key: string,
    input: Operation['input'],
    refusals: Refusals,
    ask: () => Promise<Operation['output']>,
  ): Promise<void> {
    const { run } = this;
    const recorded = {
      ...{ client: this.name, op, key, input, output: null, status: 'unknown', return: null },
      call: run.nowNs(),
    } as unknown as Recorded;
    run.history.push(recorded as Operation);
    const ended = (output: unknown): void => {
      Object.assign(recorded, { output, status: 'ok', return: run.nowNs() });
      run.completed++;
      run.note(`${this.name} ${op} ${key} ${JSON.stringify(input)} ok ${JSON.stringify(output)}`);
    };
    try {
      ended(await ask());
    } catch (error) {
      const { code } = this.codeOf(error);
      if (Object.hasOwn(refusals, code)) {
        run.count(`received ${code}`);
        return ended(refusals[code]);
      }
      this.failed(op, error);
      run.unknown++;
      run.note(`${this.name} ${op} ${key} ${JSON.stringify(input)} unknown: ${code}`);
      await this.world.sleep(AFTER_UNKNOWN_MS);
    }
  }

  /** Makes an operation that is not in the history. @returns null if it failed in an allowed way */
  async attempt<Value>(what: string, ask: () => Promise<Value>): Promise<Value | null> {
    try {
      return await ask();
    } catch (error) {
      this.failed(what, error);
      await this.world.sleep(2 * AFTER_UNKNOWN_MS);
      return null;
    }
  }

  /**
   * Makes an operation once that is not in the history.
   *
   * @param refusals codes that mean that it had no effect
   * @returns whether it was executed, or null if that is unknown
   */
  async outcome(
    what: string,
    refusals: readonly string[],
    ask: () => Promise<unknown>,
  ): Promise<boolean | null> {
    try {
      await ask();
      this.run.completed++;
      return true;
    } catch (error) {
      const { code } = this.codeOf(error);
      if (refusals.includes(code)) {
        this.run.count(`received ${code}`);
        this.run.completed++;
        return false;
      }
      this.failed(what, error);
      await this.world.sleep(AFTER_UNKNOWN_MS);
      return null;
    }
  }

  /** Counts a failure, which is a violation unless it is allowed. */
  failed(what: string, error: unknown): void {
    const { code, isSurprise } = this.codeOf(error);
    this.run.count(`received ${code}`);
    if (!isSurprise) return;
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.run.violation(`${this.name}: ${what} fails with ${code}: ${text}`);
  }
}

/** A thread of a client of the library. */
export class ClientProgram extends Program {
  readonly client: ClusterClient;

  constructor(name: string, world: SimulatedProcess, draw: Prng, run: Run, client: ClusterClient) {
    super(name, world, draw, run);
    this.client = client;
  }

  /** @returns the time limit of one change */
  patience(): { readonly timeoutMs: number } {
    const isPatient = this.run.isPatient || !this.draw.chance(IMPATIENT);
    return { timeoutMs: isPatient ? CHANGE_TIMEOUT_MS : 20 + this.draw.next() * IMPATIENT_MS_MAX };
  }

  protected codeOf(error: unknown): { readonly code: string; readonly isSurprise: boolean } {
    if (!(error instanceof ServiceError)) return { code: 'surprise', isSurprise: true };
    return { code: error.code, isSurprise: FAULTS_OF_SERVERS.has(error.code) };
  }
}

/** A process on a mount. */
export class MountProgram extends Program {
  readonly process: Process;
  readonly machine: SimulatedMachine;
  readonly #turns: Map<string, Mutex>;

  /** @param turns of all programs of the mount */
  constructor(
    name: string,
    world: SimulatedProcess,
    draw: Prng,
    run: Run,
    process: Process,
    machine: SimulatedMachine,
    turns: Map<string, Mutex>,
  ) {
    super(name, world, draw, run);
    this.process = process;
    this.machine = machine;
    this.#turns = turns;
  }

  override get isEnding(): boolean {
    return this.run.isEnding || this.process.hasEnded;
  }

  /** The mounted volume. */
  get volume(): string {
    return this.machine.volume;
  }

  /** Programs of this mount with the same turn name run one after the other. */
  inTurn<Value>(name: string, use: () => Promise<Value>): Promise<Value> {
    const turn = this.#turns.get(name) ?? new Mutex();
    this.#turns.set(name, turn);
    return turn.hold(use);
  }

  /** Opens a file, uses it, and closes it. Throws the error of the close if the use had none. */
  async opened<Value>(path: string, flags: number, use: (file: number) => Promise<Value>): Promise<Value> {
    const file = await this.process.open(path, flags);
    const mayBeDropped = (flags & constants.O_CREAT) !== 0 && (flags & constants.O_EXCL) === 0;
    const failed = (error: unknown): unknown => {
      const isDropped = mayBeDropped && error instanceof KernelError && error.errno === 'EEXIST';
      if (!isDropped) return error;
      this.machine.dropped.add(path);
      return new DroppedFileError('EEXIST');
    };
    let value: Value;
    try {
      value = await use(file);
    } catch (error) {
      await this.process.close(file).catch(ignoreKernelError);
      throw failed(error);
    }
    await this.process.close(file).catch((error: unknown) => {
      throw failed(error);
    });
    return value;
  }

  /**
   * @returns the size of a file that stays open. If the mount has dropped the file, the cluster has none with its
   * number.
   */
  async sizeOf(path: string, file: number): Promise<number> {
    try {
      return (await this.process.fstat(file)).sizeBytes;
    } catch (error) {
      const isStale = error instanceof KernelError && error.errno === 'ESTALE';
      throw isStale && this.machine.dropped.has(path) ? new DroppedFileError('ESTALE') : error;
    }
  }

  protected codeOf(error: unknown): { readonly code: string; readonly isSurprise: boolean } {
    if (!(error instanceof KernelError)) return { code: 'surprise', isSurprise: true };
    if (error instanceof DroppedFileError) return { code: error.errno, isSurprise: false };
    return { code: error.errno, isSurprise: !UNKNOWN_ERRNOS.has(error.errno) };
  }
}
