import { ServiceError } from '../../../base/errors.ts';
import type { Prng } from '../../../base/prng.ts';
import type { ClusterClient } from '../../../client/cluster-client.ts';
import type { FileHandle } from '../../../client/file-handle.ts';
import type { Operation } from '../../history/operation.ts';
import type { SimulatedProcess } from './simulated-process.ts';
import type { VirtualTime } from './virtual-time.ts';

export const VOLUME = 'sim';
const OBJECT_BYTES = 4_096;
const OWNER = { uid: 0, gid: 0 } as const;
/** The search for an order grows with the operations on one key: after so many there is another one. */
const FILE_OPERATIONS_MAX = 70;
const DIRECTORY_OPERATIONS_MAX = 90;
const FILES = 4;
const DIRECTORIES = 2;
const NAMES = 5;
const MEMBERS = 3;
/** Of the operations on a file, where there are more servers than members. */
const MOVES = 0.03;
/** A program thinks for up to so long between two operations. */
const THINK_MS_MAX = 90;
const READ_TIMEOUT_MS = 8_000;
/** A program of little patience abandons an operation early, and does another one. */
const IMPATIENT = 0.25;
const IMPATIENT_MS_MAX = 1_500;
const CHANGE_TIMEOUT_MS = 20_000;

export interface SharedFile {
  readonly inode: number;
  readonly replicas: readonly string[];
  /** Where its bytes are written: in one object, or across the end of one. */
  readonly low: number;
  operations: number;
}

interface SharedDirectory {
  readonly inode: number;
  operations: number;
}

/** An operation while it is recorded. */
type Recorded = { -readonly [Field in keyof Operation]: Operation[Field] };

/** What all programs of a run work on, and what came of it. */
export class SharedWork {
  readonly history: Operation[] = [];
  readonly files: SharedFile[] = [];
  readonly directories: SharedDirectory[] = [];
  /** All there ever were. */
  readonly allFiles: SharedFile[] = [];
  /** What was thrown that is no answer of the catalogue of failures. */
  readonly surprises: string[] = [];
  readonly outcomes = new Map<string, number>();
  completed = 0;
  unknown = 0;
  isEnding = false;
  /** Every program waits until the time limit of its operation. */
  isPatient = false;
  /** Ids of all servers. */
  readonly servers: readonly string[];
  readonly #time: VirtualTime;
  #values = 0;

  constructor(time: VirtualTime, servers: readonly string[]) {
    this.#time = time;
    this.servers = servers;
  }

  freshValue(): string {
    return `v${(++this.#values).toString(36)}`;
  }

  nowNs(): number {
    return Math.round(this.#time.nowMs * 1e6);
  }

  note(what: string): void {
    this.#time.note(what);
  }

  count(outcome: string): void {
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
  }
}

/** One thread of a program: it does one operation after the other. */
export class Actor {
  readonly #name: string;
  readonly #client: ClusterClient;
  readonly #process: SimulatedProcess;
  readonly #prng: Prng;
  readonly #work: SharedWork;
  readonly #handles = new Map<number, FileHandle>();

  constructor(name: string, client: ClusterClient, process: SimulatedProcess, prng: Prng, work: SharedWork) {
    this.#name = name;
    this.#client = client;
    this.#process = process;
    this.#prng = prng;
    this.#work = work;
  }

  async run(): Promise<void> {
    while (!this.#work.isEnding) {
      await this.#turn();
      await this.#process.sleep(1 + this.#prng.next() * THINK_MS_MAX);
    }
  }

  async #turn(): Promise<void> {
    const { files, directories } = this.#work;
    if (files.length < FILES) return this.#makeFile();
    if (directories.length < DIRECTORIES) return this.#makeDirectory();
    if (this.#prng.chance(0.6)) {
      const file = this.#prng.pick(files);
      if (++file.operations > FILE_OPERATIONS_MAX) files.splice(files.indexOf(file), 1);
      return this.#onFile(file);
    }
    const directory = this.#prng.pick(directories);
    if (++directory.operations > DIRECTORY_OPERATIONS_MAX)
      directories.splice(directories.indexOf(directory), 1);
    return this.#onName(directory);
  }

