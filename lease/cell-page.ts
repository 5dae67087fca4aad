/** Rows of a full page: a power of two, so that a row's page and place are its upper and lower bits. */
export const PAGE_ROWS = 8192;

const ROW_BYTES = 3 * 8 + 12 * 4 + 4 * 2 + 1;

/**
 * The columns of some thousand rows, in one buffer. A table adds pages and never moves a full one:
 * columns that grew by copying would leave as much memory idle behind them as they use.
 */
export class CellPage {
  readonly rows: number;
  readonly cell: Float64Array;
  readonly leaseUntilMs: Float64Array;
  readonly beliefUntilMs: Float64Array;
  readonly group: Uint32Array;
  // The acceptor: what was promised, what was written, and with which ballot.
  readonly readInterval: Uint32Array;
  readonly readRound: Uint32Array;
  readonly writeInterval: Uint32Array;
  readonly writeRound: Uint32Array;
  readonly leaseInterval: Uint32Array;
  readonly leaseRound: Uint32Array;
  // The proposer: the own lease, or the one known of another.
  readonly beliefInterval: Uint32Array;
  readonly beliefRound: Uint32Array;
  // The timing wheel's chains; `next` also chains the free rows.
  readonly next: Uint32Array;
  readonly previous: Uint32Array;
  readonly due: Uint32Array;
  readonly readLife: Uint16Array;
  readonly writeLife: Uint16Array;
  readonly leaseLife: Uint16Array;
  readonly beliefLife: Uint16Array;
  readonly flags: Uint8Array;

  readonly #buffer: ArrayBuffer;

  /** @param rows at most `PAGE_ROWS`; a multiple of 8, so that each column begins where its numbers may lie */
  constructor(rows: number) {
    const buffer = new ArrayBuffer(rows * ROW_BYTES);
    let at = 0;
    const column = <T>(
      type: new (buffer: ArrayBuffer, offset: number, length: number) => T,
      bytes: number,
    ): T => {
      const made = new type(buffer, at, rows);
      at += rows * bytes;
      return made;
    };
    this.rows = rows;
    this.#buffer = buffer;
    this.cell = column(Float64Array, 8);
    this.leaseUntilMs = column(Float64Array, 8);
    this.beliefUntilMs = column(Float64Array, 8);
    this.group = column(Uint32Array, 4);
    this.readInterval = column(Uint32Array, 4);
    this.readRound = column(Uint32Array, 4);
    this.writeInterval = column(Uint32Array, 4);
    this.writeRound = column(Uint32Array, 4);
    this.leaseInterval = column(Uint32Array, 4);
    this.leaseRound = column(Uint32Array, 4);
    this.beliefInterval = column(Uint32Array, 4);
    this.beliefRound = column(Uint32Array, 4);
    this.next = column(Uint32Array, 4);
    this.previous = column(Uint32Array, 4);
    this.due = column(Uint32Array, 4);
    this.readLife = column(Uint16Array, 2);
    this.writeLife = column(Uint16Array, 2);
    this.leaseLife = column(Uint16Array, 2);
    this.beliefLife = column(Uint16Array, 2);
    this.flags = column(Uint8Array, 1);
  }

  /** A page with the same rows and room for more. */
  grown(rows: number): CellPage {
    const page = new CellPage(rows);
    for (const name of COLUMNS) page[name].set(this[name] as never);
    return page;
  }

  /** Memory of all columns, in bytes. */
  get sizeBytes(): number {
    return this.#buffer.byteLength;
  }
}

const COLUMNS = [
  'cell',
  'leaseUntilMs',
  'beliefUntilMs',
  'group',
  'readInterval',
  'readRound',
  'writeInterval',
  'writeRound',
  'leaseInterval',
  'leaseRound',
  'beliefInterval',
  'beliefRound',
  'next',
  'previous',
  'due',
  'readLife',
  'writeLife',
  'leaseLife',
  'beliefLife',
  'flags',
] as const satisfies readonly (keyof CellPage)[];
