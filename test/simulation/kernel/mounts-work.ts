import { constants } from 'node:fs';
import type { Prng } from '../../../base/prng.ts';
import type { World } from '../../../base/world.ts';
import type { Operation } from '../../history/operation.ts';
import type { VirtualTime } from '../cluster/virtual-time.ts';
import { type KernelErrno, KernelError } from './kernel-error.ts';
import { Mutex } from './kernel-locks.ts';
import type { Process } from './process.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_WRONLY } = constants;
/** The search for an order grows with the operations on one key: after so many another one is used. */
const OPERATIONS_MAX = 40;
const NAMES = 4;
/**
 * Size and bytes of a file are asked for one after the other, by Linux above any file system. So a file has slots: each write is
 * of one, and each read, which finds it as it was, as it is, or not there.
 */
const SLOT_BYTES = 4;
const SLOTS = 5;
const THINK_MS_MAX = 60;
const RENAME_NOREPLACE = 1;
/** Answers that say nothing about what was done. */
const UNKNOWN: ReadonlySet<KernelErrno> = new Set([
  'ETIMEDOUT',
  'EIO',
  'EINTR',
  'ENOTCONN',
  'ECONNABORTED',
  'ESRCH',
]);

type Recorded = { -readonly [Field in keyof Operation]: Operation[Field] };

/** What the programs of all mounts work on, and what came of it. */
export class MountsWork {
  readonly history: Operation[] = [];
  readonly violations: string[] = [];
  readonly outcomes = new Map<string, number>();
  completed = 0;
  unknown = 0;
  isEnding = false;
  readonly #time: VirtualTime;
  readonly #counts = new Map<string, number>();
  readonly #rounds = { f: 1, d: 1 };
  #values = 0;
  /** Who has a lock, by its kind. */
  readonly #holders = new Map<string, string>();

  constructor(time: VirtualTime) {
    this.#time = time;
  }

  fresh(): string {
    this.#values++;
    return `v${this.#values.toString(36).padStart(SLOT_BYTES - 1, '0')}`;
  }

  nowNs(): number {
    return Math.round(this.#time.nowMs * 1e6);
  }

  note(what: string): void {
    this.#time.note(what);
  }

  count(what: string): void {
    this.outcomes.set(what, (this.outcomes.get(what) ?? 0) + 1);
  }

  /** @returns a file or a directory that is in use now */
  place(kind: 'f' | 'd', number: number): string {
    const name = `/${kind}${this.#rounds[kind]}-${number}`;
    const count = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, count);
    if (count > OPERATIONS_MAX) this.#rounds[kind]++;
    return name;
  }

  /** No other program may act until `freed`. */
  locked(lock: string, who: string): void {
    const holder = this.#holders.get(lock);
    if (holder !== undefined)
      this.violations.push(`${lock}: ${who} has it at ${this.#time.nowMs} ms, and so has ${holder}`);
    this.#holders.set(lock, who);
    this.count(`locked ${lock.replace(/\d+$/, '')}`);
  }

  freed(lock: string, who: string): void {
    if (this.#holders.get(lock) === who) this.#holders.delete(lock);
  }
}

/**
 * Programs of one mount use a file one after the other. While a size changes (FUSE_I_SIZE_UNSTABLE), Linux passes over sizes that
 * the mount answers: a reader on that mount may see zeros to the old end, or miss what another mount has appended.
 */
export class Turns {
  readonly #turns = new Map<string, Mutex>();

  async take<Value>(path: string, use: () => Promise<Value>): Promise<Value> {
    const turn = this.#turns.get(path) ?? new Mutex();
    this.#turns.set(path, turn);
    await turn.lock();
    try {
      return await use();
    } finally {
      turn.unlock();
    }
  }
}

/** A program of one process on a mount: one operation after the other, each judged with all others of its file or directory. */
export class MountsActor {
  readonly #name: string;
  readonly #process: Process;
  readonly #world: World;
  readonly #prng: Prng;
  readonly #work: MountsWork;
  readonly #turns: Turns;
  readonly #kept = new Map<string, number>();

  constructor(name: string, process: Process, world: World, prng: Prng, work: MountsWork, turns: Turns) {
    this.#turns = turns;
    this.#name = name;
    this.#process = process;
    this.#world = world;
    this.#prng = prng;
    this.#work = work;
  }

  async run(): Promise<void> {
    while (!this.#work.isEnding && !this.#process.hasEnded) {
      const draw = this.#prng.integer(0, 9);
      if (draw < 4) await this.#onFile();
      else if (draw < 9) await this.#onName();
      else await this.#withLock();
      await this.#world.sleep(1 + this.#prng.next() * THINK_MS_MAX);
    }
  }

  /** Each use is an open, one call, and a close: close-to-open is all that programs may count on in each mode. */
  #onFile(): Promise<void> {
    const path = this.#work.place('f', this.#prng.integer(1, 2));
    return this.#turns.take(path, () => this.#useFile(path));
  }