  #patienceMs(): number {
    const isPatient = this.#work.isPatient || !this.#prng.chance(IMPATIENT);
    return isPatient ? CHANGE_TIMEOUT_MS : 20 + this.#prng.next() * IMPATIENT_MS_MAX;
  }

  async #makeFile(): Promise<void> {
    const place = { volume: VOLUME, path: `/f-${this.#work.freshValue()}` };
    const made = await this.#attempt(() =>
      this.#client.command(
        { kind: 'create-file', place, mode: 0o644, ...OWNER, exclusive: true },
        { timeoutMs: CHANGE_TIMEOUT_MS },
      ),
    );
    if (made === null) return;
    const { inode, replicas } = made.attributes;
    const low = this.#prng.chance(0.5) ? 0 : OBJECT_BYTES - 12;
    const file = { inode, replicas, low, operations: 0 };
    this.#work.files.push(file);
    this.#work.allFiles.push(file);
  }

  async #makeDirectory(): Promise<void> {
    const place = { volume: VOLUME, path: `/d-${this.#work.freshValue()}` };
    const made = await this.#attempt(() =>
      this.#client.command(
        { kind: 'make-directory', place, mode: 0o755, ...OWNER },
        { timeoutMs: CHANGE_TIMEOUT_MS },
      ),
    );
    if (made !== null) this.#work.directories.push({ inode: made.attributes.inode, operations: 0 });
  }

  async #attempt<Value>(ask: () => Promise<Value>): Promise<Value | null> {
    try {
      return await ask();
    } catch (error) {
      this.#failed('make', error);
      await this.#process.sleep(200);
      return null;
    }
  }

  #handle(file: SharedFile): FileHandle {
    let handle = this.#handles.get(file.inode);
    if (handle === undefined || this.#prng.chance(0.02)) {
      handle = this.#client.openFile(file.inode, { replicas: file.replicas });
      this.#handles.set(file.inode, handle);
    }
    return handle;
  }

  async #onFile(file: SharedFile): Promise<void> {
    const handle = this.#handle(file);
    const key = `file/${file.inode}`;
    const offset = file.low + this.#prng.integer(0, 20);
    const timeout = { timeoutMs: this.#patienceMs() };
    if (this.#work.servers.length > MEMBERS && this.#prng.chance(MOVES)) return this.#move(file);
    switch (this.#prng.integer(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const [off, len] = this.#prng.chance(0.5) ? [file.low, 200] : [offset, this.#prng.integer(1, 30)];
        return this.#operation('pread', key, { off, len }, [], async () => {
          const { bytes } = await handle.read(off, len, { timeoutMs: READ_TIMEOUT_MS });
          return Buffer.from(bytes).toString('latin1');
        });
      }
      case 4:
        return this.#operation('size', key, null, [], async () => {
          return (await handle.state({ timeoutMs: READ_TIMEOUT_MS })).sizeBytes;
        });
      case 5:
      case 6: {
        const data = this.#work.freshValue();
        return this.#operation('pwrite', key, { off: offset, data }, [], async () => {
          return (await handle.write(offset, Buffer.from(data, 'latin1'), timeout)).sizeBytes;
        });
      }
      case 7: {
        const data = this.#work.freshValue();
        return this.#operation('fappend', key, { data }, [], async () => {
          return (await handle.write('append', Buffer.from(data, 'latin1'), timeout)).offset;
        });
      }
      case 8: {
        const size = this.#prng.chance(0.3) ? 0 : offset;
        return this.#operation('truncate', key, { size }, [], async () => {
          return (await handle.truncate(size, timeout)).sizeBytes;
        });
      }
      default:
        await this.#attempt(() => handle.flush(timeout));
        this.#work.count('flush');
    }
  }

  /** Has the replicas of a file move to other servers. */
  async #move(file: SharedFile): Promise<void> {
    const members = [...this.#work.servers];
    while (members.length > MEMBERS) members.splice(this.#prng.integer(0, members.length - 1), 1);
    const timeout = { timeoutMs: this.#patienceMs(), attemptMs: 5_000 };
    const view = await this.#attempt(() => this.#client.changeMembers(file.inode, members, timeout));
    this.#work.note(`move ${file.inode} to ${members.join()} ${view === null ? 'unknown' : view.number}`);
    if (view !== null) this.#work.count('move');
  }

  async #onName(directory: SharedDirectory): Promise<void> {
    const key = `directory/${directory.inode}`;
    const name = `n${this.#prng.integer(1, NAMES)}`;
    const place = { parent: directory.inode, name };
    const timeout = { timeoutMs: this.#patienceMs() };
    switch (this.#prng.integer(0, 6)) {
      case 0:
      case 1:
        return this.#operation('lookup', key, { name }, [], async () => {
          try {
            const query = { kind: 'lookup', parent: directory.inode, name } as const;
            const { attributes } = await this.#client.query(query, { timeoutMs: READ_TIMEOUT_MS });
            return attributes.kind === 'symlink' ? attributes.target : `u${attributes.uid}`;
          } catch (error) {
            if (error instanceof ServiceError && error.code === 'not-found') return null;
            throw error;
          }
        });
      case 2: {
        const value = this.#work.freshValue();
        const command = { kind: 'symlink', place, target: value, ...OWNER } as const;
        return this.#operation('create', key, { name, value }, ['exists'], async () => {
          await this.#client.command(command, timeout);
          return true;
        });
      }
      case 3: {
        const uid = Number.parseInt(this.#work.freshValue().slice(1), 36);
        const command = { kind: 'create-file', place, mode: 0o644, uid, gid: 0, exclusive: true } as const;
        return this.#operation('create', key, { name, value: `u${uid}` }, ['exists'], async () => {
          await this.#client.command(command, timeout);
          return true;
        });
      }
      case 4:
        return this.#operation('unlink', key, { name }, ['not-found'], async () => {
          await this.#client.command({ kind: 'unlink', place }, timeout);
          return true;
        });
      default: {
        const to = `n${this.#prng.integer(1, NAMES)}`;
        if (to === name) return;
        const noReplace = this.#prng.chance(0.5);
        const mode = noReplace ? 'no-replace' : 'replace';
        const target = { parent: directory.inode, name: to };
        const input = { from: name, to, noReplace };
        return this.#operation('rename', key, input, ['not-found', 'exists'], async () => {
          await this.#client.command({ kind: 'rename', from: place, to: target, mode }, timeout);
          return true;
        });
      }
    }
  }

  /** @param refusals codes that are answers about the state: the operation was possible, and did nothing */
  async #operation(
    op: Operation['op'],
    key: string,
    input: Operation['input'],
    refusals: readonly string[],
    ask: () => Promise<Operation['output']>,
  ): Promise<void> {
    const work = this.#work;
    const recorded = {
      ...{ client: this.#name, op, key, input, output: null, status: 'unknown', return: null },
      call: work.nowNs(),
    } as unknown as Recorded;
    // Whatever becomes of the process: it was called.
    work.history.push(recorded as Operation);
    const ended = (output: unknown, status: 'ok' | 'fail'): void => {
      Object.assign(recorded, { output, status, return: work.nowNs() });
      work.completed++;
      work.note(`${op} ${key} ${JSON.stringify(input)} ${status} ${JSON.stringify(output)}`);
    };
    try {
      ended(await ask(), 'ok');
    } catch (error) {
      if (error instanceof ServiceError && refusals.includes(error.code)) return ended(false, 'ok');
      this.#failed(op, error);
      work.unknown++;
      work.note(`${op} ${key} ${JSON.stringify(input)} unknown: ${(error as Error).message}`);
      await this.#process.sleep(100);
    }
  }

  #failed(op: string, error: unknown): void {
    if (error instanceof ServiceError) {
      this.#work.count(`${op} ${error.code}`);
      if (error.code !== 'internal' && error.code !== 'integrity' && error.code !== 'bad-request') return;
    }
    this.#work.surprises.push(
      `${op}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
    );
  }
}
