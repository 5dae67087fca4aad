/** Rows of the index that long work on a file changes in one tick of the event loop: two to four milliseconds. */
export const ROWS_PER_SLICE = 1_000;

/** The transactions of the index. */
export interface Committer {
  commit(work: () => void): Promise<void>;
}

/** Runs slices of long work on the index: one in a tick, over all files. */
export class Slices {
  readonly rowsMax: number;
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** @param rowsMax per slice */
  constructor(rowsMax: number) {
    this.rowsMax = rowsMax;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Long work is left to the next start. */
  close(): void {
    this.#closed = true;
  }

  run<Result>(slice: () => Promise<Result>): Promise<Result> {
    const running = this.#last.then(slice);
    this.#last = running.catch(() => undefined);
    return running;
  }
}

/** Runs `slice` in transactions of several ticks, until it returns that nothing is left. */
export async function commitInSlices(
  index: Committer,
  slice: () => boolean,
  slices: Pick<Slices, 'run'> = { run: (work) => work() },
): Promise<void> {
  for (let isLeft = true; isLeft; ) {
    await slices.run(() =>
      index.commit(() => {
        isLeft = slice();
      }),
    );
  }
}
