const PERIOD_MS = 30_000;
const MS_PER_MINUTE = 60_000;

/** Shows the progress of a long fill on standard error, a line in each half a minute. */
export class FillProgress implements Disposable {
  readonly #first: number;
  readonly #until: number;
  readonly #beganMs = performance.now();
  readonly #timer: NodeJS.Timeout;
  #count: number;

  /** @param first files that are there already @param until files that there will be */
  constructor(first: number, until: number) {
    this.#first = first;
    this.#count = first;
    this.#until = until;
    this.#timer = setInterval(() => process.stderr.write(`${this.text(performance.now())}\n`), PERIOD_MS);
  }

  add(files: number): void {
    this.#count += files;
  }

  text(nowMs: number): string {
    const made = this.#count - this.#first;
    const perMs = made / (nowMs - this.#beganMs);
    const left =
      made === 0 ? '' : `, ${Math.ceil((this.#until - this.#count) / perMs / MS_PER_MINUTE)} min left`;
    return `${this.#count} of ${this.#until} files, ${(perMs * 1_000).toFixed(0)}/s${left}`;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
