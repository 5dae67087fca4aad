import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { BIRTHS_BYTES_MAX } from '../../wire/births.ts';
import { BIRTHS_MAX, FORGETS_MAX } from '../../wire/request-limits.ts';
import type { BirthBackend, BirthOutcome, InodeNumbers, NewFile } from '../backend.ts';

/** Requests under way at a time at the most. */
const REQUESTS_MAX = 4;
/** Contents that do not wait until another request is answered: there is little to share beside their bytes. */
const OWN_REQUEST_BYTES = 128 * 1024;
const NUMBERS_AT_A_TIME = 512;
const NUMBERS_LEFT_MIN = 128;
/** Numbers are not used any more so shortly before they are void, in milliseconds. */
const MARGIN_MS = 60_000;
/** Where numbers cannot be had, as in a cluster with a server of an earlier release, they are not asked for with each file. */
const REFUSED_MS = 1_000;

function isFull(error: Error): boolean {
  return error instanceof ServiceError && error.code === 'no-space';
}

interface Waiting {
  readonly file: NewFile;
  readonly bearer: string;
  resolve(outcome: BirthOutcome): void;
  reject(error: unknown): void;
}

/** A number for a file to come, and the server that can bear it. */
export interface InodeNumber {
  readonly inode: number;
  readonly bearer: string;
  /** That server also takes the contents of a file that was created by this number. */
  readonly takesNamed: boolean;
}

/** Brings new files to the cluster: while a request is under way the next ones gather, and travel together; many bytes do not wait for that. */
export class Creates {
  readonly #world: World;
  readonly #backend: Pick<BirthBackend, 'bear' | 'reserve' | 'bearer'>;
  readonly #failed: (error: unknown) => void;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #underWay = 0;
  #isAboutToSend = false;
  #numbers: (InodeNumbers & { readonly next: number }) | null = null;
  #isReserving = false;
  #refusedMs = Number.NEGATIVE_INFINITY;

  /** @param failed is told why numbers could not be had */
  constructor(
    world: World,
    backend: Pick<BirthBackend, 'bear' | 'reserve' | 'bearer'>,
    failed: (error: unknown) => void,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#failed = failed;
  }

  /** Files are about to be made: there are numbers for them, or will be in a moment. */
  prepare(): void {
    const numbers = this.#numbers;
    const isGood =
      numbers !== null &&
      numbers.next < numbers.first + numbers.count &&
      this.#world.nowMs() < numbers.untilMs - MARGIN_MS &&
      numbers.bearer === this.#backend.bearer();
    if (!isGood) this.#numbers = null;
    if (!isGood || numbers.first + numbers.count - numbers.next <= NUMBERS_LEFT_MIN) this.#reserve();
  }

  /** @returns null where there is none at the moment; there will be */
  takeNumber(): InodeNumber | null {
    this.prepare();
    const numbers = this.#numbers;
    if (numbers === null) return null;
    this.#numbers = { ...numbers, next: numbers.next + 1 };
    return { inode: numbers.next, bearer: numbers.bearer, takesNamed: numbers.named === true };
  }

  /** @returns what became of the file; throws where that is not known */
  bear(file: NewFile, bearer: string): Promise<BirthOutcome> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ file, bearer, resolve, reject });
      this.#waitingBytes += file.contents.length;
      // Whoever comes in the same turn travels with it.
      if (!this.#isAboutToSend) queueMicrotask(() => this.#send());
      this.#isAboutToSend = true;
    });
  }

  #send(): void {
    this.#isAboutToSend = false;
    while (this.#mayLeave) {
      this.#underWay++;
      void this.#sendBatch(this.#takeBatch()).finally(() => {
        this.#underWay--;
        this.#send();
      });
    }
  }

  get #mayLeave(): boolean {
    if (this.#waiting.length === 0 || this.#underWay >= REQUESTS_MAX) return false;
    return this.#underWay === 0 || this.#waitingBytes >= OWN_REQUEST_BYTES;
  }

  /** At least one, and no more than fit one request. */
  #takeBatch(): Waiting[] {
    const batch: Waiting[] = [];
    const left: Waiting[] = [];
    const directories = new Set<number>();
    let bytes = 0;
    for (const waiting of this.#waiting) {
      const { parent, contents } = waiting.file;
      const fits =
        batch.length < BIRTHS_MAX &&
        bytes + contents.length <= BIRTHS_BYTES_MAX &&
        (directories.size < FORGETS_MAX || directories.has(parent)) &&
        (batch[0] === undefined || batch[0].bearer === waiting.bearer);
      if (!fits) {
        left.push(waiting);
        continue;
      }
      batch.push(waiting);
      bytes += contents.length;
      directories.add(parent);
    }
    this.#waiting = left;
    this.#waitingBytes -= bytes;
    return batch;
  }

  async #sendBatch(batch: readonly Waiting[]): Promise<void> {
    const [first] = batch;
    if (first === undefined) return;
    try {
      const outcomes = await this.#backend.bear(
        first.bearer,
        batch.map(({ file }) => file),
      );
      for (const [place, waiting] of batch.entries()) {
        const outcome = outcomes[place] ?? ({ kind: 'unborn' } as const);
        this.#judge(waiting.file, outcome);
        waiting.resolve(outcome);
      }
    } catch (error) {
      for (const waiting of batch) {
        this.#judge(waiting.file, null);
        waiting.reject(error);
      }
    }
  }

  /**
   * The servers that hold a file are fixed with its number. Where they do not take one, new files get numbers of other servers.
   *
   * @param outcome null where it is unknown
   */
  #judge({ inode }: NewFile, outcome: BirthOutcome | null): void {
    const numbers = this.#numbers;
    // It is of numbers that have been replaced since.
    if (numbers === null || inode < numbers.first || inode >= numbers.first + numbers.count) return;
    if (outcome?.kind === 'born') {
      if (outcome.renew === true) this.#reserve();
    } else if (outcome?.kind !== 'refused' || isFull(outcome.error)) {
      this.#numbers = null;
    }
  }

  #reserve(): void {
    if (this.#isReserving || this.#world.nowMs() - this.#refusedMs < REFUSED_MS) return;
    this.#isReserving = true;
    this.#backend
      .reserve(NUMBERS_AT_A_TIME)
      .then(
        (numbers) => {
          this.#numbers = { ...numbers, next: numbers.first };
        },
        (error: unknown) => {
          this.#refusedMs = this.#world.nowMs();
          this.#failed(error);
        },
      )
      .finally(() => {
        this.#isReserving = false;
      });
  }
}
