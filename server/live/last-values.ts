import { LruMap } from '../../base/bounded-map.ts';

/** Age at which a value is requested again, in milliseconds. */
const VALID_MS = 1_000;

interface Entry<Value> {
  value: Value | null;
  atMs: number;
  isRequested: boolean;
}

export interface LastValuesParts {
  /** Values that are kept; the others are requested again at each use. */
  readonly max: number;
  nowMs(): number;
  /** Called when a request fails; the last value stays. */
  failed(error: unknown): void;
}

/** Keeps the last value received for each of many names; readers start a new request and do not wait for it. */
export class LastValues<Value> {
  readonly #parts: LastValuesParts;
  readonly #entries: LruMap<string, Entry<Value>>;

  constructor(parts: LastValuesParts) {
    this.#parts = parts;
    this.#entries = new LruMap<string, Entry<Value>>(parts.max);
  }

  /** Returns the last value, null if there is none; requests it again if it is too old. */
  get(name: string, request: () => Promise<Value | null>): Value | null {
    const entry = this.#entries.get(name) ?? { value: null, atMs: -Infinity, isRequested: false };
    this.#entries.set(name, entry);
    if (!entry.isRequested && this.#parts.nowMs() - entry.atMs >= VALID_MS)
      void this.#request(entry, request);
    return entry.value;
  }

  async #request(entry: Entry<Value>, query: () => Promise<Value | null>): Promise<void> {
    entry.isRequested = true;
    try {
      entry.value = await query();
    } catch (error) {
      this.#parts.failed(error);
    } finally {
      entry.isRequested = false;
      entry.atMs = this.#parts.nowMs();
    }
  }
}
