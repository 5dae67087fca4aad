const CLEAR_LINE = '\x1b[K';

/**
 * Some lines at the bottom of a terminal that change in place, with others scrolling away above them. Where the output is
 * no terminal there is no bottom, and only the others are printed.
 */
export class LiveScreen {
  readonly #output: NodeJS.WriteStream;
  #lines: readonly string[] = [];
  #drawn = 0;

  constructor(output: NodeJS.WriteStream) {
    this.#output = output;
  }

  get isLive(): boolean {
    return this.#output.isTTY === true;
  }

  /** Prints a line that stays. */
  print(line: string): void {
    if (!this.isLive) {
      this.#output.write(`${line}\n`);
      return;
    }
    this.#output.write(`${this.#up()}${line}${CLEAR_LINE}\n${this.#bottom()}`);
  }

  /** Replaces what is at the bottom. */
  show(lines: readonly string[]): void {
    if (!this.isLive) return;
    this.#lines = lines;
    this.#output.write(`${this.#up()}${this.#bottom()}`);
  }

  /** Takes the lines at the bottom away. */
  end(): void {
    this.show([]);
  }

  #up(): string {
    return this.#drawn > 0 ? `\x1b[${this.#drawn}A\r` : '';
  }

  #bottom(): string {
    const columns = this.#output.columns ?? 80;
    const rows = Math.max(1, (this.#output.rows ?? 24) - 2);
    // A line that wraps would be two, and one behind the last row none that can be come back to.
    const shown = this.#lines.slice(0, rows).map((line) => line.slice(0, columns - 1));
    const surplus = Math.max(0, this.#drawn - shown.length);
    this.#drawn = shown.length;
    const text = shown.map((line) => `${line}${CLEAR_LINE}\n`).join('');
    return `${text}${surplus > 0 ? '\x1b[J' : ''}`;
  }
}
