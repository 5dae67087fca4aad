import { isCorruption } from './failures.ts';

/** Damaged pages of the catalog's database; another replica's state is to replace the local one. */
export class CatalogDamage {
  #reason: string | null = null;
  #onChange: (reason: string | null) => void = () => undefined;

  /** @param onChange called with each damaged page that is met, and with null once the state was replaced */
  watch(onChange: (reason: string | null) => void): void {
    this.#onChange = onChange;
    if (this.#reason !== null) onChange(this.#reason);
  }

  get isKnown(): boolean {
    return this.#reason !== null;
  }

  noticeIn(error: unknown): boolean {
    if (!isCorruption(error)) return false;
    this.notice(error instanceof Error ? error.message : String(error));
    return true;
  }

  notice(reason: string): void {
    this.#reason = reason;
    this.#onChange(reason);
  }

  replaced(): void {
    if (this.#reason === null) return;
    this.#reason = null;
    this.#onChange(null);
  }
}
