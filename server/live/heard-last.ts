import { LruMap } from '../../base/bounded-map.ts';

/** How long is told what was heard, before it is asked for anew, in milliseconds. */
const HEARD_MS = 1_000;

interface Heard<Value> {
  value: Value | null;
  atMs: number;
  asking: boolean;
}

export interface HeardLastParts {
  /** Things that are remembered; those beyond are asked for more often. */
  readonly max: number;
  nowMs(): number;
  /** Is told why one was not answered; what was heard before stays. */
  failed(error: unknown): void;
}

/** What was heard last of each of many things, asked for anew while somebody looks: he does not wait for the answer. */
export class HeardLast<Value> {
  readonly #parts: HeardLastParts;
  readonly #heard: LruMap<string, Heard<Value>>;

  constructor(parts: HeardLastParts) {
    this.#parts = parts;
    this.#heard = new LruMap<string, Heard<Value>>(parts.max);
  }

  /** @returns what was heard last, while it is asked for anew where that was a moment ago; null where nothing was */
  of(name: string, ask: () => Promise<Value | null>): Value | null {
    const heard = this.#heard.get(name) ?? { value: null, atMs: -Infinity, asking: false };
    this.#heard.set(name, heard);
    if (!heard.asking && this.#parts.nowMs() - heard.atMs >= HEARD_MS) void this.#ask(heard, ask);
    return heard.value;
  }

  async #ask(heard: Heard<Value>, ask: () => Promise<Value | null>): Promise<void> {
    heard.asking = true;
    try {
      heard.value = await ask();
    } catch (error) {
      this.#parts.failed(error);
    } finally {
      heard.asking = false;
      heard.atMs = this.#parts.nowMs();
    }
  }
}
