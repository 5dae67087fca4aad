import { LruMap } from '../../base/bounded-map.ts';
import type { World } from '../../base/world.ts';
import { NEW_FILES_BYTES_MAX } from '../../wire/new-files.ts';
import { NEW_FILES_MAX } from '../../wire/request-limits.ts';
import type { CreateOutcome, DelegationBackend, NewFile } from '../backend.ts';
import { type InodeNumber, NumberPool } from './number-pool.ts';
import { SendQueue } from './send-queue.ts';

const REQUESTS_MAX = 4;
/** Contents of this size do not wait for others: a shared request would save little. */
const OWN_REQUEST_BYTES = 128 * 1024;
/** Classes of directories whose numbers are kept. */
const POOLS_MAX = 64;
/** The class of the volume. */
const OF_VOLUME = 0;

interface Waiting {
  readonly parent: number;
  readonly bytes: number;
  readonly file: NewFile;
  readonly server: string;
  resolve(outcome: CreateOutcome): void;
  reject(error: unknown): void;
}

/** While a request is under way the next files gather and share a request, unless they have many bytes. */
export class Creates {
  readonly #world: World;
  readonly #backend: Pick<DelegationBackend, 'createWithContents' | 'reserve' | 'reserving'>;
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
  /** By the directory whose placement class the files have. */
  readonly #pools = new LruMap<number, NumberPool>(POOLS_MAX);

  constructor(
    world: World,
    backend: Pick<DelegationBackend, 'createWithContents' | 'reserve' | 'reserving'>,
    failed: (error: unknown) => void,
  ) {
    this.#world = world;
    this.#backend = backend;
    this.#failed = failed;
  }

  /** Reserves numbers for files of the volume's class, if few are left. */
  prepare(): void {
    this.#poolOf(OF_VOLUME).prepare();
  }

  /**
   * Takes a reserved number; null if none is available yet.
   * @param placement the directory whose placement class the file will have; absent: the volume's
   */
  takeNumber(placement = OF_VOLUME): InodeNumber | null {
    return this.#poolOf(placement).take();
  }

  #poolOf(placement: number): NumberPool {
    const known = this.#pools.get(placement);
    if (known !== undefined) return known;
    const pool = new NumberPool({
      world: this.#world,
      reserve: (count) => this.#backend.reserve(count, placement === OF_VOLUME ? undefined : placement),
      reserving: () => this.#backend.reserving(),
      failed: this.#failed,
    });
    this.#pools.set(placement, pool);
    return pool;
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

  #checkNumbers({ inode }: NewFile, outcome: CreateOutcome | null): void {
    for (const [, pool] of this.#pools.entries()) pool.check(inode, outcome);
  }
}
