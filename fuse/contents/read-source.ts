import type { World } from '../../base/world.ts';
import type { BackendRange } from '../backend.ts';
import { type Fetched, ReadWindows } from './read-windows.ts';

/**
 * Gives the kernel pages that it has not asked for.
 *
 * @param isCurrent asked just before the kernel gets them: false where the contents have changed since they were fetched
 * @returns whether the kernel has them now
 */
export type GivePages = (offset: number, bytes: Uint8Array, isCurrent: () => boolean) => Promise<boolean>;

/**
 * Contents of an open file as its readers see them, until they change.
 *
 * What the kernel is given without having asked it takes for the truth, even over what a program has just written. So nothing
 * is given while somebody here may write, and nothing that was fetched before a change; and whoever tells the kernel of a
 * change, or lets a program write, first waits for what is still on its way there.
 */
export class ReadSource {
  /** Reads past the cache. */
  readonly read: (offset: number, length: number) => Promise<Uint8Array>;
  /** The size as last heard of; nothing is fetched ahead beyond it. */
  readonly sizeBytes: () => number;
  readonly #world: World;
  readonly #giver: () => GivePages | null;
  readonly #windows: ReadWindows;
  #generation = ReadSource.#next();
  /** Pages on their way to the kernel, with the generation that they are of. */
  readonly #giving = new Map<Promise<boolean>, number>();

  static #last = 0;

  /**
   * @param giver null while the kernel must not be given any pages, or cannot
   * @param range what is known more cheaply of many pieces than of each
   */
  constructor(
    world: World,
    read: (offset: number, length: number) => Promise<Uint8Array>,
    sizeBytes: () => number,
    giver: () => GivePages | null = () => null,
    range: (offset: number, length: number) => Promise<BackendRange | null> = async () => null,
  ) {
    this.#world = world;
    this.read = read;
    this.sizeBytes = sizeBytes;
    this.#giver = giver;
    const generation = (): number => this.#generation;
    this.#windows = new ReadWindows({
      ...{ world, read, sizeBytes, range },
      get generation() {
        return generation();
      },
    });
  }

  /** One of many pieces that are read in sequence, aligned to its size. */
  fetch(offset: number, length: number): Promise<Fetched> {
    return this.#windows.read(offset, length);
  }

  /** A piece whose neighbours nobody may want. What is fetched after it is as new as this. */
  async fetchAlone(offset: number, length: number): Promise<Fetched> {
    const bytes = await this.read(offset, length);
    this.#windows.overtaken();
    return { bytes, sinceMs: this.#world.nowMs() };
  }

  get generation(): number {
    return this.#generation;
  }

  /** The kernel may be given what is fetched from now on. */
  get isGivable(): boolean {
    return this.#giver() !== null;
  }

  /** Something is on its way to the kernel. */
  get isGiving(): boolean {
    return this.#giving.size > 0;
  }

  /** The contents changed: no block that was fetched, or is being fetched, is served any more. */
  changed(): void {
    this.#generation = ReadSource.#next();
  }

  /**
   * Gives the kernel what was fetched, unless it is outdated.
   *
   * @param generation as it was before the fetch began
   * @returns whether the kernel has it
   */
  async give(generation: number, offset: number, bytes: Uint8Array): Promise<boolean> {
    const isCurrent = (): boolean => generation === this.#generation && this.isGivable;
    const give = this.#giver();
    if (give === null || !isCurrent()) return false;
    const giving = give(offset, bytes, isCurrent);
    this.#giving.set(giving, generation);
    try {
      return await giving;
    } finally {
      this.#giving.delete(giving);
    }
  }

  /** Resolves when nothing from before the last change is on its way to the kernel any more. */
  async withoutOutdated(): Promise<void> {
    const outdated = [...this.#giving].filter(([, generation]) => generation !== this.#generation);
    if (outdated.length > 0) await Promise.allSettled(outdated.map(([giving]) => giving));
  }

  /** Nothing that was fetched before reaches the kernel once it resolves. */
  async withdraw(): Promise<void> {
    this.changed();
    await this.withoutOutdated();
  }

  /** Never the same twice, so that a file opened anew does not find what it was before. */
  static #next(): number {
    return ++ReadSource.#last;
  }
}
