import type { World } from '../../base/world.ts';
import type { BackendRange } from '../backend.ts';
import { type Fetched, ReadWindows } from './read-windows.ts';

/**
 * Stores pages in the kernel's page cache. @returns whether it has them
 * @param isCurrent called just before: false if the contents have changed since the fetch
 */
export type StorePages = (offset: number, bytes: Uint8Array, isCurrent: () => boolean) => Promise<boolean>;

/**
 * Contents of an open file as its readers see them, until they change. The kernel trusts pages that it is given, even
 * over bytes that a program has just written. So none are given while a program here may write, nor after a change
 * since their fetch. Before a notice of a change, or a write, all pages on their way are waited for.
 */
export class ReadSource {
  /** From the cluster, without windows. */
  readonly read: (offset: number, length: number) => Promise<Uint8Array>;
  readonly sizeBytes: () => number;
  readonly #world: World;
  readonly #pageStore: () => StorePages | null;
  readonly #windows: ReadWindows;
  #generation = ReadSource.#nextGeneration();
  /** Pages on their way to the kernel, with their generation. */
  readonly #storing = new Map<Promise<boolean>, number>();

  static #lastGeneration = 0;

  /** @param pageStore null while the kernel cannot or must not get pages */
  constructor(
    world: World,
    read: (offset: number, length: number) => Promise<Uint8Array>,
    sizeBytes: () => number,
    pageStore: () => StorePages | null = () => null,
    range: (offset: number, length: number) => Promise<BackendRange | null> = async () => null,
  ) {
    this.#world = world;
    this.read = read;
    this.sizeBytes = sizeBytes;
    this.#pageStore = pageStore;
    const generation = (): number => this.#generation;
    this.#windows = new ReadWindows({
      ...{ world, read, sizeBytes, range },
      get contentsGeneration() {
        return generation();
      },
    });
  }

  /** Fetches a piece of sequential reads, aligned to its size, in a window if that costs less. */
  fetch(offset: number, length: number): Promise<Fetched> {
    return this.#windows.read(offset, length);
  }

  /** Fetches a single piece, and drops the windows, which may have older bytes. */
  async fetchAlone(offset: number, length: number): Promise<Fetched> {
    const bytes = await this.read(offset, length);
    this.#windows.invalidate();
    return { bytes, sinceMs: this.#world.nowMs() };
  }

  get generation(): number {
    return this.#generation;
  }

  get mayStorePages(): boolean {
    return this.#pageStore() !== null;
  }

  get isStoringPages(): boolean {
    return this.#storing.size > 0;
  }

  /** Stops serving blocks that were fetched, or are being fetched. */
  changed(): void {
    this.#generation = ReadSource.#nextGeneration();
  }

  /** Stores fetched bytes in the kernel. @param generation from before the fetch. @returns whether it has them */
  async storePages(generation: number, offset: number, bytes: Uint8Array): Promise<boolean> {
    const isCurrent = (): boolean => generation === this.#generation && this.mayStorePages;
    const store = this.#pageStore();
    if (store === null || !isCurrent()) return false;
    const storing = store(offset, bytes, isCurrent);
    this.#storing.set(storing, generation);
    try {
      return await storing;
    } finally {
      this.#storing.delete(storing);
    }
  }

  /** Resolves when no outdated pages are on their way to the kernel. */
  async withoutOutdated(): Promise<void> {
    const outdated = [...this.#storing].filter(([, generation]) => generation !== this.#generation);
    if (outdated.length > 0) await Promise.allSettled(outdated.map(([storing]) => storing));
  }

  /** Once it resolves, nothing that was fetched before can reach the kernel. */
  async invalidate(): Promise<void> {
    this.changed();
    await this.withoutOutdated();
  }

  /** Unique in the process, so that a file that is opened again finds no old blocks. */
  static #nextGeneration(): number {
    return ++ReadSource.#lastGeneration;
  }
}
