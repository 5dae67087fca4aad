import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { BIRTHS_BYTES_MAX } from '../../wire/births.ts';
import { BIRTHS_MAX } from '../../wire/request-limits.ts';
import type { CreateOutcome, DelegationBackend, InodeNumbers, NewFile } from '../backend.ts';
import { SendQueue } from './send-queue.ts';

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
  readonly parent: number;
  readonly bytes: number;
  readonly file: NewFile;
  readonly server: string;
  resolve(outcome: CreateOutcome): void;
  reject(error: unknown): void;
}

/** A number for a file to come, and the server that creates it. */
export interface InodeNumber {
  readonly inode: number;
  readonly server: string;
  /** That server also takes the contents of a file that was created by this number. */
  readonly takesNamed: boolean;
}

/** Brings new files to the cluster: while a request is under way the next ones gather, and travel together; many bytes do not wait for that. */
export class Creates {
  readonly #world: World;
  readonly #backend: Pick<DelegationBackend, 'createWithContents' | 'reserve' | 'creatingServer'>;
  readonly #failed: (error: unknown) => void;
  readonly #queue = new SendQueue<Waiting>({
    requestsMax: REQUESTS_MAX,
    countMax: BIRTHS_MAX,
    bytesMax: BIRTHS_BYTES_MAX,
    gatheredBytes: OWN_REQUEST_BYTES,
    gathersTick: true,
    isAlike: (one, other) => one.server === other.server,
    send: (batch) => this.#sendBatch(batch),
  });
  #numbers: (InodeNumbers & { readonly next: number }) | null = null;
  #isReserving = false;
  #refusedMs = Number.NEGATIVE_INFINITY;

  /** @param failed is told why numbers could not be had */
  constructor(
    world: World,
    backend: Pick<DelegationBackend, 'createWithContents' | 'reserve' | 'creatingServer'>,
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
      numbers.server === this.#backend.creatingServer();
    if (!isGood) this.#numbers = null;
    if (!isGood || numbers.first + numbers.count - numbers.next <= NUMBERS_LEFT_MIN) this.#reserve();
  }

  /** @returns null where there is none at the moment; there will be */
  takeNumber(): InodeNumber | null {
    this.prepare();
    const numbers = this.#numbers;
    if (numbers === null) return null;
    this.#numbers = { ...numbers, next: numbers.next + 1 };
    return { inode: numbers.next, server: numbers.server, takesNamed: numbers.named === true };
  }

  /** @returns what became of the file; throws where that is not known */
  send(file: NewFile, server: string): Promise<CreateOutcome> {
    const { promise, resolve, reject } = Promise.withResolvers<CreateOutcome>();
    const { parent, contents } = file;
    this.#queue.add({ parent, bytes: contents.length, file, server, resolve, reject });
    return promise;
  }

  async #sendBatch(batch: readonly Waiting[]): Promise<void> {
    const [first] = batch;
    if (first === undefined) return;
    try {
      const outcomes = await this.#backend.createWithContents(
        first.server,
        batch.map(({ file }) => file),
      );
      for (const [place, waiting] of batch.entries()) {
        const outcome = outcomes[place] ?? ({ kind: 'not-created' } as const);
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
  #judge({ inode }: NewFile, outcome: CreateOutcome | null): void {
    const numbers = this.#numbers;
    // It is of numbers that have been replaced since.
    if (numbers === null || inode < numbers.first || inode >= numbers.first + numbers.count) return;
    if (outcome?.kind === 'created') {
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
