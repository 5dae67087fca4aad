import type { Network } from './network.ts';
import type { SimulatedProcess } from './simulated-process.ts';

/** TCP sends unacknowledged segments again about so often. */
const RETRANSMIT_MS = 200;

/** A streamed answer on its way to the caller, in order, while its connection lasts. */
export class SimulatedStream implements AsyncIterable<string> {
  readonly #network: Network;
  readonly #wire: SimulatedProcess;
  readonly #caller: SimulatedProcess;
  readonly #link: readonly [from: string, to: string];
  /** Called if the caller reads no further. */
  left: () => void = () => undefined;
  /** Sent, and not at the caller yet: text, the end, or the break of the connection. */
  #underWay: (string | null | Error)[] = [];
  #isTravelling = false;
  readonly #received: (string | null | Error)[] = [];
  #wakes: (() => void) | null = null;

  /** @param link machines of the server and of the caller */
  constructor(
    network: Network,
    wire: SimulatedProcess,
    caller: SimulatedProcess,
    link: readonly [from: string, to: string],
  ) {
    this.#network = network;
    this.#wire = wire;
    this.#caller = caller;
    this.#link = link;
  }

  /** The server's side of the connection is closed before the end. */
  break(): void {
    this.send(Object.assign(new Error('The server closed the connection'), { code: 'ECONNRESET' }));
  }

  /** The caller's side is closed. */
  fail(reason: unknown): void {
    this.left();
    this.#receive([reason instanceof Error ? reason : new Error(String(reason))]);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    try {
      for (;;) {
        const [piece] = this.#received;
        if (piece === null) return;
        if (piece instanceof Error) throw piece;
        if (piece === undefined) {
          await new Promise<void>((resolve) => {
            this.#wakes = resolve;
          });
          continue;
        }
        this.#received.shift();
        yield piece;
      }
    } finally {
      this.left();
    }
  }

  /** @param piece null at the end */
  send(piece: string | null | Error): void {
    this.#underWay.push(piece);
    if (this.#isTravelling) return;
    this.#isTravelling = true;
    this.#travel(this.#network.delayMs(...this.#link));
  }

  #travel(delayMs: number): void {
    this.#network.time.after(delayMs, this.#wire, () => {
      if (this.#network.isCut(...this.#link)) return this.#travel(RETRANSMIT_MS);
      const pieces = this.#underWay;
      this.#underWay = [];
      this.#isTravelling = false;
      this.#network.time.after(0, this.#caller, () => this.#receive(pieces));
    });
  }

  #receive(pieces: readonly (string | null | Error)[]): void {
    this.#received.push(...pieces);
    this.#wakes?.();
    this.#wakes = null;
  }
}
