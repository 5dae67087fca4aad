import { LruMap } from '../../base/bounded-map.ts';
import { CAPABILITY_FILES_MAX } from '../../wire/http-api.ts';

const KNOWN_MAX = 50_000;
/** Servers issue capabilities for ten minutes; half of that leaves time for requests in flight. */
const FRESH_MS = 300_000;

interface Known {
  /** Null if servers need no capability. */
  readonly text: string | null;
  readonly sinceMs: number;
}

/** Requests capabilities of files. @returns by file; for a file that is missing, servers need none */
export type AskCapabilities = (files: readonly number[]) => Promise<ReadonlyMap<number, string>>;

/** This client's capabilities for contents of files: learned with attributes, or requested, and renewed in time. */
export class FileCapabilities {
  readonly #known = new LruMap<number, Known>(KNOWN_MAX);
  readonly #asking = new Map<number, Promise<void>>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Caches the capability for a file, if an answer of the catalog includes one. */
  learn(answer: unknown): void {
    const { attributes } = (answer ?? {}) as { readonly attributes?: unknown };
    const { inode, capability } = (attributes ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof inode === 'number' && typeof capability === 'string') {
      this.#known.set(inode, { text: capability, sinceMs: this.#nowMs() });
    }
  }

  forget(files: readonly number[]): void {
    for (const file of files) this.#known.delete(file);
  }

  /** @returns the header with the capabilities for all files; null if the servers need none for these files */
  async headerFor(files: readonly number[], ask: AskCapabilities): Promise<string | null> {
    const missing = files.filter((file) => !this.#isFresh(file));
    if (missing.length > 0) await this.#fetch(missing, ask);
    const texts = files.flatMap((file) => this.#known.get(file)?.text ?? []);
    return texts.length === 0 ? null : texts.join(',');
  }

  #isFresh(file: number): boolean {
    const known = this.#known.get(file);
    return known !== undefined && this.#nowMs() - known.sinceMs < FRESH_MS;
  }

  /** Gets the capabilities of files, each in one request at a time. @param ask requests those of several files */
  async #fetch(files: readonly number[], ask: AskCapabilities): Promise<void> {
    const unasked = files.filter((file) => !this.#asking.has(file)).slice(0, CAPABILITY_FILES_MAX);
    if (unasked.length > 0) {
      const sinceMs = this.#nowMs();
      const asking = ask(unasked)
        .then((given) => {
          for (const file of unasked) this.#known.set(file, { text: given.get(file) ?? null, sinceMs });
        })
        .finally(() => {
          for (const file of unasked) this.#asking.delete(file);
        });
      for (const file of unasked) this.#asking.set(file, asking);
    }
    await Promise.all(files.map((file) => this.#asking.get(file)));
  }
}
