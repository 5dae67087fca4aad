/** One line of the table. */
export interface Row {
  readonly what: string;
  readonly measured: string;
  /** Empty if the figure is only shown. */
  readonly goal: string;
  /** Null if the goal is for a larger form than this run's. */
  readonly isMet: boolean | null;
}

/** The rows of a run; each is printed as soon as it is known. */
export class Report {
  readonly #rows: Row[] = [];

  note(text: string): void {
    process.stdout.write(`${text}\n`);
  }

  row(what: string, measured: string, goal = '', isMet: boolean | null = null): void {
    this.#rows.push({ what, measured, goal, isMet });
    this.note(`${what}: ${measured}${goal === '' ? '' : ` (goal: ${goal})`}`);
  }

  /** The table in Markdown. */
  text(): string {
    const lines = this.#rows.map(({ what, measured, goal, isMet }) => {
      const met = isMet === null ? '' : isMet ? 'yes' : 'no';
      return `| ${what} | ${measured} | ${goal} | ${met} |`;
    });
    return ['| what | measured | goal | met |', '| --- | --- | --- | --- |', ...lines].join('\n');
  }
}
