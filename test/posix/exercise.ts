import { constants } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { Program, USERS } from './program.ts';

/**
 * A random sequence of calls on a file, compared with a model in memory, as Apple's fsx does; that has found what no
 * list of cases did. Bytes name the step that wrote them: `#000123;#000123;`.
 */
export type Step =
  | { readonly kind: 'read' | 'mapped-read'; readonly offset: number; readonly length: number }
  | { readonly kind: 'write' | 'mapped-write'; readonly offset: number; readonly length: number }
  | { readonly kind: 'punch' | 'zero'; readonly offset: number; readonly length: number }
  | { readonly kind: 'append'; readonly length: number }
  | { readonly kind: 'truncate'; readonly sizeBytes: number }
  | { readonly kind: 'whole' | 'size' | 'persist' | 'reopen' | 'move' };

/**
 * `open`: one mount at a time has the file open, and an open reads what another mount has closed.
 * `strict`: all mounts have it open, and read at once what one has written and given to `fsync`.
 */
export type Coherence = 'open' | 'strict';

export interface ExerciseOptions {
  readonly seed: number;
  readonly steps: number;
  readonly coherence: Coherence;
  /** Called before each step. */
  readonly before?: (index: number) => Promise<void>;
}

export interface ExerciseFailure {
  readonly index: number;
  readonly reason: string;
  /** The latest steps up to and including the failed one, as text. */
  readonly history: readonly string[];
}

const FILE_BYTES_MAX = 1024 * 1024;
const STEP_BYTES_MAX = 96 * 1024;
const HISTORY_LENGTH = 40;

const FALLOC_KEEP_SIZE = 0x01;
const FALLOC_PUNCH_HOLE = 0x02;
const FALLOC_ZERO_RANGE = 0x10;

/** The weight of each kind in the random choice. */
const WEIGHTS: readonly (readonly [Step['kind'], number])[] = [
  ['read', 20],
  ['write', 24],
  ['append', 6],
  ['truncate', 5],
  ['mapped-read', 5],
  ['mapped-write', 5],
  ['punch', 4],
  ['zero', 2],
  ['whole', 3],
  ['size', 6],
  ['persist', 3],
  ['reopen', 4],
  ['move', 4],
];

/** @returns a generator of even numbers in [0, 1), by the algorithm "mulberry32" */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function drawSteps(seed: number, count: number): Step[] {
  const random = randomOf(seed);
  const sum = WEIGHTS.reduce((total, [, weight]) => total + weight, 0);
  const below = (limit: number): number => Math.floor(random() * limit);
  // Small and large steps, at offsets that share pages and blocks and at offsets that do not.
  const length = (): number => 1 + (below(3) === 0 ? below(STEP_BYTES_MAX) : below(5000));
  const offset = (): number => (below(3) === 0 ? below(FILE_BYTES_MAX / 4096) * 4096 : below(FILE_BYTES_MAX));
  return Array.from({ length: count }, () => {
    let left = random() * sum;
    const [kind] = WEIGHTS.find(([, weight]) => {
      left -= weight;
      return left < 0;
    }) ?? ['size'];
    switch (kind) {
      case 'truncate':
        return { kind, sizeBytes: below(4) === 0 ? 0 : below(FILE_BYTES_MAX) };
      case 'append':
        return { kind, length: length() };
      case 'read':
      case 'mapped-read':
      case 'write':
      case 'mapped-write':
      case 'punch':
      case 'zero': {
        const bytes = length();
        return { kind, offset: Math.min(offset(), FILE_BYTES_MAX - bytes), length: bytes };
      }
      default:
        return { kind };
    }
  });
}

/** Plays random steps on one file, which has a path on each mount. */
export class Exercise {
  readonly #paths: readonly string[];
  readonly #options: ExerciseOptions;
  readonly #program = new Program(USERS.root);
  readonly #handles: (FileHandle | undefined)[] = [];
  /** The mount of the next call. */
  #mount = 0;
  #model = Buffer.alloc(FILE_BYTES_MAX * 2);
  #sizeBytes = 0;
  #kinds = new Set<Step['kind']>();
  readonly counts = new Map<Step['kind'], number>();

  constructor(paths: readonly string[], options: ExerciseOptions) {
    this.#paths = paths;
    this.#options = options;
  }

