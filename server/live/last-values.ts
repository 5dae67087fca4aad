import { LruMap } from '../../base/bounded-map.ts';

/** Age at which a value is requested again, in milliseconds. */
const HEARD_MS = 1_000;

interface Heard<Value> {
  value: Value | null;
  atMs: number;
  asking: boolean;
}

export interface HeardLastParts {
  /** Values that are kept; the others are requested again at each use. */
  readonly max: number;
  nowMs(): number;
  /** Called when a request fails; the last value stays. */
  failed(error: unknown): void;
}

/** Keeps the last value received for each of many names; readers start a new request and do not wait for it. */
export class LastValues<Value> {
  readonly #parts: HeardLastParts;
  readonly #heard: LruMap<string, Heard<Value>>;

  constructor(parts: HeardLastParts) {
    this.#parts = parts;
    this.#heard = new LruMap<string, Heard<Value>>(parts.max);
  }

  /** Returns the last value, null if there is none; requests it again if it is too old. */
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
