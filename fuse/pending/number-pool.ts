import { ServiceError } from '../../base/errors.ts';
import { catalogOfInode } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { CreateOutcome, DelegationBackend, InodeNumbers } from '../backend.ts';

const NUMBERS_AT_A_TIME = 512;
const NUMBERS_LEFT_MIN = 128;
/** Numbers are not used this shortly before they expire. */
const MARGIN_MS = 60_000;
/** After a refusal, as by a server of an earlier release, numbers are not requested with each file. */
const REFUSED_MS = 1_000;

/** A number for a new file, and the server that creates it. */
export interface InodeNumber {
  readonly inode: number;
  readonly server: string;
  /** The server also takes the contents of a file that already has its name. */
  readonly takesNamed: boolean;
}

export interface NumberPoolParts {
  readonly world: Pick<World, 'nowMs'>;
  reserve(count: number): Promise<InodeNumbers>;
  reserving(): ReturnType<DelegationBackend['reserving']>;
  failed(error: unknown): void;
}

function isFull(error: Error): boolean {
  return error instanceof ServiceError && error.code === 'no-space';
}

/** Reserved inode numbers for files of one class: numbers determine the servers of files. */
export class NumberPool {
  readonly #parts: NumberPoolParts;
  #numbers: (InodeNumbers & { readonly next: number }) | null = null;
  #isReserving = false;
  #refusedMs = Number.NEGATIVE_INFINITY;

  constructor(parts: NumberPoolParts) {
    this.#parts = parts;
  }

  /** Reserves inode numbers if few are left, if they expire soon, or if another server or catalog reserves. */
  prepare(): void {
    const numbers = this.#numbers;
    const { server, catalog } = this.#parts.reserving();
    const isGood =
      numbers !== null &&
      numbers.next < numbers.first + numbers.count &&
      this.#parts.world.nowMs() < numbers.untilMs - MARGIN_MS &&
      catalogOfInode(numbers.first) === catalog &&
      numbers.server === server;
    if (!isGood) this.#numbers = null;
    if (!isGood || numbers.first + numbers.count - numbers.next <= NUMBERS_LEFT_MIN) this.#reserve();
  }

  /** Takes a reserved number; null if none is available yet. */
  take(): InodeNumber | null {
    this.prepare();
    const numbers = this.#numbers;
    if (numbers === null) return null;
    this.#numbers = { ...numbers, next: numbers.next + 1 };
    return { inode: numbers.next, server: numbers.server, takesNamed: numbers.named === true };
  }

  /** After a failure others are reserved. @param outcome of a file with this number; null if unknown */
  check(inode: number, outcome: CreateOutcome | null): void {
    const numbers = this.#numbers;
    // Its numbers are of another pool, or have been replaced since.
    if (numbers === null || inode < numbers.first || inode >= numbers.first + numbers.count) return;
    if (outcome?.kind === 'created') {
      if (outcome.renew === true) this.#reserve();
    } else if (outcome?.kind !== 'refused' || isFull(outcome.error)) {
      this.#numbers = null;
    }
  }

  #reserve(): void {
    if (this.#isReserving || this.#parts.world.nowMs() - this.#refusedMs < REFUSED_MS) return;
    this.#isReserving = true;
    this.#parts
      .reserve(NUMBERS_AT_A_TIME)
      .then(
        (numbers) => {
          this.#numbers = { ...numbers, next: numbers.first };
        },
        (error: unknown) => {
          this.#refusedMs = this.#parts.world.nowMs();
          this.#parts.failed(error);
        },
      )
      .finally(() => {
        this.#isReserving = false;
      });
  }
}