  async #useFile(path: string): Promise<void> {
    const key = `file${path}`;
    const off = SLOT_BYTES * this.#prng.integer(0, SLOTS);
    switch (this.#prng.integer(0, 7)) {
      case 0:
      case 1:
      case 2: {
        const input = { off, len: SLOT_BYTES };
        return this.#operation('pread', key, input, {}, () =>
          this.#opened(path, O_RDONLY | O_CREAT, async (file) =>
            (await this.#process.pread(file, input.len, input.off)).toString('latin1'),
          ),
        );
      }
      case 3: {
        const data = this.#work.fresh();
        return this.#operation('pwrite', key, { off, data }, {}, () =>
          this.#opened(path, O_WRONLY | O_CREAT, async (file) => {
            await this.#process.pwrite(file, Buffer.from(data), off);
            return null;
          }),
        );
      }
      case 4: {
        const data = this.#work.fresh();
        return this.#operation('fappend', key, { data }, {}, () =>
          this.#opened(path, O_WRONLY | O_APPEND | O_CREAT, async (file) => {
            await this.#process.write(file, Buffer.from(data));
            return null;
          }),
        );
      }
      case 5:
      case 6:
        // Of a file that stays open, Linux keeps the attributes for as long as the mount has said.
        return this.#operation('size', key, null, {}, async () => {
          const file = this.#kept.get(path) ?? (await this.#process.open(path, O_RDONLY | O_CREAT));
          this.#kept.set(path, file);
          return (await this.#process.fstat(file)).sizeBytes;
        });
      default: {
        const size = this.#prng.chance(0.3) ? 0 : off;
        return this.#operation('truncate', key, { size }, {}, () =>
          this.#opened(path, O_WRONLY | O_CREAT, async (file) => {
            await this.#process.ftruncate(file, size);
            return null;
          }),
        );
      }
    }
  }

  async #opened<Value>(path: string, flags: number, use: (file: number) => Promise<Value>): Promise<Value> {
    const file = await this.#process.open(path, flags);
    let value: Value;
    try {
      value = await use(file);
    } catch (error) {
      await this.#process.close(file).catch(ignoreKernelError);
      throw error;
    }
    await this.#process.close(file);
    return value;
  }

  async #onName(): Promise<void> {
    const folder = this.#work.place('d', this.#prng.integer(1, 2));
    const key = `directory${folder}`;
    const name = `n${this.#prng.integer(1, NAMES)}`;
    const path = `${folder}/${name}`;
    await this.#process.mkdir(folder).catch(ignoreKernelError);
    switch (this.#prng.integer(0, 5)) {
      case 0:
      case 1:
        return this.#operation('lookup', key, { name }, { ENOENT: null }, () => this.#process.readlink(path));
      case 2: {
        const value = this.#work.fresh();
        return this.#operation('create', key, { name, value }, { EEXIST: false }, async () => {
          await this.#process.symlink(value, path);
          return true;
        });
      }
      case 3:
        return this.#operation('unlink', key, { name }, { ENOENT: false }, async () => {
          await this.#process.unlink(path);
          return true;
        });
      default: {
        const to = `n${this.#prng.integer(1, NAMES)}`;
        if (to === name) return;
        const noReplace = this.#prng.chance(0.5);
        const input = { from: name, to, noReplace };
        return this.#operation('rename', key, input, { ENOENT: false, EEXIST: false }, async () => {
          await this.#process.rename(path, `${folder}/${to}`, noReplace ? RENAME_NOREPLACE : 0);
          return true;
        });
      }
    }
  }

  /** A file that is created exclusively, or a name that is linked, is a lock until its holder unlinks it. */
  async #withLock(): Promise<void> {
    const process = this.#process;
    const number = this.#prng.integer(1, 2);
    const byLink = this.#prng.chance(0.5);
    const path = byLink ? `/linked${number}` : `/created${number}`;
    try {
      if (byLink) {
        const own = `/own-${this.#name}`;
        await this.#opened(own, O_WRONLY | O_CREAT, async () => undefined);
        await process.link(own, path);
      } else await process.close(await process.open(path, O_WRONLY | O_CREAT | O_EXCL));
    } catch (error) {
      ignoreKernelError(error);
      this.#work.count(`${byLink ? 'link' : 'excl'} ${(error as KernelError).errno}`);
      // What was created without an answer would be a lock for ever.
      if (this.#prng.chance(0.02)) await process.unlink(path).catch(ignoreKernelError);
      return;
    }
    this.#work.locked(path, this.#name);
    await this.#world.sleep(this.#prng.next() * 30);
    this.#work.freed(path, this.#name);
    await process.unlink(path).catch(ignoreKernelError);
  }

  /** @param answers what errors say about the state */
  async #operation(
    op: Operation['op'],
    key: string,
    input: Operation['input'],
    answers: Partial<Record<KernelErrno, boolean | null>>,
    ask: () => Promise<Operation['output']>,
  ): Promise<void> {
    const work = this.#work;
    const recorded = {
      ...{ client: this.#name, op, key, input, output: null, status: 'unknown', return: null },
      call: work.nowNs(),
    } as unknown as Recorded;
    work.history.push(recorded as Operation);
    const ended = (output: unknown): void => {
      Object.assign(recorded, { output, status: 'ok', return: work.nowNs() });
      work.completed++;
      work.note(`${this.#name} ${op} ${key} ${JSON.stringify(input)} ${JSON.stringify(output)}`);
    };
    try {
      ended(await ask());
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      const answer = answers[error.errno];
      if (answer !== undefined) return ended(answer);
      work.count(`${op} ${error.errno}`);
      work.unknown++;
      work.note(`${this.#name} ${op} ${key} ${JSON.stringify(input)} ${error.errno}`);
      if (!UNKNOWN.has(error.errno))
        work.violations.push(`${this.#name}: ${op} ${key} fails with ${error.errno}`);
      await this.#world.sleep(100);
    }
  }
}

function ignoreKernelError(error: unknown): void {
  if (!(error instanceof KernelError)) throw error;
}