  /** @returns the first difference from the model, or null */
  async run(): Promise<ExerciseFailure | null> {
    const steps = drawSteps(this.#options.seed, this.#options.steps);
    try {
      await this.#openFirst();
      for (const [index, step] of steps.entries()) {
        await this.#options.before?.(index);
        const reason = await this.#step(step, index).catch((error: unknown) => `it fails: ${String(error)}`);
        if (reason === null) continue;
        const first = Math.max(0, index - HISTORY_LENGTH + 1);
        const history = steps
          .slice(first, index + 1)
          .map((each, at) => `${first + at}: ${JSON.stringify(each)}`);
        return { index, reason, history };
      }
      const reason = await this.#whole();
      return reason === null ? null : { index: steps.length, reason, history: ['after all steps'] };
    } finally {
      for (const handle of this.#handles) await handle?.close();
      await this.#program.stop();
      await unlink(this.#path);
    }
  }

  get #path(): string {
    return this.#paths[this.#mount] as string;
  }

  async #openFirst(): Promise<void> {
    this.#handles[0] = await open(this.#path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o644);
    if (this.#options.coherence === 'strict') {
      for (const [mount, path] of this.#paths.entries()) this.#handles[mount] ??= await open(path, 'r+');
    }
    this.#kinds = new Set(WEIGHTS.map(([kind]) => kind));
    await this.#program.value('open', 'f', this.#path, 'rdwr');
    for (const [kind, mode] of [
      ['punch', FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE],
      ['zero', FALLOC_ZERO_RANGE],
    ] as const) {
      // Not every file system supports it.
      const { errno } = await this.#program.call('fallocate', 'f', mode, 0, 1);
      if (errno === 'EOPNOTSUPP') this.#kinds.delete(kind);
    }
    await this.#program.value('close', 'f');
    await this.#handle.truncate(0);
  }

  get #handle(): FileHandle {
    const handle = this.#handles[this.#mount];
    if (handle === undefined) throw new Error('The file is open where it is used');
    return handle;
  }

  /** @returns the difference from the model, or null */
  async #step(step: Step, index: number): Promise<string | null> {
    if (!this.#kinds.has(step.kind)) return null;
    this.counts.set(step.kind, (this.counts.get(step.kind) ?? 0) + 1);
    switch (step.kind) {
      case 'read': {
        const { bytesRead, buffer } = await this.#handle.read(
          Buffer.alloc(step.length),
          0,
          step.length,
          step.offset,
        );
        return this.#compare(buffer.subarray(0, bytesRead), step.offset, step.length);
      }
      case 'mapped-read': {
        const length = Math.min(step.length, this.#sizeBytes - step.offset);
        if (length <= 0) return null;
        const text = await this.#program.value('mapped-read', this.#path, step.offset, length);
        return this.#compare(Buffer.from(text, 'latin1'), step.offset, length);
      }
      case 'write': {
        const bytes = bytesOf(index, step.length);
        const { bytesWritten } = await this.#handle.write(bytes, 0, step.length, step.offset);
        this.#put(bytes, step.offset);
        return bytesWritten === step.length ? null : `${bytesWritten} bytes are written`;
      }
      case 'mapped-write': {
        const length = Math.min(step.length, this.#sizeBytes - step.offset);
        if (length <= 0) return null;
        const bytes = bytesOf(index, length);
        await this.#program.value('mapped-write', this.#path, step.offset, bytes.toString('latin1'));
        this.#put(bytes, step.offset);
        return null;
      }
      case 'append': {
        if (this.#sizeBytes + step.length > FILE_BYTES_MAX) return null;
        const bytes = bytesOf(index, step.length);
        const appending = await open(this.#path, 'a');
        try {
          await appending.write(bytes);
        } finally {
          await appending.close();
        }
        this.#put(bytes, this.#sizeBytes);
        return null;
      }
      case 'truncate':
        await this.#handle.truncate(step.sizeBytes);
        this.#model.fill(0, step.sizeBytes);
        this.#sizeBytes = step.sizeBytes;
        return null;
      case 'punch':
      case 'zero':
        return this.#clear(step);
      case 'whole':
        return this.#whole();
      case 'size': {
        const { size } = await this.#handle.stat();
        return size === this.#sizeBytes ? null : `its size is ${size} and not ${this.#sizeBytes}`;
      }
      case 'persist':
        await this.#handle.sync();
        return null;
      case 'reopen':
        await this.#handle.close();
        this.#handles[this.#mount] = await open(this.#path, 'r+');
        return null;
      case 'move':
        return this.#move();
    }
  }

  async #clear(step: Step & { readonly kind: 'punch' | 'zero' }): Promise<null> {
    const mode = step.kind === 'punch' ? FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE : FALLOC_ZERO_RANGE;
    await this.#program.value('open', 'f', this.#path, 'rdwr');
    try {
      await this.#program.value('fallocate', 'f', mode, step.offset, step.length);
    } finally {
      await this.#program.value('close', 'f');
    }
    const end = step.offset + step.length;
    this.#model.fill(0, step.offset, end);
    if (step.kind === 'zero') this.#sizeBytes = Math.max(this.#sizeBytes, end);
    return null;
  }

  async #move(): Promise<null> {
    const next = (this.#mount + 1) % this.#paths.length;
    if (this.#options.coherence === 'open') {
      await this.#handle.close();
      this.#handles[this.#mount] = undefined;
      this.#handles[next] = await open(this.#paths[next] as string, 'r+');
    } else await this.#handle.sync();
    this.#mount = next;
    return null;
  }

  async #whole(): Promise<string | null> {
    const reading = await open(this.#path, 'r');
    try {
      return this.#compare(await reading.readFile(), 0, FILE_BYTES_MAX * 2);
    } finally {
      await reading.close();
    }
  }

  #put(bytes: Buffer, offset: number): void {
    bytes.copy(this.#model, offset);
    this.#sizeBytes = Math.max(this.#sizeBytes, offset + bytes.length);
  }

  #compare(bytes: Buffer, offset: number, length: number): string | null {
    const wanted = this.#model.subarray(offset, Math.max(offset, Math.min(offset + length, this.#sizeBytes)));
    if (bytes.equals(wanted)) return null;
    if (bytes.length !== wanted.length) {
      return `${bytes.length} bytes are read at ${offset}, and not ${wanted.length} (the size is ${this.#sizeBytes})`;
    }
    const at = bytes.findIndex((byte, index) => byte !== wanted[index]);
    const [is, should] = [bytes, wanted].map((each) => JSON.stringify(each.toString('latin1', at, at + 16)));
    return `at ${offset + at} there is ${is}, and not ${should}`;
  }
}

function bytesOf(index: number, length: number): Buffer {
  return Buffer.alloc(length, `#${String(index).padStart(6, '0')};`);
}
