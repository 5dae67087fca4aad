/** Rows of a full page: a power of two, so that a row number splits into page and offset by bits. */
export const PAGE_ROWS = 8192;

const ROW_BYTES = 3 * 8 + 12 * 4 + 4 * 2 + 1;

/** Columns of up to `PAGE_ROWS` rows in one buffer. A full page never moves: copies would leave memory idle. */
export class CellPage {
  readonly rows: number;
  readonly cell: Float64Array;
  readonly leaseUntilMs: Float64Array;
  readonly knownUntilMs: Float64Array;
  readonly group: Uint32Array;
  // The acceptor: promised ballot, write ballot, lease.
  readonly readInterval: Uint32Array;
  readonly readRound: Uint32Array;
  readonly writeInterval: Uint32Array;
  readonly writeRound: Uint32Array;
  readonly leaseInterval: Uint32Array;
  readonly leaseRound: Uint32Array;
  // The proposer: this server's own lease, or another server's known one.
  readonly knownInterval: Uint32Array;
  readonly knownRound: Uint32Array;
  // The timing wheel's chains; `next` also chains free rows.
  readonly next: Uint32Array;
  readonly previous: Uint32Array;
  readonly due: Uint32Array;
  readonly readIncarnation: Uint16Array;
  readonly writeIncarnation: Uint16Array;
  readonly leaseIncarnation: Uint16Array;
  readonly knownIncarnation: Uint16Array;
  readonly flags: Uint8Array;

  readonly #buffer: ArrayBuffer;

  /** @param rows at most `PAGE_ROWS`; a multiple of 8 for the alignment of the columns */
  constructor(rows: number) {
    const buffer = new ArrayBuffer(rows * ROW_BYTES);
    let at = 0;
    const column = <T>(
      type: new (buffer: ArrayBuffer, offset: number, length: number) => T,
      bytes: number,
    ): T => {
      const array = new type(buffer, at, rows);
      at += rows * bytes;
      return array;
    };
    this.rows = rows;
    this.#buffer = buffer;
    this.cell = column(Float64Array, 8);
    this.leaseUntilMs = column(Float64Array, 8);
    this.knownUntilMs = column(Float64Array, 8);
    this.group = column(Uint32Array, 4);
    this.readInterval = column(Uint32Array, 4);
    this.readRound = column(Uint32Array, 4);
    this.writeInterval = column(Uint32Array, 4);
    this.writeRound = column(Uint32Array, 4);
    this.leaseInterval = column(Uint32Array, 4);
    this.leaseRound = column(Uint32Array, 4);
    this.knownInterval = column(Uint32Array, 4);
    this.knownRound = column(Uint32Array, 4);
    this.next = column(Uint32Array, 4);
    this.previous = column(Uint32Array, 4);
    this.due = column(Uint32Array, 4);
    this.readIncarnation = column(Uint16Array, 2);
    this.writeIncarnation = column(Uint16Array, 2);
    this.leaseIncarnation = column(Uint16Array, 2);
    this.knownIncarnation = column(Uint16Array, 2);
    this.flags = column(Uint8Array, 1);
  }

  grown(rows: number): CellPage {
    const page = new CellPage(rows);
    for (const name of COLUMNS) page[name].set(this[name] as never);
    return page;
  }

  get sizeBytes(): number {
    return this.#buffer.byteLength;
  }
}

const COLUMNS = [
  'cell',
  'leaseUntilMs',
  'knownUntilMs',
  'group',
  'readInterval',
  'readRound',
  'writeInterval',
  'writeRound',
  'leaseInterval',
  'leaseRound',
  'knownInterval',
  'knownRound',
  'next',
  'previous',
  'due',
  'readIncarnation',
  'writeIncarnation',
  'leaseIncarnation',
  'knownIncarnation',
  'flags',
] as const satisfies readonly (keyof CellPage)[];
