import { ServiceError } from '../../base/errors.ts';
import type { World } from '../../base/world.ts';
import { NEW_FILES_BYTES_MAX } from '../../wire/new-files.ts';
import { NEW_FILES_MAX } from '../../wire/request-limits.ts';
import type { CreateOutcome, DelegationBackend, InodeNumbers, NewFile } from '../backend.ts';
import { SendQueue } from './send-queue.ts';

const REQUESTS_MAX = 4;
/** Contents of this size do not wait for others: a shared request would save little. */
const OWN_REQUEST_BYTES = 128 * 1024;
const NUMBERS_AT_A_TIME = 512;
const NUMBERS_LEFT_MIN = 128;
/** Numbers are not used this shortly before they expire. */
const MARGIN_MS = 60_000;
/** After a refusal, as by a server of an earlier release, numbers are not requested with each file. */
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

/** A number for a new file, and the server that creates it. */
export interface InodeNumber {
  readonly inode: number;
  readonly server: string;
  /** The server also takes the contents of a file that already has its name. */
  readonly takesNamed: boolean;
}

/** While a request is under way the next files gather and share a request, unless they have many bytes. */
export class Creates {
  readonly #world: World;
  readonly #backend: Pick<DelegationBackend, 'createWithContents' | 'reserve' | 'reservingServer'>;
  readonly #failed: (error: unknown) => void;
  readonly #queue = new SendQueue<Waiting>({
    requestsMax: REQUESTS_MAX,
    countMax: NEW_FILES_MAX,
    bytesMax: NEW_FILES_BYTES_MAX,
    gatheredBytes: OWN_REQUEST_BYTES,
    gathersTick: true,
    isAlike: (one, other) => one.server === other.server,
    send: (batch) => this.#sendBatch(batch),
  });
  #numbers: (InodeNumbers & { readonly next: number }) | null = null;
  #isReserving = false;
  #refusedMs = Number.NEGATIVE_INFINITY;

  constructor(
    world: World,
    backend: Pick<DelegationBackend, 'createWithContents' | 'reserve' | 'reservingServer'>,
    failed: (error: unknown) => void,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#failed = failed;
  }

  /** Reserves inode numbers if few are left, if they expire soon, or if the catalog has another primary. */
  prepare(): void {
    const numbers = this.#numbers;
    const isGood =
      numbers !== null &&
      numbers.next < numbers.first + numbers.count &&
      this.#world.nowMs() < numbers.untilMs - MARGIN_MS &&
      numbers.server === this.#backend.reservingServer();
    if (!isGood) this.#numbers = null;
    if (!isGood || numbers.first + numbers.count - numbers.next <= NUMBERS_LEFT_MIN) this.#reserve();
  }

  /** Takes a reserved number; null if none is available yet. */
  takeNumber(): InodeNumber | null {
    this.prepare();
    const numbers = this.#numbers;
    if (numbers === null) return null;
    this.#numbers = { ...numbers, next: numbers.next + 1 };
    return { inode: numbers.next, server: numbers.server, takesNamed: numbers.named === true };
  }

  /** Sends a file, perhaps with others. @returns the outcome. @throws if it is unknown */
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
        this.#checkNumbers(waiting.file, outcome);
        waiting.resolve(outcome);
      }
    } catch (error) {
      for (const waiting of batch) {
        this.#checkNumbers(waiting.file, null);
        waiting.reject(error);
      }
    }
  }

  /** Numbers determine the servers of files: after a failure others are reserved. @param outcome null if unknown */
  #checkNumbers({ inode }: NewFile, outcome: CreateOutcome | null): void {
    const numbers = this.#numbers;
    // Its numbers have been replaced since.
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
