const CLEAR_LINE = '\x1b[K';

/** Lines at the bottom of a terminal that change in place, while others scroll; without a terminal only the others. */
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

  print(line: string): void {
    if (!this.isLive) {
      this.#output.write(`${line}\n`);
      return;
    }
    this.#output.write(`${this.#cursorUp()}${line}${CLEAR_LINE}\n${this.#redraw()}`);
  }

  show(lines: readonly string[]): void {
    if (!this.isLive) return;
    this.#lines = lines;
    this.#output.write(`${this.#cursorUp()}${this.#redraw()}`);
  }

  end(): void {
    this.show([]);
  }

  #cursorUp(): string {
    return this.#drawn > 0 ? `\x1b[${this.#drawn}A\r` : '';
  }

  #redraw(): string {
    const columns = this.#output.columns ?? 80;
    const rows = Math.max(1, (this.#output.rows ?? 24) - 2);
    // A line that wraps would be two, and the cursor cannot return above the top row.
    const shown = this.#lines.slice(0, rows).map((line) => line.slice(0, columns - 1));
    const surplus = Math.max(0, this.#drawn - shown.length);
    this.#drawn = shown.length;
    const text = shown.map((line) => `${line}${CLEAR_LINE}\n`).join('');
    return `${text}${surplus > 0 ? '\x1b[J' : ''}`;
  }
}
